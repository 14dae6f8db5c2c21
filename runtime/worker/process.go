package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
)

// A process is one worker. It is for one goroutine at a time, but for kill.
type process struct {
	cmd    *exec.Cmd
	in     *os.File // to the worker
	out    *os.File // from it
	stderr *tail
	ended  chan struct{} // closed when the process is gone
	state  error         // how it ended, after that
	used   bool          // it has had an instance
	cpu    time.Duration // that it says it has used
}

// start starts a worker that may have a guest of so many pages.
func start(command []string, pages uint32) (*process, error) {
	if len(command) == 0 {
		return nil, errors.New("there is no command to start a worker process with")
	}
	inRead, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, outWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inRead.Close(), in.Close())
	}
	w := &process{in: in, out: out, stderr: &tail{}, ended: make(chan struct{})}
	//nolint:noctx // it outlives the call that starts it, and is killed by hand
	w.cmd = exec.Command(command[0], append(command[1:], strconv.FormatUint(uint64(pages), 10))...)
	w.cmd.Env, w.cmd.Dir = []string{}, root
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = inRead, outWrite, w.stderr
	w.cmd.WaitDelay = leave
	w.cmd.SysProcAttr = attributes()
	err = w.cmd.Start()
	err = errors.Join(err, inRead.Close(), outWrite.Close())
	if err != nil {
		return nil, fmt.Errorf("a worker process cannot be started: %w", errors.Join(err, in.Close(), out.Close()))
	}
	go func() { // ends with the process, which end waits for
		w.state = w.cmd.Wait()
		close(w.ended)
	}()
	return w, nil
}

func (w *process) say(m message) error { return write(w.in, m) }

func (w *process) hear() (message, error) { return read(w.out, maxSaidHead, maxSaidBody) }

// do says something and waits for it to be done. When ctx ends the worker is
// killed.
func (w *process) do(ctx context.Context, m message) error {
	defer context.AfterFunc(ctx, w.kill)()
	err := w.say(m)
	var answer message
	if err == nil {
		answer, err = w.hear()
	}
	switch {
	case ctx.Err() != nil:
		w.kill()
		return fmt.Errorf("its worker process was not ready in time: %w", context.Cause(ctx))
	case err != nil:
		return w.died(err)
	case answer.Kind == kindFailed:
		return errors.New(runtime.Printable(answer.Text, maxMessage))
	case answer.Kind != kindDone:
		return w.died(errFrame)
	}
	return nil
}

// kill ends the process at once.
func (w *process) kill() { _ = w.cmd.Process.Kill() } // one that is gone already is no loss

// end lets the process end, or kills it, and waits until it is gone.
func (w *process) end() {
	_ = w.in.Close() // which it ends by
	late := time.AfterFunc(leave, w.kill)
	<-w.ended
	late.Stop()
	_ = w.out.Close()
}

// died says what became of a worker that does not answer as it should.
func (w *process) died(err error) *dsh.Fault {
	w.kill()
	<-w.ended
	why := "it said what is no answer"
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, errFrame) {
		why = "it ended"
		if w.state != nil {
			why += ": " + w.state.Error()
		}
	}
	if words := w.stderr.line(); words != "" {
		why += ": " + words
	}
	kind := dsh.FaultUnavailable
	if outOfMemory(w.stderr.all()) {
		kind = dsh.FaultMemory
	}
	return &dsh.Fault{Kind: kind, Message: "its worker process is lost: " + runtime.Printable(why, maxMessage), Cause: err}
}

// outOfMemory reports whether a worker's last words are those of Go's runtime at
// the limit on its data: for the heap, for the stack of one more thread, of which
// there is no limit of their own, or for the garbage collector's own lists, whose
// memory it does not check (Go 1.26): it reads at address 0, on the system's stack,
// where no guest runs.
func outOfMemory(words string) bool {
	if strings.HasPrefix(words, "SIGSEGV") && strings.Contains(words, " addr=0x0\n") && strings.Contains(words, "\ngoroutine 0 ") {
		return true
	}
	return slices.ContainsFunc([]string{
		"out of memory", "cannot allocate memory", "pthread_create failed", "failed to create new OS thread",
	}, func(text string) bool { return strings.Contains(words, text) })
}

// tail keeps the beginning of what a worker writes to stderr.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[:min(len(b), maxMessage-min(len(t.text), maxMessage))]...)
	return len(b), nil
}

func (t *tail) all() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

func (t *tail) line() string {
	line, _, _ := strings.Cut(t.all(), "\n")
	return line
}
