//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/mcp"
)

// everythingVariable names the command of the protocol's reference server,
// @modelcontextprotocol/server-everything of npm.
const everythingVariable = "DSH_TEST_MCP_EVERYTHING"

// TestEverything drives the reference server: its tools are listed and called,
// a long call is cancelled, and a server that is killed in mid-call is started
// again.
func TestEverything(t *testing.T) {
	command := strings.Fields(os.Getenv(everythingVariable))
	if len(command) == 0 {
		t.Skip(everythingVariable + " names no command")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		t.Fatal(err)
	}
	p := dial(t, mcp.Server{
		Name: "srv", Command: path, Args: command[1:], Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
		StartTimeout: time.Minute, CallTimeout: time.Minute,
	})
	for _, name := range []string{"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} {
		if _, ok := p.tools["srv__"+name]; !ok {
			t.Fatalf("no tool %s among %d; %s", name, len(p.tools), p.warnings())
		}
	}
	if r := p.call("echo", `{"message":"hello"}`); r.IsError || !strings.Contains(dsh.Text(r.Content), "hello") {
		t.Errorf("%+v", r)
	}
	if r := p.call("get-sum", `{"a":2,"b":40}`); r.IsError || !strings.Contains(dsh.Text(r.Content), "42") {
		t.Errorf("%+v", r)
	}
	image := false
	for _, b := range p.call("get-tiny-image", `{}`).Content {
		image = image || b.Type == dsh.BlockImage && b.MediaType == "image/png" && len(b.Data) > 100
	}
	if !image {
		t.Error("no image")
	}
	if r := p.call("echo", `{"message":1}`); !r.IsError {
		t.Errorf("a bad argument: %+v", r)
	}
	long := json.RawMessage(`{"duration":50,"steps":5}`)
	why := errors.New("stopped by a test")
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := time.AfterFunc(500*time.Millisecond, func() { cancel(why) })
	defer stop.Stop()
	began := time.Now()
	if _, err := p.tools["srv__trigger-long-running-operation"].Run(ctx, long); !errors.Is(err, why) || time.Since(began) > 20*time.Second {
		t.Errorf("cancelled after %v: %v", time.Since(began), err)
	}
	if r := p.call("echo", `{"message":"still"}`); r.IsError {
		t.Errorf("after a cancelled call: %+v", r)
	}
	kill := time.AfterFunc(500*time.Millisecond, func() { killChildren(t) })
	defer kill.Stop()
	r := p.call("trigger-long-running-operation", string(long))
	if !r.IsError || !strings.Contains(dsh.Text(r.Content), "ended during the call") {
		t.Errorf("killed in mid-call: %+v", r)
	}
	if r := p.call("echo", `{"message":"again"}`); r.IsError || !strings.Contains(dsh.Text(r.Content), "again") {
		t.Errorf("restarted: %+v", r)
	}
}

// killChildren kills what this process has started.
func killChildren(t *testing.T) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	if err != nil {
		t.Error(err)
		return
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 2 && f[1] == strconv.Itoa(os.Getpid()) && f[2] != "ps" {
			pid, _ := strconv.Atoi(f[0])
			if proc, err := os.FindProcess(pid); err == nil {
				proc.Kill() //nolint:errcheck // what is gone is gone
			}
		}
	}
}
