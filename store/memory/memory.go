// Package memory keeps the session log in memory: for tests, and for sessions
// that are not to be kept. It holds to the whole contract of dsh.Log except
// that everything is gone with the process.
package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"

	"github.com/dsh-agent/dsh"
)

// A Log implements dsh.Log. It may be used by several goroutines. The zero
// value is not ready for use: see New.
type Log struct {
	mu       sync.Mutex
	sessions map[dsh.SessionID]*session
	epochs   map[dsh.SessionID]uint64
	held     map[dsh.SessionID]*writer
	order    uint64        // of the last append
	changed  chan struct{} // closed, and made anew, at every change
	closed   bool
}

// A session is what is kept of one. Its events are never changed, so that a
// reader may keep a part of them.
type session struct {
	head   dsh.Head
	born   uint64 // the order of its first append
	order  uint64 // of its last append
	events []dsh.Event
	kept   dsh.Snapshot
}

// New makes an empty log.
func New() *Log {
	return &Log{
		sessions: map[dsh.SessionID]*session{}, epochs: map[dsh.SessionID]uint64{},
		held: map[dsh.SessionID]*writer{}, changed: make(chan struct{}),
	}
}

// maxID is the longest session id that every backend takes.
const maxID = 128

func validID(id dsh.SessionID) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// notify wakes the followers. l.mu is held.
func (l *Log) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Acquire makes the caller the one writer of a session.
func (l *Log) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, fmt.Errorf("%q is no session id: lower-case letters, digits and dashes are allowed, %d at most", id, maxID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, dsh.ErrClosed
	}
	if l.held[id] != nil {
		return nil, &dsh.HeldError{Session: id, PID: os.Getpid()}
	}
	l.epochs[id]++
	w := &writer{log: l, id: id, epoch: l.epochs[id]}
	if s := l.sessions[id]; s != nil {
		w.start = s.head.Tail()
	}
	l.held[id] = w
	return w, nil
}

// Read yields the events of a session after a seq, and checks each against the
// chain.
func (l *Log) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		s, _, err := l.snapshot(ctx, id)
		if err == nil && s == nil {
			err = dsh.ErrNoSession
		}
		if err == nil {
			_, _, err = s.yield(ctx, after, yield)
		}
		if err != nil {
			yield(dsh.Event{}, err)
		}
	}
}

// snapshot is a session as it is now, nil where there is none, and what is
// closed when something has changed.
func (l *Log) snapshot(ctx context.Context, id dsh.SessionID) (*session, <-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, dsh.ErrClosed
	}
	s := l.sessions[id]
	if s == nil {
		return nil, l.changed, nil
	}
	return &session{head: s.head, born: s.born, events: s.events, kept: s.kept}, l.changed, nil
}

// yield gives out the events after a seq. It says up to where it came, and
// whether the consumer wants more.
func (s *session) yield(ctx context.Context, after uint64, yield func(dsh.Event, error) bool) (uint64, bool, error) {
	if after > uint64(len(s.events)) {
		return after, true, nil
	}
	var tail dsh.Tail
	if after > 0 {
		tail = s.events[after-1].Tail()
	}
	for _, e := range s.events[after:] {
		if err := ctx.Err(); err != nil {
			return tail.Seq, false, err
		}
		if err := tail.Check(e); err != nil {
			var d *dsh.DamageError
			if errors.As(err, &d) {
				d.Session = s.head.ID
			}
			return tail.Seq, false, err
		}
		if !yield(e, nil) {
			return tail.Seq, false, nil
		}
		tail = e.Tail()
	}
	return tail.Seq, true, nil
}

// Follow is Read that goes on with later events. It ends without an error when
// the session is removed, and with dsh.ErrClosed when the log is closed.
func (l *Log) Follow(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		err := l.follow(ctx, id, after, yield)
		if err != nil {
			yield(dsh.Event{}, err)
		}
	}
}

