//go:build unix

package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/runtime"
)

// TestPipe: a pipe in the folder is not opened, so that nobody waits for who
// would write to it.
func TestPipe(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin)
	s.put(t, "p.wasm", module(t, "1"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	pipe := filepath.Join(s.dir, ".pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pipe, filepath.Join(s.dir, "p.wasm")); err != nil {
		t.Fatal(err)
	}
	s.until(t, "refused", func() bool { return len(s.Refusals()) == 1 })
	if r := s.Refusals()[0]; !strings.Contains(r.Message, "not a regular file") || len(s.names()) != 2 {
		t.Errorf("%v, %+v", s.names(), r)
	}
	began := time.Now()
	if _, err := runtime.ReadFile(filepath.Join(s.dir, "p.wasm")); err == nil || time.Since(began) > time.Second {
		t.Errorf("read after %v: %v", time.Since(began), err)
	}
}

// TestUnreadable: what the user may not read is refused, and nothing else is.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	s := swap(t, runtime.Options{}, builtin)
	s.names()
	path := filepath.Join(s.dir, "p.wasm")
	if err := os.WriteFile(path, module(t, "1"), 0); err != nil {
		t.Fatal(err)
	}
	s.until(t, "refused", func() bool { return len(s.Refusals()) == 1 })
}
