package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools/glob"
)

const (
	defaultMatches = 100
	maxMatches     = 1000
	maxShown       = 300     // bytes of a matching line that are shown
	maxSearched    = 1 << 20 // bytes of a line that are looked at
	maxFiles       = 200000  // of one search
	maxSearchTime  = 20 * time.Second
)

const searchAbout = `Searches the files of the working folder for a regular expression, line by line, and returns each match as path:line:text. ` +
	`With a glob only the files that match it are searched; with a glob alone their paths are returned. ` +
	`Files that .gitignore leaves out, .git, binary files and symbolic links are not searched. ` +
	`The expression is of the RE2 kind: no look-around and no back-references; (?i) at its start ignores case. ` +
	`Results are sorted by path. At most 64 KiB, and as many matches as limit says, are returned; long lines are cut around the match.`

func searchTool(f *Folder) dsh.Tool {
	return newTool("search", searchAbout, []param{
		{name: "pattern", kind: "string", about: "The regular expression, such as \"func (Open|Close)\\\\(\". It may be left out if there is a glob."},
		{name: "glob", kind: "string", about: "Which files: \"*.go\" by their name, \"src/**/*.{ts,tsx}\" by their path, \"!*_test.go\" all others."},
		{name: "path", kind: "string", about: "The folder or file to search, relative to the working folder; the working folder itself if left out."},
		{name: "ignored", kind: "boolean", about: "Search also what .gitignore leaves out."},
		{name: "limit", kind: "integer", about: "How many matches at most.", min: 1, max: maxMatches, def: defaultMatches},
	}, f.search)
}

// A search is one call under way.
type search struct {
	folder *Folder
	match  *matcher // nil: every file is a match
	glob   *glob.Pattern
	base   string // the folder that was asked for, with slashes
	limit  int
	lines  *lines // of the file that is searched

	text    strings.Builder
	matches int
	full    bool // there are more matches than are shown

	files, binary, unreadable, large, long int
}

