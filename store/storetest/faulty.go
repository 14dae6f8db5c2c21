package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/dsh-agent/dsh"
)

// A Fault says which append of a log fails, and how.
type Fault struct {
	// N is the append that fails, counted over all sessions from 1. 0: none.
	N int

	// After says that the events are written all the same and only the answer
	// is lost.
	After bool

	// Passing says that later appends work again. Otherwise they fail with the
	// same error and write nothing, as those of a log do whose disk has failed.
	Passing bool

	// Err is the error. nil: one that says "injected fault".
	Err error
}

// Faulty wraps a log so that one of its appends fails. An append of relaxed
// events alone answers nil, as everywhere: its failure is the next one's.
//
// The wrapper is closed in the place of the log.
func Faulty(log dsh.Log, fault Fault) dsh.Log {
	if fault.Err == nil {
		fault.Err = errInjected
	}
	return &faulty{Log: log, fault: fault}
}

var errInjected = errors.New("injected fault")

type faulty struct {
	dsh.Log
	fault Fault

	mu sync.Mutex
	n  int // appends so far
}

func (f *faulty) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	w, err := f.Log.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	return &faultyWriter{Writer: w, log: f}, nil
}

// count counts an append. It reports whether that is to fail, and whether its
// events are to be written.
func (f *faulty) count() (fail, write bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	switch {
	case f.fault.N == 0 || f.n < f.fault.N:
		return false, true
	case f.n == f.fault.N:
		return true, f.fault.After
	}
	return !f.fault.Passing, f.fault.Passing
}

type faultyWriter struct {
	dsh.Writer
	log    *faulty
	failed bool // relaxed events, and nobody has heard of it
}

func (w *faultyWriter) Append(ctx context.Context, events ...dsh.Event) error {
	if len(events) == 0 || ctx.Err() != nil {
		return w.Writer.Append(ctx, events...)
	}
	if w.failed {
		w.failed = false
		return w.log.fault.Err
	}
	fail, write := w.log.count()
	if write {
		if err := w.Writer.Append(ctx, events...); err != nil || !fail {
			return err
		}
	}
	for _, e := range events {
		if !e.Type.Relaxed() {
			return w.log.fault.Err
		}
	}
	w.failed = true
	return nil
}

func (w *faultyWriter) Sync(ctx context.Context) error {
	if w.failed {
		w.failed = false
		return w.log.fault.Err
	}
	return w.Writer.Sync(ctx)
}

func (w *faultyWriter) Release(ctx context.Context) error {
	err := w.Writer.Release(ctx)
	if w.failed {
		w.failed = false
		return w.log.fault.Err
	}
	return err
}
