package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools"
)

// content is a file of the box; it fails where there is none.
func (b *box) content(name string) string {
	b.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(got)
}

// names are all entries of the box, so that what was left behind is seen.
func (b *box) names() []string {
	b.t.Helper()
	var names []string
	err := filepath.WalkDir(b.dir, func(p string, d os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(b.dir, p); rel != "." {
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

func TestWrite(t *testing.T) {
	b := newBox(t, map[string]string{"old": "before\n", "run.sh": "#!/bin/sh\n"})
	if err := os.Chmod(filepath.Join(b.dir, "run.sh"), 0o751); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ arguments, file, content, want string }{
		{object("path", "new", "content", "a\nb\n"), "new", "a\nb\n", "created new: 2 lines, 4 bytes\n"},
		{object("path", "old", "content", "after"), "old", "after", "replaced old: 1 line, 5 bytes\n"},
		{object("path", "d/e/f.txt", "content", ""), "d/e/f.txt", "", "created d/e/f.txt: 0 lines, 0 bytes\n"},
		{object("path", "./d/../d/g", "content", "é\r\n"), "d/g", "é\r\n", "created d/g: 1 line, 4 bytes\n"},
		{object("path", filepath.Join(b.dir, "abs"), "content", "x"), "abs", "x", "created abs: 1 line, 1 bytes\n"},
		{object("path", "run.sh", "content", "#!/bin/sh\ntrue\n"), "run.sh", "#!/bin/sh\ntrue\n", "replaced run.sh: 2 lines, 15 bytes\n"},
	} {
		if got := b.good("write", c.arguments); got != c.want || b.content(c.file) != c.content {
			t.Errorf("%s: %q, %q", c.arguments, got, b.content(c.file))
		}
	}
	if info, err := os.Stat(filepath.Join(b.dir, "run.sh")); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("the mode did not stay: %v %v", info.Mode(), err)
	}
	if got := strings.Join(b.names(), " "); got != "abs d d/e d/e/f.txt d/g new old run.sh" {
		t.Errorf("there is more than was written: %s", got)
	}
}

func TestWriteRefuses(t *testing.T) {
	outer := newBox(t, map[string]string{"secret": "outside\n", "in/file": "x\n", "in/d/f": "y\n", "in/.git/config": "z\n", "in/sub/.git": "gitdir: x\n"})
	b := openBox(t, filepath.Join(outer.dir, "in"))
	b.link("../secret", "up")
	b.link("..", "dir")
	b.link("file", "inner")
	b.link("nowhere", "dangling")
	b.link(".git", "hidden")
	before := strings.Join(outer.names(), "\n")
	for _, c := range []struct{ path, want string }{
		{"../secret", "is outside the working folder"},
		{"/etc/dsh-test", "is outside the working folder"},
		{"", "is a folder"},
		{"d", "is a folder"},
		{"new/", "is a folder"},
		{"up", "is a symbolic link to ../secret"},
		{"inner", "is a symbolic link to file: name the file itself"},
		{"dangling", "is a symbolic link"},
		{"dir/secret", "the symbolic link dir leads out"},
		{"dir/new/file", "the symbolic link dir leads out"},
		{"dangling/file", "dangling"},
		{"file/below", "a part of the path is a file"},
		{".git/config", "is git's own"},
		{".GIT/hooks/pre-commit", "is git's own"},
		{"sub/.git", "is git's own"},
		{"hidden/config", "is git's own"},
		{"hidden/hooks/new", "is git's own"},
		{"d/../.git/x", "is git's own"},
		{strings.Repeat("x", 300), "cannot be written"},
	} {
		b.bad("write", object("path", c.path, "content", "evil\n"), c.want)
		b.bad("edit", object("path", c.path, "old", "x", "new", "y"))
	}
	b.bad("write", object("path", "big", "content", strings.Repeat("x", 8<<20+1)), "at most 8192 KiB")
	b.bad("write", object("path", "file"), `"content" of write is missing`)
	if got := strings.Join(outer.names(), "\n"); got != before {
		t.Errorf("the refused ones left something:\n%s\nbefore:\n%s", got, before)
	}
	if got := outer.content("secret") + b.content("file") + b.content(".git/config"); got != "outside\nx\nz\n" {
		t.Errorf("%q", got)
	}
}

// TestProtected holds that what is dsh's own is not changed, under any name.
func TestProtected(t *testing.T) {
	b := newBox(t, map[string]string{"data/log/x": "a\n", "conf/dsh.toml": "a\n", "conf/other": "a\n"})
	b.link("data", "alias")
	if err := os.Link(filepath.Join(b.dir, "conf/dsh.toml"), filepath.Join(b.dir, "hard")); err != nil {
		t.Skip(err)
	}
	f, err := tools.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Protect(filepath.Join(b.dir, "data"), filepath.Join(b.dir, "conf/dsh.toml"), filepath.Join(b.dir, "later/state"), "")
	for _, tool := range f.Changing() {
		b.tools[tool.Spec().Name] = tool
	}
	for _, path := range []string{"data/log/x", "data/new", "data", "alias/log/x", "alias/new/deep/x", "conf/dsh.toml", "./conf/../conf/dsh.toml", "hard", "later/state/x"} {
		b.bad("write", object("path", path, "content", "evil"), "is dsh's own")
		b.bad("edit", object("path", path, "old", "a", "new", "evil"), "is dsh's own")
	}
	for _, path := range []string{"conf/other", "conf/new", "data2", "later/x"} {
		b.good("write", object("path", path, "content", "fine"))
	}
}

// TestWriteSwaps changes a folder and a file into links that lead out while
// files are written: nothing outside ever changes.
func TestWriteSwaps(t *testing.T) {
	outer := newBox(t, map[string]string{"secret": "outside\n", "out/f": "outside\n", "in/keep": "x\n"})
	b := openBox(t, filepath.Join(outer.dir, "in"))
	b.link("keep", "probe")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		f, d := filepath.Join(b.dir, "f"), filepath.Join(b.dir, "d")
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(f)
			os.Symlink("../secret", f)
			os.RemoveAll(d)
			os.Symlink("../out", d)
			os.Remove(d)
			os.Mkdir(d, 0o755)
			os.WriteFile(filepath.Join(d, "f"), []byte("inside\n"), 0o644)
			os.Remove(f)
		}
	}()
	for range 200 {
		b.call("write", object("path", "f", "content", "evil\n"))
		b.call("write", object("path", "d/f", "content", "evil\n"))
		b.call("edit", object("path", "d/f", "old", "inside", "new", "evil"))
	}
	close(stop)
	<-done
	if got := outer.content("secret") + outer.content("out/f"); got != "outside\noutside\n" {
		t.Fatalf("%q", got)
	}
	if got := strings.Join(outer.names(), " "); strings.Contains(got, "out/.dsh") {
		t.Fatalf("%s", got)
	}
}

