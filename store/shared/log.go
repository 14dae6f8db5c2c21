package shared

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
)

// Options say what is shared. Dir and Open are to be set.
type Options struct {
	// Dir is the data folder. Open makes it where it is not there.
	Dir string

	// Open opens the store in it. It fails with a *dsh.LockedError while
	// another process has the store open, and may be called again and again.
	Open func() (dsh.Log, error)

	// Warn is told what a user should know although all goes on; nil: nobody.
	// Tell is told what is worth a line to the curious only. Both may be
	// called from any goroutine.
	Warn, Tell func(error)

	// Patience is how long a data folder is waited for that another process
	// has open and does not serve: it is opening or closing it. 0: 10 s.
	Patience time.Duration

	// Silence is how long the process that keeps the log may take for an
	// answer. 0: 30 s.
	Silence time.Duration
}

func (o Options) withDefaults() Options {
	nobody := func(error) {}
	if o.Warn == nil {
		o.Warn = nobody
	}
	if o.Tell == nil {
		o.Tell = nobody
	}
	if o.Patience == 0 {
		o.Patience = 10 * time.Second
	}
	if o.Silence == 0 {
		o.Silence = defaultSilence
	}
	return o
}

// A Log is the log of a data folder, kept by this process or by another. It
// implements dsh.Log and may be used by several goroutines.
type Log struct {
	o     Options
	dir   string // its one name
	locks *locks

	opening sync.Mutex // held while the store is being opened

	mu      sync.Mutex
	local   dsh.Log // the store; nil: another process keeps it
	server  *server // nil: nobody else can use the store
	closed  bool
	slow    bool                      // the user was told that a keeper is
	writers map[dsh.SessionID]*Writer // nil: it is being acquired or removed
	wires   map[*wire]struct{}        // of streams and questions under way
}

// Open opens the log of a data folder: the store itself, or the way to the
// process that has it open. It fails as Options.Open does, with a
// *VersionError, and with a *SilentError where the other process does not
// answer.
//
// ctx ends the waiting for another process, and nothing after Open has
// returned. The log is to be closed.
func Open(ctx context.Context, o Options) (*Log, error) {
	l := &Log{o: o.withDefaults(), writers: map[dsh.SessionID]*Writer{}, wires: map[*wire]struct{}{}}
	err := l.own(ctx)
	if err != nil && (!isLocked(err) || !supported) {
		return nil, err
	}
	if err == nil {
		return l, nil
	}
	err = l.do(ctx, &hello{Op: opPing}, func(dsh.Log) error { return nil }, func(w *wire) error {
		l.o.Tell(fmt.Errorf("process %d keeps the log: it is used through that", w.pid))
		_, _, err := w.answer(ctx, w.silence)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func isLocked(err error) bool {
	var locked *dsh.LockedError
	return errors.As(err, &locked)
}

// own opens the store and serves it, if nobody else has it open.
func (l *Log) own(ctx context.Context) error {
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.here() != nil {
		return nil // another goroutine was faster
	}
	store, err := l.o.Open()
	if err != nil && !isLocked(err) {
		return err
	}
	l.settle()
	if err != nil {
		return err
	}
	var s *server
	if supported {
		if s, err = serve(ctx, l.dir, store); err != nil {
			l.o.Warn(fmt.Errorf("no other process can use the log while this one runs: %w", err))
		}
	}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.local, l.server = store, s
	}
	l.mu.Unlock()
	if closed {
		return errors.Join(dsh.ErrClosed, s.close(store))
	}
	return nil
}

// settle finds the folder's one name and the locks in it, once it is there.
// l.opening is held.
func (l *Log) settle() {
	if l.locks != nil {
		return
	}
	dir, err := realDir(l.o.Dir)
	if err == nil {
		l.dir = dir
		l.locks, err = openLocks(dir)
	}
	if err != nil {
		l.locks = &locks{}
		l.o.Warn(fmt.Errorf("that a session has one writer is not held between processes: %w", err))
	}
}

// here is the store, if this process has it open.
func (l *Log) here() dsh.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.local
}

// KeptBy is the process that keeps the log, 0 where that is not known.
func (l *Log) KeptBy(ctx context.Context) (pid int) {
	l.do(ctx, &hello{Op: opPing}, func(dsh.Log) error { pid = os.Getpid(); return nil }, func(w *wire) error { //nolint:errcheck // 0 says it
		pid = w.pid
		_, _, err := w.answer(ctx, w.silence)
		return err
	})
	return pid
}

// Acquire makes the caller the one writer of a session, over all processes. A
// *dsh.HeldError names the process that is.
func (l *Log) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := l.reserve(id); err != nil {
		return nil, err
	}
	w := &Writer{log: l, id: id}
	err := l.patient(ctx, false, func() error { return w.acquire(ctx) })
	if err != nil {
		l.letGo(id)
		return nil, err
	}
	w.epoch, w.start = w.granted.Epoch, w.granted.Tail
	w.end, w.durable = w.start, w.start
	l.mu.Lock()
	closed := l.closed
	l.writers[id] = w
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(dsh.ErrClosed, w.hangUp())
	}
	return w, nil
}

