//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
)

// signalAt runs a turn and sends it a signal when an event of a type shows. It
// returns what was shown, the exit code, and how long the process lived on.
func (w *world) signalAt(t *testing.T, at dsh.EventType, sig syscall.Signal, args ...string) (shown []dsh.Event, code int, after time.Duration) {
	t.Helper()
	c := w.command(t, append([]string{"run", "--output", "stream-json"}, args...)...)
	c.Stderr = io.Discard
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var sent time.Time
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		e, err := dsh.ParseEvent(bytes.Clone(lines.Bytes()))
		if err != nil {
			if sig == syscall.SIGKILL {
				break // it was cut in a line
			}
			t.Fatal(err)
		}
		shown = append(shown, e)
		if e.Type == at && sent.IsZero() {
			sent = time.Now()
			if err := c.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = c.Wait() // the code tells
	if sent.IsZero() {
		t.Fatalf("no %s was shown", at)
	}
	return shown, c.ProcessState.ExitCode(), time.Since(sent)
}

// soon is the most that a stopped process may live on. The contract says
// 200 ms; a machine that is busy with other tests gets more, but less than any
// wait that is cut short here.
const soon = 2 * time.Second

func TestSIGINTInAWait(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("9"), answer("later"))
	shown, code, after := w.signalAt(t, dsh.TypeRetry, syscall.SIGINT, "q")
	if code != cli.ExitInterrupted || after > soon {
		t.Errorf("exit %d after %v", code, after)
	}
	events := w.events(t)
	if len(shown) != len(events) {
		t.Errorf("%d events were shown, the log has %d", len(shown), len(events))
	}
	var end dsh.TurnEnd
	if err := events[len(events)-1].Decode(&end); err != nil || end.Reason.Kind != dsh.EndAborted || len(ofType(events, dsh.TypeRetryCancelled)) != 1 {
		t.Errorf("%v: the log ends in %s", err, events[len(events)-1].Line())
	}
	if r := w.run(t, "run", "--resume", "last"); r.code != 0 || r.out != "later\n" {
		t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
	}
}

func TestSIGTERMAndSIGKILLInAWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		sig  syscall.Signal
		code int
	}{{"SIGTERM", syscall.SIGTERM, cli.ExitTerminated}, {"SIGKILL", syscall.SIGKILL, -1}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, rateLimit("3"), answer("later"))
			shown, code, after := w.signalAt(t, dsh.TypeRetry, c.sig, "q")
			if code != c.code || after > soon {
				t.Errorf("exit %d after %v", code, after)
			}
			var decided dsh.Retry
			if err := ofType(shown, dsh.TypeRetry)[0].Decode(&decided); err != nil {
				t.Fatal(err)
			}
			r := w.run(t, "run", "--resume", "last")
			if r.code != 0 || r.out != "later\n" || !strings.Contains(r.err, "RATE_LIMIT") || !strings.Contains(r.err, "retry 1 of 5") {
				t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
			}
			requests := w.server.Requests()
			if early := time.UnixMilli(decided.NotBefore).Sub(requests[1].At); len(requests) != 2 || early > 0 {
				t.Errorf("%d requests, the second %v before its time", len(requests), early)
			}
			events := w.events(t)
			var started dsh.RetryStarted
			if err := ofType(events, dsh.TypeRetryStarted)[0].Decode(&started); err != nil || started.RetryID != decided.RetryID {
				t.Errorf("%v: retry %s was started, %s was shown", err, started.RetryID, decided.RetryID)
			}
			if n := len(ofType(events, dsh.TypeRetryCancelled)); n != 0 {
				t.Errorf("%d retries were cancelled", n)
			}
		})
	}
}

func TestSignalsInARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGINT, cli.ExitInterrupted}, {syscall.SIGTERM, cli.ExitTerminated}} {
		t.Run(c.sig.String(), func(t *testing.T) {
			t.Parallel()
			w := prepare(t, scripted.Step{Do: scripted.Stall, Text: "PARTIAL text", Chunks: 4, AfterChunks: 2}, answer("whole"))
			_, code, after := w.signalAt(t, dsh.TypeAssistantChunk, c.sig, "q")
			if code != c.code || after > soon {
				t.Errorf("exit %d after %v", code, after)
			}
			if r := w.run(t, "run", "--resume", "last"); r.code != 0 || r.out != "whole\n" {
				t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
			}
		})
	}
}

// Without a terminal SIGHUP is no end: it stands for loading the policies anew.
func TestSIGHUPWithoutATerminal(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("1"), answer("the answer"))
	c := w.command(t, "run", "q")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no controlling terminal
	var out, errs bytes.Buffer
	c.Stdout = &out
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		errs.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "retry 1 of 5") {
			if err := c.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(); err != nil || out.String() != "the answer\n" || !strings.Contains(errs.String(), "SIGHUP") {
		t.Errorf("%v: %q, %s", err, out.String(), errs.String())
	}
}

