package badger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// A Log is the log in a data folder. It implements dsh.Log and may be used by
// several goroutines.
type Log struct {
	dir     string
	o       Options
	lock    *dirLock
	scratch string // of the value log: see withScratch
	db      *db.DB
	box     *seal.Box // nil: nothing is encrypted
	bodies  bodies

	snapshots snapshots
	heads     *heads
	running   sync.WaitGroup // the goroutines of the log
	free      func(dir string) (uint64, error)

	// order counts the transactions, and is never ahead of the database's own
	// count of them. It belongs to the committer once that runs.
	order uint64

	mu      sync.Mutex
	held    map[dsh.SessionID]*Writer // nil: it is being removed
	epochs  map[dsh.SessionID]uint64  // of sessions that were acquired since the log was opened
	watches map[dsh.SessionID]*watch
	queue   []*request
	queued  int           // bytes in queue
	urgent  bool          // somebody waits for what is in queue
	since   time.Time     // when the first one of queue came
	room    chan struct{} // closed and made anew when the queue gets shorter
	wake    chan struct{} // tells the committer that it has something to do
	closing bool
	broken  error // of a commit that failed

	// gate is held for reading while the database is being read, and for
	// writing while it is being closed.
	gate    sync.RWMutex
	closed  bool
	cursors map[*cursor]struct{} // under mu
	gone    chan struct{}        // closed when the log is
}

func newLog(dir string, o Options, lock *dirLock) *Log {
	return &Log{
		dir: dir, o: o, lock: lock, free: freeBytes, bodies: bodies{dir: filepath.Join(dir, "bodies")}, snapshots: snapshots{dir: filepath.Join(dir, "snapshots")},
		held: map[dsh.SessionID]*Writer{}, epochs: map[dsh.SessionID]uint64{}, watches: map[dsh.SessionID]*watch{},
		room: make(chan struct{}), wake: make(chan struct{}, 1),
		cursors: map[*cursor]struct{}{}, gone: make(chan struct{}),
	}
}

// Acquire makes the caller the one writer of a session. It fails with a
// *dsh.HeldError while another holds it, and with a *dsh.DamageError for a
// session whose end is not what it should be: nothing is appended to that.
func (l *Log) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, fmt.Errorf("%q is no session id: lower-case letters, digits and dashes are allowed, %d at most", id, maxID)
	}
	w := &Writer{log: l, id: id}
	if err := l.hold(id, w); err != nil {
		return nil, err
	}
	if err := l.start(ctx, w); err != nil {
		l.letGo(id, w)
		return nil, err
	}
	return w, nil
}

// hold puts w in the place of a session's one writer.
func (l *Log) hold(id dsh.SessionID, w *Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if _, taken := l.held[id]; taken {
		return &dsh.HeldError{Session: id, PID: os.Getpid()}
	}
	l.held[id] = w
	return nil
}

func (l *Log) letGo(id dsh.SessionID, w *Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[id] == w {
		delete(l.held, id)
	}
}

// usable reports why nothing can be appended any more. l.mu is held.
func (l *Log) usable() error {
	if l.closing {
		return dsh.ErrClosed
	}
	return l.broken
}

// start finds the session's end for a writer, after all that an earlier writer
// of it has queued.
func (l *Log) start(ctx context.Context, w *Writer) error {
	if err := l.submit(ctx, &request{barrier: true, urgent: true}); err != nil {
		return err
	}
	r, err := l.endOf(w.id)
	if err != nil && !errors.Is(err, dsh.ErrNoSession) {
		return err
	}
	l.mu.Lock()
	w.epoch = max(r.epoch, l.epochs[w.id]) + 1
	l.epochs[w.id] = w.epoch
	l.mu.Unlock()
	w.start, w.end, w.durable, w.pending = r.head.Tail(), r.head, r.head, r.pending
	if r.head.Seq == 0 {
		return nil // there is no record to count the epoch in yet
	}
	r.epoch = w.epoch
	return l.enqueue(ctx, &request{id: w.id, record: &r})
}

// endOf reads a session's record and checks that the session ends there.
func (l *Log) endOf(id dsh.SessionID) (record, error) {
	var r record
	err := l.view(func(txn *db.Txn) (err error) {
		if r, err = l.recordOf(txn, id); err != nil {
			return err
		}
		e, err := l.eventAt(txn, id, r.head.Seq)
		if err != nil {
			return err
		}
		if e.Hash != r.head.Hash {
			return &dsh.DamageError{Session: id, Seq: e.Seq, Reason: fmt.Sprintf("hash %s, its head record says %s", e.Hash, r.head.Hash)}
		}
		if _, err := txn.Get(eventKey(id, e.Seq+1)); err == nil && r.pending <= e.Seq {
			return &dsh.DamageError{Session: id, Seq: e.Seq + 1, Reason: fmt.Sprintf("its head record ends at event %d", e.Seq)}
		}
		return nil
	})
	return r, err
}

// Close waits for what is queued, makes it durable and closes the database.
// Appends and reads under way end with dsh.ErrClosed. A second call returns
// nil.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	l.mu.Unlock()
	l.poke()
	l.running.Wait()

	l.gate.Lock()
	l.closed = true
	l.closeCursors()
	err := l.closeDatabase()
	l.gate.Unlock()

	close(l.gone)
	err = errors.Join(l.heads.close(), err, tighten(filepath.Join(l.dir, "log")))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.broken == nil {
		err = writeClosed(l.dir)
	}
	return errors.Join(l.broken, err, l.lock.release())
}

// closeDatabase closes Badger, which then writes what it has in memory into a
// table. Where there is no room for that the database is left as a kill would
// leave it: all that was acknowledged is in its log, and writing to a mapped
// file on a full disk would end the process.
func (l *Log) closeDatabase() error {
	if err := roomToClose(l.dir, filepath.Join(l.dir, "log")); err != nil {
		return err
	}
	return closeScratch(l.scratch, func() error { return l.guard(l.db.Close) })
}

// guard turns a panic of the database, which happens on damaged tables, into
// an error.
func (l *Log) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = gaveUp(r)
		}
	}()
	return f()
}

// gaveUp is the error of a panic of the database's, whose text may go over
// many lines.
func gaveUp(r any) error {
	return fmt.Errorf("the database gave up (%s)", oneLine(fmt.Errorf("%v", r)))
}