// reserve takes the place of a session's one writer, in this process and among
// all.
func (l *Log) reserve(id dsh.SessionID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return dsh.ErrClosed
	}
	if _, taken := l.writers[id]; taken {
		return &dsh.HeldError{Session: id, PID: os.Getpid()}
	}
	if pid := l.locks.take(id); pid != 0 {
		return &dsh.HeldError{Session: id, PID: pid}
	}
	l.writers[id] = nil
	return nil
}

func (l *Log) letGo(id dsh.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, taken := l.writers[id]; taken {
		delete(l.writers, id)
		l.locks.drop(id)
	}
}

// leaseWait is how long a session is waited for whose writer is gone and that
// the keeper has not yet let go of.
const leaseWait = 5 * time.Second

// patient tries again while a session is held that nobody has the lock of any
// more. self says that it may be this process, over an old connection.
func (l *Log) patient(ctx context.Context, self bool, f func() error) error {
	for end, try := time.Now().Add(leaseWait), 0; ; try++ {
		err := f()
		var held *dsh.HeldError
		if !errors.As(err, &held) || !self && held.PID == os.Getpid() || time.Now().After(end) {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// pause waits a moment that grows with the tries, up to 50 ms.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(min(time.Millisecond<<min(try, 6), 50*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Head returns what is known of a session without reading it.
func (l *Log) Head(ctx context.Context, id dsh.SessionID) (h dsh.Head, err error) {
	if err := ctx.Err(); err != nil {
		return dsh.Head{}, err
	}
	err = l.do(ctx, &hello{Op: opHead, Session: id}, func(store dsh.Log) (err error) {
		h, err = store.Head(ctx, id)
		return err
	}, func(w *wire) error {
		_, body, err := w.expect(ctx, frameHead)
		if err != nil {
			return err
		}
		h, err = unpackHead(body)
		return err
	})
	return h, err
}

// Snapshot returns what a writer of the session kept.
func (l *Log) Snapshot(ctx context.Context, id dsh.SessionID) (kept dsh.Snapshot, err error) {
	if err := ctx.Err(); err != nil {
		return dsh.Snapshot{}, err
	}
	err = l.do(ctx, &hello{Op: opKept, Session: id}, func(store dsh.Log) (err error) {
		kept, err = store.Snapshot(ctx, id)
		return err
	}, func(w *wire) error {
		_, body, err := w.expect(ctx, frameKept)
		if err != nil {
			return err
		}
		kept, err = unpackSnapshot(body)
		return err
	})
	return kept, err
}

// Heads yields all sessions, the last written to first, as the store does.
func (l *Log) Heads(ctx context.Context) iter.Seq2[dsh.Head, error] {
	return func(yield func(dsh.Head, error) bool) {
		if err := l.heads(ctx, yield); err != nil && err != errLeft {
			yield(dsh.Head{}, err)
		}
	}
}

// Remove deletes a session that nobody holds.
func (l *Log) Remove(ctx context.Context, id dsh.SessionID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.reserve(id); err != nil {
		return err
	}
	defer l.letGo(id)
	tried := false
	return l.patient(ctx, false, func() error {
		return l.do(ctx, &hello{Op: opRemove, Session: id}, func(store dsh.Log) error { return store.Remove(ctx, id) }, func(w *wire) error {
			_, _, err := w.expect(ctx, frameEnd)
			if tried && errors.Is(err, dsh.ErrNoSession) {
				return nil // the answer of the first was lost
			}
			tried = true
			return err
		})
	})
}

// Read yields the durable events of a session after a seq.
func (l *Log) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return l.events(ctx, &hello{Op: opRead, Session: id, After: after})
}

// Follow is Read that goes on with what becomes durable later, whoever keeps
// the log.
func (l *Log) Follow(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return l.events(ctx, &hello{Op: opFollow, Session: id, After: after})
}

// Close makes everything durable and lets go of the log. If this process kept
// it, the store is closed, and the other processes go on with one of theirs.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	store, s := l.local, l.server
	var writers []*Writer
	for _, w := range l.writers {
		if w != nil {
			writers = append(writers, w)
		}
	}
	for w := range l.wires {
		_ = w.conn.Close()
	}
	l.mu.Unlock()
	var errs []error
	for _, w := range writers {
		errs = append(errs, w.hangUp())
	}
	if store != nil {
		errs = append(errs, s.close(store))
	}
	if l.locks != nil {
		errs = append(errs, l.locks.close())
	}
	return errors.Join(errs...)
}