// A stdout whose reader has gone, or whose disk is full, ends a run with one
// line, and the answer is not lost.
func TestStdoutThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	closed := func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close() // nobody reads
		return w
	}
	full := func(t *testing.T) *os.File {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("no /dev/full")
		}
		return f
	}
	for _, c := range []struct {
		name string
		out  func(*testing.T) *os.File
		args []string
		says string
	}{
		{"closed", closed, []string{"run", "q"}, "stdout was closed"},
		{"closed stream", closed, []string{"run", "--output", "stream-json", "q"}, "stdout was closed"},
		{"full", full, []string{"run", "q"}, "no space left"},
		{"full stream", full, []string{"run", "--output", "stream-json", "q"}, "no space left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, answer("the answer"), answer("the answer"))
			var errs bytes.Buffer
			cmd := w.command(t, c.args...)
			cmd.Stdout, cmd.Stderr = c.out(t), &errs
			defer cmd.Stdout.(*os.File).Close()
			var exit *exec.ExitError
			if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != cli.ExitError || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), c.says) {
				t.Errorf("%v, stderr %q", err, errs.String())
			}
			if strings.Contains(errs.String(), "sessions show") { // the turn was faster than its stream
				if r := w.run(t, "sessions", "show", "last"); !strings.Contains(r.out, "answer: the answer") {
					t.Errorf("%s", r.out)
				}
				return
			}
			if r := w.run(t, "run", "--resume", "last"); r.code != 0 || r.out != "the answer\n" {
				t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
			}
		})
	}
}

// While one process writes a session, others list, follow and write theirs,
// and who wants that session is told who has it.
func TestAFolderInUse(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("9"), answer("x"))
	c := w.command(t, "run", "--output", "stream-json", "q")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() && !strings.Contains(lines.Text(), `"type":"llm/retry"`) {
	}
	follow := w.command(t, "log", "show", "last", "--follow", "--json")
	followed, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", "--resume", "last", "q"}, {"sessions", "rm", "last"}} {
		if r := w.run(t, args...); r.code != cli.ExitUsage || !strings.Contains(r.err, fmt.Sprintf("is held by process %d", c.Process.Pid)) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: exit %d, %s", args, r.code, r.err)
		}
	}
	if r := w.run(t, "sessions", "--json"); r.code != 0 || !strings.Contains(r.out, `"state":"waiting"`) {
		t.Errorf("sessions: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if r := w.run(t, "policy", "list", "--json"); r.code != 0 || !strings.Contains(r.out, `"name":"retry"`) || !strings.Contains(r.out, `"calls":1`) {
		t.Errorf("policy list: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if r := w.run(t, "run", "another"); r.code != 0 || r.out != "x\n" {
		t.Errorf("run: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(out)
	_ = c.Wait() // how it ends is another test's
	if !strings.Contains(string(rest), `"type":"turn/end"`) {
		t.Errorf("the first process wrote %s", rest)
	}
	last := ""
	lines = bufio.NewScanner(followed)
	lines.Buffer(nil, 16<<20)
	for !strings.Contains(last, `"type":"turn/end"`) && lines.Scan() {
		last = lines.Text()
	}
	if !strings.Contains(last, `"kind":"aborted"`) {
		t.Errorf("the last line that was followed: %s", last)
	}
	_ = follow.Process.Signal(syscall.SIGINT)
	_, _ = io.Copy(io.Discard, followed)
	_ = follow.Wait()
	if code := follow.ProcessState.ExitCode(); code != cli.ExitInterrupted {
		t.Errorf("log show --follow: exit %d", code)
	}
}

// The key occurs in nothing that a failing run writes, also where the provider
// says it back.
func TestTheKeyIsNowhere(t *testing.T) {
	t.Parallel()
	w := prepare(t, scripted.Step{Do: scripted.Status, Status: 401, Message: "Incorrect API key provided: " + canary})
	for _, args := range [][]string{{"run", "--verbose", "--output", "json", "q"}, {"log", "export"}, {"config", "show"}, {"sessions", "show", "last"}} {
		if r := w.run(t, args...); strings.Contains(r.out+r.err, canary) {
			t.Errorf("%v: the key is in\n%s\n%s", args, r.out, r.err)
		}
	}
}

func TestOutputJSONIsOneObject(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("3600"))
	r := w.run(t, "run", "--output", "json", "q")
	var got struct {
		Status  string
		Failure *dsh.Failure
		RetryAt int64
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != cli.ExitTransient || got.Status != "failed" || got.Failure.Code != dsh.CodeRateLimit {
		t.Fatalf("%v: exit %d, %s", err, r.code, r.out)
	}
	if in := time.Until(time.UnixMilli(got.RetryAt)); in < 59*time.Minute || in > time.Hour {
		t.Errorf("retryAt is in %v", in)
	}
}
