package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/dsh-agent/dsh"
)

// A Writer is the right to append to one session. It implements dsh.Writer.
type Writer struct {
	log   *Log
	id    dsh.SessionID
	epoch uint64
	start dsh.Tail

	mu       sync.Mutex // Close and the owner meet here
	local    dsh.Writer // of the store, where this process keeps it
	wire     *wire      // to the keeper; nil: not acquired, or lost
	granted  grant
	asked    uint64 // the last number on wire
	released bool

	// What was handed in over a wire and is not known to be durable is kept,
	// to be appended again by way of another keeper.
	end     dsh.Tail // with all that was handed in
	durable dsh.Tail // before unsure
	unsure  []dsh.Event
	bytes   int   // of unsure
	unknown bool  // an append failed in a way that leaves the end open
	gone    error // the session was taken over, or what was handed in refused
}

// maxUnsure bounds what is kept to be appended again.
const maxUnsure = 1 << 20

// Epoch counts the acquisitions of the session, from 1. Those by which a
// writer goes on with another keeper count too, and Epoch stays what it was.
func (w *Writer) Epoch() uint64 { return w.epoch }

// Tail is the end of the session when it was acquired.
func (w *Writer) Tail() dsh.Tail { return w.start }

// acquire gets the session from whoever keeps the log. Its error is never that
// a connection was lost.
func (w *Writer) acquire(ctx context.Context) error {
	l := w.log
	for try := 0; ; try++ {
		store, wire, err := l.reach(ctx, &hello{Op: opAcquire, Session: w.id})
		if err != nil {
			return err
		}
		if store != nil {
			local, err := store.Acquire(ctx, w.id)
			if err != nil {
				return err
			}
			w.local, w.granted = local, grant{local.Epoch(), local.Tail()}
			return nil
		}
		_, body, err := wire.expect(ctx, frameGranted)
		if err == nil {
			err = json.Unmarshal(body, &w.granted)
		}
		if err == nil {
			w.wire, w.asked = wire, 0
			l.unlist(wire) // Close sees to it by way of the writer
			return nil
		}
		l.hangUp(wire)
		if !isLost(err) || try > 50 {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

func (l *Log) unlist(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wires, w)
}

// Append adds sealed events to the session's end, as dsh.Writer says.
func (w *Writer) Append(ctx context.Context, events ...dsh.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run(ctx, func() error {
		if len(events) == 0 {
			return nil
		}
		if w.local != nil {
			return w.local.Append(ctx, events...)
		}
		return w.send(ctx, events)
	})
}

// run does something while the session is held, again where the connection is
// lost. w.mu is held.
func (w *Writer) run(ctx context.Context, f func() error) error {
	if w.released {
		return dsh.ErrStale
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		if err := w.usable(); err != nil {
			return err
		}
		if w.local == nil && w.wire == nil {
			if err := w.again(ctx); isLost(err) {
				w.drop()
				continue
			} else if err != nil {
				return err
			}
		}
		err := f()
		if err == nil || !isLost(err) {
			return err
		}
		w.drop()
	}
}

func (w *Writer) usable() error {
	if w.gone != nil {
		return w.gone
	}
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.log.closed {
		return dsh.ErrClosed
	}
	return nil
}

// drop forgets a connection.
func (w *Writer) drop() {
	if w.wire != nil {
		_ = w.wire.conn.Close()
		w.wire = nil
	}
}

// again acquires the session after a connection was lost, and appends once
// more what may not have come through.
func (w *Writer) again(ctx context.Context) error {
	if err := w.log.patient(ctx, true, func() error { return w.acquire(ctx) }); err != nil {
		return err
	}
	rest, ok := w.rest()
	if !ok {
		w.gone = dsh.ErrStale
		if w.local != nil {
			return errors.Join(w.gone, w.local.Release(ctx))
		}
		w.drop()
		return w.gone
	}
	if w.local != nil {
		if len(rest) > 0 {
			if err := w.local.Append(ctx, rest...); err != nil {
				w.gone = err
				return err
			}
		}
		w.unsure, w.bytes = nil, 0 // from here on the store keeps them
		return nil
	}
	if len(rest) == 0 {
		return nil
	}
	if relaxed(rest) {
		return w.queue(rest)
	}
	return w.ask(ctx, frameAppend, rest)
}

// rest are the events that follow the session's end as it was found. It is
// false where the end is none that this writer has made.
func (w *Writer) rest() ([]dsh.Event, bool) {
	found := w.granted.Tail
	if w.unknown {
		return nil, false
	}
	if found == w.durable {
		return w.unsure, true
	}
	for i, e := range w.unsure {
		if found == e.Tail() {
			return w.unsure[i+1:], true
		}
	}
	return nil, false
}

func relaxed(events []dsh.Event) bool {
	for _, e := range events {
		if !e.Type.Relaxed() {
			return false
		}
	}
	return true
}

// follows reports whether events are the next ones of a chain.
func follows(t dsh.Tail, events []dsh.Event) bool {
	for _, e := range events {
		if t.Check(e) != nil {
			return false
		}
		t = e.Tail()
	}
	return true
}

// send appends over the wire.
func (w *Writer) send(ctx context.Context, events []dsh.Event) error {
	last := events[len(events)-1].Tail()
	if w.unknown || !follows(w.end, events) {
		// They were appended before, or do not fit: the keeper knows.
		if err := w.ask(ctx, frameAppend, events); err != nil {
			return err
		}
		w.settle(last)
		return nil
	}
	before, end := len(w.unsure), w.end
	w.unsure, w.end = append(w.unsure, events...), last
	for _, e := range events {
		w.bytes += len(e.Line())
	}
	if relaxed(events) {
		if err := w.queue(events); err != nil || w.bytes < maxUnsure {
			return err
		}
		return w.sync(ctx)
	}
	err := w.ask(ctx, frameAppend, events)
	switch {
	case err == nil:
		w.settle(last)
	case isLost(err):
	case ctx.Err() == nil: // it was refused
		w.unsure, w.end = w.unsure[:before], end
		var space *dsh.SpaceError
		w.unknown = errors.As(err, &space)
	}
	return err
}

// settle notes that all is durable, up to an event at least.
func (w *Writer) settle(last dsh.Tail) {
	if last.Seq > w.end.Seq || w.unknown {
		w.end = last
	}
	w.durable, w.unsure, w.bytes, w.unknown = w.end, nil, 0, false
}

// queue sends relaxed events, which are not answered.
func (w *Writer) queue(events []dsh.Event) error {
	b, err := packEvents(events)
	if err != nil {
		return err
	}
	w.wire.put(frameQueue, b)
	if err := w.wire.flush(); err != nil {
		return &lost{err}
	}
	return nil
}

// ask sends a frame with events that is answered, and waits.
func (w *Writer) ask(ctx context.Context, kind byte, events []dsh.Event) error {
	b, err := packEvents(events)
	if err != nil {
		return err
	}
	return w.exchange(ctx, kind, b)
}

// exchange sends a frame and waits for its answer. Answers to earlier ones, for
// which nobody waited to the end, are passed over.
func (w *Writer) exchange(ctx context.Context, kind byte, b []byte) error {
	w.asked++
	w.wire.put(kind, number(w.asked), b)
	if err := w.wire.flush(); err != nil {
		return &lost{err}
	}
	for {
		n, _, err := w.wire.expect(ctx, frameDone)
		if n == w.asked || n == 0 {
			return err
		}
	}
}

// Sync answers when everything that was appended is durable.
func (w *Writer) Sync(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run(ctx, func() error {
		if w.local != nil {
			return w.local.Sync(ctx)
		}
		return w.sync(ctx)
	})
}

func (w *Writer) sync(ctx context.Context) error {
	if len(w.unsure) == 0 && !w.unknown {
		return nil
	}
	if err := w.ask(ctx, frameSync, nil); err != nil {
		return err
	}
	if !w.unknown {
		w.settle(w.end)
	}
	return nil
}

// KeepSnapshot puts a snapshot in the place of the one before.
func (w *Writer) KeepSnapshot(ctx context.Context, s dsh.Snapshot) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run(ctx, func() error {
		if w.local != nil {
			return w.local.KeepSnapshot(ctx, s)
		}
		if len(s.Data) > maxFrame-chunk {
			return fmt.Errorf("a snapshot of %d MiB is too large for another process's log", len(s.Data)>>20)
		}
		return w.exchange(ctx, frameKeep, packSnapshot(s))
	})
}

// Release gives the session up, after a Sync. ctx does not end the waiting for
// the keeper's word, so that the session can be acquired when it returns.
func (w *Writer) Release(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released {
		return dsh.ErrStale
	}
	err := w.giveUp(context.WithoutCancel(ctx))
	w.released = true
	w.log.letGo(w.id)
	return err
}

// giveUp syncs and ends the holding of the session. w.mu is held.
func (w *Writer) giveUp(ctx context.Context) error {
	defer w.drop()
	if w.local != nil {
		return w.local.Release(ctx)
	}
	if w.wire == nil && len(w.unsure) == 0 && w.gone == nil {
		return nil // who kept the log is gone, and had everything
	}
	return w.run(ctx, func() error {
		if w.local != nil {
			return w.local.Release(ctx)
		}
		err := w.ask(ctx, frameRelease, nil)
		if isLost(err) && len(w.unsure) == 0 {
			return nil
		}
		return err
	})
}

// hangUp gives the session up when the log is closed, all of it durable.
func (w *Writer) hangUp() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.released || w.local != nil || w.wire == nil {
		return nil // the store sees to it
	}
	defer w.drop()
	err := w.ask(context.Background(), frameRelease, nil)
	if isLost(err) && len(w.unsure) > 0 {
		return err
	}
	if isLost(err) {
		return nil
	}
	return err
}
