package badger

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
)

// view runs f on one state of the database, which cannot be closed meanwhile.
func (l *Log) view(f func(*db.Txn) error) error {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		return dsh.ErrClosed
	}
	return l.guard(func() error { return l.db.View(f) })
}

// rawRecord reads a session's record. damage says that it is not what it
// should be, or that the session had more events once; there may be a record
// all the same. err is dsh.ErrNoSession where there never was one.
func (l *Log) rawRecord(txn *db.Txn, id dsh.SessionID) (r record, damage *dsh.DamageError, err error) {
	known, wasKnown := l.heads.get(id)
	item, err := txn.Get(recordKey(id))
	if err == nil {
		var value []byte
		if value, err = item.ValueCopy(nil); err == nil {
			r, err = l.openRecord(id, value)
		}
		if errors.Is(err, errRecord) {
			return record{}, &dsh.DamageError{Session: id, Seq: 1, Reason: err.Error()}, nil
		}
	}
	switch {
	case errors.Is(err, db.ErrKeyNotFound) || err == nil && r.head.Seq == 0:
		if wasKnown {
			return r, lost(id, 0, known), nil
		}
		if err != nil && hasEvents(txn, id) {
			return r, &dsh.DamageError{Session: id, Seq: 1, Reason: "its head record is missing"}, nil
		}
		return r, nil, dsh.ErrNoSession
	case err != nil:
		return record{}, nil, err
	case wasKnown && known.seq > r.head.Seq:
		return r, lost(id, r.head.Seq, known), nil
	}
	return r, nil, nil
}

// lost says that the heads file knows of more events than there are.
func lost(id dsh.SessionID, have uint64, known mark) *dsh.DamageError {
	return &dsh.DamageError{Session: id, Seq: have + 1,
		Reason: fmt.Sprintf("events %d to %d are lost: the heads file proves that they were there", have+1, known.seq)}
}

func hasEvents(txn *db.Txn, id dsh.SessionID) bool {
	o := db.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Prefix = eventPrefix(id)
	it := txn.NewIterator(o)
	defer it.Close()
	it.Rewind()
	return it.Valid()
}

// recordOf reads the record of a session that is not damaged as far as that
// tells.
func (l *Log) recordOf(txn *db.Txn, id dsh.SessionID) (record, error) {
	r, damage, err := l.rawRecord(txn, id)
	if damage != nil {
		return r, damage
	}
	return r, err
}

// eventAt reads one event. It fails with a *dsh.DamageError where there is
// none.
func (l *Log) eventAt(txn *db.Txn, id dsh.SessionID, seq uint64) (dsh.Event, error) {
	item, err := txn.Get(eventKey(id, seq))
	if errors.Is(err, db.ErrKeyNotFound) {
		return dsh.Event{}, &dsh.DamageError{Session: id, Seq: seq, Reason: "it is missing"}
	}
	if err != nil {
		return dsh.Event{}, err
	}
	return l.eventOf(item, id, seq)
}

func (l *Log) eventOf(item *db.Item, id dsh.SessionID, seq uint64) (dsh.Event, error) {
	value, err := item.ValueCopy(nil)
	if err != nil {
		return dsh.Event{}, &dsh.DamageError{Session: id, Seq: seq, Reason: oneLine(err)}
	}
	var e dsh.Event
	if value, err = l.box.Open(string(item.Key()), value); err == nil {
		e, err = l.bodies.eventOf(value)
	}
	if err != nil {
		return dsh.Event{}, &dsh.DamageError{Session: id, Seq: seq, Reason: err.Error()}
	}
	return e, nil
}

// Head returns what is known of a session without reading it. It fails with
// dsh.ErrNoSession, and with a *dsh.DamageError where the record of it is
// damaged or the session had more events once.
func (l *Log) Head(ctx context.Context, id dsh.SessionID) (dsh.Head, error) {
	if err := ctx.Err(); err != nil {
		return dsh.Head{}, err
	}
	if !validID(id) {
		return dsh.Head{}, dsh.ErrNoSession
	}
	var r record
	err := l.view(func(txn *db.Txn) (err error) {
		r, err = l.recordOf(txn, id)
		return err
	})
	if err != nil {
		return dsh.Head{}, err
	}
	return r.head, nil
}

