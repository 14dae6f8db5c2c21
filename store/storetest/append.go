package storetest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

func testAppendRead(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 3)
	b.wants(t, "s", 0, c.all)
	for range 5 {
		appendAll(t, w, c.step())
	}
	appendAll(t, w) // nothing
	for after := range uint64(10) {
		b.wants(t, "s", after, c.all[after:])
	}
	b.wants(t, "s", 9999, nil)
	if w.Tail() != (dsh.Tail{}) {
		t.Errorf("the writer's tail %+v moved: it is that of the acquisition", w.Tail())
	}
	release(t, w)
	if w = b.acquire(t, "s"); w.Tail() != c.tail {
		t.Errorf("tail %+v, want %+v", w.Tail(), c.tail)
	}
	appendAll(t, w, c.steps(2)...)
	b.wants(t, "s", 0, c.all)
	release(t, w)
}

func testConflicts(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 2)
	end := c.tail
	next := c.steps(3)

	other := newChain(t, "s")
	other.at = other.at.Add(time.Hour)
	other.steps(9)

	for _, k := range []struct {
		name   string
		events []dsh.Event
	}{
		{"a gap", next[1:]},
		{"a gap inside", []dsh.Event{next[0], next[2]}},
		{"the order", []dsh.Event{next[1], next[0]}},
		{"twice the same", []dsh.Event{next[0], next[0]}},
		{"another chain's event at the right seq", other.all[3:4]},
		{"other bytes at an old seq", other.all[1:2]},
		{"other bytes at an old seq, with what follows", other.all[2:5]},
		{"the first event of another chain", other.all[:1:1]},
		{"old, then a gap", []dsh.Event{c.all[2], next[1]}},
	} {
		if k.name == "the first event of another chain" {
			x := newChain(t, "other")
			k.events = x.all
		}
		t.Run(k.name, func(t *testing.T) {
			conflict(t, w.Append(t.Context(), k.events...), "s", k.events[0].Seq, end)
		})
	}
	if err := w.Append(t.Context(), dsh.Event{}); err == nil {
		t.Error("an event that was never sealed was appended")
	}
	b.wants(t, "s", 0, c.all[:3])
	appendAll(t, w, next...) // a conflict does not end a writer
	b.wants(t, "s", 0, c.all)
	release(t, w)
}

// testAgain repeats appends whose answer may have been lost.
func testAgain(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 2)
	appendAll(t, w, c.all...)
	appendAll(t, w, c.all[1:2]...)
	appendAll(t, w, c.chunk("relaxed"))
	appendAll(t, w, c.all[3:]...)
	appendAll(t, w, c.step(), c.chunk("with a chunk"))
	appendAll(t, w, c.all[4:]...)
	c.steps(2)
	appendAll(t, w, c.all[5:]...) // old ones, and what follows them
	b.wants(t, "s", 0, c.all)
	release(t, w)

	w = b.acquire(t, "s")
	appendAll(t, w, c.all[len(c.all)-2:]...)
	appendAll(t, w, c.step())
	release(t, w)
	b.wants(t, "s", 0, c.all)
	if b.reopen(t) {
		w = b.acquire(t, "s")
		appendAll(t, w, c.all[2:]...)
		appendAll(t, w, c.step())
		release(t, w)
		b.wants(t, "s", 0, c.all)
	}
}

