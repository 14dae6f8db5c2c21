package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

func testEmpty(t *testing.T, b *bench) {
	ctx := t.Context()
	if _, err := b.read(t, "s", 0); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Read: %v, want dsh.ErrNoSession", err)
	}
	if _, err := b.Head(ctx, "s"); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Head: %v, want dsh.ErrNoSession", err)
	}
	if err := b.Remove(ctx, "s"); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Remove: %v, want dsh.ErrNoSession", err)
	}
	none := func() {
		t.Helper()
		if heads, err := collect(b.Heads(ctx)); err != nil || len(heads) != 0 {
			t.Errorf("Heads: %v, %v; want none", heads, err)
		}
	}
	none()
	w := b.acquire(t, "s") // makes no session
	none()
	if _, err := b.Head(ctx, "s"); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("Head of a session without an event: %v, want dsh.ErrNoSession", err)
	}
	if w.Tail() != (dsh.Tail{}) {
		t.Errorf("tail %+v of a session without an event", w.Tail())
	}
	release(t, w)
	none()
	if b.reopen(t) {
		none()
	}
}

// following runs Follow in a goroutine and gives what it yields.
type following struct {
	events chan dsh.Event
	end    chan error // gets nil where it ended without an error
	cancel context.CancelFunc
}

func (b *bench) follow(t *testing.T, id dsh.SessionID, after uint64) *following {
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{events: make(chan dsh.Event), end: make(chan error, 1), cancel: cancel}
	var group sync.WaitGroup
	log := b.Log
	group.Go(func() {
		var last error
		for e, err := range log.Follow(ctx, id, after) {
			if last != nil {
				t.Error("Follow went on after an error")
			}
			if last = err; err != nil {
				continue
			}
			select {
			case f.events <- e:
			case <-ctx.Done():
			}
		}
		f.end <- last
	})
	t.Cleanup(func() { cancel(); group.Wait() })
	return f
}

// patience ends a wait for what should come at once.
const patience = time.Minute

func (f *following) take(t *testing.T, n int) []dsh.Event {
	t.Helper()
	var got []dsh.Event
	deadline := time.After(patience)
	for len(got) < n {
		select {
		case e := <-f.events:
			got = append(got, e)
		case err := <-f.end:
			t.Fatalf("Follow ended after %d of %d events: %v", len(got), n, err)
		case <-deadline:
			t.Fatalf("%d of %d events followed", len(got), n)
		}
	}
	return got
}

// over waits for the end, before which no event may come.
func (f *following) over(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.end:
		return err
	case e := <-f.events:
		t.Fatalf("event %d followed, want the end", e.Seq)
	case <-time.After(patience):
		t.Fatal("Follow does not end")
	}
	return nil
}

func testFollow(t *testing.T, b *bench) {
	before := b.follow(t, "s", 0) // there is no session yet
	c, w := b.started(t, "s", 3)
	same(t, before.take(t, 4), c.all)

	within, after, beyond := b.follow(t, "s", 2), b.follow(t, "s", 4), b.follow(t, "s", 6)
	same(t, within.take(t, 2), c.all[2:])

	appendAll(t, w, c.chunk("a"))
	appendAll(t, w, c.chunk("b"))
	appendAll(t, w, c.steps(2)...)
	same(t, before.take(t, 4), c.all[4:])
	same(t, within.take(t, 4), c.all[4:])
	same(t, after.take(t, 4), c.all[4:])
	same(t, beyond.take(t, 2), c.all[6:])

	within.cancel()
	if err := within.over(t); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended follower got %v, want context.Canceled", err)
	}

	appendAll(t, w, c.chunk("relaxed, alone"))
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, before.take(t, 1), c.all[8:])
	release(t, w)

	w = b.acquire(t, "s") // another writer, the same session
	appendAll(t, w, c.text(1<<20))
	same(t, before.take(t, 1), c.all[9:])
	release(t, w)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := before.over(t); !errors.Is(err, dsh.ErrClosed) {
		t.Errorf("a follower of a closed log got %v, want dsh.ErrClosed", err)
	}
}