// Heads yields all sessions, the last written to first. A damaged session has
// its place too, with as much as is known of it, and after all sessions each
// damage is yielded with a *dsh.DamageError, so that one damaged session hides
// no other.
func (l *Log) Heads(ctx context.Context) iter.Seq2[dsh.Head, error] {
	return func(yield func(dsh.Head, error) bool) {
		var found listing
		err := l.view(func(txn *db.Txn) (err error) {
			found, err = l.list(txn, ctx.Err)
			return err
		})
		if err != nil {
			yield(dsh.Head{}, err)
			return
		}
		for _, r := range found.records {
			if err := ctx.Err(); err != nil {
				yield(dsh.Head{}, err)
				return
			}
			if !yield(r.head, nil) {
				return
			}
		}
		for _, d := range found.damages {
			if !yield(dsh.Head{ID: d.Session}, d) {
				return
			}
		}
	}
}

// A listing is all sessions, in the order of Heads.
type listing struct {
	records []*record
	damages []*dsh.DamageError
}

// list reads all sessions. stop is asked whether to go on.
func (l *Log) list(txn *db.Txn, stop func() error) (found listing, err error) {
	err = l.heads.each(func(known map[dsh.SessionID]mark, sum fingerprint) error {
		all, err := found.read(txn, known, sum.seed, l.openRecord, stop)
		if err != nil || all == sum {
			return err
		}
		if found.compare(known) == len(known) {
			return nil
		}
		return found.addLost(txn, known)
	})
	found.sort()
	return found, err
}

// sort puts the sessions in the order of Heads.
func (f *listing) sort() {
	type place struct { // beside each other, so that comparing does not go through memory
		order uint64
		r     *record
	}
	places := make([]place, len(f.records))
	for i, r := range f.records {
		places[i] = place{r.order, r}
	}
	slices.SortFunc(places, func(a, b place) int {
		if a.order != b.order {
			return cmp.Compare(b.order, a.order)
		}
		return cmp.Or(cmp.Compare(b.r.head.UpdatedAt, a.r.head.UpdatedAt), cmp.Compare(b.r.head.ID, a.r.head.ID))
	})
	for i, p := range places {
		f.records[i] = p.r
	}
	slices.SortFunc(f.damages, func(a, b *dsh.DamageError) int { return cmp.Compare(a.Session, b.Session) })
}

// read takes the records of the database, and gives their fingerprint.
func (f *listing) read(txn *db.Txn, known map[dsh.SessionID]mark, seed maphash.Seed, open func(dsh.SessionID, []byte) (record, error), stop func() error) (all fingerprint, err error) {
	o := db.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Prefix = []byte(prefixRecord)
	it := txn.NewIterator(o)
	defer it.Close()
	all.seed = seed
	f.records = make([]*record, 0, len(known)+len(known)/8)
	var some []record // made together: there may be many
	for it.Rewind(); it.Valid(); it.Next() {
		if err := stop(); err != nil {
			return all, err
		}
		id := dsh.SessionID(it.Item().Key()[len(prefixRecord):])
		if len(some) == 0 {
			some = make([]record, 256)
		}
		r := &some[0]
		some = some[1:]
		err := it.Item().Value(func(v []byte) (err error) {
			*r, err = open(id, v)
			return err
		})
		if err != nil {
			f.damages = append(f.damages, &dsh.DamageError{Session: id, Seq: 1, Reason: oneLine(err)})
			r = known[id].record(id)
		} else if r.head.Seq == 0 {
			if _, wasKnown := known[id]; !wasKnown {
				continue
			}
		}
		r.head.ID = id
		all.add(id, r.head.Seq)
		f.records = append(f.records, r)
	}
	return all, nil
}

// compare looks for sessions that had more events once. met is how many of the
// known ones are there.
func (f *listing) compare(known map[dsh.SessionID]mark) (met int) {
	for _, r := range f.records {
		k, wasKnown := known[r.head.ID]
		if wasKnown {
			met++
		}
		if wasKnown && k.seq > r.head.Seq {
			f.damages = append(f.damages, lost(r.head.ID, r.head.Seq, k))
		}
	}
	return met
}

// addLost adds the known sessions that have no record.
func (f *listing) addLost(txn *db.Txn, known map[dsh.SessionID]mark) error {
	for id, k := range known {
		_, err := txn.Get(recordKey(id))
		switch {
		case err == nil:
		case errors.Is(err, db.ErrKeyNotFound):
			f.damages = append(f.damages, lost(id, 0, k))
			f.records = append(f.records, k.record(id))
		default:
			return err
		}
	}
	return nil
}

