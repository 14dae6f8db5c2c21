package badger_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// damagedAt checks that an error is the damage of a session from an event on.
func damagedAt(t *testing.T, err error, id dsh.SessionID, seq uint64, says string) {
	t.Helper()
	var d *dsh.DamageError
	if !errors.As(err, &d) || d.Session != id || d.Seq != seq || !strings.Contains(d.Reason, says) {
		t.Fatalf("%v, want damage of %s at event %d that says %q", err, id, seq, says)
	}
}

// TestDamagedEvents damages events in the database: each is found by a read,
// after all events before it, and no other session suffers.
func TestDamagedEvents(t *testing.T) {
	t.Parallel()
	set := func(key func() []byte, value []byte) func(*db.Txn) error {
		return func(txn *db.Txn) error { return txn.Set(key(), value) }
	}
	event := func(seq uint64) func() []byte { return func() []byte { return badger.EventKey("s", seq) } }
	record := func() []byte { return badger.RecordKey("s") }
	other := &chain{t: t}
	other.start("x")
	stranger := other.chunk("not of this chain")
	var late dsh.Event
	for late.Seq < 11 {
		late = other.chunk("late")
	}

	for _, k := range []struct {
		name   string
		damage func(*db.Txn) error
		at     uint64
		says   string
		end    bool // the session's end shows it: nothing is appended
	}{
		{"a missing one", func(txn *db.Txn) error { return txn.Delete(badger.EventKey("s", 5)) }, 5, "event 6 follows event 4", false},
		{"the first missing", func(txn *db.Txn) error { return txn.Delete(badger.EventKey("s", 1)) }, 1, "event 2 follows event 0", false},
		{"the last missing", func(txn *db.Txn) error { return txn.Delete(badger.EventKey("s", 10)) }, 10, "missing", true},
		{"another chain's", set(event(2), stranger.Line()), 2, "hash", false},
		{"in another place", set(event(5), stranger.Line()), 5, "event 2 follows event 4", false},
		{"no JSON", set(event(3), []byte("{}")), 3, "", false},
		{"empty", set(event(3), nil), 3, "", false},
		{"a torn reference", set(event(3), []byte{1, 2, 3}), 3, "reference", false},
		{"a reference to nothing", set(event(3), append([]byte{1}, make([]byte, 40)...)), 3, "missing", false},
		{"one too many", set(event(11), late.Line()), 11, "", true},
		{"the record gone", func(txn *db.Txn) error { return txn.Delete(record()) }, 11, "", true},
		{"the record damaged", set(record, []byte("nonsense")), 11, "record", true},
		{"an old record", set(record, badger.EncodeRecord("s", dsh.Head{ID: "s", Seq: 4, Hash: "x"}, 1, 1, 0)), 4, "hash", true},
		{"another one's record", set(record, badger.EncodeRecord("t", dsh.Head{ID: "t", Seq: 10}, 1, 1, 0)), 11, "record", true},
	} {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			log := open(t, dir)
			defer func() { must(t, log.Close()) }()
			fill(t, log, "s", 10)
			fill(t, log, "t", 10)
			must(t, log.DB().Update(k.damage))
			n, err := count(t, log, "s")
			damagedAt(t, err, "s", k.at, k.says)
			if n != k.at-1 {
				t.Errorf("%d events before the damage at %d", n, k.at)
			}
			if w, err := log.Acquire(t.Context(), "s"); k.end {
				var d *dsh.DamageError
				if !errors.As(err, &d) {
					t.Errorf("Acquire: %v, want a *dsh.DamageError", err)
				}
			} else {
				must(t, err)
				must(t, w.Release(t.Context()))
			}
			whole(t, log, "t", 10)
			must(t, log.Remove(t.Context(), "s"))
			if _, err := count(t, log, "s"); !errors.Is(err, dsh.ErrNoSession) {
				t.Errorf("after Remove: %v", err)
			}
			fill(t, log, "s", 3)
			whole(t, log, "s", 3)
		})
	}
}

