package extism

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tetratelabs/wazero"
	experimentalsys "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"
)

// mounts are the folders that a plugin is given. No path leads out of them, not
// by symbolic links either, and nothing but regular files and folders is
// opened: another kind would block, and a call of the host cannot be stopped.
type mounts struct{ all []mount }

type mount struct {
	dir, place string
	root       *os.Root
	write      bool
}

func openMounts(read, write []string) (*mounts, error) {
	m := &mounts{}
	for i, spec := range append(read[:len(read):len(read)], write...) {
		dir, place := splitMount(spec)
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("a folder of the plugin: %w", err), m.close())
		}
		m.all = append(m.all, mount{dir, place, root, i >= len(read)})
	}
	return m, nil
}

// splitMount reads PATH:PLACE.
func splitMount(spec string) (dir, place string) {
	if i := strings.LastIndex(spec, ":/"); i > 1 { // not that of a Windows volume
		return spec[:i], path.Clean(spec[i+1:])
	}
	return spec, "/" + filepath.Base(spec)
}

func (m *mounts) config() wazero.FSConfig {
	config := wazero.NewFSConfig()
	for _, f := range m.all {
		if f.write {
			config = config.(sysfs.FSConfig).WithSysFSMount(&guarded{sysfs.DirFS(f.dir), f.root}, f.place) //nolint:errcheck // wazero's is one
			continue
		}
		config = config.WithFSMount(regular{f.root}, f.place)
	}
	return config
}

func (m *mounts) close() error {
	var errs []error
	for _, f := range m.all {
		errs = append(errs, f.root.Close())
	}
	return errors.Join(errs...)
}

// regular is a folder to read.
type regular struct{ root *os.Root }

// Open opens a regular file or a folder, and never waits.
func (r regular) Open(name string) (fs.File, error) {
	info, err := r.root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !plainKind(info.Mode()) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	f, err := r.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !plainKind(info.Mode()) {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Stat looks at a file without opening it.
func (r regular) Stat(name string) (fs.FileInfo, error) { return r.root.Stat(name) }

func plainKind(m fs.FileMode) bool { return m.IsRegular() || m.IsDir() }

// guarded is a folder to change. Each path is looked at before it is used; the
// plugin can make no links, so that only another process could change that
// between the two.
type guarded struct {
	experimentalsys.FS
	root *os.Root
}

// inside holds that a path stays in the folder. What does not exist is judged
// by the folder that it would be in.
func (g *guarded) inside(name string) experimentalsys.Errno {
	name = filepath.Clean(strings.TrimPrefix(filepath.FromSlash(name), string(filepath.Separator)))
	info, err := g.root.Stat(name)
	switch {
	case err == nil && plainKind(info.Mode()):
		return 0
	case err != nil && errors.Is(err, fs.ErrNotExist):
		if _, err := g.root.Lstat(name); err == nil {
			return experimentalsys.EACCES // a link to what is not there: opening it would make that
		}
		if _, err := g.root.Stat(filepath.Dir(name)); err == nil {
			return 0
		}
		return experimentalsys.ENOENT
	}
	return experimentalsys.EACCES
}

// entry holds that a name, whose own link is not followed, is in the folder.
func (g *guarded) entry(name string) experimentalsys.Errno {
	name = filepath.Clean(strings.TrimPrefix(filepath.FromSlash(name), string(filepath.Separator)))
	if _, err := g.root.Stat(filepath.Dir(name)); err != nil {
		return experimentalsys.EACCES
	}
	return 0
}

func (g *guarded) OpenFile(name string, flag experimentalsys.Oflag, perm fs.FileMode) (experimentalsys.File, experimentalsys.Errno) {
	if e := g.inside(name); e != 0 {
		return nil, e
	}
	return g.FS.OpenFile(name, flag, perm&0o777)
}

func (g *guarded) Stat(name string) (sys.Stat_t, experimentalsys.Errno) {
	if e := g.inside(name); e != 0 {
		return sys.Stat_t{}, e
	}
	return g.FS.Stat(name)
}

func (g *guarded) Lstat(name string) (sys.Stat_t, experimentalsys.Errno) {
	if e := g.entry(name); e != 0 {
		return sys.Stat_t{}, e
	}
	return g.FS.Lstat(name)
}

func (g *guarded) Mkdir(name string, perm fs.FileMode) experimentalsys.Errno {
	if e := g.inside(name); e != 0 {
		return e
	}
	return g.FS.Mkdir(name, perm&0o777)
}

func (g *guarded) Chmod(string, fs.FileMode) experimentalsys.Errno { return experimentalsys.EPERM }

func (g *guarded) Rename(from, to string) experimentalsys.Errno {
	for _, name := range []string{from, to} {
		if e := g.entry(name); e != 0 {
			return e
		}
	}
	return g.FS.Rename(from, to)
}

func (g *guarded) Rmdir(name string) experimentalsys.Errno {
	if e := g.entry(name); e != 0 {
		return e
	}
	return g.FS.Rmdir(name)
}

func (g *guarded) Unlink(name string) experimentalsys.Errno {
	if e := g.entry(name); e != 0 {
		return e
	}
	return g.FS.Unlink(name)
}

func (g *guarded) Link(string, string) experimentalsys.Errno { return experimentalsys.EPERM }

func (g *guarded) Symlink(string, string) experimentalsys.Errno { return experimentalsys.EPERM }

func (g *guarded) Utimens(name string, atim, mtim int64) experimentalsys.Errno {
	if e := g.inside(name); e != 0 {
		return e
	}
	return g.FS.Utimens(name, atim, mtim)
}
