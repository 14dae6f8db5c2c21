package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/dsh-agent/dsh"
)

const (
	defaultLines = 2000
	maxLines     = 10000
	maxLine      = 4096     // bytes of a line that are shown
	maxCount     = 16 << 20 // a file up to this size has its lines counted
)

const readAbout = `Reads a text file of the working folder and returns its lines as they are, without line numbers. ` +
	`A result holds at most 64 KiB and 2000 lines (see limit): a note in brackets at its end says which lines it has when those are not all, and with which offset to go on. ` +
	`Lines over 4096 bytes are cut. Binary files are refused.`

func readTool(f *Folder) dsh.Tool {
	return newTool("read", readAbout, []param{
		{name: "path", kind: "string", required: true, about: "The file, relative to the working folder."},
		{name: "offset", kind: "integer", about: "The line to begin with, counted from 1.", min: 1, max: math.MaxInt32, def: 1},
		{name: "limit", kind: "integer", about: "How many lines at most.", min: 1, max: maxLines, def: defaultLines},
	}, f.read)
}

// A page is what read shows of a file.
type page struct {
	text        strings.Builder
	first, last int  // lines; last is first-1 where there is none
	after       int  // lines behind it, as far as they were counted
	whole       bool // they are all counted
	cut         int  // lines that are cut
	mended      bool // bytes were replaced
}

func (f *Folder) read(ctx context.Context, args arguments) (answer, error) {
	name, err := f.resolve(args.text("path"))
	if err != nil {
		return answer{}, err
	}
	file, info, err := f.open(name, false)
	if err != nil {
		return answer{}, err
	}
	defer file.Close()
	l := newLines(file, maxLine)
	binary, err := l.binary()
	if err != nil {
		return answer{}, readError(name, err)
	}
	if binary {
		return answer{}, mistakef("%s is a binary file of %s (it has NUL bytes), and read shows text only.", show(name), size(info.Size()))
	}
	p := page{first: args.number("offset"), last: args.number("offset") - 1}
	if err := skip(ctx, l, p.first-1); err != nil {
		return answer{}, f.skipError(name, p.first, err)
	}
	err = p.fill(ctx, l, args.number("limit"))
	if err == nil {
		err = p.count(ctx, l, info.Size() <= maxCount)
	}
	switch {
	case err != nil:
		return answer{}, readError(name, err)
	case p.last < p.first && p.first > 1:
		return answer{}, mistakef("%s has %d lines: there is no line %d.", show(name), p.last, p.first)
	}
	return p.answer(info.Size()), nil
}

// pastEnd is the error of an offset behind the last line.
type pastEnd struct{ lines int }

func (e pastEnd) Error() string { return fmt.Sprintf("the file has %d lines", e.lines) }

func skip(ctx context.Context, l *lines, n int) error {
	for i := range n {
		if _, _, err := l.next(ctx); err == io.EOF {
			return pastEnd{i}
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) skipError(name string, offset int, err error) error {
	var end pastEnd
	switch {
	case errors.As(err, &end):
		return mistakef("%s has %d lines: there is no line %d.", show(name), end.lines, offset)
	case errors.Is(err, errScan):
		return mistakef("Line %d of %s is more than %s into the file, which is as far as read goes.", offset, show(name), size(maxScan))
	}
	return readError(name, err)
}

// fill takes lines until the limit, the end of the file or of the space.
func (p *page) fill(ctx context.Context, l *lines, limit int) error {
	for p.last-p.first+1 < limit {
		line, n, err := l.next(ctx)
		if err != nil {
			return p.end(err)
		}
		text, mended := plain(line)
		if n > int64(len(line)) {
			p.cut++
			text = fmt.Sprintf("%s …[cut: the line has %d bytes]\n", text, n)
		}
		if p.text.Len()+len(text) > MaxResult-noteSpace {
			p.after = 1
			return nil
		}
		p.text.WriteString(text)
		p.mended = p.mended || mended
		p.last++
	}
	return nil
}

// count goes on behind the page to the end of the file, or of a large file to
// the next line.
func (p *page) count(ctx context.Context, l *lines, all bool) error {
	for !p.whole && (all || p.after == 0) {
		if _, _, err := l.next(ctx); err != nil {
			return p.end(err)
		}
		p.after++
	}
	return nil
}

// end takes the error of a line. A file that is too large just goes on.
func (p *page) end(err error) error {
	switch err {
	case io.EOF:
		p.whole = true
		return nil
	case errScan:
		p.after++
		return nil
	}
	return err
}

// answer is the page with notes on what is not on it.
func (p *page) answer(bytes int64) answer {
	a := answer{text: p.text.String()}
	if p.last == 0 {
		a.notef("the file is empty")
		return a
	}
	of := fmt.Sprintf("a file of %s", size(bytes))
	if p.whole {
		of = fmt.Sprintf("%d", p.last+p.after)
	}
	if p.after > 0 {
		a.notef("lines %d to %d of %s: go on with offset %d", p.first, p.last, of, p.last+1)
	} else if p.first > 1 {
		a.notef("lines %d to %d of %s", p.first, p.last, of)
	}
	if p.cut > 0 {
		a.notef("lines over %d bytes are cut: %d", maxLine, p.cut)
	}
	if p.mended {
		a.notef("bytes that are not UTF-8 text are shown as U+FFFD")
	}
	return a
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}
