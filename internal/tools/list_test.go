package tools_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	b := newBox(t, map[string]string{
		"b.txt": "12345", "a/x": "", "a/d/y": "1", "a/d/e/z": "", "node_modules/m/i.js": "x", ".gitignore": "node_modules/\n*.log\n",
		".git/HEAD": "ref", "c.log": "xx", "Z": "",
	})
	b.link("a/x", "link")
	for _, c := range []struct{ arguments, want string }{
		{`{}`, "dir - .git/\nfile 20 .gitignore\nfile 0 Z\ndir - a/\nfile 5 b.txt\nfile 2 c.log\nlink - link -> a/x\ndir - node_modules/\n"},
		{`{"path":"."}`, "dir - .git/\nfile 20 .gitignore\nfile 0 Z\ndir - a/\nfile 5 b.txt\nfile 2 c.log\nlink - link -> a/x\ndir - node_modules/\n"},
		{`{"path":"a"}`, "dir - a/d/\nfile 0 a/x\n"},
		{`{"path":"a/","depth":2}`, "dir - a/d/\ndir - a/d/e/\nfile 1 a/d/y\nfile 0 a/x\n"},
		{`{"depth":100}`, "dir - .git/\nfile 20 .gitignore\nfile 0 Z\ndir - a/\ndir - a/d/\ndir - a/d/e/\nfile 0 a/d/e/z\nfile 1 a/d/y\nfile 0 a/x\nfile 5 b.txt\nfile 2 c.log\nlink - link -> a/x\ndir - node_modules/\n"},
		{`{"path":"node_modules"}`, "dir - node_modules/m/\n"},
		{`{"path":"node_modules","depth":5}`, "dir - node_modules/m/\nfile 1 node_modules/m/i.js\n"},
		{`{"path":".git"}`, "file 3 .git/HEAD\n"},
	} {
		if got := b.good("list", c.arguments); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.arguments, got, c.want)
		}
	}
	b.bad("list", `{"path":"b.txt"}`, "b.txt is a file, not a folder")
	b.bad("list", `{"path":"aa"}`, "aa does not exist. There is a.")
	if err := os.Mkdir(filepath.Join(b.dir, "void"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := b.good("list", `{"path":"void"}`); got != "[the folder is empty]" {
		t.Errorf("%q", got)
	}
}

func TestListIsCapped(t *testing.T) {
	b := newBox(t, nil)
	for i := range 1500 {
		if err := os.WriteFile(filepath.Join(b.dir, fmt.Sprintf("%04d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := b.good("list", `{}`)
	if !strings.HasPrefix(got, "file 0 0000\nfile 0 0001\n") || !strings.Contains(got, "file 0 0999\n[the first 1000 entries; there are more:") {
		t.Errorf("%q … %q", got[:50], got[len(got)-200:])
	}
	long := newBox(t, nil)
	for i := range 400 {
		name := fmt.Sprintf("%03d%s", i, strings.Repeat("n", 200))
		if err := os.WriteFile(filepath.Join(long.dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := long.good("list", `{}`); !strings.Contains(got, "there are more") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestDeepFolders holds a chain of folders that is longer than the walk goes.
func TestDeepFolders(t *testing.T) {
	b := newBox(t, nil)
	deep := strings.Repeat("d/", 150)
	if err := os.MkdirAll(filepath.Join(b.dir, deep), 0o755); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, deep, "f"), []byte("needle\n"), 0o644); err != nil {
		t.Skip(err)
	}
	got := b.good("search", `{"pattern":"needle"}`)
	if got != "[no match; files searched: 0]\n[folders left out because they are more than 100 deep: 1]" {
		t.Errorf("%q", got)
	}
	if got := b.good("search", object("pattern", "needle", "path", deep)); !strings.HasSuffix(got, "d/f:1:needle\n") {
		t.Errorf("%q", got)
	}
	if got := b.good("list", `{"depth":100}`); strings.Count(got, "\n") != 100 {
		t.Errorf("%d lines", strings.Count(got, "\n"))
	}
}
