// Package compiled keeps the code that an engine makes of modules, so that a
// process need not compile what another has compiled before.
package compiled

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Cache is a folder that keeps compiled code, one folder a module, beside the
// digests of its files. It may be used by several goroutines and processes.
// It holds native code: the folder is made with mode 0700 and has to be the
// user's alone, or it is not used; what is damaged is made again.
// wazero guards a file's code with a checksum and the rest of it with
// nothing: a flipped bit in a function's offset would be jumped to.
type Cache string

// sumsFile lists the files of an entry with their SHA-256, as sha256sum does.
const sumsFile = "SHA256SUMS"

// An Entry is the folder of one module's compiled code.
type Entry struct {
	Dir   string // what wazero is given
	final string // where a new entry goes when it is complete; "": it is there
	sums  string // what the list of an old entry says
}

// ErrDamaged says that an entry is not what was written.
var ErrDamaged = errors.New("damaged compiled code")

// Open finds the entry of a module by its key, or begins a new one. With
// ErrDamaged the old one is gone, and the new one is good. An entry is ended by
// Commit or Discard.
func (c Cache) Open(key string) (*Entry, error) {
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return nil, err
	}
	if err := private(string(c)); err != nil {
		return nil, err
	}
	final := filepath.Join(string(c), key)
	damaged := error(nil)
	if _, err := os.Lstat(final); err == nil {
		sums, err := verify(final)
		if err == nil {
			touch(filepath.Join(final, sumsFile))
			return &Entry{Dir: final, sums: sums}, nil
		}
		if err := os.RemoveAll(final); err != nil {
			return nil, fmt.Errorf("damaged compiled code cannot be removed: %w", err)
		}
		damaged = fmt.Errorf("%w: %s: %w", ErrDamaged, final, err)
	}
	c.sweep()
	dir, err := os.MkdirTemp(string(c), key+".*.tmp") // mode 0700
	if err != nil {
		return nil, err
	}
	return &Entry{Dir: dir, final: final}, damaged
}

// Compile calls compile with the folder of a module's entry, and keeps what that
// leaves in it. Where the cache fails, or is "", the folder is "": compile is
// called once more where it fails with one, which may be the folder's fault. A
// panic of compile is an error. warn is told what is gone on without.
func (c Cache) Compile(key string, warn func(format string, args ...any), compile func(dir string) error) error {
	if c == "" {
		return guarded(compile, "")
	}
	entry, err := c.Open(key)
	switch {
	case errors.Is(err, ErrDamaged):
		warn("%v: it is made again", err)
	case err != nil:
		warn("compiled code is not kept: %v", err)
		return guarded(compile, "")
	}
	if guarded(compile, entry.Dir) != nil {
		if err := entry.Discard(nil); err != nil {
			warn("compiled code is not kept: %v", err)
		}
		return guarded(compile, "") // what is the module's own is met again
	}
	if err := entry.Commit(); err != nil {
		warn("compiled code is not kept: %v", err)
	}
	return nil
}

// guarded makes panics errors: a damaged file can make the library panic, and so
// may a module that it was never tried on.
func guarded(compile func(dir string) error, dir string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the compiler failed: %v", r)
		}
	}()
	return compile(dir)
}

const (
	// abandoned is the age at which a new entry has been left by a killed
	// process.
	abandoned = 24 * time.Hour

	// unused is how long an entry is kept that nobody opens: that of another
	// version, or of a module that is not there any more.
	unused = 30 * 24 * time.Hour

	// maxBytes is what all entries may take: fifty guests of Go's, of which a
	// developer makes that many in a day. What was opened last stays.
	maxBytes = 1 << 30
)

// touch keeps an entry from being swept. Once a day is enough.
func touch(list string) {
	info, err := os.Lstat(list)
	if now := time.Now(); err == nil && now.Sub(info.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(list, now, now) // at worst it is made again in a month
	}
}

// sweep removes what a killed process left of a new entry, entries that nobody
// has opened for long, and of the rest the oldest ones beyond maxBytes. Whoever
// misses one compiles again.
func (c Cache) sweep() { c.sweepTo(maxBytes) }

func (c Cache) sweepTo(most int64) {
	type old struct {
		path string
		seen time.Time
	}
	var rest []old
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return
	}
	for _, e := range entries {
		path, limit := filepath.Join(string(c), e.Name()), unused
		seen := filepath.Join(path, sumsFile)
		if strings.HasSuffix(e.Name(), ".tmp") {
			seen, limit = path, abandoned
		}
		info, err := os.Lstat(seen)
		switch {
		case err != nil || !e.IsDir():
		case time.Since(info.ModTime()) > limit:
			_ = os.RemoveAll(path) // the next one tries again
		case limit == unused:
			rest = append(rest, old{path, info.ModTime()})
		}
	}
	slices.SortFunc(rest, func(a, b old) int { return b.seen.Compare(a.seen) })
	for _, e := range rest {
		if most -= sizeOf(e.path); most < 0 {
			_ = os.RemoveAll(e.path)
		}
	}
}

// sizeOf is what the files of an entry take.
func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil // what cannot be read counts for nothing
	})
	return n
}

// private makes sure that nobody else can put code into a folder.
func private(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", dir)
	case info.Mode().Perm()&0o077 == 0:
		return nil
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("%s may be written by others: %w", dir, err)
	}
	return nil
}

// Commit makes an entry whole: what wazero has written is listed, and a new
// entry takes its place. Another process may have been faster.
func (e *Entry) Commit() error {
	files, err := filesOf(e.Dir)
	switch {
	case err != nil:
		return err
	case len(files) == 0: // where wazero interprets, it keeps nothing
		return e.Discard(nil)
	case e.final == "" && len(files) == strings.Count(e.sums, "\n"):
		return nil // nothing was added
	}
	sums, err := sumsOf(e.Dir)
	if err != nil {
		return err
	}
	list := filepath.Join(e.Dir, sumsFile)
	if err := os.WriteFile(list+".new", []byte(sums), 0o600); err != nil {
		return err
	}
	if err := os.Rename(list+".new", list); err != nil {
		return err
	}
	if e.final == "" {
		return nil
	}
	if err := os.Rename(e.Dir, e.final); err != nil {
		return e.Discard(err)
	}
	return nil
}

// Discard throws a new entry away. It returns the error that it is given,
// unless that says that there is an entry by now.
func (e *Entry) Discard(because error) error {
	if e.final == "" {
		return because
	}
	err := os.RemoveAll(e.Dir)
	if _, missing := os.Lstat(e.final); missing == nil {
		because = nil
	}
	return errors.Join(because, err)
}

// verify returns the list of an entry whose files are as it says.
func verify(dir string) (string, error) {
	listed, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		return "", err
	}
	sums, err := sumsOf(dir)
	if err != nil {
		return "", err
	}
	if sums != string(listed) {
		return "", errors.New("its files are not what was written")
	}
	return sums, nil
}

// sumsOf makes the list of an entry's files.
func sumsOf(dir string) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	var list strings.Builder
	for _, name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(b), filepath.ToSlash(name))
	}
	return list.String(), nil
}

// filesOf names the files of an entry, but for its list, in order.
func filesOf(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), sumsFile) {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, name)
		return err
	})
	return files, err
}
