package tools

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/dsh-agent/dsh/internal/tools/glob"
)

const (
	maxNames      = 50000     // of one folder that are looked at, the first by name
	maxDepth      = 100       // folders below each other
	maxIgnoreFile = 256 << 10 // bytes of a .gitignore that count
)

// An entry is one name in a folder.
type entry struct {
	path    string // relative to the working folder, with slashes
	info    fs.FileInfo
	ignored bool // .gitignore leaves it out, or it is git's own folder
}

// A walk goes through a folder in the order of names (by byte), a folder's
// entries right after it. It follows no symbolic links. The counts are those
// of what it did not see.
type walk struct {
	folder *Folder
	start  string // the folder to begin with, clean
	depth  int    // folders below each other, from 1
	all    bool   // also into what .gitignore leaves out

	omitted    int // entries of folders that have more than maxNames
	tooDeep    int // folders below maxDepth
	unreadable int // folders and .gitignore files
}

// A scope is the patterns of a folder.
type scope struct {
	dir    string
	ignore glob.Ignore
}

// entries yields all that the walk sees. Where the folder to begin with cannot
// be read, that is the one error yielded.
func (w *walk) entries(ctx context.Context) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		start := filepath.ToSlash(w.start)
		scopes := w.above(start)
		if err := w.in(ctx, start, 1, scopes, yield); err != nil && err != errStop {
			yield(entry{}, err)
		}
	}
}

// errStop ends a walk whose reader has left.
var errStop = errors.New("stop")

// in yields the entries of a folder. Its error is that of the folder itself,
// of the context, or errStop.
func (w *walk) in(ctx context.Context, dir string, depth int, scopes []scope, yield func(entry, error) bool) error {
	found, err := w.names(ctx, dir)
	if err != nil {
		return err
	}
	if _, ok := slices.BinarySearchFunc(found, ".gitignore", byName); ok {
		scopes = w.scope(scopes, dir, path.Join(dir, ".gitignore"))
	}
	for _, d := range found {
		info, err := d.Info()
		if err != nil {
			continue // gone meanwhile
		}
		e := entry{path: path.Join(dir, d.Name()), info: info}
		e.ignored = d.Name() == ".git" || ignored(scopes, e.path, d.IsDir())
		if !yield(e, nil) {
			return errStop
		}
		if !d.IsDir() || depth >= w.depth || d.Name() == ".git" || e.ignored && !w.all {
			continue
		}
		if depth == maxDepth {
			w.tooDeep++
			continue
		}
		err = w.in(ctx, e.path, depth+1, scopes, yield)
		var m *mistake
		switch {
		case errors.As(err, &m):
			w.unreadable++
		case err != nil:
			return err
		}
	}
	return nil
}

func byName(d fs.DirEntry, name string) int { return strings.Compare(d.Name(), name) }

// names lists a folder by name. Of a very large one it keeps the first
// maxNames, in memory for twice as many.
func (w *walk) names(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	file, _, err := w.folder.open(filepath.FromSlash(dir), true)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []fs.DirEntry
	total := 0
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		part, err := file.ReadDir(1024)
		found, total = append(found, part...), total+len(part)
		if err != nil && err != io.EOF {
			return nil, readError(dir, err)
		}
		if err == io.EOF || len(found) > 2*maxNames {
			slices.SortFunc(found, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
			found = slices.Delete(found, min(maxNames, len(found)), len(found))
		}
		if err == io.EOF {
			w.omitted += total - len(found)
			return found, nil
		}
	}
}

// above gives the patterns that hold for a folder from outside it: those of
// the folders over it and of the repository.
func (w *walk) above(dir string) []scope {
	scopes := w.scope(nil, ".", ".git/info/exclude")
	if dir == "." {
		return scopes
	}
	scopes = w.scope(scopes, ".", ".gitignore")
	for i, c := range dir {
		if c == '/' {
			scopes = w.scope(scopes, dir[:i], path.Join(dir[:i], ".gitignore"))
		}
	}
	return scopes
}

// scope adds the patterns of a file, where it has any.
func (w *walk) scope(scopes []scope, dir, name string) []scope {
	file, _, err := w.folder.openKind(filepath.FromSlash(name), false)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			w.unreadable++
		}
		return scopes
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxIgnoreFile))
	if err != nil {
		w.unreadable++
	}
	if ig := glob.ParseIgnore(text); !ig.Empty() {
		return append(slices.Clip(scopes), scope{dir, ig})
	}
	return scopes
}

// ignored asks the patterns from the innermost folder outwards.
func ignored(scopes []scope, name string, dir bool) bool {
	for _, s := range slices.Backward(scopes) {
		rel := name
		if s.dir != "." {
			rel = strings.TrimPrefix(name, s.dir+"/")
		}
		switch s.ignore.Match(rel, dir) {
		case glob.Ignored:
			return true
		case glob.Kept:
			return false
		}
	}
	return false
}

// notes tells what the walk did not see.
func (w *walk) notes(a *answer) {
	if w.omitted > 0 {
		a.notef("left out of folders with more than %d entries: %d", maxNames, w.omitted)
	}
	if w.tooDeep > 0 {
		a.notef("folders left out because they are more than %d deep: %d", maxDepth, w.tooDeep)
	}
	if w.unreadable > 0 {
		a.notef("folders and .gitignore files that could not be read: %d", w.unreadable)
	}
}
