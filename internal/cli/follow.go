package cli

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// A follower writes a session's events to stdout, a line each, as they become
// durable.
type follower struct {
	log    dsh.Log
	id     dsh.SessionID
	cancel context.CancelFunc
	seen   chan uint64 // the last seq that was written; buffered by one
	busy   atomic.Bool // a write is under way: its reader may take its time
	done   chan struct{}
	err    error // set before done is closed
}

// follow begins at the session's end. A session that is there already gets its
// first line repeated before that. When writing fails, failed is told at once.
func follow(ctx context.Context, log dsh.Log, s *loop.Session, out *output, failed func(error)) *follower {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &follower{log: log, id: s.ID(), cancel: cancel, seen: make(chan uint64, 1), done: make(chan struct{})}
	after := s.Tail().Seq
	f.seen <- after
	go func() {
		defer close(f.done)
		f.err = f.run(ctx, after, out)
		if f.err != nil {
			failed(f.err)
		}
	}()
	return f
}

func (f *follower) run(ctx context.Context, after uint64, out *output) error {
	if after > 0 {
		for e, err := range f.log.Read(ctx, f.id, 0) {
			if err != nil {
				return err
			}
			if err := f.write(out, e); err != nil {
				return err
			}
			break
		}
	}
	for e, err := range f.log.Follow(ctx, f.id, after) {
		if err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		if err := f.write(out, e); err != nil {
			return err
		}
		select {
		case <-f.seen:
		default:
		}
		f.seen <- e.Seq
	}
	return nil
}

func (f *follower) write(out *output, e dsh.Event) error {
	f.busy.Store(true)
	defer f.busy.Store(false)
	return writeLine(out, e)
}

// drain waits until all that is durable was written, and ends the following.
// The reader of stdout may take its time; a log that does not hand out its
// end is waited for no longer than a moment.
func (f *follower) drain(ctx context.Context) error {
	const patience = 5 * time.Second
	ctx = context.WithoutCancel(ctx)
	defer func() { f.cancel(); <-f.done }()
	h, err := f.log.Head(ctx, f.id)
	if errors.Is(err, dsh.ErrNoSession) {
		return nil // nothing was ever durable
	}
	if err != nil {
		return err
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		select {
		case seq := <-f.seen:
			if seq >= h.Seq {
				return nil
			}
		case <-f.done:
			return f.err
		case <-t.C:
			if !f.busy.Load() {
				return &LogError{errors.New("the log did not hand out its last events in time: dsh log export has them")}
			}
		}
		t.Reset(patience)
	}
}

// writeLine writes an event as the log has it.
func writeLine(out *output, e dsh.Event) error {
	_, err := out.Write(append(e.Line()[:len(e.Line()):len(e.Line())], '\n'))
	return err
}
