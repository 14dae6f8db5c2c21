//go:build unix

package config_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestTrustBlocksOnNothing puts a pipe where the file belongs.
func TestTrustBlocksOnNothing(t *testing.T) {
	w := newWorld(t)
	if err := syscall.Mkfifo(filepath.Join(w.cwd, "dsh.toml"), 0o600); err != nil {
		t.Skip(err)
	}
	w.expect("deepseek-chat", "dsh.toml (it is no regular file)")
	if err := os.Remove(filepath.Join(w.cwd, "dsh.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(w.cwd, "dsh.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.expect("deepseek-chat", "dsh.toml (it is no regular file)")
}