// TestEditKeepsOthersChange holds that a file which changes between the look
// and the change is left to who changed it.
func TestEditKeepsOthersChange(t *testing.T) {
	b := newBox(t, map[string]string{"f": "one\n"})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			os.WriteFile(filepath.Join(b.dir, "f.new"), []byte(strings.Repeat("one\n", 1+n%3)), 0o644)
			os.Rename(filepath.Join(b.dir, "f.new"), filepath.Join(b.dir, "f"))
		}
	}()
	for range 200 {
		r := b.call("edit", object("path", "f", "old", "one\n", "new", "two\n", "replace_all", true))
		if text := dsh.Text(r.Content); r.IsError && !strings.Contains(text, "changed by somebody else") && !strings.Contains(text, "does not stand in") {
			t.Fatal(text)
		}
	}
	close(stop)
	<-done
}

func TestEdit(t *testing.T) {
	const source = "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 1\n}\n"
	for _, c := range []struct {
		name, text, old, new string
		all                  bool
		want, says           string
	}{
		{"a word", "a b c\n", "b", "B", false, "a B c\n", "edited f: 1 replacement, at line 1\n"},
		{"lines", source, "func b() {\n\treturn 1", "func b() {\n\treturn 2", false, strings.Replace(source, "b() {\n\treturn 1", "b() {\n\treturn 2", 1), "at line 5"},
		{"all", source, "return 1", "return 3", true, strings.ReplaceAll(source, "return 1", "return 3"), "2 replacements, at lines 2, 6"},
		{"deletion", "a\nb\nc\n", "b\n", "", false, "a\nc\n", "at line 2"},
		{"the whole", "x", "x", "y", false, "y", "at line 1"},
		{"CRLF with LF", "a\r\nb\r\nc\r\n", "a\nb", "a\nx\nb", false, "a\r\nx\r\nb\r\nc\r\n", "at line 1"},
		{"CRLF with CRLF", "a\r\nb\r\n", "a\r\nb", "c\r\nd", false, "c\r\nd\r\n", "at line 1"},
		{"CRLF, a new line", "a\r\nb\r\n", "b", "b\nc", false, "a\r\nb\r\nc\r\n", "at line 2"},
		{"mixed ends", "a\r\nb\nc\n", "b\nc", "x\ny", false, "a\r\nx\ny\n", "at line 2"},
		{"other bytes stay", "caf\xe9 b\n", "b", "c", false, "caf\xe9 c\n", "at line 1"},
		{"no regexp", "a.c abc\n", "a.c", "$1", false, "$1 abc\n", "at line 1"},
		{"overlapping", "aaa\n", "aa", "b", true, "ba\n", "1 replacement"},
	} {
		b := newBox(t, map[string]string{"f": c.text})
		name := filepath.Join(b.dir, "f")
		if err := os.Chmod(name, 0o640); err != nil {
			t.Fatal(err)
		}
		got := b.good("edit", object("path", "f", "old", c.old, "new", c.new, "replace_all", c.all))
		if b.content("f") != c.want || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, %q", c.name, b.content("f"), got)
		}
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the mode is %v (%v)", c.name, info.Mode(), err)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	b := newBox(t, map[string]string{
		"f": "one\n\ttwo\nthree\none\n", "many": strings.Repeat("x\n", 50), "binary": "x\x00y", "big": strings.Repeat("x", 8<<20+1), "main.go": "",
	})
	for _, c := range []struct {
		path, old, new string
		want           []string
	}{
		{"f", "one", "1", []string{"stands 2 times in f, at lines 1, 4", "replace_all"}},
		{"f", "four", "4", []string{"does not stand in f. Read the file again"}},
		{"f", "  two\nthree", "2", []string{"At line 2 stands the same text with other white space"}},
		{"f", "three\nfour", "", []string{"Its first line (three) stands at line 3"}},
		{"f", "", "x", []string{"The old text is empty"}},
		{"f", "one", "one", []string{"are the same"}},
		{"many", "x", "y", []string{"50 times", "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 40 more"}},
		{"binary", "x", "y", []string{"is a binary file"}},
		{"big", "x", "y", []string{"edit takes up to 8192 KiB"}},
		{"main.rs", "x", "y", []string{"does not exist. There is main.go.", "use write"}},
	} {
		before, _ := os.ReadFile(filepath.Join(b.dir, c.path))
		b.bad("edit", object("path", c.path, "old", c.old, "new", c.new), c.want...)
		if after, _ := os.ReadFile(filepath.Join(b.dir, c.path)); string(after) != string(before) {
			t.Errorf("%s: a refused edit changed the file", c.path)
		}
	}
	b.bad("edit", object("path", "many", "old", "x", "new", strings.Repeat("y", 1<<20), "replace_all", true), "at most 8192 KiB are written")
}

