//go:build unix

package mcp_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-agent/dsh"
)

// TestClose holds that nothing of a server is left.
func TestClose(t *testing.T) {
	p := dial(t, stdio("good"))
	pid := p.pid()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("%d runs on", pid)
	}
	if r := p.call("echo", `{}`); !r.IsError || !strings.Contains(dsh.Text(r.Content), "it was closed") {
		t.Errorf("%+v", r)
	}
}
