package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dsh-agent/dsh/hostabi"
)

// moduleSuffix ends the name of a module's file.
const moduleSuffix = ".wasm"

// previousFolder holds, in the policies folder, what was in the place of each
// file before.
const previousFolder = ".previous"

// settle is how long a file's size and time stay the same before it is taken
// for complete: longer than any pause of a copy on a disk, shorter than anybody
// waits for a policy.
const settle = 30 * time.Millisecond

// glance is the time between two looks at a file that is not at rest, and
// maxGlances how many of them somebody waits for who needs the list now.
const (
	glance     = settle / 3
	maxGlances = 30
)

// A Folder is the policies folder: a file NAME.wasm a policy. It need not be
// there. "" is none.
type Folder string

// File is the path of a name's file.
func (f Folder) File(name string) string { return filepath.Join(string(f), name+moduleSuffix) }

func (f Folder) previous(name string) string {
	return filepath.Join(string(f), previousFolder, name+moduleSuffix)
}

// files lists what is there, by name: everything that ends in .wasm, whatever
// it is, but what begins with a dot.
func (f Folder) files() ([]string, error) {
	if f == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if n := e.Name(); !strings.HasPrefix(n, ".") && strings.HasSuffix(strings.ToLower(n), moduleSuffix) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Has reports whether the folder has a file for a name.
func (f Folder) Has(name string) bool {
	_, err := os.Lstat(f.File(name))
	return f != "" && err == nil
}

// Install puts a module in place at once: a reader sees the file before or the
// whole new one. What was there before is what Rollback brings back.
func (f Folder) Install(name string, wasm []byte) error {
	if err := f.check(name); err != nil {
		return err
	}
	if err := makeFolder(filepath.Join(string(f), previousFolder)); err != nil {
		return err
	}
	before, err := ReadFile(f.File(name))
	switch {
	case err == nil && digest(before) == digest(wasm):
		// It is written again all the same: who watches judges it anew.
	case err == nil:
		err = writeFile(f.previous(name), before)
	case !f.Has(name):
		err = removeFile(f.previous(name)) // the one before is none
	default:
		err = nil // what is there is no module, and nobody wants it back
	}
	if err != nil {
		return err
	}
	return writeFile(f.File(name), wasm)
}

// Rollback exchanges the file of a name with the one before, each of which may
// be none. It returns the module that is in place now; nil: none is.
func (f Folder) Rollback(name string) ([]byte, error) {
	now, before, err := f.Previous(name)
	if err != nil {
		return nil, err
	}
	if now == nil && before == nil {
		return nil, fmt.Errorf("there is no version of %q before this one", name)
	}
	if before == nil {
		return nil, errors.Join(writeFile(f.previous(name), now), removeFile(f.File(name)))
	}
	if err := writeFile(f.File(name), before); err != nil {
		return nil, err
	}
	if now == nil {
		return before, removeFile(f.previous(name))
	}
	return before, writeFile(f.previous(name), now)
}

// Previous returns the module that a name has in the folder, and the one before;
// nil: none.
func (f Folder) Previous(name string) (now, before []byte, err error) {
	if err := f.check(name); err != nil {
		return nil, nil, err
	}
	read := func(path string) []byte {
		wasm, failed := ReadFile(path)
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			if _, missing := os.Lstat(path); missing == nil {
				err = failed
			}
		}
		return wasm
	}
	return read(f.File(name)), read(f.previous(name)), err
}

// Remove takes the file of a name out of the folder, for Rollback to bring
// back. Its error is fs.ErrNotExist where there is none.
func (f Folder) Remove(name string) error {
	if err := f.check(name); err != nil {
		return err
	}
	if !f.Has(name) {
		return fmt.Errorf("%s: %w", f.File(name), fs.ErrNotExist)
	}
	if wasm, err := ReadFile(f.File(name)); err == nil {
		if err := makeFolder(filepath.Join(string(f), previousFolder)); err != nil {
			return err
		}
		if err := writeFile(f.previous(name), wasm); err != nil {
			return err
		}
	}
	return removeFile(f.File(name))
}

// keepPrevious keeps a module that a file took the place of, unless somebody
// has done so.
func (f Folder) keepPrevious(name string, wasm []byte) error {
	if before, err := ReadFile(f.previous(name)); err == nil && digest(before) == digest(wasm) {
		return nil
	}
	if err := makeFolder(filepath.Join(string(f), previousFolder)); err != nil {
		return err
	}
	return writeFile(f.previous(name), wasm)
}

func (f Folder) check(name string) error {
	switch {
	case f == "":
		return errors.New("there is no policies folder")
	case !hostabi.IsPolicyName(name):
		return fmt.Errorf("%q is not a name: %s", name, nameRule)
	}
	return nil
}

// nameRule is what hostabi.IsPolicyName allows, for people.
const nameRule = "1 to 64 of a-z, 0-9, dot, dash and underscore are allowed, the first a letter or digit"

// makeFolder makes a folder for the user alone. Its error is a line for people.
func makeFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	var p *fs.PathError
	if errors.As(err, &p) && (errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR)) {
		return fmt.Errorf("%s is no folder: move away what is there, and it is made", p.Path)
	}
	return err
}

// writeFile puts a file in place at once and durably. Its mode is 0600.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		// It is whole when it is in place: nobody has to wait for it to be at rest.
		written := time.Now().Add(-settle)
		err = os.Chtimes(f.Name(), written, written)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// removeFile removes a file that need not be there, durably.
func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncFolder(filepath.Dir(path)))
}
