//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
)

// repository lays out a small Go module with a fault in it, in the world's
// folder. Its files have names here that the toolchain does not take for its
// own.
func (w *world) repository(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("testdata/repository/*")
	if err != nil || len(files) != 4 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, strings.TrimSuffix(filepath.Base(f), ".txt")), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} { // HOME is another one
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Skipf("no Go: %v", err)
		}
		w.env = append(w.env, name+"="+strings.TrimSpace(string(out)))
	}
}

// killedAt runs a dsh, and kills it as soon as the condition holds.
func (w *world) killedAt(t *testing.T, holds func(stderr string) bool, args ...string) {
	t.Helper()
	c := w.command(t, args...)
	r, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said, done := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			said <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	all := ""
	for end := time.Now().Add(patience); !holds(all); {
		select {
		case l := <-said:
			all += l + "\n"
		case <-done:
			t.Fatalf("it ended by itself: %s", all)
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("what was waited for did not happen: %s", all)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	_ = c.Wait() // it was killed
}

// TestATask plays a session that does real work: it finds a failing test, mends
// what is wrong, runs the test and answers. It is killed twice, in a command and
// in a wait, and nothing is done twice.
func TestATask(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs the Go toolchain")
	}
	t.Parallel()
	sleep := fmt.Sprintf("sleep %d", 7000000+os.Getpid()) // of this test alone
	shell := func(name, command string) scripted.Step {
		return tool("shell", "command", "echo "+name+" >> runs.log; "+command)
	}
	w := prepare(t,
		tool("list"),
		shell("first", "touch started; "+sleep+" & "+sleep),
		shell("second", "go test ./..."),
		tool("search", "pattern", "middle", "glob", "*.go"),
		scripted.Step{Do: scripted.Tool, Tools: []scripted.Call{
			{Name: "read", Arguments: `{"path":"median.go"}`}, {Name: "read", Arguments: `{"path":"median_test.go"}`},
		}},
		tool("edit", "path", "median.go", "old", "sorted[middle] + sorted[middle+1]", "new", "sorted[middle-1] + sorted[middle]"),
		scripted.Step{Do: scripted.Status, Status: 429, Headers: map[string]string{"Retry-After": "3"}},
		shell("third", "go test ./..."),
		answer("The test passes now."),
	)
	w.repository(t)
	if r := w.run(t, "config", "trust"); r.code != 0 {
		t.Fatalf("%d %s", r.code, r.err)
	}
	w.killedAt(t, func(string) bool {
		_, err := os.Stat(filepath.Join(w.dir, "started"))
		return err == nil
	}, "run", "--yes", "make the tests pass")
	w.killedAt(t, func(stderr string) bool { return strings.Contains(stderr, "RATE_LIMIT") }, "run", "--yes", "--resume", "last")
	r := w.run(t, "run", "--yes", "--resume", "last")
	if r.code != 0 || r.out != "The test passes now.\n" {
		t.Fatalf("exit %d, %q, %s", r.code, r.out, r.err)
	}
	w.checkTask(t)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		out, _ := exec.Command("ps", "-A", "-o", "stat=,args=").Output()
		if !strings.Contains(string(out), sleep) {
			break
		}
		if time.Now().After(end) {
			t.Errorf("the command of the killed dsh runs on")
			break
		}
	}
}

// checkTask holds that the work was done, each piece of it once.
func (w *world) checkTask(t *testing.T) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(w.dir, "runs.log")); err != nil || string(got) != "first\nsecond\nthird\n" {
		t.Errorf("the commands that ran: %q %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, "median.go")); err != nil || strings.Count(string(got), "sorted[middle-1] + sorted[middle]") != 1 {
		t.Errorf("%s %v", got, err)
	}
	events := w.events(t)
	results := map[string]string{}
	for _, e := range ofType(events, dsh.TypeToolResult) {
		var d dsh.ToolResultEvent
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		if _, twice := results[d.CallID]; twice {
			t.Errorf("%s has two results", d.CallID)
		}
		results[d.CallID] = dsh.Text(d.Content)
	}
	said := map[string][]string{} // results by the name of the tool
	for _, e := range ofType(events, dsh.TypeToolCall) {
		var d dsh.ToolCall
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		said[d.Name] = append(said[d.Name], results[d.CallID])
	}
	if len(said["list"]) != 1 || len(said["search"]) != 1 || len(said["read"]) != 2 || len(said["edit"]) != 1 || len(said["shell"]) != 3 {
		t.Fatalf("%q", said)
	}
	for i, want := range []string{"The outcome of this call is unknown", "Median([4 1 3 2 10 6]) is 5, want 3.5", "ok  \texample.com/median"} {
		if !strings.Contains(said["shell"][i], want) {
			t.Errorf("command %d: %q", i+1, said["shell"][i])
		}
	}
	if !strings.Contains(said["edit"][0], "edited median.go: 1 replacement, at line 18") || !strings.Contains(said["read"][0], "package median") {
		t.Errorf("%q", said)
	}
	if n := len(w.server.Requests()); n != 9 {
		t.Errorf("%d requests", n)
	}
	if n, m := len(ofType(events, dsh.TypeRetry)), len(ofType(events, dsh.TypeRetryStarted)); n != 1 || m != 1 {
		t.Errorf("%d retries, %d started", n, m)
	}
	header := ofType(events, dsh.TypeRequestHeader)[0]
	var d dsh.RequestHeader
	if err := header.Decode(&d); err != nil || !strings.Contains(d.System, `Run the tests with "go test ./..." before`) {
		t.Errorf("AGENTS.md is not in the system prompt: %v", err)
	}
}

// TestASignalInACommand holds that a command ends with the turn that it is of:
// aborted, its call has a result; suspended, its outcome is unknown to the turn
// that goes on.
func TestASignalInACommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		code   int
		result string // of the call, in the end
	}{
		{syscall.SIGINT, cli.ExitInterrupted, "The call was stopped by the user"},
		{syscall.SIGTERM, cli.ExitTerminated, "The outcome of this call is unknown"},
	} {
		sleep := fmt.Sprintf("sleep %d", 8000000+os.Getpid()*10+int(c.signal)%10)
		w := prepare(t, tool("shell", "command", "touch started; "+sleep+" & setsid "+sleep+" & "+sleep), answer("done"))
		p := w.command(t, "run", "--yes", "q")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(w.dir, "started")); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal("the command did not begin")
			}
		}
		if err := p.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if _ = p.Wait(); p.ProcessState.ExitCode() != c.code {
			t.Errorf("%v: exit %d", c.signal, p.ProcessState.ExitCode())
		}
		if out, err := exec.Command("ps", "-A", "-o", "args=").Output(); err != nil || strings.Contains(string(out), sleep) {
			t.Errorf("%v: the command runs on after dsh (%v)", c.signal, err)
		}
		if c.signal == syscall.SIGTERM {
			if r := w.run(t, "run", "--yes", "--resume", "last"); r.code != 0 || r.out != "done\n" {
				t.Errorf("resumed: %d %q %s", r.code, r.out, r.err)
			}
		}
		results := ofType(w.events(t), dsh.TypeToolResult)
		var d dsh.ToolResultEvent
		if len(results) != 1 || results[0].Decode(&d) != nil || !d.IsError || !strings.Contains(dsh.Text(d.Content), c.result) {
			t.Errorf("%v: %d results, %+v", c.signal, len(results), d)
		}
	}
}