func (f *Folder) search(ctx context.Context, args arguments) (answer, error) {
	s := search{folder: f, limit: args.number("limit"), lines: newLines(nil, maxSearched)}
	if err := s.patterns(args.text("pattern"), args.text("glob")); err != nil {
		return answer{}, err
	}
	name, err := f.resolve(args.text("path"))
	if err != nil {
		return answer{}, err
	}
	info, err := f.root.Stat(name)
	if err != nil {
		return answer{}, f.openError(name, err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, maxSearchTime, errSlow)
	defer cancel()
	s.base = filepath.ToSlash(name)
	w := walk{folder: f, start: name, depth: maxDepth + 1, all: args.flag("ignored")}
	if info.IsDir() {
		err = s.walk(timed, &w)
	} else {
		err = s.one(timed, name)
	}
	if err != nil && !errors.Is(err, errFull) && !errors.Is(err, errSlow) && !errors.Is(err, errMany) {
		return answer{}, err
	}
	a := answer{text: s.text.String()}
	s.notes(&a, err)
	w.notes(&a)
	return a, nil
}

var (
	errFull = errors.New("there is no room for more matches")
	errSlow = errors.New("the search takes too long")
	errMany = errors.New("too many files")
)

// patterns takes the two of a call.
func (s *search) patterns(pattern, files string) (err error) {
	if pattern == "" && files == "" {
		return mistakef("search needs a pattern (what to look for in files), a glob (which files), or both.")
	}
	if pattern != "" {
		if s.match, err = newMatcher(pattern); err != nil {
			return err
		}
	}
	if files != "" {
		if s.glob, err = glob.Compile(filepath.ToSlash(files)); err != nil {
			return mistakef("The glob %s cannot be used: %v.", show(files), err)
		}
	}
	return nil
}

func (s *search) walk(ctx context.Context, w *walk) error {
	for e, err := range w.entries(ctx) {
		if err != nil {
			return err
		}
		if !e.info.Mode().IsRegular() || e.ignored && !w.all || !s.wants(e.path) {
			continue
		}
		if s.files == maxFiles {
			return errMany
		}
		if err := s.file(ctx, e.path); err != nil {
			return err
		}
	}
	return nil
}

// wants holds a path to the glob, which may be meant from the working folder
// or from the one that is searched.
func (s *search) wants(path string) bool {
	if s.glob == nil {
		return true
	}
	whole, below := s.glob.Match(path), s.glob.Match(s.below(path))
	if s.glob.Negated() {
		return whole && below
	}
	return whole || below
}

func (s *search) below(path string) string {
	if s.base == "." {
		return path
	}
	return strings.TrimPrefix(path, s.base+"/")
}

// one searches the one file that was asked for, whatever its name.
func (s *search) one(ctx context.Context, name string) error {
	file, _, err := s.folder.open(name, false)
	if err != nil {
		return err
	}
	file.Close()
	return s.file(ctx, filepath.ToSlash(name))
}

// file searches a file. Its error is one that ends the search.
func (s *search) file(ctx context.Context, path string) error {
	s.files++
	if s.match == nil {
		return s.found(quote(path) + "\n")
	}
	file, _, err := s.folder.openKind(filepath.FromSlash(path), false)
	if err != nil {
		if errors.Is(err, fs.ErrClosed) {
			return err
		}
		s.unreadable++
		return nil
	}
	defer file.Close()
	s.lines.reset(file)
	binary, err := s.lines.binary()
	if binary {
		s.binary++
		return nil
	}
	for n := 1; err == nil; n++ {
		var line []byte
		var size int64
		line, size, err = s.lines.next(ctx)
		if err == nil {
			err = s.line(ctx, path, n, line, size)
		}
	}
	return s.end(ctx, err)
}

// end sorts out the error that ended a file.
func (s *search) end(ctx context.Context, err error) error {
	switch {
	case err == io.EOF:
	case errors.Is(err, errScan):
		s.large++
	case errors.Is(err, errFull), ctx.Err() != nil:
		return err
	default:
		s.unreadable++
	}
	return nil
}

// line looks at one line of a file.
func (s *search) line(ctx context.Context, path string, n int, line []byte, size int64) error {
	if size > int64(len(line)) {
		s.long++
	}
	line = bytes.TrimRight(line, "\r\n")
	at := s.match.find(ctx, line)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if at == nil {
		return nil
	}
	return s.found(fmt.Sprintf("%s:%d:%s\n", quote(path), n, around(line, at[0], at[1])))
}

// found adds a match to the result.
func (s *search) found(line string) error {
	if s.matches == s.limit || s.text.Len()+len(line) > MaxResult-noteSpace {
		s.full = true
		return errFull
	}
	s.matches++
	s.text.WriteString(line)
	return nil
}

// around is a line as text, cut to maxShown bytes that have the match, or as
// much of it as there is room for.
func around(line []byte, from, to int) string {
	if len(line) <= maxShown {
		s, _ := plain(line)
		return s
	}
	start := max(0, min(from-(maxShown-min(to-from, maxShown))/2, len(line)-maxShown))
	for start > 0 && !utf8.RuneStart(line[start]) && start > from-utf8.UTFMax {
		start--
	}
	end := start + maxShown
	for end < len(line) && end > start && !utf8.RuneStart(line[end]) {
		end--
	}
	s, _ := plain(line[start:end])
	if start > 0 {
		s = "…" + s
	}
	if end < len(line) {
		s += "…"
	}
	return s
}

// notes tells how the search ended, and what it did not see.
func (s *search) notes(a *answer, err error) {
	switch {
	case s.full:
		a.notef("the first %d are shown, and there are more: narrow the pattern, the glob or the path, or raise limit", s.matches)
	case errors.Is(err, errSlow):
		a.notef("stopped after %v: there may be more; narrow the glob or the path", maxSearchTime)
	case errors.Is(err, errMany):
		a.notef("stopped after %d files: there may be more; narrow the glob or the path", maxFiles)
	case s.matches == 0 && s.match == nil:
		a.notef("no file has such a path")
	case s.matches == 0:
		a.notef("no match; files searched: %d", s.files-s.binary-s.unreadable)
	}
	for _, n := range []struct {
		count int
		of    string
	}{
		{s.binary, "binary files that were not searched"},
		{s.unreadable, "files that could not be read"},
		{s.large, "files that were searched in their first " + size(maxScan)},
		{s.long, "lines that were searched in their first " + size(maxSearched)},
	} {
		if n.count > 0 {
			a.notef("%s: %d", n.of, n.count)
		}
	}
}