// record is as much of a session as a mark tells.
func (m mark) record(id dsh.SessionID) *record {
	return &record{head: dsh.Head{ID: id, Seq: m.seq, Hash: m.hash, UpdatedAt: m.at}}
}

// Read yields the durable events of a session after a seq, and checks each
// against the chain.
func (l *Log) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		_, _, err := l.readOn(ctx, id, dsh.Tail{Seq: after}, yield)
		if err != nil {
			yield(dsh.Event{}, err)
		}
	}
}

// Follow is Read that goes on with what becomes durable later. It ends without
// an error when the session is removed, and with dsh.ErrClosed when the log is
// closed.
func (l *Log) Follow(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		w := l.watch(id)
		defer l.unwatch(id, w)
		tail := dsh.Tail{Seq: after}
		_, removals := l.changed(w)
		for {
			changed, now := l.changed(w)
			if now != removals {
				return
			}
			end, more, err := l.readOn(ctx, id, tail, yield)
			if errors.Is(err, dsh.ErrNoSession) && validID(id) {
				if _, now := l.changed(w); now != removals {
					return
				}
				more, err = true, nil
			}
			if err != nil {
				yield(dsh.Event{}, err)
				return
			}
			if !more {
				return
			}
			tail = end
			select {
			case <-changed:
			case <-ctx.Done():
				yield(dsh.Event{}, ctx.Err())
				return
			case <-l.gone:
				yield(dsh.Event{}, dsh.ErrClosed)
				return
			}
		}
	}
}

// readOn yields what follows tail, whose hash may be unknown. It says where it
// stopped, and whether the consumer wants more.
func (l *Log) readOn(ctx context.Context, id dsh.SessionID, tail dsh.Tail, yield func(dsh.Event, error) bool) (dsh.Tail, bool, error) {
	if err := ctx.Err(); err != nil {
		return tail, false, err
	}
	c, err := l.openCursor(id, tail)
	if err != nil {
		return tail, false, err
	}
	defer l.closeCursor(c)
	for {
		e, ok, err := l.next(c)
		if err != nil || !ok {
			return c.tail, true, err
		}
		if !yield(e, nil) {
			return c.tail, false, nil
		}
		if err := ctx.Err(); err != nil {
			return c.tail, false, err
		}
	}
}

// A cursor is a read under way, on one state of the database.
type cursor struct {
	id     dsh.SessionID
	txn    *db.Txn
	it     *db.Iterator
	prefix int
	tail   dsh.Tail // of the last event that was read
	record record
	damage *dsh.DamageError // of the record, told after the last event
	known  mark             // of the heads file; the zero value for none
}

