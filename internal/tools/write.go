package tools

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dsh-agent/dsh"
)

// maxWrite is the size in bytes of the largest file that write makes and edit
// takes: more than any source text that a person wrote.
const maxWrite = 8 << 20

const writeAbout = `Creates a file in the working folder, or replaces one whole, with the content that is given; folders on the way are made. ` +
	`The file is there whole or not at all. To change a part of a file use edit, which is shorter and safer. ` +
	`Symbolic links, anything that is no regular file, and git's own folder (.git) are not written to.`

func writeTool(f *Folder) dsh.Tool {
	return newChange("write", writeAbout, []param{
		{name: "path", kind: "string", required: true, about: "The file, relative to the working folder."},
		{name: "content", kind: "string", required: true, about: "All that the file is to hold."},
	}, f.write)
}

func (f *Folder) write(ctx context.Context, args arguments) (answer, error) {
	name, err := f.target(args.text("path"))
	if err != nil {
		return answer{}, err
	}
	content := args.text("content")
	if len(content) > maxWrite {
		return answer{}, mistakef("The content is %s long, and a file of at most %s is written.", size(int64(len(content))), size(maxWrite))
	}
	old, err := f.replaceable(name)
	if err != nil {
		return answer{}, err
	}
	if old == nil {
		if err := f.parents(name); err != nil {
			return answer{}, err
		}
	}
	if err := f.put(ctx, name, []byte(content), old); err != nil {
		return answer{}, err
	}
	verb := "created"
	if old != nil {
		verb = "replaced"
	}
	return answer{text: fmt.Sprintf("%s %s: %s, %s\n", verb, quote(name), count(countLines(content), "line"), size(int64(len(content))))}, nil
}

// countLines is how many lines read shows of a text.
func countLines(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// count is a number of things for people.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// target resolves the path of a file that is to be changed. It refuses what a
// change of could run code later: what is git's own.
func (f *Folder) target(given string) (string, error) {
	name, err := f.resolve(given)
	if err != nil {
		return "", err
	}
	if name == "." || strings.HasSuffix(given, "/") {
		return "", mistakef("%s is a folder, not a file.", show(given))
	}
	if f.ofGit(name) {
		return "", mistakef("%s is git's own: it is changed by git alone.", show(given))
	}
	if f.protected(name) {
		return "", mistakef("%s is dsh's own (its configuration or its data), and the tools do not change it.", show(given))
	}
	return name, nil
}

// ofGit reports whether a path leads into a .git, by its words or by links
// that stand on its way now.
func (f *Folder) ofGit(name string) bool {
	if hasGit(name) {
		return true
	}
	inside, ok := f.inside(f.real(name))
	return ok && hasGit(inside)
}

// real is the absolute path of a file as links lead there now. What does not
// exist of it stays as it is written.
func (f *Folder) real(name string) string {
	rest := filepath.Base(name)
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if real, err := filepath.EvalSymlinks(filepath.Join(f.names[0], dir)); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == "." {
			return filepath.Join(f.names[0], rest)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// protected reports whether a file, or a folder that it is in, is one of those
// that are not changed: by their names, or as the same file under another one.
func (f *Folder) protected(name string) bool {
	if len(f.own) == 0 {
		return false
	}
	at := f.real(name)
	for _, own := range f.own {
		kept, err := os.Stat(own)
		for dir := at; ; dir = filepath.Dir(dir) {
			if dir == own {
				return true
			}
			if info, derr := os.Stat(dir); err == nil && derr == nil && os.SameFile(info, kept) {
				return true
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return false
}

func hasGit(name string) bool {
	for e := range strings.SplitSeq(filepath.ToSlash(name), "/") {
		// Spaces and dots at a name's end do not count on Windows, the case
		// nowhere but on Linux.
		if strings.EqualFold(strings.TrimRight(e, ". "), ".git") {
			return true
		}
	}
	return false
}

// replaceable is the file that is to be replaced; nil if there is none. It
// refuses what is no regular file, and links, whose target has a name of its
// own.
func (f *Folder) replaceable(name string) (fs.FileInfo, error) {
	info, err := f.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, f.changeError(name, err)
	case info.Mode()&fs.ModeSymlink != 0:
		target, _ := f.root.Readlink(name)
		return nil, mistakef("%s is a symbolic link to %s: name the file itself.", show(name), show(target))
	case info.Mode().IsRegular():
		return info, nil
	case info.IsDir():
		return nil, mistakef("%s is a folder, not a file.", show(name))
	}
	return nil, mistakef("%s is no regular file (its kind: %s), and the tools do not write to it.", show(name), kind(info.Mode()))
}

// parents makes the folders on the way to a file.
func (f *Folder) parents(name string) error {
	dir := filepath.Dir(name)
	if dir == "." {
		return nil
	}
	if err := f.root.MkdirAll(dir, 0o777); err != nil {
		if info, serr := f.root.Stat(dir); serr == nil && info.IsDir() {
			return nil
		}
		return f.changeError(name, err)
	}
	return nil
}

// put writes a file beside the one of that name and lets it take its place: a
// reader sees the one or the other, also after a power cut. old is what the
// new one takes its mode and owner from; nil: there is none.
func (f *Folder) put(ctx context.Context, name string, content []byte, old fs.FileInfo) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	temp := filepath.Join(filepath.Dir(name), ".dsh-"+rand.Text()+".tmp")
	file, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return f.changeError(name, err)
	}
	err = f.fill(file, content, old)
	if err == nil {
		err = f.unchanged(name, old)
	}
	if err == nil {
		err = f.root.Rename(temp, name)
	}
	if err != nil {
		_ = f.root.Remove(temp) // err says what matters
		return f.changeError(name, err)
	}
	return nil
}

// fill writes a new file and closes it.
func (f *Folder) fill(file *os.File, content []byte, old fs.FileInfo) error {
	_, err := file.Write(content)
	if err == nil && old != nil {
		keepOwner(file, old)
		err = file.Chmod(old.Mode().Perm())
	}
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}

// unchanged holds that a file is still the one that was looked at.
func (f *Folder) unchanged(name string, old fs.FileInfo) error {
	now, err := f.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && old == nil:
		return nil
	case err != nil && old == nil:
		return err
	case err != nil || old == nil || !os.SameFile(now, old) || now.Size() != old.Size() || !now.ModTime().Equal(old.ModTime()):
		return mistakef("%s was changed by somebody else at the same time, and was left as it is now: read it again.", show(name))
	}
	return nil
}

// changeError is openError for what goes wrong with a change.
func (f *Folder) changeError(name string, err error) error {
	var m *mistake
	switch {
	case errors.As(err, &m), errors.Is(err, fs.ErrClosed):
		return err
	case errors.Is(err, fs.ErrPermission):
		return mistakef("%s cannot be written: permission denied.", show(name))
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return mistakef("%s cannot be written: a part of the path is a file, not a folder.", show(name))
	}
	if link := f.leavingLink(name); link != "" {
		return mistakef("%s is not written: the symbolic link %s leads out of the working folder or to nothing, or is absolute, or leads to itself.", show(name), show(link))
	}
	var e *fs.PathError
	var l *os.LinkError
	if errors.As(err, &e) {
		err = e.Err
	} else if errors.As(err, &l) {
		err = l.Err
	}
	return mistakef("%s cannot be written: %v.", show(name), err)
}
