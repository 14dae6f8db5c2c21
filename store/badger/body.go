package badger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// bodyFrom is the length of a line from which it goes to a file of its own: a
// quarter of what is packed into one transaction, so that large results do not
// crowd out the appends of other sessions.
const bodyFrom = 256 << 10

// A bodyRef is the value of an event whose line is in a body. A line begins
// with a brace, and a bodyRef with bodyMark.
const (
	bodyMark    = 1
	bodyRefSize = 1 + sha256.Size + 8 // mark, sum, length
)

// bodies is the folder of events that are too large for the database. A body
// is named by its SHA-256, is durable before the transaction that names it,
// and is never changed.
type bodies struct {
	dir string
	box *seal.Box
}

// put makes a line durable in its file and gives the value that stands for it,
// and its sum in hex.
func (b bodies) put(line []byte) (ref []byte, sum string, err error) {
	raw := b.box.Sum(line)
	sum = hex.EncodeToString(raw[:])
	ref = append(append(make([]byte, 0, bodyRefSize), bodyMark), raw[:]...)
	ref = binary.BigEndian.AppendUint64(ref, uint64(len(line)))
	if err := os.Mkdir(b.dir, 0o700); err == nil {
		err = errors.Join(os.Chmod(b.dir, 0o700), syncDir(filepath.Dir(b.dir)))
		if err != nil {
			return nil, "", err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, "", err
	}
	return ref, sum, writeFile(filepath.Join(b.dir, sum), b.box.Seal(sum, line))
}

// line gives the line that a value stands for, which may be the value itself.
func (b bodies) line(value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != bodyMark {
		return value, nil
	}
	sum, size, err := parseRef(value)
	if err != nil {
		return nil, err
	}
	line, err := os.ReadFile(filepath.Join(b.dir, sum))
	if err == nil {
		if line, err = b.box.Open(sum, line); err != nil {
			return nil, fmt.Errorf("its body bodies/%s cannot be opened: %w", sum, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("its body bodies/%s is missing", sum)
	case err != nil:
		return nil, fmt.Errorf("its body cannot be read: %w", err)
	case uint64(len(line)) != size:
		return nil, fmt.Errorf("its body bodies/%s has %d bytes and should have %d", sum, len(line), size)
	case b.sumOf(line) != sum:
		return nil, fmt.Errorf("its body bodies/%s was changed", sum)
	}
	return line, nil
}

func (b bodies) sumOf(line []byte) string {
	s := b.box.Sum(line)
	return hex.EncodeToString(s[:])
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func parseRef(value []byte) (sum string, size uint64, err error) {
	if len(value) != bodyRefSize || value[0] != bodyMark {
		return "", 0, errors.New("its reference to a body is damaged")
	}
	return hex.EncodeToString(value[1 : 1+sha256.Size]), binary.BigEndian.Uint64(value[1+sha256.Size:]), nil
}

// remove deletes a body that no event names any more. It may be gone.
func (b bodies) remove(sum string) error {
	err := os.Remove(filepath.Join(b.dir, sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// eventOf reads the event that a value of the database stands for.
func (b bodies) eventOf(value []byte) (dsh.Event, error) {
	line, err := b.line(value)
	if err != nil {
		return dsh.Event{}, err
	}
	return dsh.ParseEvent(line)
}

// newFile begins the name of a file that is not in its place yet.
const newFile = ".new-"

// writeFile puts a file in place whole and durable: a reader sees the old one
// or the new one, also after a power cut.
func writeFile(path string, data []byte) error {
	if err := replaceFile(path, data, true); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replaceFile is writeFile without the folder's sync: after a power cut the
// old file may be back. Without sync the new one may be empty then, too.
func replaceFile(path string, data []byte, sync bool) error {
	return replaceWith(path, sync, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// replaceWith is replaceFile with what write writes.
func replaceWith(path string, sync bool, write func(*os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), newFile+"*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o600))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
