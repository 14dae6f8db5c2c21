package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dsh-agent/dsh/hostabi"
)

// A ModuleStore keeps modules by digest, so that a decision in a log can be
// run again after its policy has changed. It is a folder of files
// <sha256>.wasm. "" keeps nothing.
type ModuleStore string

func (s ModuleStore) path(digest string) string {
	return filepath.Join(string(s), digest+".wasm")
}

// Keep stores a module. It is on disk when Keep returns; one that is there
// already is left alone.
func (s ModuleStore) Keep(digest string, wasm []byte) error {
	if s == "" {
		return nil
	}
	path := s.path(digest)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(wasm)) {
		now := time.Now()
		if err := os.Chtimes(path, now, now); err == nil {
			return nil // Collect leaves it alone for a while
		}
	}
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(s), digest+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(wasm)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(string(s))
}

// keepEvery is how often a policy that decides says that its module is needed,
// and collectAge how long a module is left alone after that: between a keeping
// and the decision in the log lies a moment, and never a day.
const (
	keepEvery  = time.Hour
	collectAge = 24 * time.Hour
)

// Digests names the modules that are kept and that nobody has needed for a day.
func (s ModuleStore) Digests() ([]string, error) {
	if s == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var digests []string
	for _, e := range entries {
		info, gone := e.Info()
		if d, ok := strings.CutSuffix(e.Name(), moduleSuffix); ok && hostabi.IsDigest(d) && gone == nil && time.Since(info.ModTime()) >= collectAge {
			digests = append(digests, d)
		}
	}
	return digests, err
}

// Collect removes modules that no log names any more, and returns how many. One
// that was needed within a day stays, and so does one that is not kept.
func (s ModuleStore) Collect(digests []string) (int, error) {
	removed := 0
	var errs []error
	for _, d := range digests {
		if s == "" || !hostabi.IsDigest(d) {
			continue
		}
		info, err := os.Lstat(s.path(d))
		if err != nil || time.Since(info.ModTime()) < collectAge {
			continue
		}
		if err := os.Remove(s.path(d)); err != nil {
			errs = append(errs, err)
			continue
		}
		removed++
	}
	return removed, errors.Join(errs...)
}

// Load reads a kept module and makes sure that it is the one.
func (s ModuleStore) Load(want string) ([]byte, error) {
	if s == "" {
		return nil, errors.New("no modules are kept")
	}
	if len(want) != 64 || filepath.Base(want) != want {
		return nil, fmt.Errorf("%q is no digest", want)
	}
	wasm, err := ReadFile(s.path(want))
	if err != nil {
		return nil, err
	}
	if got := digest(wasm); got != want {
		return nil, fmt.Errorf("%s: its digest is %s: the file is damaged", s.path(want), got)
	}
	if len(wasm) > hostabi.MaxModuleBytes {
		return nil, fmt.Errorf("%s: it is too large", s.path(want))
	}
	return wasm, nil
}

// syncFolder makes a rename in a folder durable. Systems that cannot open a
// folder for that have no need of it.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrInvalid) && !isUnsupported(err) {
		return err
	}
	return nil
}

func isUnsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission)
}