func testOneWriter(t *testing.T, b *bench) {
	w := b.acquire(t, "s")
	for range 2 {
		_, err := b.Acquire(t.Context(), "s")
		var held *dsh.HeldError
		if !errors.As(err, &held) || held.Session != "s" || held.PID != os.Getpid() {
			t.Fatalf("second Acquire: %v, want a *dsh.HeldError with this process", err)
		}
	}
	other := b.acquire(t, "s-1")
	release(t, other)
	if w.Epoch() != 1 {
		t.Errorf("epoch %d, want 1", w.Epoch())
	}
	release(t, w)
	c := newChain(t, "s")
	for epoch := uint64(2); epoch < 6; epoch++ {
		w = b.acquire(t, "s")
		if w.Epoch() != epoch {
			t.Errorf("epoch %d, want %d", w.Epoch(), epoch)
		}
		if epoch%2 == 0 {
			c.step()
			appendAll(t, w, c.all[w.Tail().Seq:]...)
		}
		release(t, w)
	}
	if b.reopen(t) {
		w = b.acquire(t, "s")
		if w.Epoch() != 6 {
			t.Errorf("epoch %d after opening again, want 6", w.Epoch())
		}
		if w.Tail() != c.tail {
			t.Errorf("tail %+v after opening again, want %+v", w.Tail(), c.tail)
		}
		release(t, w)
	}
}

// testAcquireRace lets many goroutines acquire one session until each has
// appended.
func testAcquireRace(t *testing.T, b *bench) {
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for done := 0; done < 5; {
				w, err := b.Acquire(t.Context(), "s")
				var held *dsh.HeldError
				if errors.As(err, &held) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				c := &chain{t: t, tail: w.Tail(), at: time.UnixMilli(1_790_000_000_000)}
				if c.tail.Seq == 0 {
					c = newChain(t, "s")
				}
				c.chunk("x")
				c.step()
				err = errors.Join(w.Append(t.Context(), c.all...), w.Release(t.Context()))
				if err != nil {
					t.Error(err)
					return
				}
				done++
			}
		})
	}
	group.Wait()
	events, err := b.read(t, "s", 0)
	if err != nil || len(events) != 81 {
		t.Errorf("%d events, %v; want 81", len(events), err)
	}
	w := b.acquire(t, "s")
	if w.Epoch() != 41 {
		t.Errorf("epoch %d, want 41", w.Epoch())
	}
	release(t, w)
}

func testStale(t *testing.T, b *bench) {
	c, old := b.started(t, "s", 1)
	release(t, old)
	e := c.step()
	stale := func() {
		t.Helper()
		if err := old.Append(t.Context(), e); !errors.Is(err, dsh.ErrStale) {
			t.Errorf("Append of a released writer: %v, want dsh.ErrStale", err)
		}
		if err := old.Append(t.Context(), c.all[0]); !errors.Is(err, dsh.ErrStale) {
			t.Errorf("the same bytes of a released writer: %v, want dsh.ErrStale", err)
		}
		if err := old.Sync(t.Context()); !errors.Is(err, dsh.ErrStale) {
			t.Errorf("Sync of a released writer: %v, want dsh.ErrStale", err)
		}
	}
	stale()
	w := b.acquire(t, "s")
	stale()
	if err := old.Release(t.Context()); !errors.Is(err, dsh.ErrStale) {
		t.Errorf("Release of a released writer: %v, want dsh.ErrStale", err)
	}
	appendAll(t, w, e) // the old one's Release took nothing from the new one
	stale()
	release(t, w)
	b.wants(t, "s", 0, c.all)
}

func testRelaxed(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 0)
	for i := range 50 {
		appendAll(t, w, c.chunk(fmt.Sprint("part ", i)))
	}
	appendAll(t, w, c.step()) // makes those before it durable
	b.wants(t, "s", 0, c.all)

	appendAll(t, w, c.chunk("alone"), c.chunk("in two"))
	if err := w.Sync(t.Context()); err != nil {
		t.Fatalf("Sync: %v", err)
	}
	b.wants(t, "s", 0, c.all)

	appendAll(t, w, c.chunk("with"), c.step())
	b.wants(t, "s", 0, c.all)

	appendAll(t, w, c.chunk("before a release"))
	release(t, w)
	b.wants(t, "s", 0, c.all)

	w = b.acquire(t, "s")
	if w.Tail() != c.tail {
		t.Fatalf("tail %+v, want %+v", w.Tail(), c.tail)
	}
	appendAll(t, w, c.chunk("before a close"))
	if b.reopen(t) {
		b.wants(t, "s", 0, c.all)
		return
	}
	release(t, w)
}