// TestBodies looks at the files of large events.
func TestBodies(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	c := &chain{t: t}
	must(t, w.Append(t.Context(), c.start("s")))
	small := c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom-1000)})
	big := c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom)})
	must(t, w.Append(t.Context(), small, big, c.end()))
	must(t, w.Release(t.Context()))
	bodies := func() []string {
		all, err := filepath.Glob(filepath.Join(dir, "bodies", "*"))
		must(t, err)
		return all
	}
	all := bodies()
	if len(all) != 1 {
		t.Fatalf("bodies %v, want one", all)
	}
	b, err := os.ReadFile(all[0])
	if err != nil || !bytes.Equal(b, big.Line()) {
		t.Fatalf("a body of %d bytes, %v; want the line of %d", len(b), err, len(big.Line()))
	}
	whole(t, log, "s", 4)

	b[1000] ^= 1
	must(t, os.WriteFile(all[0], b, 0o600))
	_, err = count(t, log, "s")
	damagedAt(t, err, "s", 3, "changed")
	must(t, os.WriteFile(all[0], b[:5000], 0o600))
	_, err = count(t, log, "s")
	damagedAt(t, err, "s", 3, "5000 bytes")
	must(t, os.Remove(all[0]))
	_, err = count(t, log, "s")
	damagedAt(t, err, "s", 3, "missing")
	must(t, os.WriteFile(all[0], big.Line(), 0o600))
	whole(t, log, "s", 4)

	must(t, log.Remove(t.Context(), "s"))
	if all := bodies(); len(all) != 0 {
		t.Errorf("bodies %v after Remove", all)
	}
	must(t, log.Close())

	// A crash before the commit leaves bodies that nobody names.
	stray := filepath.Join(dir, "bodies", strings.Repeat("ab", 32))
	must(t, os.WriteFile(stray, []byte("{}"), 0o600))
	must(t, open(t, dir).Close())
	if len(bodies()) != 1 {
		t.Error("the sweep ran without a crash")
	}
	must(t, os.Remove(filepath.Join(dir, "closed")))
	must(t, open(t, dir).Close())
	if all := bodies(); len(all) != 0 {
		t.Errorf("bodies %v after a crash", all)
	}
}

// TestSharedBody: two sessions hold the same bytes, and one is removed.
func TestSharedBody(t *testing.T) {
	log := open(t, t.TempDir())
	defer func() { must(t, log.Close()) }()
	c := &chain{t: t}
	events := []dsh.Event{c.start("s"), c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom)})}
	for _, id := range []dsh.SessionID{"s", "copy"} {
		w, err := log.Acquire(t.Context(), id)
		must(t, err)
		must(t, w.Append(t.Context(), events...))
		must(t, w.Release(t.Context()))
	}
	must(t, log.Remove(t.Context(), "s"))
	whole(t, log, "copy", 2)
}