func testFollowMany(t *testing.T, b *bench) {
	const sessions, events = 8, 60
	var group sync.WaitGroup
	for i := range sessions {
		id := dsh.SessionID(fmt.Sprint("s", i))
		f := b.follow(t, id, 0)
		c := newChain(t, id)
		c.steps(events - 1)
		w := b.acquire(t, id)
		group.Go(func() {
			for i := range c.all {
				if err := w.Append(t.Context(), c.all[i]); err != nil {
					t.Errorf("Append: %v", err)
				}
			}
			if err := w.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
		group.Go(func() {
			for i := range c.all {
				select {
				case e := <-f.events:
					if string(e.Line()) != string(c.all[i].Line()) {
						t.Errorf("followed %s, want %s", e.Line(), c.all[i].Line())
						return
					}
				case <-time.After(patience):
					t.Errorf("event %d does not come", i+1)
					return
				}
			}
		})
	}
	group.Wait()
}

func testHeads(t *testing.T, b *bench) {
	writers := map[dsh.SessionID]dsh.Writer{}
	chains := map[dsh.SessionID]*chain{}
	order := []dsh.SessionID{"b", "d", "a", "c", "a-a"}
	for _, id := range order {
		chains[id], writers[id] = b.started(t, id, 2)
	}
	c := chains["d"]
	failure := dsh.Failure{Code: dsh.CodeRateLimit, Message: "slow down"}
	c.add(dsh.TypeTurnStart, dsh.TurnStart{Turn: 1})
	c.add(dsh.TypeAttemptStart, dsh.AttemptStart{Turn: 1, Step: 1, Attempt: 1})
	c.add(dsh.TypeAttemptEnd, dsh.AttemptEnd{Turn: 1, Step: 1, Attempt: 1, Finish: dsh.Finish{Kind: dsh.FinishError, Failure: &failure}})
	c.add(dsh.TypeRetry, dsh.Retry{RetryID: "r", Failure: failure})
	appendAll(t, writers["d"], c.all[3:]...)
	check := func(order ...dsh.SessionID) {
		t.Helper()
		heads, err := collect(b.Heads(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		var got []dsh.SessionID
		for _, h := range heads {
			got = append(got, h.ID)
			var want dsh.Head
			for _, e := range chains[h.ID].all {
				if err := want.Apply(e); err != nil {
					t.Fatal(err)
				}
			}
			if h != want {
				t.Errorf("head of %s:\n got %+v\nwant %+v", h.ID, h, want)
			}
			if one, err := b.Head(t.Context(), h.ID); err != nil || one != want {
				t.Errorf("Head(%s): %+v, %v; want %+v", h.ID, one, err, want)
			}
		}
		if !slices.Equal(got, order) {
			t.Errorf("heads in the order %v, want %v", got, order)
		}
	}
	check("d", "a-a", "c", "a", "b")
	if h, _ := b.Head(t.Context(), "d"); h.State != dsh.StateWaiting || h.LastFailure != dsh.CodeRateLimit || h.Title != "a title" {
		t.Errorf("head %+v", h)
	}
	// The order is that of the appends, whatever the clock said.
	chains["b"].at = time.UnixMilli(1)
	appendAll(t, writers["b"], chains["b"].step())
	check("b", "d", "a-a", "c", "a")
	for _, id := range order {
		release(t, writers[id])
	}
	w := b.acquire(t, "a") // writes nothing
	release(t, w)
	check("b", "d", "a-a", "c", "a")
	if b.reopen(t) {
		check("b", "d", "a-a", "c", "a")
		w := b.acquire(t, "c")
		appendAll(t, w, chains["c"].step())
		release(t, w)
		check("c", "b", "d", "a-a", "a")
	}
	for range b.Heads(t.Context()) {
		break
	}
}

func testRemove(t *testing.T, b *bench) {
	ids := []dsh.SessionID{"a", "a-b", "a1", "b"}
	chains := map[dsh.SessionID]*chain{}
	for _, id := range ids {
		c, w := b.started(t, id, 5)
		appendAll(t, w, c.text(300<<10))
		chains[id] = c
		if id == "a" {
			var held *dsh.HeldError
			if err := b.Remove(t.Context(), id); !errors.As(err, &held) || held.Session != id {
				t.Fatalf("Remove of a held session: %v, want a *dsh.HeldError", err)
			}
			b.wants(t, id, 0, c.all)
		}
		release(t, w)
	}
	if err := b.Remove(t.Context(), "a"); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	gone := func() {
		t.Helper()
		if _, err := b.read(t, "a", 0); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("Read after Remove: %v, want dsh.ErrNoSession", err)
		}
		if _, err := b.Head(t.Context(), "a"); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("Head after Remove: %v, want dsh.ErrNoSession", err)
		}
		if err := b.Remove(t.Context(), "a"); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("second Remove: %v, want dsh.ErrNoSession", err)
		}
		for _, id := range ids[1:] {
			b.wants(t, id, 0, chains[id].all)
		}
	}
	gone()
	if b.reopen(t) {
		gone()
	}
	// The id can be used again, and for a shorter session.
	c, w := b.started(t, "a", 1)
	b.wants(t, "a", 0, c.all)
	release(t, w)
	if b.reopen(t) {
		b.wants(t, "a", 0, c.all)
		if heads, err := collect(b.Heads(t.Context())); err != nil || len(heads) != 4 {
			t.Errorf("%d heads, %v; want 4", len(heads), err)
		}
	}
}

func testRemoveFollowed(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 2)
	f, other := b.follow(t, "s", 0), b.follow(t, "t", 0)
	same(t, f.take(t, 3), c.all)
	release(t, w)
	if err := b.Remove(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := f.over(t); err != nil {
		t.Errorf("a follower of a removed session got %v, want an end without an error", err)
	}
	// A follower that comes later gets the next session of that name.
	f = b.follow(t, "s", 0)
	c, w = b.started(t, "s", 4)
	same(t, f.take(t, 5), c.all)
	release(t, w)
	other.cancel()
	if err := other.over(t); !errors.Is(err, context.Canceled) {
		t.Errorf("a follower that waited got %v, want context.Canceled", err)
	}
}

func testContexts(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 2)
	ctx := ended(t)
	is := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with an ended context: %v, want context.Canceled", what, err)
		}
	}
	_, err := b.Acquire(ctx, "other")
	is("Acquire", err)
	e := c.step()
	is("Append", w.Append(ctx, e))
	_, err = b.Head(ctx, "s")
	is("Head", err)
	_, err = collect(b.Read(ctx, "s", 0))
	is("Read", err)
	_, err = collect(b.Follow(ctx, "s", 0))
	is("Follow", err)
	_, err = collect(b.Heads(ctx))
	is("Heads", err)
	is("Remove", b.Remove(ctx, "s"))

	// An append whose context had ended may be repeated, whether it came
	// through or not.
	appendAll(t, w, e)
	for range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		e := c.step()
		var group sync.WaitGroup
		group.Go(cancel)
		if err := w.Append(ctx, e); err != nil {
			is("Append", err)
		}
		group.Wait()
		appendAll(t, w, e)
	}
	b.wants(t, "s", 0, c.all)

	n := 0
	half, cancel := context.WithCancel(t.Context())
	for _, err := range b.Read(half, "s", 0) {
		if err != nil {
			is("Read", err)
			break
		}
		if n++; n == 2 {
			cancel()
		}
	}
	if n != 2 {
		t.Errorf("%d events were read, want 2", n)
	}
	cancel()
	appendAll(t, w, c.chunk("x"))
	if err := w.Release(ctx); err != nil {
		is("Release", err)
	}
	w = b.acquire(t, "s") // Release gave it up
	if w.Tail() != c.tail {
		t.Errorf("tail %+v, want %+v", w.Tail(), c.tail)
	}
	release(t, w)
}

