package tools_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
)

// TestOutside holds that nothing outside the folder is read, whichever way a
// path goes there.
func TestOutside(t *testing.T) {
	outer := newBox(t, map[string]string{"secret": "outside-secret\n", "in/a": "x\n", "in/d/b": "y\n", "in-not/c": "outside-secret\n"})
	outer.link("../secret", "in/up")
	outer.link(filepath.Join(outer.dir, "secret"), "in/abs")
	outer.link("..", "in/dir")
	outer.link("up", "in/twice")
	outer.link("loop", "in/loop")
	outer.link("a", "in/good")
	outer.link("d", "in/gooddir")
	outer.link("nowhere", "in/dangling")
	b := openBox(t, filepath.Join(outer.dir, "in"))
	for _, path := range []string{
		"../secret", "d/../../secret", "/etc/passwd", outer.dir + "/secret", outer.dir + "/in-not/c", b.dir + "/../secret",
		"/proc/self/environ", "/dev/zero", "/", "..",
	} {
		want := "is outside the working folder"
		b.bad("read", object("path", path), want)
		b.bad("list", object("path", path), want)
		b.bad("search", object("path", path, "pattern", "."), want)
	}
	for _, path := range []string{"up", "abs", "twice", "dir/secret", "loop"} {
		want := "the symbolic link"
		b.bad("read", object("path", path), want)
		b.bad("list", object("path", path), want)
		b.bad("search", object("path", path, "pattern", "."), want)
	}
	b.bad("list", `{"path":"dir"}`, "the symbolic link dir leads out")
	b.bad("read", `{"path":"dangling"}`, "dangling does not exist")
	if got := b.good("read", `{"path":"good"}`) + b.good("read", `{"path":"gooddir/b"}`); got != "x\ny\n" {
		t.Errorf("a link that stays inside: %q", got)
	}
	if got := b.good("search", `{"pattern":"outside-secret|^y"}`); got != "d/b:1:y\n" {
		t.Errorf("%q", got)
	}
	if got := b.good("list", `{"path":"gooddir"}`); got != "file 2 gooddir/b\n" {
		t.Errorf("%q", got)
	}
}

// TestFolderByLink holds that absolute paths count under both names of a
// folder that was opened by a link.
func TestFolderByLink(t *testing.T) {
	outer := newBox(t, map[string]string{"real/a": "x\n"})
	outer.link("real", "alias")
	b := openBox(t, filepath.Join(outer.dir, "alias"))
	for _, name := range []string{"alias", "real"} {
		if got := b.good("read", object("path", filepath.Join(outer.dir, name, "a"))); got != "x\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRenamedFolder holds that tools stay with the folder itself.
func TestRenamedFolder(t *testing.T) {
	outer := newBox(t, map[string]string{"in/a": "x\n", "other/a": "outside-secret\n"})
	b := openBox(t, filepath.Join(outer.dir, "in"))
	if err := os.Rename(b.dir, b.dir+"-moved"); err != nil {
		t.Skip(err)
	}
	if err := os.Rename(filepath.Join(outer.dir, "other"), b.dir); err != nil {
		t.Fatal(err)
	}
	if got := b.good("read", `{"path":"a"}`); got != "x\n" {
		t.Errorf("%q", got)
	}
}

// TestSwaps changes a file into a link that leads out, and a folder, while the
// tools look at them: no call ever tells what is outside.
func TestSwaps(t *testing.T) {
	outer := newBox(t, map[string]string{"secret": "outside-secret\n", "out/f": "outside-secret\n", "in/keep": "x\n"})
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
			os.WriteFile(f, []byte("inside\n"), 0o644)
			os.RemoveAll(d)
			os.MkdirAll(d, 0o755)
			os.WriteFile(filepath.Join(d, "f"), []byte("inside\n"), 0o644)
			os.Remove(f)
			os.Symlink("../secret", f)
			os.RemoveAll(d)
			os.Symlink("../out", d)
		}
	}()
	defer func() { close(stop); <-done }()
	for range 1500 {
		for _, r := range []dsh.ToolResult{
			b.call("read", `{"path":"f"}`), b.call("read", `{"path":"d/f"}`), b.call("list", `{"path":"d"}`),
			b.call("search", `{"pattern":"secret"}`),
		} {
			if text := dsh.Text(r.Content); strings.Contains(text, "outside-secret") {
				t.Fatalf("%q", text)
			}
		}
	}
}
