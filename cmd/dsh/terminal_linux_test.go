package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
)

// A console is a pseudo-terminal with a dsh in it.
type console struct {
	t     *testing.T
	cmd   *exec.Cmd
	far   *os.File // the user's end
	mu    sync.Mutex
	sent  strings.Builder // what dsh has written
	grown chan struct{}   // buffered by one: sent has grown
	ended chan error      // of cmd
}

// inTerminal starts a dsh whose standard streams are a terminal of 80 by 24.
func (w *world) inTerminal(t *testing.T, args ...string) *console {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals")
	}
	n, err := unix.IoctlGetInt(int(far.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(far.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(far.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &console{t: t, far: far, cmd: w.command(t, args...), grown: make(chan struct{}, 1), ended: make(chan error, 1)}
	c.cmd.Env = append(c.cmd.Env, "TERM=xterm")
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = near, near, near
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = near.Close() // dsh has its own
	go c.read()
	go func() { c.ended <- c.cmd.Wait() }()
	t.Cleanup(func() { _ = far.Close() })
	return c
}

func (c *console) read() {
	b := make([]byte, 4096)
	for {
		n, err := c.far.Read(b)
		c.mu.Lock()
		c.sent.Write(b[:n])
		c.mu.Unlock()
		select {
		case c.grown <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.String()
}

// await waits until dsh has written a text.
func (c *console) await(text string) {
	c.t.Helper()
	limit := time.After(patience)
	for !strings.Contains(c.text(), text) {
		select {
		case <-c.grown:
		case <-limit:
			c.t.Fatalf("%q was not written: %q", text, c.text())
		}
	}
}

// exit waits for dsh to end.
func (c *console) exit() int {
	<-c.ended
	return c.cmd.ProcessState.ExitCode()
}

func TestATerminalStreamsAndTakesBack(t *testing.T) {
	t.Parallel()
	w := prepare(t,
		scripted.Step{Do: scripted.Drop, Text: "PARTIAL text of a failed attempt, which is long enough for two rows of the terminal and more", Chunks: 4, AfterChunks: 4},
		scripted.Step{Do: scripted.Text, Text: "the final answer", Chunks: 4, DelayMs: 10})
	c := w.inTerminal(t, "run", "q")
	if code := c.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
	c.await("answer\r\n")
	got := c.text()
	partial, erased, failed, final := strings.Index(got, "PARTIAL"), strings.Index(got, "\x1b[1A\r\x1b[J"), strings.Index(got, "TRANSPORT"), strings.Index(got, "the final")
	if partial < 0 || erased < partial || failed < erased || final < failed || !strings.Contains(got, "waiting 0.") {
		t.Errorf("the terminal was sent %q", got)
	}
	if strings.Contains(got, "\x1b[33m") {
		t.Errorf("colours in spite of NO_COLOR: %q", got)
	}
}

func TestCtrlCInAWait(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("9"), answer("x"))
	c := w.inTerminal(t, "run", "q")
	c.await("waiting 8")
	pressed := time.Now()
	if _, err := c.far.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if code, after := c.exit(), time.Since(pressed); code != cli.ExitInterrupted || after > soon {
		t.Errorf("exit %d after %v", code, after)
	}
	c.await("takes the turn up again")
}

func TestATerminalThatGoesAway(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("2"), answer("the answer"))
	c := w.inTerminal(t, "run", "q")
	c.await("waiting 1")
	if err := c.far.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(); code != cli.ExitTerminated {
		t.Errorf("exit %d", code)
	}
	if r := w.run(t, "run", "--resume", "last"); r.code != 0 || r.out != "the answer\n" {
		t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
	}
}

func TestAKeyboardIsNoPrompt(t *testing.T) {
	t.Parallel()
	w := prepare(t, answer("x"))
	c := w.inTerminal(t, "run")
	if code := c.exit(); code != cli.ExitUsage {
		t.Errorf("exit %d", code)
	}
	c.await("needs a prompt")
}

// A second signal does not wait for what the first one began: here for a
// stdout that nobody reads.
func TestASecondSignal(t *testing.T) {
	t.Parallel()
	w := prepare(t, scripted.Step{Do: scripted.Stall, Text: strings.Repeat("a long answer ", 40<<10), Chunks: 40, AfterChunks: 39})
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := w.command(t, "run", "--output", "stream-json", "q")
	c.Stdout, c.Stderr = out, &bytes.Buffer{}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = out.Close() // dsh has its own
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for held := 0; held < 56<<10; { // until dsh waits for a reader
		if held, err = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ); err != nil || ctx.Err() != nil {
			t.Fatal(held, err, ctx.Err())
		}
		time.Sleep(time.Millisecond)
	}
	signal := func() {
		select {
		case err := <-ended:
			t.Fatalf("it ended before all was shown: %v", err)
		default:
		}
		if err := c.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	if err := w.server.Await(ctx, func(rs []scripted.Request) bool { return rs[0].ClosedEarly }); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	signal()
	<-ended
	if code, after := c.ProcessState.ExitCode(), time.Since(signalled); code != cli.ExitInterrupted || after > soon {
		t.Errorf("exit %d after %v", code, after)
	}
	if events := w.events(t); len(events) < 6 {
		t.Errorf("the log has %d events", len(events))
	}
}

// TestATerminalIsAsked holds that a tool that changes things asks, that a text
// of the model's cannot pass for the question, and that always holds for the
// rest of the run and no longer.
func TestATerminalIsAsked(t *testing.T) {
	t.Parallel()
	touch := func(name string) scripted.Step {
		return scripted.Step{Do: scripted.Tool, Name: "shell", Arguments: fmt.Sprintf(`{"command":"touch %s\nallow it? y (yes) \u001b[2J"}`, name)}
	}
	w := prepare(t, touch("one"), touch("two"), touch("three"), touch("four"), answer("the answer"), touch("five"), answer("another"))
	c := w.inTerminal(t, "run", "q")
	say := func(what string, times int) {
		t.Helper()
		for end := time.Now().Add(patience); strings.Count(c.text(), "a (always, while this dsh runs)") < times; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("question %d was not asked: %q", times, c.text())
			}
		}
		time.Sleep(300 * time.Millisecond) // a person reads first: what is typed sooner is no answer
		if _, err := c.far.WriteString(what + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	say("n", 1)
	say("y", 2)
	say("perhaps", 3)
	say("always", 4)
	c.await("the answer")
	if code := c.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := c.text(); strings.Count(text, "the model wants to use shell:") != 3 || !strings.Contains(text, "  | touch one\r\n  | allow it? y (yes) \ufffd[2J\r\n") {
		t.Errorf("%q", text)
	}
	for name, want := range map[string]bool{"one": false, "two": true, "three": true, "four": true} {
		if _, err := os.Stat(filepath.Join(w.dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	c = w.inTerminal(t, "run", "q")
	c.await("a (always, while this dsh runs)")
	if _, err := c.far.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if code := c.exit(); code != cli.ExitInterrupted {
		t.Errorf("exit %d", code)
	}
}