func testConcurrency(t *testing.T, b *bench) {
	const sessions = 48
	chains := make([]*chain, sessions)
	var group sync.WaitGroup
	for i := range sessions {
		id := dsh.SessionID(fmt.Sprintf("s-%d", i))
		c := newChain(t, id)
		for range 20 {
			c.chunk("a")
			c.chunk("b")
			c.step()
		}
		chains[i] = c
		group.Go(func() {
			w, err := b.Acquire(t.Context(), id)
			if err != nil {
				t.Errorf("Acquire: %v", err)
				return
			}
			for rest := c.all; len(rest) > 0; {
				n := min(len(rest), 1+i%4)
				if err := w.Append(t.Context(), rest[:n]...); err != nil {
					t.Errorf("Append: %v", err)
				}
				rest = rest[n:]
			}
			if err := w.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
	}
	group.Wait()
	check := func() {
		t.Helper()
		for i, c := range chains {
			b.wants(t, dsh.SessionID(fmt.Sprintf("s-%d", i)), 0, c.all)
		}
		if heads, err := collect(b.Heads(t.Context())); err != nil || len(heads) != sessions {
			t.Errorf("%d heads, %v", len(heads), err)
		}
	}
	check()
	if b.reopen(t) {
		check()
	}
}

// testLeaving leaves reads early, appends while reading and closes while
// reading.
func testLeaving(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 9)
	for range b.Read(t.Context(), "s", 0) {
		break
	}
	for range b.Follow(t.Context(), "s", 0) {
		break
	}
	n := 0
	for _, err := range b.Read(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		appendAll(t, w, c.step())
	}
	if n < 10 || n > 200 {
		t.Errorf("%d events were read", n)
	}
	release(t, w)
	n = 0
	for _, err := range b.Read(t.Context(), "s", 0) {
		if n++; n < 3 {
			continue
		}
		if n == 3 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil && !errors.Is(err, dsh.ErrClosed) {
			t.Errorf("a read of a closed log: %v, want dsh.ErrClosed", err)
		}
	}
}

func testClosed(t *testing.T, b *bench) {
	c, w := b.started(t, "s", 1)
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	ctx := t.Context()
	_, acquire := b.Acquire(ctx, "x")
	_, head := b.Head(ctx, "s")
	_, read := b.read(t, "s", 0)
	_, follow := collect(b.Follow(ctx, "s", 0))
	_, heads := collect(b.Heads(ctx))
	for what, err := range map[string]error{"Acquire": acquire, "Head": head, "Read": read, "Follow": follow, "Heads": heads,
		"Remove": b.Remove(ctx, "s"), "Append": w.Append(ctx, c.step())} {
		if !errors.Is(err, dsh.ErrClosed) {
			t.Errorf("%s of a closed log: %v, want dsh.ErrClosed", what, err)
		}
	}
}

func testIDs(t *testing.T, b *bench) {
	ctx := t.Context()
	for _, id := range []dsh.SessionID{"", "A", "a b", "a|b", "../a", "a/b", "é", "a\x00", "a.b", "a_b", dsh.SessionID(make([]byte, 40))} {
		if _, err := b.Acquire(ctx, id); err == nil {
			t.Errorf("Acquire(%q) succeeded", id)
		}
		if _, err := b.Head(ctx, id); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("Head(%q): %v, want dsh.ErrNoSession", id, err)
		}
		if _, err := b.read(t, id, 0); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("Read(%q): %v, want dsh.ErrNoSession", id, err)
		}
		if err := b.Remove(ctx, id); !errors.Is(err, dsh.ErrNoSession) {
			t.Errorf("Remove(%q): %v, want dsh.ErrNoSession", id, err)
		}
	}
	for _, id := range []dsh.SessionID{"a", "0", "-", "01jz-abc", "s-session-e-1"} {
		c, w := b.started(t, id, 1)
		b.wants(t, id, 0, c.all)
		release(t, w)
	}
}
