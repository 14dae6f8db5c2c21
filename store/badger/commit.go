package badger

import (
	"context"
	"errors"
	"runtime"
	"time"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
)

// A transaction of Badger's holds 15 % of the memtable: 1,258,291 bytes and
// 13,107 entries. These stay below that, with the records of the sessions.
const (
	maxBatchBytes   = 1 << 20
	maxBatchEntries = 8 << 10

	entryBytes = 64 // what an entry takes beside its value and its session's id
)

// orderBits are left in an order for the place in the transaction.
const orderBits = 20

// maxQueued bounds what waits for the committer: an append waits while there
// is more.
const maxQueued = 8 << 20

// From so much on, relaxed events don't wait for others any more.
const (
	enoughBytes   = 256 << 10
	enoughEntries = 2 << 10
)

// mergeBytes bounds a request to which later ones of its writer are added.
const mergeBytes = 64 << 10

// A stored event is what the database holds of one.
type stored struct {
	seq   uint64
	value []byte // a line, or a bodyRef
	sum   string // of the body, or empty
}

// A request is something for the committer to do. It is one of: events of a
// writer, a record of a session, a removal, or a barrier, which does nothing.
type request struct {
	id      dsh.SessionID
	w       *Writer
	round   int // of w
	events  []stored
	head    dsh.Head // after the events
	ends    bool     // a turn ends in the events
	record  *record
	remove  bool
	barrier bool

	urgent  bool // somebody waits for it
	bytes   int
	entries int
	done    chan error // with room for one; nil: nobody waits
}

// recordBytes is about what a session's record takes.
func (r *request) recordBytes() int {
	return 200 + 2*len(r.id) + min(len(r.head.Title), maxText) + min(len(r.head.Cwd), maxText)
}

func (r *request) answer(err error) {
	if err != nil && r.w != nil {
		r.w.fail(r.round, err)
	}
	if r.done != nil {
		r.done <- err
	}
}