// testPrefix reads while events are appended: a reader sees the beginning of
// the session, never a part without what is before it, and never part of an
// append.
func testPrefix(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 0)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for last := 0; ; {
				events, err := collect(b.Read(t.Context(), "s", 0))
				if err != nil || len(events) < last {
					t.Errorf("read %d events after %d: %v", len(events), last, err)
					return
				}
				last = len(events)
				if e := events[last-1]; e.Type == dsh.TypeToolCall {
					t.Errorf("event %d is seen without the others of its append", e.Seq+1)
					return
				}
				if h, err := b.Head(t.Context(), "s"); err != nil || h.Seq < uint64(last) {
					t.Errorf("head %d, %v, after %d events were read", h.Seq, err, last)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range 60 {
		appendAll(t, w, c.chunk("a"))
		appendAll(t, w, c.chunk("b"))
		if i%3 == 0 {
			appendAll(t, w, c.add(dsh.TypeToolCall, dsh.ToolCall{CallID: "c"}), c.step())
		}
	}
	release(t, w)
	close(stop)
	group.Wait()
	b.wants(t, "s", 0, c.all)
}

// testUnknown appends lines that a newer version may have written.
func testUnknown(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 0)
	var want []dsh.Event
	tail := c.tail
	for _, form := range []string{
		`{"seq":%d,"at":1790000000500,"type":"future/thing","data":{"a":1.50,"b":[1e3,"\u00e9<>&"],"a":2}`,
		`{"seq":%d,"at":1790000000501,"type":"step/start","data":{"turn":1,"step":1,"new":{"x":null}},"more":{"deep":[{}]}`,
		`{"extra":"before","at":1790000000502,"seq":%d,"type":"tool/call","data":{ "turn" : 1 },"surface":{"op":"later","of":7}`,
		`{"seq":%d,"at":-5,"type":"assistant/chunk","data":{"future":true,"text":"` + "\u2028\u00e9\U0001F600" + `"}`,
		`{"seq":%d,"at":1790000000504,"type":"x","data":{}`,
	} {
		head := fmt.Sprintf(form, tail.Seq+1)
		sum := sha256.Sum256([]byte(tail.Hash + head))
		e, err := dsh.ParseEvent([]byte(head + `,"hash":"` + hex.EncodeToString(sum[:16]) + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		tail = e.Tail()
		want = append(want, e)
	}
	appendAll(t, w, want[:2]...)
	for _, e := range want[2:] {
		appendAll(t, w, e)
	}
	release(t, w)
	b.wants(t, "s", 1, want)
	if b.reopen(t) {
		b.wants(t, "s", 1, want)
	}
}

// testRefused appends what cannot be folded into a head: nothing of it is
// kept, and the writer goes on.
func testRefused(t *testing.T, b *bench) {
	w := b.acquire(t, "s")
	newer := &chain{t: t, at: time.UnixMilli(1_790_000_000_000)}
	newer.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema + 41, ID: "s"})
	var schema *dsh.SchemaError
	if err := w.Append(t.Context(), newer.all...); !errors.As(err, &schema) || schema.Have != dsh.Schema+41 || schema.Max != dsh.Schema {
		t.Errorf("a newer schema: %v, want a *dsh.SchemaError", err)
	}
	if _, err := b.Head(t.Context(), "s"); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Head after a refused start: %v", err)
	}
	c := newChain(t, "s")
	appendAll(t, w, c.all...)
	bad := &chain{t: t, tail: c.tail, at: c.at}
	bad.step()
	bad.add(dsh.TypeTurnEnd, map[string]any{"turn": "one"})
	if err := w.Append(t.Context(), bad.all...); err == nil {
		t.Error("a turn/end that cannot be read was appended")
	}
	b.wants(t, "s", 0, c.all)
	appendAll(t, w, c.steps(2)...)
	b.wants(t, "s", 0, c.all)
	release(t, w)
}

