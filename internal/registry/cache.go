package registry

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh/hostabi"
)

// A Cache is a folder of manifests and modules by their digests. What is in it
// is held to them at each load. "" keeps nothing.
type Cache string

func (c Cache) path(digest, suffix string) string { return filepath.Join(string(c), digest+suffix) }

// load returns the module of a manifest's digest; nil: it is not there, or not
// what it should be.
func (c Cache) load(digest string) []byte {
	if c == "" {
		return nil
	}
	manifest := read(c.path(digest, ".json"), maxManifest)
	if manifest == nil {
		return nil
	}
	layer, err := layerOf(manifest, digest)
	if err != nil {
		return nil
	}
	want := strings.TrimPrefix(layer.Digest.String(), "sha256:")
	wasm := read(c.path(want, ".wasm"), hostabi.MaxModuleBytes)
	if wasm == nil || sum(wasm) != want {
		return nil
	}
	now := time.Now()
	_ = errors.Join(os.Chtimes(c.path(digest, ".json"), now, now), os.Chtimes(c.path(want, ".wasm"), now, now)) // at worst it is got again
	return wasm
}

const (
	// unused is how long a module is kept that nobody loads.
	unused = 90 * 24 * time.Hour

	// maxBytes is what all modules may take. What was loaded last stays.
	maxBytes = 256 << 20
)

// sweep removes modules that nobody has loaded for long, and of the rest the
// oldest ones beyond a size. A manifest that has lost its module counts as none.
func (c Cache) sweep(most int64) {
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return
	}
	var files []os.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b os.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, f := range files {
		if most -= f.Size(); most < 0 || time.Since(f.ModTime()) > unused {
			_ = os.Remove(filepath.Join(string(c), f.Name())) // the next one tries again
		}
	}
}

// read reads a regular file up to a limit; nil: it cannot be.
func read(path string, limit int64) []byte {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > limit {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil || int64(len(data)) > limit {
		return nil
	}
	return data
}

// keep stores what was pulled, the manifest last.
func (c Cache) keep(digest string, manifest, wasm []byte) error {
	if c == "" {
		return nil
	}
	if err := os.MkdirAll(string(c), 0o700); err != nil {
		return err
	}
	if err := write(c.path(sum(wasm), ".wasm"), wasm); err != nil {
		return err
	}
	if err := write(c.path(digest, ".json"), manifest); err != nil {
		return err
	}
	c.sweep(maxBytes)
	return nil
}

func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}
