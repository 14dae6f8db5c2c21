package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// maxScan is how much of one file is looked at, in bytes.
const maxScan = 256 << 20

// binaryHead is how much of a file's beginning decides whether it is binary: a
// NUL byte in it, as git has it (buffer_is_binary in its xdiff-interface.c).
const binaryHead = 8000

// errScan is the end of a file that is larger than maxScan.
var errScan = errors.New("too far into the file")

// lines reads a file line by line, in bounded memory.
type lines struct {
	r       *bufio.Reader
	keep    int   // bytes of a line that are kept
	scanned int64 // bytes so far
	buf     []byte
}

func newLines(r io.Reader, keep int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), keep: keep}
}

// reset goes on with another file, in the same memory.
func (l *lines) reset(r io.Reader) {
	l.r.Reset(r)
	l.scanned = 0
}

// binary reports whether the file has a NUL byte near its beginning. It is to
// be called before the first next.
func (l *lines) binary() (bool, error) {
	head, err := l.r.Peek(binaryHead)
	if err == io.EOF {
		err = nil
	}
	return bytes.IndexByte(head, 0) >= 0, err
}

// next reads a line with its end. The slice holds the first bytes of it and is
// good until the next call; size is that of the whole line. After the last one
// the error is io.EOF, and errScan where the file goes on but is not read.
func (l *lines) next(ctx context.Context) (line []byte, size int64, err error) {
	l.buf = l.buf[:0]
	for {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		part, err := l.r.ReadSlice('\n')
		l.scanned += int64(len(part))
		size += int64(len(part))
		if err == nil && size == int64(len(part)) && len(part) <= l.keep {
			return part, size, nil // the common case: nothing is copied
		}
		l.buf = append(l.buf, part[:min(len(part), max(0, l.keep-len(l.buf)))]...)
		switch {
		case err == nil, err == io.EOF && size > 0:
			return l.buf, size, nil
		case err != bufio.ErrBufferFull:
			return nil, 0, err
		case l.scanned >= maxScan:
			return nil, 0, errScan
		}
	}
}

// plain makes text of a file's bytes: what is not UTF-8, and NUL, becomes
// U+FFFD. It reports whether that changed anything.
func plain(b []byte) (string, bool) {
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		return string(b), false
	}
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD"), true
}