func testBig(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 1)
	appendAll(t, w, c.text(300<<10))
	appendAll(t, w, c.text(255<<10), c.step(), c.text(257<<10))
	appendAll(t, w, c.text(5<<20))
	appendAll(t, w, c.all[len(c.all)-1:]...) // a repetition appends nothing new
	appendAll(t, w, c.add(dsh.TypeAssistantChunk, map[string]string{"text": strings.Repeat("x", 400<<10)}))
	appendAll(t, w, c.step())
	b.wants(t, "s", 0, c.all)
	b.wants(t, "s", 6, c.all[6:]) // the one before is a big one
	release(t, w)
	w = b.acquire(t, "s")
	if w.Tail() != c.tail {
		t.Errorf("tail %+v, want %+v", w.Tail(), c.tail)
	}
	release(t, w)
}

// testBigAppend appends more at once than a store may take in one piece.
func testBigAppend(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 1)
	n := len(c.all)
	c.steps(9_000)
	appendAll(t, w, c.all[n:]...)
	n = len(c.all)
	for range 7 {
		c.text(200 << 10)
	}
	c.step()
	appendAll(t, w, c.all[n:]...)
	appendAll(t, w, c.step())
	release(t, w)
	b.wants(t, "s", 0, c.all)
	head, err := b.Head(t.Context(), "s")
	if err != nil || head.Tail() != c.tail {
		t.Errorf("head %+v, %v; want %+v", head, err, c.tail)
	}
}

func testReopen(t *testing.T, b *bench) {
	var chains []*chain
	for i := range 20 {
		c, w := b.started(t, dsh.SessionID(fmt.Sprintf("s-%02d", i)), i)
		if i%2 == 0 {
			release(t, w)
		}
		chains = append(chains, c)
	}
	for round := range 3 {
		if !b.reopen(t) {
			t.Skip("the store keeps nothing")
		}
		heads, err := collect(b.Heads(t.Context()))
		if err != nil || len(heads) != len(chains) {
			t.Fatalf("%d heads, %v; want %d", len(heads), err, len(chains))
		}
		// Their order is not looked at: the last chunk of each, which nobody
		// waited for, may have come after the next session's events.
		slices.SortFunc(heads, func(a, b dsh.Head) int { return cmp.Compare(a.ID, b.ID) })
		for i, h := range heads {
			if want := chains[i].tail; h.Tail() != want {
				t.Fatalf("head %d in round %d: %+v, want %+v", i, round, h, want)
			}
		}
		for i, c := range chains {
			id := dsh.SessionID(fmt.Sprintf("s-%02d", i))
			b.wants(t, id, 0, c.all)
			w := b.acquire(t, id)
			if w.Tail() != c.tail || w.Epoch() != uint64(round+2) {
				t.Fatalf("tail %+v, epoch %d; want %+v, %d", w.Tail(), w.Epoch(), c.tail, round+2)
			}
			appendAll(t, w, c.chunk("x"), c.step())
			appendAll(t, w, c.chunk("y"))
		}
	}
}

func testReopenBig(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 1)
	appendAll(t, w, c.text(300<<10))
	appendAll(t, w, c.steps(1000)...)
	for range 8 {
		appendAll(t, w, c.text(150<<10))
	}
	appendAll(t, w, c.text(300<<10))
	if !b.reopen(t) {
		t.Skip("the store keeps nothing")
	}
	b.wants(t, "s", 0, c.all)
	w = b.acquire(t, "s")
	appendAll(t, w, c.text(400<<10))
	b.reopen(t)
	b.wants(t, "s", 0, c.all)
	if err := b.Remove(t.Context(), "s"); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	b.reopen(t)
	if _, err := b.read(t, "s", 0); !errors.Is(err, dsh.ErrNoSession) {
		t.Fatalf("after Remove: %v", err)
	}
}