// FuzzEdit holds that an edit is the replacement that it says, or none.
func FuzzEdit(f *testing.F) {
	f.Add("a b c\n", "b", "B", false)
	f.Add("a\r\nb\r\n", "a\nb", "x", false)
	f.Add("aaa", "a", "aa", true)
	f.Add("caf\xe9", "\xe9", "e", false)
	f.Add("b", "b", "\xff\xfe", false)
	shared := newBox(f, nil)
	f.Fuzz(func(t *testing.T, text, old, replacement string, all bool) {
		b := &box{t, shared.dir, shared.tools}
		if err := os.WriteFile(filepath.Join(b.dir, "f"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := b.call("edit", object("path", "f", "old", old, "new", replacement, "replace_all", all))
		got := b.content("f")
		if r.IsError {
			if got != text {
				t.Errorf("an error, and %q became %q", text, got)
			}
			return
		}
		if strings.Contains(text, "\r\n") {
			if strings.Count(strings.ReplaceAll(text, "\r\n", ""), "\n") == 0 && strings.Count(strings.ReplaceAll(got, "\r\n", ""), "\n") > 0 {
				t.Errorf("line ends did not stay: %q became %q", text, got)
			}
			return
		}
		valid := func(s string) string { return string([]rune(s)) } // what JSON makes of it, byte by byte
		if want := strings.ReplaceAll(text, valid(old), valid(replacement)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	})
}
