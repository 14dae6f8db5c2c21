package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// A Folder is the folder that tools work in. It may be used by several
// goroutines. Who opened it closes it, when no tool runs any more.
type Folder struct {
	root  *os.Root
	names []string // absolute paths under which the folder is known
	own   []string // absolute paths of what is not changed
}

// Open opens a folder. It costs one system call or two, and holds on to the
// folder itself, wherever it is moved.
func Open(dir string) (*Folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("the working folder %s: %w", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, fmt.Errorf("the working folder cannot be opened: %w", err)
	}
	names := []string{abs}
	if target, err := filepath.EvalSymlinks(abs); err == nil && target != abs {
		names = append(names, target)
	}
	return &Folder{root: root, names: names}, nil
}

// Protect keeps write and edit from files and folders, by their absolute paths,
// and from all below them: what stands there would decide on what a later dsh
// does. It is called before the tools are used. A command of the shell is not
// kept from anything.
func (f *Folder) Protect(paths ...string) {
	for _, p := range paths {
		if filepath.IsAbs(p) {
			f.own = append(f.own, filepath.Clean(p))
		}
	}
}

// Close lets go of the folder. Tools that run afterwards fail.
func (f *Folder) Close() error { return f.root.Close() }

// maxPath is the length in bytes of the longest path that is looked at, and
// what Linux takes (PATH_MAX in linux/limits.h).
const maxPath = 4096

// resolve makes a path of the model's relative to the folder. It does not look
// at the disk: what leads out by links is found when it is opened.
func (f *Folder) resolve(name string) (string, error) {
	if len(name) > maxPath {
		return "", mistakef("The path is %d bytes long, and at most %d are allowed.", len(name), maxPath)
	}
	given := name
	if strings.HasPrefix(name, `"`) { // as show wrote it
		if s, err := strconv.Unquote(name); err == nil {
			name = s
		}
	}
	if strings.ContainsRune(name, 0) {
		return "", mistakef("The path %s has a NUL byte in it, which no file name has.", show(given))
	}
	local := filepath.FromSlash(name)
	if filepath.IsAbs(local) {
		inside, ok := f.inside(local)
		if !ok {
			return "", outside(given)
		}
		local = inside
	}
	if local == "" {
		return ".", nil
	}
	if !filepath.IsLocal(local) {
		return "", outside(given)
	}
	return filepath.Clean(local), nil
}

// inside is an absolute path relative to the folder.
func (f *Folder) inside(abs string) (string, bool) {
	for _, p := range []string{abs, filepath.Clean(abs)} {
		for _, root := range f.names {
			rest, ok := strings.CutPrefix(p, root)
			if !ok {
				continue
			}
			if rest == "" || os.IsPathSeparator(rest[0]) || os.IsPathSeparator(root[len(root)-1]) {
				return strings.TrimLeft(filepath.ToSlash(rest), "/"), true
			}
		}
	}
	return "", false
}

func outside(name string) error {
	return mistakef("%s is outside the working folder, and the tools reach only what is inside. Use a path relative to the working folder, such as \"src/main.go\".", show(name))
}

// open opens a regular file, or a folder if dir. It never blocks, and changes
// nothing by opening: other kinds are not opened at all, and one that takes
// the file's place meanwhile is opened without waiting, and let go. Its error
// is a mistake, or fs.ErrClosed.
func (f *Folder) open(name string, dir bool) (*os.File, fs.FileInfo, error) {
	file, info, err := f.openKind(name, dir)
	return file, info, f.openError(name, err)
}

// openKind is open without words for errors of the system.
func (f *Folder) openKind(name string, dir bool) (*os.File, fs.FileInfo, error) {
	info, err := f.root.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if err := wantKind(name, info.Mode(), dir); err != nil {
		return nil, nil, err
	}
	file, err := f.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err = file.Stat()
	if err == nil {
		err = wantKind(name, info.Mode(), dir)
	}
	if err == nil && ofKernel(file) {
		err = mistakef("%s is the kernel's own (a file system such as /proc), which the tools do not read.", show(name))
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// wantKind says what is wrong with the kind of a file, for the model.
func wantKind(name string, mode fs.FileMode, dir bool) error {
	switch k := kind(mode); {
	case dir && k == "dir", !dir && k == "file":
		return nil
	case dir && k == "file":
		return mistakef("%s is a file, not a folder.", show(name))
	case k == "dir":
		return mistakef("%s is a folder, not a file: use list to see what is in it.", show(name))
	default:
		return mistakef("%s is no regular file (its kind: %s), and the tools do not open it.", show(name), k)
	}
}

// kind is the word for a kind of file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "file"
	case mode.IsDir():
		return "dir"
	case mode&fs.ModeSymlink != 0:
		return "link"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "other"
}

// openError makes an error of the system one that the model can act on. A
// closed folder stays an error of the machinery.
func (f *Folder) openError(name string, err error) error {
	var m *mistake
	switch {
	case err == nil, errors.As(err, &m), errors.Is(err, fs.ErrClosed):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return mistakef("%s does not exist.%s", show(name), f.suggest(name))
	case errors.Is(err, fs.ErrPermission):
		return mistakef("%s cannot be read: permission denied.", show(name))
	case errors.Is(err, syscall.ENOTDIR):
		return mistakef("%s does not exist: a part of the path is a file, not a folder.", show(name))
	}
	if link := f.leavingLink(name); link != "" {
		return mistakef("%s is not read: the symbolic link %s leads out of the working folder, or is absolute, or leads to itself.", show(name), show(link))
	}
	return readError(name, err)
}

// readError is for what goes wrong with an open file.
func readError(name string, err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		err = e.Err // without the folder's own path
	}
	return mistakef("%s cannot be read: %v.", show(name), err)
}

// leavingLink is the first part of a path that is a symbolic link which cannot
// be followed, or "".
func (f *Folder) leavingLink(name string) string {
	elements := strings.Split(filepath.ToSlash(name), "/")
	for i := range elements {
		prefix := path.Join(elements[:i+1]...)
		if prefix == "" {
			continue
		}
		info, err := f.root.Lstat(filepath.FromSlash(prefix))
		if err != nil {
			return ""
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if _, err := f.root.Stat(filepath.FromSlash(prefix)); err != nil {
			return prefix
		}
	}
	return ""
}

// show writes a path for an error or a note, cut to a length that leaves room
// for the rest of it.
func show(name string) string {
	s := quote(name)
	if len(s) <= 512 {
		return s
	}
	return cutText(s, 512) + "…"
}

// quote writes a path for the model: with slashes, and in Go's quotes where it
// has bytes that are not plain text or could be taken for something else.
// resolve takes the quoted form back.
func quote(name string) string {
	name = filepath.ToSlash(name)
	plain := name != "" && utf8.ValidString(name) && name[0] != '"' && strings.TrimSpace(name) == name
	for _, r := range name {
		plain = plain && unicode.IsPrint(r)
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}
