//go:build unix

package tools_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-agent/dsh"
)

// TestKinds holds that nothing but files and folders is opened: each of these
// would block or act if it were.
func TestKinds(t *testing.T) {
	b := newBox(t, map[string]string{"a": "x\n"})
	if err := syscall.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "s") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sock, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if err := os.Rename(filepath.Join(dir, "s"), filepath.Join(b.dir, "sock")); err != nil {
		t.Skip(err)
	}
	want := "file 2 a\nfifo - pipe\nsocket - sock\n"
	if err := mknod(filepath.Join(b.dir, "zero")); err == nil {
		want += "device - zero\n"
		b.bad("read", `{"path":"zero"}`, "no regular file (its kind: device)")
	}
	if got := b.good("list", `{}`); got != want {
		t.Errorf("got\n%s", got)
	}
	b.bad("read", `{"path":"pipe"}`, "no regular file (its kind: fifo)")
	b.bad("read", `{"path":"sock"}`, "no regular file (its kind: socket)")
	b.bad("list", `{"path":"pipe"}`, "no regular file (its kind: fifo)")
	b.bad("search", `{"path":"pipe","pattern":"x"}`, "no regular file (its kind: fifo)")
	if got := b.good("search", `{"pattern":"x"}`); got != "a:1:x\n" {
		t.Errorf("%q", got)
	}
}

// TestPipeSwap holds that a pipe that takes a file's place between the look and
// the opening blocks nothing.
func TestPipeSwap(t *testing.T) {
	b := newBox(t, map[string]string{"keep": "x\n"})
	name := filepath.Join(b.dir, "f")
	if err := syscall.Mkfifo(name, 0o644); err != nil {
		t.Skip(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(name)
			os.WriteFile(name, []byte("inside\n"), 0o644)
			os.Remove(name)
			syscall.Mkfifo(name, 0o644)
		}
	}()
	defer func() { close(stop); <-done }()
	for range 5000 {
		if r := b.call("read", `{"path":"f"}`); !r.IsError && dsh.Text(r.Content) != "inside\n" && !strings.Contains(dsh.Text(r.Content), "empty") {
			t.Fatalf("%q", dsh.Text(r.Content))
		}
	}
}

func TestInvalidNames(t *testing.T) {
	b := newBox(t, map[string]string{"ok": "x\n"})
	for _, name := range []string{"caf\xe9", "two\nlines", `"quoted"`, " space ", "tab\t", "e\u0301", "esc\x1b[2J"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("found "+"here\n"), 0o644); err != nil {
			t.Skipf("%q: %v", name, err)
		}
	}
	listing := b.good("list", `{}`)
	matches := b.good("search", `{"pattern":"^found"}`)
	for _, q := range []string{`"caf\xe9"`, `"two\nlines"`, `"\"quoted\""`, `" space "`, `"tab\t"`, `"esc\x1b[2J"`} {
		if !strings.Contains(listing, "file 11 "+q+"\n") || !strings.Contains(matches, q+":1:found here\n") {
			t.Errorf("%s is not in\n%s%s", q, listing, matches)
		}
		if got := b.good("read", object("path", q)); got != "found here\n" {
			t.Errorf("%s: %q", q, got)
		}
	}
	if runtime.GOOS == "linux" && strings.Count(listing, "\n") != 8 {
		t.Errorf("%d lines:\n%s", strings.Count(listing, "\n"), listing)
	}
}
