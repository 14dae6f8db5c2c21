package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"syscall"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// A UsageError says what is wrong with the user's words or configuration: a
// line for each problem. It ends a command with ExitUsage.
type UsageError struct {
	Problems []string
}

func (e *UsageError) Error() string {
	switch len(e.Problems) {
	case 0:
		return "usage"
	case 1:
		return e.Problems[0]
	}
	return fmt.Sprintf("%s (and %d more)", e.Problems[0], len(e.Problems)-1)
}

// Usagef makes a UsageError of one problem.
func Usagef(format string, args ...any) error {
	return &UsageError{[]string{fmt.Sprintf(format, args...)}}
}

// A LogError marks an error of the log, whatever its type, so that it ends a
// command with ExitLog.
type LogError struct {
	Err error
}

func (e *LogError) Error() string { return e.Err.Error() }

// Unwrap returns the log's own error.
func (e *LogError) Unwrap() error { return e.Err }

// An outputError says that stdout could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string {
	if errors.Is(e.err, syscall.EPIPE) || errors.Is(e.err, io.ErrClosedPipe) {
		return "stdout was closed by its reader before all was written"
	}
	return fmt.Sprintf("stdout could not be written: %v", e.err)
}

func (e *outputError) Unwrap() error { return e.err }

// An exit ends a command with a code, after everything was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// report says what an error is, and returns the exit code of it.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return ExitDone
	}
	var code exit
	if errors.As(err, &code) {
		return int(code)
	}
	n := exitCode(ctx, err)
	if n == ExitInterrupted || n == ExitTerminated {
		return n // who sent the signal knows
	}
	var usage *UsageError
	if errors.As(err, &usage) {
		for _, p := range usage.Problems {
			a.say.error("%s", strings.ReplaceAll(p, "\n", " "))
		}
		return n
	}
	a.say.error("%s", oneLine(words(err), longError))
	return n
}

// exitCode is the code of an error that ended a command.
func exitCode(ctx context.Context, err error) int {
	var (
		usage    *UsageError
		held     *dsh.HeldError
		reserved *loop.ReservedError
		output   *outputError
	)
	switch {
	case errors.As(err, &output):
		return ExitError
	case ctx.Err() != nil && (stopped(err) || errors.As(err, &usage)): // a check that was stopped is no finding
		if errors.Is(context.Cause(ctx), loop.ErrAbort) {
			return ExitInterrupted
		}
		return ExitTerminated
	case errors.As(err, &usage), errors.As(err, &held), errors.As(err, &reserved), errors.Is(err, loop.ErrNothingOpen):
		return ExitUsage
	case isLogError(err):
		return ExitLog
	}
	return ExitError
}

// stopped reports whether an error is that of a context that ended.
func stopped(err error) bool {
	return errors.Is(err, loop.ErrAbort) || errors.Is(err, loop.ErrSuspend) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isLogError(err error) bool {
	var (
		marked   *LogError
		locked   *dsh.LockedError
		conflict *dsh.ConflictError
		damage   *dsh.DamageError
		schema   *dsh.SchemaError
		space    *dsh.SpaceError
		rule     *loop.InvariantError
	)
	return errors.As(err, &marked) || errors.As(err, &rule) || errors.As(err, &locked) || errors.As(err, &conflict) ||
		errors.As(err, &damage) || errors.As(err, &schema) || errors.As(err, &space) ||
		errors.Is(err, dsh.ErrStale) || errors.Is(err, dsh.ErrClosed) || errors.Is(err, dsh.ErrNoSession)
}

// words is an error with what to do about it, where that is known.
func words(err error) string {
	var (
		held   *dsh.HeldError
		locked *dsh.LockedError
		damage *dsh.DamageError
		space  *dsh.SpaceError
	)
	switch {
	case errors.As(err, &held):
		return err.Error() + ": wait for it to end, or stop it"
	case errors.As(err, &locked):
		return err.Error() + ": wait for it to end, or choose another with --data-dir"
	case errors.As(err, &damage):
		return fmt.Sprintf("%v; the events before it are whole (dsh log verify %s), and dsh doctor --repair lets it go on from there", err, damage.Session)
	case errors.As(err, &space):
		return err.Error() + ": make room, then go on with dsh run --resume last"
	case errors.Is(err, dsh.ErrStale):
		return err.Error() + ": nothing was lost; dsh run --resume last goes on"
	}
	return err.Error()
}

// markLog makes every error of a log a LogError, so that an error that comes
// back through the loop is known for the log's.
func markLog(l dsh.Log) dsh.Log { return markedLog{l} }

type markedLog struct{ dsh.Log }

func mark(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &LogError{err}
}

func (l markedLog) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	w, err := l.Log.Acquire(ctx, id)
	if err != nil {
		return nil, mark(err)
	}
	return markedWriter{w}, nil
}

func (l markedLog) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return markSeq(l.Log.Read(ctx, id, after))
}

func (l markedLog) Follow(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return markSeq(l.Log.Follow(ctx, id, after))
}

func (l markedLog) Head(ctx context.Context, id dsh.SessionID) (dsh.Head, error) {
	h, err := l.Log.Head(ctx, id)
	return h, mark(err)
}

func (l markedLog) Heads(ctx context.Context) iter.Seq2[dsh.Head, error] {
	return markSeq(l.Log.Heads(ctx))
}

func (l markedLog) Remove(ctx context.Context, id dsh.SessionID) error {
	return mark(l.Log.Remove(ctx, id))
}

func (l markedLog) Close() error { return mark(l.Log.Close()) }

func markSeq[T any](seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range seq {
			if !yield(v, mark(err)) {
				return
			}
		}
	}
}

type markedWriter struct{ dsh.Writer }

func (w markedWriter) Append(ctx context.Context, events ...dsh.Event) error {
	return mark(w.Writer.Append(ctx, events...))
}

func (w markedWriter) Sync(ctx context.Context) error    { return mark(w.Writer.Sync(ctx)) }
func (w markedWriter) Release(ctx context.Context) error { return mark(w.Writer.Release(ctx)) }
