package badger

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	db "github.com/dgraph-io/badger/v4"
)

// asideFolder holds what Badger is about to delete without being sure of it:
// tables that are not in its list, which a crash in the middle of a write
// leaves and a list that was cut too, and the end of a log after an entry that
// cannot be read.
const asideFolder = "aside"

// keepTable gives a table a second name in the folder aside.
func keepTable(dir, base, name string) error {
	b, err := os.ReadFile(filepath.Join(base, name))
	if err != nil {
		return err
	}
	path, err := asidePath(dir, name, sumOf(b))
	if err != nil || path == "" {
		return err
	}
	return os.Link(filepath.Join(base, name), path)
}

// keepLogs copies the logs of a database that was not closed.
func keepLogs(dir, base string) error {
	logs, err := filepath.Glob(filepath.Join(base, "*.mem"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := keepLog(dir, log); err != nil {
			return err
		}
	}
	return nil
}

// keepLog copies a log up to its last byte that is not zero: it is made long,
// and filled later.
func keepLog(dir, log string) error {
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	size, sum, err := filled(f)
	if err != nil {
		return err
	}
	path, err := asidePath(dir, filepath.Base(log), sum)
	if err != nil || path == "" {
		return err
	}
	return replaceWith(path, false, func(to *os.File) error {
		_, err := f.Seek(0, io.SeekStart)
		if err == nil {
			_, err = io.CopyN(to, f, size)
		}
		return err
	})
}

// filled is how long a file is without the zeros at its end, and a sum of what
// is in it.
func filled(f io.Reader) (size int64, sum string, err error) {
	const part = 64 << 10
	buffer, zeros := make([]byte, part), make([]byte, part)
	crc, read := crc32.NewIEEE(), int64(0)
	for {
		n, err := io.ReadFull(f, buffer)
		if b := buffer[:n]; !bytes.Equal(b, zeros[:n]) {
			_, _ = crc.Write(b) // a hash takes everything
			size = read + int64(len(bytes.TrimRight(b, "\x00")))
		}
		read += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return size, fmt.Sprintf("%08x", crc.Sum32()), nil
		}
		if err != nil {
			return 0, "", err
		}
	}
}

// asidePath is where a file is kept aside, empty where it is already. It has a
// part of the contents' sum, since the database uses its names again.
func asidePath(dir, name, sum string) (string, error) {
	aside := filepath.Join(dir, asideFolder)
	if err := makeFolder(aside); err != nil {
		return "", err
	}
	path := filepath.Join(aside, sum[:8]+"-"+name)
	_, err := os.Lstat(path)
	if err == nil {
		return "", nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return path, nil
}

// takeStock looks whether everything is there that the heads file knows of,
// after a crash or when the heads file has lost something.
//
// If it is, what a crash has left behind is deleted: what is aside, and bodies
// that no event names. If it is not, these may be all that is left of what is
// lost, and stay.
func (l *Log) takeStock(crashed bool) error {
	var found listing
	err := l.view(func(txn *db.Txn) (err error) {
		found, err = l.list(txn, func() error { return nil })
		return err
	})
	if err != nil {
		return err
	}
	if n := len(found.damages); n > 0 {
		l.o.Warn(fmt.Errorf("%d of the sessions in %s have lost events: see 'dsh log verify'", n, l.dir))
		return nil
	}
	if l.heads.incomplete {
		for _, r := range found.records {
			if _, ok := l.heads.get(r.head.ID); ok {
				continue
			}
			l.heads.mark(r.head.ID, mark{seq: r.head.Seq, hash: r.head.Hash, at: r.head.UpdatedAt}, true)
		}
	}
	if !crashed {
		return nil
	}
	return errors.Join(os.RemoveAll(filepath.Join(l.dir, asideFolder)), removeNew(l.dir), l.sweepBodies())
}

// removeNew deletes files that were not put in their place.
func removeNew(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newFile) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// sweepBodies deletes the bodies that no event names.
func (l *Log) sweepBodies() error {
	entries, err := os.ReadDir(l.bodies.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.dropBody(e.Name()); err != nil {
			return err
		}
	}
	return nil
}