// submit queues a request and waits for it.
func (l *Log) submit(ctx context.Context, r *request) error {
	r.done = make(chan error, 1)
	if err := l.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enqueue puts a request at the end of the queue, when there is room for it.
func (l *Log) enqueue(ctx context.Context, r *request) error {
	for {
		l.mu.Lock()
		if err := l.usable(); err != nil {
			l.mu.Unlock()
			return err
		}
		if l.queued == 0 || l.queued+r.bytes <= maxQueued {
			l.push(r)
			l.mu.Unlock()
			return nil
		}
		room := l.room
		l.mu.Unlock()
		l.poke()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// push appends to the queue, or to its last request. l.mu is held.
func (l *Log) push(r *request) {
	before := l.queued
	l.queued += r.bytes
	l.urgent = l.urgent || r.urgent
	first := len(l.queue) == 0
	if first {
		l.since = time.Now()
	}
	if first || !l.queue[len(l.queue)-1].merge(r) {
		l.queue = append(l.queue, r)
	}
	if first || r.urgent || before < enoughBytes && l.queued >= enoughBytes {
		l.poke()
	}
}

// merge adds the relaxed events of the same writer to a request.
func (r *request) merge(next *request) bool {
	if r.w == nil || r.w != next.w || r.round != next.round || r.urgent || next.urgent ||
		r.bytes+next.bytes > mergeBytes || len(r.events) == 0 || len(next.events) == 0 {
		return false
	}
	r.events = append(r.events, next.events...)
	r.head = next.head
	r.bytes += next.bytes
	r.entries += next.entries
	return true
}

// poke wakes the committer.
func (l *Log) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// commitLoop is the committer: it ends when the log is closing and the queue
// is empty.
func (l *Log) commitLoop() {
	defer l.heads.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, wait, end := l.take()
		switch {
		case end:
			return
		case len(batch) > 0:
			l.commit(batch)
			l.gather(len(batch))
		case wait > 0:
			timer.Reset(wait)
			select {
			case <-l.wake:
			case <-timer.C:
			}
		default:
			<-l.wake
		}
	}
}

// gather gives those whose append was answered the time to bring the next one,
// so that many sessions share a transaction rather than take turns in two.
func (l *Log) gather(answered int) {
	if answered == 1 {
		return
	}
	for last := -1; ; {
		l.mu.Lock()
		n := len(l.queue)
		l.mu.Unlock()
		if n == last || n >= answered {
			return
		}
		last = n
		runtime.Gosched()
	}
}

// take cuts the next batch off the queue. Without one it says how long to wait
// for more, 0 for until somebody wakes the committer, or that this is the end.
func (l *Log) take() (batch []*request, wait time.Duration, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil, 0, l.closing
	}
	if !l.urgent && !l.closing && l.queued < enoughBytes && len(l.queue) < enoughEntries {
		if wait := l.o.Linger - time.Since(l.since); wait > 0 {
			return nil, wait, false
		}
	}
	n, bytes, entries := 0, 0, 0
	for last := dsh.SessionID(""); n < len(l.queue); n++ {
		r := l.queue[n]
		bytes += r.bytes
		entries += r.entries
		if r.id != last {
			bytes += r.recordBytes()
			entries++
			last = r.id
		}
		alone := r.remove || r.large()
		if n > 0 && (alone || bytes > maxBatchBytes || entries > maxBatchEntries) {
			break
		}
		if alone {
			n++
			break
		}
	}
	batch, l.queue = l.queue[:n:n], l.queue[n:]
	for _, r := range batch {
		l.queued -= r.bytes
	}
	if len(l.queue) == 0 {
		l.queue, l.urgent = nil, false
	}
	close(l.room)
	l.room = make(chan struct{})
	return batch, 0, false
}

// large reports whether a request takes more than one transaction.
func (r *request) large() bool {
	return r.bytes+r.recordBytes() > maxBatchBytes || r.entries >= maxBatchEntries
}

// commit carries out a batch and answers it.
func (l *Log) commit(batch []*request) {
	batch = l.admit(batch)
	if len(batch) == 0 {
		return
	}
	err := l.guard(func() error {
		switch r := batch[0]; {
		case r.remove:
			return l.removeSession(r.id)
		case r.large():
			return l.commitLarge(r)
		}
		return l.commitSmall(batch)
	})
	if err != nil {
		err = &BrokenError{Dir: l.dir, Err: err}
		l.mu.Lock()
		l.broken = err
		l.mu.Unlock()
	} else {
		l.publish(batch)
	}
	for _, r := range batch {
		if r.remove {
			l.letGo(r.id, nil)
		}
		r.answer(err)
	}
}

// admit answers the requests that cannot be carried out, and gives the others.
func (l *Log) admit(batch []*request) []*request {
	l.mu.Lock()
	broken := l.broken
	l.mu.Unlock()
	var bytes int
	for _, r := range batch {
		bytes += r.bytes
	}
	var full error
	if bytes > 0 {
		full = l.space(uint64(bytes))
	}
	good := batch[:0]
	for _, r := range batch {
		err := broken
		if err == nil && r.w != nil {
			err = r.w.failed(r.round)
		}
		if err == nil && len(r.events) > 0 {
			err = full
		}
		if err == nil {
			good = append(good, r)
			continue
		}
		if r.remove {
			l.letGo(r.id, nil)
		}
		r.answer(err)
	}
	return good
}

// commitSmall carries out a batch in one transaction.
func (l *Log) commitSmall(batch []*request) error {
	txn := l.db.NewTransaction(true)
	defer txn.Discard()
	records := map[dsh.SessionID]*record{}
	l.order++
	for i, r := range batch {
		if r.record != nil {
			records[r.id] = r.record
		}
		if len(r.events) == 0 {
			continue
		}
		if err := put(txn, r.id, r.events); err != nil {
			return err
		}
		records[r.id] = l.recordAfter(r, i)
	}
	if len(records) == 0 { // barriers only
		l.order--
		return nil
	}
	for id, r := range records {
		if err := txn.Set(recordKey(id), l.sealRecord(id, r)); err != nil {
			return err
		}
	}
	return txn.Commit()
}

// recordAfter is a session's record with the events of the i-th request of a
// transaction.
func (l *Log) recordAfter(r *request, i int) *record {
	rec := &record{head: r.head, epoch: r.w.epoch, order: l.order<<orderBits + uint64(i), pending: r.w.pending}
	if rec.pending <= rec.head.Seq {
		rec.pending = 0
	}
	return rec
}

func put(txn *db.Txn, id dsh.SessionID, events []stored) error {
	for _, e := range events {
		if err := txn.Set(eventKey(id, e.seq), e.value); err != nil {
			return err
		}
		if e.sum != "" {
			if err := txn.Set(bodyKey(e.sum, id, e.seq), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitLarge carries out an append that takes several transactions, so that
// all of it counts or nothing: first the record says up to where events do not
// count yet, and the last transaction has the record with which they do.
func (l *Log) commitLarge(r *request) error {
	l.order++
	err := l.update(func(txn *db.Txn) error {
		before, damage, err := l.rawRecord(txn, r.id)
		if err != nil && !errors.Is(err, dsh.ErrNoSession) {
			return err
		}
		if damage != nil {
			return damage
		}
		before.epoch, before.pending = r.w.epoch, max(before.pending, r.head.Seq)
		return txn.Set(recordKey(r.id), l.sealRecord(r.id, &before))
	})
	if err != nil {
		return err
	}
	for rest := r.events; len(rest) > 0; {
		n, bytes := 0, 0
		for n < len(rest) && n < maxBatchEntries/2 && (n == 0 || bytes+len(rest[n].value) < maxBatchBytes-(64<<10)) {
			bytes += len(rest[n].value) + 2*(len(r.id)+entryBytes+len(rest[n].sum))
			n++
		}
		if err := l.update(func(txn *db.Txn) error { return put(txn, r.id, rest[:n]) }); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return l.update(func(txn *db.Txn) error {
		return txn.Set(recordKey(r.id), l.sealRecord(r.id, l.recordAfter(r, 0)))
	})
}

func (l *Log) update(f func(*db.Txn) error) error {
	txn := l.db.NewTransaction(true)
	defer txn.Discard()
	if err := f(txn); err != nil {
		return err
	}
	return txn.Commit()
}

// publish tells writers, followers and the heads file what is durable now.
func (l *Log) publish(batch []*request) {
	for _, r := range batch {
		if len(r.events) > 0 {
			r.w.committed(r.head)
			l.heads.mark(r.id, mark{seq: r.head.Seq, hash: r.head.Hash, at: r.head.UpdatedAt}, r.ends)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range batch {
		if w := l.watches[r.id]; w != nil && (len(r.events) > 0 || r.remove) {
			if r.remove {
				w.removals++
			}
			close(w.changed)
			w.changed = make(chan struct{})
		}
	}
}