func (l *Log) follow(ctx context.Context, id dsh.SessionID, after uint64, yield func(dsh.Event, error) bool) error {
	if !validID(id) {
		return dsh.ErrNoSession
	}
	born := uint64(0) // of the session that is followed; 0: there was none yet
	for {
		s, changed, err := l.snapshot(ctx, id)
		if err != nil {
			return err
		}
		if born != 0 && (s == nil || s.born != born) {
			return nil
		}
		if s != nil {
			born = s.born
			var more bool
			if after, more, err = s.yield(ctx, after, yield); err != nil || !more {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Head returns what is known of a session without reading it.
func (l *Log) Head(ctx context.Context, id dsh.SessionID) (dsh.Head, error) {
	s, _, err := l.snapshot(ctx, id)
	if err != nil {
		return dsh.Head{}, err
	}
	if s == nil {
		return dsh.Head{}, dsh.ErrNoSession
	}
	return s.head, nil
}

// Heads yields all sessions, the last written to first.
func (l *Log) Heads(ctx context.Context) iter.Seq2[dsh.Head, error] {
	return func(yield func(dsh.Head, error) bool) {
		heads, err := l.heads(ctx)
		for _, h := range heads {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(h, nil) {
				return
			}
		}
		if err != nil {
			yield(dsh.Head{}, err)
		}
	}
}

func (l *Log) heads(ctx context.Context) ([]dsh.Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, dsh.ErrClosed
	}
	var all []*session
	for _, s := range l.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int {
		if a.order > b.order {
			return -1
		}
		return 1
	})
	heads := make([]dsh.Head, len(all))
	for i, s := range all {
		heads[i] = s.head
	}
	return heads, nil
}

// Remove deletes a session that nobody holds.
func (l *Log) Remove(ctx context.Context, id dsh.SessionID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return dsh.ErrClosed
	case l.held[id] != nil:
		return &dsh.HeldError{Session: id, PID: os.Getpid()}
	case l.sessions[id] == nil:
		return dsh.ErrNoSession
	}
	delete(l.sessions, id)
	l.notify()
	return nil
}

// Close lets go of everything. Followers end with dsh.ErrClosed. A second call
// returns nil.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.notify()
	}
	return nil
}

// Snapshot returns what a writer of the session kept.
func (l *Log) Snapshot(ctx context.Context, id dsh.SessionID) (dsh.Snapshot, error) {
	s, _, err := l.snapshot(ctx, id)
	if err != nil || s == nil {
		return dsh.Snapshot{}, err
	}
	return s.kept, nil
}

// A writer implements dsh.Writer.
type writer struct {
	log      *Log
	id       dsh.SessionID
	epoch    uint64
	start    dsh.Tail
	released bool
}

func (w *writer) Epoch() uint64  { return w.epoch }
func (w *writer) Tail() dsh.Tail { return w.start }

func (w *writer) Append(ctx context.Context, events ...dsh.Event) error {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	next := session{}
	if s := l.sessions[w.id]; s != nil {
		next = *s
	}
	tail := next.head.Tail()
	added := false
	for _, e := range events {
		if i := e.Seq - 1; e.Seq > 0 && i < uint64(len(next.events)) && !added {
			if !bytes.Equal(next.events[i].Line(), e.Line()) {
				return &dsh.ConflictError{Session: w.id, At: events[0].Seq, Tail: tail}
			}
			continue // it is there already: an append whose answer was lost is repeated
		}
		if next.head.Tail().Check(e) != nil {
			return &dsh.ConflictError{Session: w.id, At: events[0].Seq, Tail: tail}
		}
		if err := next.head.Apply(e); err != nil {
			return err
		}
		next.events = append(next.events, e)
		added = true
	}
	if added {
		next.head.ID = w.id
		l.order++
		next.order = l.order
		if next.born == 0 {
			next.born = l.order
		}
		l.sessions[w.id] = &next
		l.notify()
	}
	return nil
}

// usable reports why the writer is not to be used. l.mu is held.
func (w *writer) usable() error {
	if w.released || w.log.held[w.id] != w {
		return dsh.ErrStale
	}
	if w.log.closed {
		return dsh.ErrClosed
	}
	return nil
}

// KeepSnapshot puts a snapshot in the place of the one before.
func (w *writer) KeepSnapshot(_ context.Context, snapshot dsh.Snapshot) error {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	if s := w.log.sessions[w.id]; s != nil {
		s.kept = snapshot
	}
	return nil
}

func (w *writer) Sync(context.Context) error {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.released {
		return dsh.ErrStale
	}
	return nil
}

func (w *writer) Release(context.Context) error {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	if w.released {
		return dsh.ErrStale
	}
	w.released = true
	delete(w.log.held, w.id)
	return nil
}