// TestBroken makes commits fail: the first error stays, reads go on, and what
// was acknowledged is there after opening again.
func TestBroken(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	other, err := log.Acquire(t.Context(), "t")
	must(t, err)
	c, d := &chain{t: t}, &chain{t: t}
	must(t, w.Append(t.Context(), c.start("s"), c.step(1)))
	must(t, other.Append(t.Context(), d.start("t"), d.step(1)))
	_ = log.DB().Close() // every commit fails from here on

	must(t, w.Append(t.Context(), c.chunk("relaxed")))
	e := c.step(2)
	err = w.Append(t.Context(), e)
	var broken *badger.BrokenError
	if !errors.As(err, &broken) || !errors.Is(err, db.ErrBlockedWrites) || broken.Dir != dir {
		t.Fatalf("Append: %v, want a *BrokenError around the database's", err)
	}
	for what, again := range map[string]error{
		"again":         w.Append(t.Context(), e),
		"another":       other.Append(t.Context(), d.step(2)),
		"relaxed":       other.Append(t.Context(), d.chunk("x")),
		"Sync":          errors.Join(w.Append(t.Context(), e), w.Sync(t.Context())),
		"Remove":        log.Remove(t.Context(), "u"),
		"Acquire":       func() error { _, err := log.Acquire(t.Context(), "v"); return err }(),
		"large, as one": other.Append(t.Context(), d.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", 300<<10)})),
	} {
		if !errors.Is(again, db.ErrBlockedWrites) {
			t.Errorf("%s: %v, want the first error", what, again)
		}
	}
	if err := log.Close(); !errors.Is(err, db.ErrBlockedWrites) {
		t.Errorf("Close: %v, want the first error", err)
	}

	log = open(t, dir)
	defer func() { must(t, log.Close()) }()
	whole(t, log, "s", 2)
	whole(t, log, "t", 2)
	w, err = log.Acquire(t.Context(), "s")
	must(t, err)
	c.tail = w.Tail()
	must(t, w.Append(t.Context(), c.step(2)))
}

// TestRelaxedFailure: the failure of relaxed events is told by the next append,
// and the writer can go on from what is durable.
func TestRelaxedFailure(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	c := fill(t, log, "s", 5)
	must(t, log.Close())

	log, err := badger.Open(dir, badger.Options{Reserve: 1 << 62})
	must(t, err)
	whole(t, log, "s", 5)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	durable := c.tail
	if w.Tail() != durable {
		t.Fatalf("tail %+v, want %+v", w.Tail(), durable)
	}
	must(t, w.Append(t.Context(), c.chunk("lost"))) // queued
	step := c.step(1)
	full := func(err error) {
		t.Helper()
		var s *dsh.SpaceError
		if !errors.As(err, &s) || s.Dir != dir || s.Need < 1<<62 || s.Free == 0 {
			t.Fatalf("%v, want a *dsh.SpaceError", err)
		}
	}
	full(w.Append(t.Context(), step))
	var conflict *dsh.ConflictError
	if err := w.Append(t.Context(), step); !errors.As(err, &conflict) || conflict.Tail != durable {
		t.Fatalf("%v, want a *dsh.ConflictError with the durable end", err)
	}
	c.tail = durable
	full(w.Append(t.Context(), c.step(1)))
	c.tail = durable
	full(w.Append(t.Context(), c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom)})))
	c.tail = durable
	must(t, w.Append(t.Context(), c.chunk("lost")))
	full(w.Sync(t.Context()))
	must(t, w.Sync(t.Context())) // told once
	c.tail = durable
	must(t, w.Append(t.Context(), c.chunk("lost")))
	full(w.Release(t.Context()))
	whole(t, log, "s", 5)
	must(t, log.Close())

	log = open(t, dir)
	defer func() { must(t, log.Close()) }()
	whole(t, log, "s", 5)
	if w, err = log.Acquire(t.Context(), "s"); err != nil || w.Epoch() != 3 {
		t.Errorf("epoch %d, %v; want 3", w.Epoch(), err)
	}
}

// TestFailureInQueue: what is queued behind events that fail fails with them,
// also when there is room again before its turn comes.
func TestFailureInQueue(t *testing.T) {
	dir := t.TempDir()
	log, err := badger.Open(dir, badger.Options{Linger: -1})
	must(t, err)
	defer func() { must(t, log.Close()) }()
	asked, free := make(chan struct{}), make(chan uint64)
	log.SetFree(func() uint64 { asked <- struct{}{}; return <-free })
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	c := &chain{t: t}
	must(t, w.Append(t.Context(), c.chunk("first")))
	<-asked // the committer has it
	must(t, w.Append(t.Context(), c.chunk("second")))
	free <- 0
	<-asked // and the second one too: the first has failed
	var full *dsh.SpaceError
	if err := w.Append(t.Context(), c.chunk("third")); !errors.As(err, &full) {
		t.Errorf("%v, want a *dsh.SpaceError", err)
	}
	c = &chain{t: t}
	must(t, w.Append(t.Context(), c.chunk("again")))
	free <- 1 << 40
	<-asked
	free <- 1 << 40
	must(t, w.Sync(t.Context()))
	whole(t, log, "s", 1)
}

// TestCutAppend leaves an append of several transactions half done, as a crash
// would: nothing of it counts, and the session goes on.
func TestCutAppend(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	c := fill(t, log, "s", 5)
	head, err := log.Head(t.Context(), "s")
	must(t, err)
	durable := c.tail
	must(t, log.DB().Update(func(txn *db.Txn) error {
		for range 4 {
			e := c.chunk("half")
			if err := txn.Set(badger.EventKey("s", e.Seq), e.Line()); err != nil {
				return err
			}
		}
		return txn.Set(badger.RecordKey("s"), badger.EncodeRecord("s", head, 1, 1, 12))
	}))
	must(t, log.Close())

	log = open(t, dir)
	whole(t, log, "s", 5)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	if w.Tail() != durable {
		t.Fatalf("tail %+v, want %+v", w.Tail(), durable)
	}
	c.tail = durable
	for n := uint64(6); n < 16; n++ {
		must(t, w.Append(t.Context(), c.step(int(n))))
		whole(t, log, "s", n)
		if n == 8 {
			must(t, w.Release(t.Context()))
			must(t, log.Close())
			log = open(t, dir)
			w, err = log.Acquire(t.Context(), "s")
			must(t, err)
		}
	}
	must(t, w.Release(t.Context()))
	must(t, log.Close())
}

