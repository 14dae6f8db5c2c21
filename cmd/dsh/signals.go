package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/loop"
)

// grace is how long a command may take to end after the first signal. All that
// counts is durable before; only a disk or a tool that hangs needs so long.
const grace = 5 * time.Second

// watchSignals makes a context that SIGINT ends with loop.ErrAbort, and
// SIGTERM, or SIGHUP of a terminal that went away, with loop.ErrSuspend. A
// second signal ends the process at once. A signal that the caller set to be
// ignored (nohup, a job in the background) stays ignored.
//
// SIGPIPE is caught so that a closed stdout is an error to be told and not a
// silent death; catching and not ignoring it leaves it as it is for commands
// that tools run.
//
// A SIGHUP without a terminal is passed on to reload, where somebody listens.
func watchSignals(parent context.Context, stderr io.Writer, reload chan<- struct{}) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	got := make(chan os.Signal, 8)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(got, s)
		}
	}
	w := watch{got: got, done: make(chan struct{}), cancel: cancel, stderr: stderr, reload: reload, terminal: hasTerminal()}
	var watching sync.WaitGroup
	watching.Go(w.run)
	return ctx, func() {
		signal.Stop(got)
		close(w.done)
		watching.Wait()
		cancel(nil)
		signal.Stop(pipe)
	}
}

// A watch is what becomes of signals.
type watch struct {
	got      chan os.Signal
	done     chan struct{}
	cancel   context.CancelCauseFunc
	stderr   io.Writer
	reload   chan<- struct{} // with room for one
	terminal bool            // SIGHUP means that it went away
}

func (w watch) run() {
	code := 0
	var end <-chan time.Time
	for {
		select {
		case <-w.done:
			return
		case <-end:
			_, _ = fmt.Fprintln(w.stderr, "dsh: something did not stop in time: the process ends all the same, and what is in the log is safe")
			os.Exit(code)
		case s := <-w.got:
			if s == syscall.SIGHUP && !w.terminal && code == 0 {
				select {
				case w.reload <- struct{}{}:
				default: // one is due already, and will see all that is there by then
				}
				continue
			}
			if code != 0 {
				os.Exit(code)
			}
			code = w.stop(s)
			end = time.After(grace)
		}
	}
}

// stop ends the context, and returns the exit code that goes with it.
func (w watch) stop(s os.Signal) int {
	if s == os.Interrupt {
		w.cancel(loop.ErrAbort)
		return cli.ExitInterrupted
	}
	w.cancel(loop.ErrSuspend)
	return cli.ExitTerminated
}
