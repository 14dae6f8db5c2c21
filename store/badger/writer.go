package badger

import (
	"bytes"
	"context"
	"sync"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
)

// A Writer is the right to append to one session. It implements dsh.Writer
// and is for one goroutine.
type Writer struct {
	log      *Log
	id       dsh.SessionID
	epoch    uint64
	start    dsh.Tail // when it was acquired
	pending  uint64   // of the record: see there
	end      dsh.Head // with all that is queued
	unsynced bool     // something was queued and not waited for
	released bool

	mu      sync.Mutex // the committer writes here too
	durable dsh.Head   // with all that is committed
	round   int        // counts the failures: what was queued before one fails with it
	failure error      // that the caller has not heard of yet
	last    error      // the one before
}

// Epoch counts the acquisitions of the session, from 1.
func (w *Writer) Epoch() uint64 { return w.epoch }

// Tail is the end of the session when it was acquired.
func (w *Writer) Tail() dsh.Tail { return w.start }

// Append adds sealed events to the session's end, all or none, as dsh.Writer
// says. Where the failure of relaxed events is reported, none of the events
// that were queued after them is in the log either.
//
// When ctx ends while it waits, the events may still become durable.
func (w *Writer) Append(ctx context.Context, events ...dsh.Event) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	if len(events) == 0 {
		return nil
	}
	at := events[0].Seq
	events, err := w.skipSame(ctx, events)
	if err != nil || len(events) == 0 {
		return err
	}
	r, err := w.request(at, events)
	if err != nil {
		return err
	}
	before := w.end
	w.end = r.head
	if !r.urgent {
		w.unsynced = true
	}
	if err := w.log.enqueue(ctx, r); err != nil {
		w.end = before
		return err
	}
	if !r.urgent {
		return nil
	}
	return w.wait(ctx, r)
}

// ready reports why the writer cannot go on. The failure of relaxed events is
// reported once; after it the session ends where it is durable.
func (w *Writer) ready(ctx context.Context) error {
	if w.released {
		return dsh.ErrStale
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.log.mu.Lock()
	err := w.log.usable()
	w.log.mu.Unlock()
	if err != nil {
		return err
	}
	return w.settle()
}

// settle takes the failure that was not reported yet, if there is one, and
// brings the writer back to what is durable.
func (w *Writer) settle() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.failure
	if err != nil {
		w.failure, w.last, w.end, w.unsynced = nil, err, w.durable, false
		w.round++
	}
	return err
}

// skipSame leaves out the events that are in the log already, with the same
// bytes: an append whose answer was lost is repeated.
func (w *Writer) skipSame(ctx context.Context, events []dsh.Event) ([]dsh.Event, error) {
	if events[0].Seq > w.end.Seq {
		return events, nil
	}
	if err := w.Sync(ctx); err != nil {
		return nil, err
	}
	conflict := &dsh.ConflictError{Session: w.id, At: events[0].Seq, Tail: w.end.Tail()}
	err := w.log.view(func(txn *db.Txn) error {
		for len(events) > 0 && events[0].Seq <= w.end.Seq {
			e := events[0]
			if e.Seq == 0 {
				return conflict
			}
			old, err := w.log.eventAt(txn, w.id, e.Seq)
			if err != nil {
				return err
			}
			if !bytes.Equal(old.Line(), e.Line()) {
				return conflict
			}
			events = events[1:]
		}
		return nil
	})
	return events, err
}

// request checks that events follow the session's end, and brings them into
// the form in which they are stored. at is the first seq that the caller gave.
func (w *Writer) request(at uint64, events []dsh.Event) (*request, error) {
	r := &request{id: w.id, w: w, round: w.round, head: w.end, events: make([]stored, 0, len(events))}
	tail := w.end.Tail()
	for _, e := range events {
		if tail.Check(e) != nil {
			return nil, &dsh.ConflictError{Session: w.id, At: at, Tail: w.end.Tail()}
		}
		if err := r.head.Apply(e); err != nil {
			return nil, err
		}
		tail = e.Tail()
		r.urgent = r.urgent || !e.Type.Relaxed()
		r.ends = r.ends || e.Type == dsh.TypeTurnEnd
	}
	r.head.ID = w.id
	for _, e := range events {
		if err := w.log.store(r, e); err != nil {
			return nil, err
		}
	}
	if r.urgent {
		r.done = make(chan error, 1)
	}
	return r, nil
}

// store adds an event to a request; a large one goes to its body first.
func (l *Log) store(r *request, e dsh.Event) error {
	s := stored{seq: e.Seq, value: e.Line()}
	if len(s.value) >= bodyFrom {
		if err := l.space(uint64(len(s.value))); err != nil {
			return err
		}
		var err error
		if s.value, s.sum, err = l.bodies.put(e.Line()); err != nil {
			if diskFull(err) {
				free, _ := freeBytes(l.dir)
				return tooFull(l.dir, free, l.o.Reserve+uint64(len(e.Line())))
			}
			return err
		}
	}
	s.value = l.box.Seal(string(eventKey(r.id, s.seq)), s.value)
	r.events = append(r.events, s)
	r.bytes += len(s.value) + len(r.id) + entryBytes
	r.entries++
	if s.sum != "" {
		r.bytes += len(r.id) + entryBytes + len(s.sum)
		r.entries++
	}
	return nil
}

// wait answers when a request is durable.
func (w *Writer) wait(ctx context.Context, r *request) error {
	select {
	case err := <-r.done:
		if err != nil {
			_ = w.settle()
			return err
		}
		w.unsynced = false
		return nil
	case <-ctx.Done():
		w.unsynced = true
		return ctx.Err()
	}
}

// Sync answers when everything that was appended is durable.
func (w *Writer) Sync(ctx context.Context) error {
	if w.released {
		return dsh.ErrStale
	}
	if err := w.settle(); err != nil {
		return err
	}
	if !w.unsynced {
		return nil
	}
	r := &request{id: w.id, w: w, round: w.round, barrier: true, urgent: true, done: make(chan error, 1)}
	if err := w.log.enqueue(ctx, r); err != nil {
		return err
	}
	return w.wait(ctx, r)
}

// Release gives the session up, after a Sync. It gives it up also where that
// fails, and is to be called once.
func (w *Writer) Release(ctx context.Context) error {
	err := w.Sync(ctx)
	if !w.released {
		w.released = true
		w.log.letGo(w.id, w)
	}
	return err
}

// failed reports the failure of what was queued in a round, for the committer.
func (w *Writer) failed(round int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if round < w.round {
		return w.last // it was queued behind what failed
	}
	return w.failure
}

// fail makes all that was queued in a round fail, for the committer.
func (w *Writer) fail(round int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if round == w.round && w.failure == nil {
		w.failure = err
	}
}

// committed moves the durable end, for the committer.
func (w *Writer) committed(head dsh.Head) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.durable = head
}