// TestCutRemoval opens a log whose last removal was not finished.
func TestCutRemoval(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	fill(t, log, "s", 10)
	fill(t, log, "t", 10)
	must(t, log.DB().Update(func(txn *db.Txn) error {
		return errors.Join(txn.Set(badger.RemovingKey("s"), nil), txn.Delete(badger.RecordKey("s")), txn.Delete(badger.EventKey("s", 3)))
	}))
	must(t, log.Close())
	b, err := os.ReadFile(filepath.Join(dir, "heads"))
	must(t, err)
	kept := ""
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "s ") { // the heads file goes first
			kept += line
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "heads"), []byte(kept), 0o600))

	log = open(t, dir)
	defer func() { must(t, log.Close()) }()
	if _, err := count(t, log, "s"); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Read: %v, want dsh.ErrNoSession", err)
	}
	fill(t, log, "s", 4)
	whole(t, log, "s", 4)
	whole(t, log, "t", 10)
}

// TestRecord: a record comes back as it was, and damage of it shows.
func TestRecord(t *testing.T) {
	head := dsh.Head{ID: "s", Title: "title é", Cwd: "/work", State: dsh.StateFailed, StartedAt: -1, UpdatedAt: 1 << 50,
		Turns: 3, Attempts: 1 << 30, Retries: 2, LastFailure: dsh.CodeTimeout, Seq: 1 << 40, Hash: strings.Repeat("ab", 16)}
	for i := range reflect.TypeOf(head).NumField() {
		if reflect.ValueOf(head).Field(i).IsZero() {
			t.Errorf("the field %s is new: records do not hold it", reflect.TypeOf(head).Field(i).Name)
		}
	}
	b := badger.EncodeRecord("s", head, 7, 8, 9)
	got, epoch, order, pending, err := badger.DecodeRecord("s", b)
	if err != nil || got != head || epoch != 7 || order != 8 || pending != 9 {
		t.Errorf("%+v %d %d %d, %v; want %+v", got, epoch, order, pending, err, head)
	}
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			if _, _, _, _, err := badger.DecodeRecord("s", bad); err == nil {
				t.Fatalf("bit %d of byte %d was changed and nothing shows", bit, i)
			}
		}
		if _, _, _, _, err := badger.DecodeRecord("s", b[:i]); err == nil {
			t.Fatalf("%d of %d bytes are a record", i, len(b))
		}
	}
	if _, _, _, _, err := badger.DecodeRecord("t", b); err == nil {
		t.Error("it is a record of another session too")
	}
	head.Title, head.Cwd = strings.Repeat("é", 1<<20), strings.Repeat("x", 1<<20)
	b = badger.EncodeRecord("s", head, 1, 1, 0)
	if got, _, _, _, err = badger.DecodeRecord("s", b); err != nil || len(b) > 10_000 || !strings.HasPrefix(head.Title, got.Title) || got.Title == "" {
		t.Errorf("a record of %d bytes with long texts: %v", len(b), err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(badger.EncodeRecord("s", dsh.Head{ID: "s", Seq: 3, Hash: "h"}, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, epoch, order, pending, err := badger.DecodeRecord("s", b)
		if err == nil && !bytes.Equal(badger.EncodeRecord("s", h, epoch, order, pending), b) && len(h.Title)+len(h.Cwd) < 4096 {
			t.Errorf("%x is not what is written for %+v", b, h)
		}
	})
}

func FuzzHeadsLine(f *testing.F) {
	f.Add([]byte("s 3 00 1790000000000 00000000"))
	line, _ := badger.ParseMark([]byte("x"))
	f.Add(bytes.TrimSpace(line))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, ok := badger.ParseMark(b)
		if ok && !bytes.Equal(bytes.TrimSuffix(again, []byte("\n")), b) {
			t.Errorf("%q is written as %q", b, again)
		}
	})
}

func FuzzClosed(f *testing.F) {
	f.Add("MANIFEST ab\n000001.sst 5\n00000000\n")
	f.Add("\n")
	f.Fuzz(func(_ *testing.T, text string) { badger.ParseClosed(text) })
}