func (l *Log) openCursor(id dsh.SessionID, tail dsh.Tail) (*cursor, error) {
	if !validID(id) {
		return nil, dsh.ErrNoSession
	}
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed {
		return nil, dsh.ErrClosed
	}
	c := &cursor{id: id, txn: l.db.NewTransaction(false), tail: tail}
	if err := l.guard(func() error { return l.seek(c) }); err != nil {
		c.close()
		return nil, err
	}
	l.mu.Lock()
	l.cursors[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

// seek puts a cursor behind its tail, and finds the hash of that.
func (l *Log) seek(c *cursor) (err error) {
	if c.record, c.damage, err = l.rawRecord(c.txn, c.id); err != nil {
		return err
	}
	c.known, _ = l.heads.get(c.id)
	if c.tail.Seq > 0 && c.tail.Hash == "" && (c.tail.Seq <= c.record.head.Seq || c.damage != nil) {
		e, err := l.eventAt(c.txn, c.id, c.tail.Seq)
		if err != nil {
			if c.damage != nil {
				return c.damage
			}
			return err
		}
		c.tail = e.Tail()
	}
	o := db.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Prefix = eventPrefix(c.id)
	c.prefix = len(o.Prefix)
	c.it = c.txn.NewIterator(o)
	c.it.Seek(eventKey(c.id, c.tail.Seq+1))
	return nil
}

// next reads the next event of a cursor, and reports false at the session's
// end.
func (l *Log) next(c *cursor) (e dsh.Event, ok bool, err error) {
	l.gate.RLock()
	defer l.gate.RUnlock()
	if c.txn == nil {
		return dsh.Event{}, false, dsh.ErrClosed
	}
	defer func() {
		if r := recover(); r != nil {
			e, ok = dsh.Event{}, false
			err = &dsh.DamageError{Session: c.id, Seq: c.tail.Seq + 1, Reason: gaveUp(r).Error()}
		}
	}()
	if !c.it.Valid() {
		return dsh.Event{}, false, c.atEnd()
	}
	item := c.it.Item()
	seq, err := c.seqOf(item.Key())
	if err != nil {
		return dsh.Event{}, false, err
	}
	if c.damage == nil && seq > c.record.head.Seq && seq <= c.record.pending {
		return dsh.Event{}, false, c.atEnd() // the rest of an append that was cut off
	}
	if e, err = l.eventOf(item, c.id, c.tail.Seq+1); err == nil {
		err = c.check(e, seq)
	}
	if err != nil {
		return dsh.Event{}, false, err
	}
	c.tail = e.Tail()
	c.it.Next()
	return e, true, nil
}

func (c *cursor) seqOf(key []byte) (uint64, error) {
	if len(key) != c.prefix+8 {
		return 0, &dsh.DamageError{Session: c.id, Seq: c.tail.Seq + 1, Reason: "its key is damaged"}
	}
	return binary.BigEndian.Uint64(key[c.prefix:]), nil
}

// check looks at an event's place in the chain, in the session and in the
// heads file.
func (c *cursor) check(e dsh.Event, seq uint64) error {
	err := c.tail.Check(e)
	var d *dsh.DamageError
	switch {
	case errors.As(err, &d):
		d.Session = c.id
		return d
	case err != nil:
		return err
	case seq != e.Seq:
		return &dsh.DamageError{Session: c.id, Seq: e.Seq, Reason: fmt.Sprintf("it stands in the place of event %d", seq)}
	case c.known.seq == e.Seq && c.known.hash != e.Hash:
		return &dsh.DamageError{Session: c.id, Seq: e.Seq, Reason: fmt.Sprintf("hash %s, the heads file says %s", e.Hash, c.known.hash)}
	case c.damage == nil && e.Seq > c.record.head.Seq:
		return &dsh.DamageError{Session: c.id, Seq: e.Seq, Reason: fmt.Sprintf("its head record ends at event %d", c.record.head.Seq)}
	case c.damage == nil && e.Seq == c.record.head.Seq && e.Hash != c.record.head.Hash:
		return &dsh.DamageError{Session: c.id, Seq: e.Seq, Reason: fmt.Sprintf("hash %s, its head record says %s", e.Hash, c.record.head.Hash)}
	}
	return nil
}

// atEnd checks that the session ends where the cursor is.
func (c *cursor) atEnd() error {
	switch {
	case c.damage != nil:
		c.damage.Seq = c.tail.Seq + 1
		return c.damage
	case c.tail.Seq < c.record.head.Seq:
		return &dsh.DamageError{Session: c.id, Seq: c.tail.Seq + 1,
			Reason: fmt.Sprintf("events %d to %d are missing", c.tail.Seq+1, c.record.head.Seq)}
	}
	return nil
}

func (c *cursor) close() {
	if c.it != nil {
		c.it.Close()
	}
	if c.txn != nil {
		c.txn.Discard()
	}
	c.it, c.txn = nil, nil
}

func (l *Log) closeCursor(c *cursor) {
	l.gate.RLock()
	defer l.gate.RUnlock()
	l.mu.Lock()
	delete(l.cursors, c)
	l.mu.Unlock()
	c.close()
}

// closeCursors ends the reads under way. l.gate is held for writing.
func (l *Log) closeCursors() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.cursors {
		c.close()
	}
	clear(l.cursors)
}

// A watch is where the followers of a session wait.
type watch struct {
	followers int
	removals  int
	changed   chan struct{} // closed, and made anew, when something is durable
}

func (l *Log) watch(id dsh.SessionID) *watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.watches[id]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		l.watches[id] = w
	}
	w.followers++
	return w
}

func (l *Log) unwatch(id dsh.SessionID, w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.followers--; w.followers == 0 {
		delete(l.watches, id)
	}
}

func (l *Log) changed(w *watch) (<-chan struct{}, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.changed, w.removals
}
