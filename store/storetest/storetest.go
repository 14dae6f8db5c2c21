// Package storetest judges implementations of dsh.Log. Every store passes it,
// and so does everything that is wrapped around one.
package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// A Store is a place for a log that a test has to itself.
type Store struct {
	// Open opens the log, again and again: the suite closes the one before it
	// opens the next. It ends the test where it fails.
	Open func(t testing.TB) dsh.Log

	// Persists says that what was appended is there after a Close and an Open.
	// Where it is false, Open is called once.
	Persists bool
}

// Run runs the whole suite. empty is called once for each test, with that
// test, and makes a store without a session in it.
func Run(t *testing.T, empty func(t *testing.T) Store) {
	for _, s := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"empty", testEmpty},
		{"append and read", testAppendRead},
		{"conflicts", testConflicts},
		{"the same bytes again", testAgain},
		{"one writer", testOneWriter},
		{"a race for one session", testAcquireRace},
		{"stale writers", testStale},
		{"relaxed events", testRelaxed},
		{"readers see a prefix", testPrefix},
		{"follow", testFollow},
		{"follow many", testFollowMany},
		{"heads", testHeads},
		{"remove", testRemove},
		{"remove while followed", testRemoveFollowed},
		{"unknown types and fields", testUnknown},
		{"refused events", testRefused},
		{"big events", testBig},
		{"big appends", testBigAppend},
		{"ended contexts", testContexts},
		{"many sessions at once", testConcurrency},
		{"leaving a read", testLeaving},
		{"closed", testClosed},
		{"ids", testIDs},
		{"snapshots", testSnapshots},
		{"reopen", testReopen},
		{"reopen after big events", testReopenBig},
	} {
		t.Run(s.name, func(t *testing.T) {
			b := &bench{store: empty(t)}
			b.Log = b.store.Open(t)
			t.Cleanup(func() {
				if err := b.Log.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			s.test(t, b)
		})
	}
}

// A bench is a log under test.
type bench struct {
	dsh.Log
	store Store
}

// reopen closes the log and opens it again, and reports whether that keeps
// anything.
func (b *bench) reopen(t *testing.T) bool {
	t.Helper()
	if !b.store.Persists {
		return false
	}
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	b.Log = b.store.Open(t)
	return true
}

func (b *bench) acquire(t *testing.T, id dsh.SessionID) dsh.Writer {
	t.Helper()
	w, err := b.Acquire(t.Context(), id)
	if err != nil {
		t.Fatalf("Acquire(%s): %v", id, err)
	}
	return w
}

// read gives the events after a seq, and the error at their end.
func (b *bench) read(t *testing.T, id dsh.SessionID, after uint64) ([]dsh.Event, error) {
	t.Helper()
	return collect(b.Read(t.Context(), id, after))
}

// wants checks that a session's events after a seq are these, byte for byte.
func (b *bench) wants(t *testing.T, id dsh.SessionID, after uint64, want []dsh.Event) {
	t.Helper()
	got, err := b.read(t, id, after)
	if err != nil {
		t.Fatalf("Read(%s, %d): %v after %d events", id, after, err, len(got))
	}
	same(t, got, want)
}

func same(t *testing.T, got, want []dsh.Event) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if g, w := string(got[i].Line()), string(want[i].Line()); g != w {
			t.Fatalf("event %d of %d:\n got %s\nwant %s", i, len(want), short(g), short(w))
		}
		if got[i].Seq != want[i].Seq || got[i].Hash != want[i].Hash || got[i].Type != want[i].Type || got[i].At != want[i].At {
			t.Fatalf("event %d: fields %+v, want %+v", i, got[i].Tail(), want[i].Tail())
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
}

func short(s string) string { return s[:min(len(s), 300)] }

// collect takes all of a sequence, up to its error.
func collect[T any](seq iter.Seq2[T, error]) (all []T, err error) {
	for v, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

// A chain seals events one after the other.
type chain struct {
	t    testing.TB
	tail dsh.Tail
	at   time.Time
	all  []dsh.Event
}

// newChain begins a session with its session/start.
func newChain(t testing.TB, id dsh.SessionID) *chain {
	c := &chain{t: t, at: time.UnixMilli(1_790_000_000_000)}
	c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/work", Title: "a title"})
	return c
}

func (c *chain) add(typ dsh.EventType, data any) dsh.Event {
	c.t.Helper()
	c.at = c.at.Add(time.Millisecond)
	e, err := c.tail.Seal(c.at, dsh.Draft{Type: typ, Data: data})
	if err != nil {
		c.t.Fatal(err)
	}
	c.tail = e.Tail()
	c.all = append(c.all, e)
	return e
}

func (c *chain) step() dsh.Event {
	return c.add(dsh.TypeStepStart, dsh.StepStart{Turn: 1, Step: len(c.all)})
}

func (c *chain) chunk(text string) dsh.Event {
	return c.add(dsh.TypeAssistantChunk, dsh.AssistantChunk{Turn: 1, Step: 1, Attempt: 1, Chunk: dsh.Chunk{Type: "text", Text: text}})
}

func (c *chain) steps(n int) []dsh.Event {
	from := len(c.all)
	for range n {
		c.step()
	}
	return c.all[from:]
}

// text makes a tool result of n bytes.
func (c *chain) text(n int) dsh.Event {
	return c.add(dsh.TypeToolResult, map[string]any{"turn": 1, "step": 1, "callId": "c",
		"content": []any{map[string]string{"type": "text", "text": strings.Repeat("0123456789<&>é\u2028", n/16)}}, "isError": false})
}

func appendAll(t *testing.T, w dsh.Writer, events ...dsh.Event) {
	t.Helper()
	if err := w.Append(t.Context(), events...); err != nil {
		t.Fatalf("Append of events %d to %d: %v", events[0].Seq, events[len(events)-1].Seq, err)
	}
}

func release(t *testing.T, w dsh.Writer) {
	t.Helper()
	if err := w.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// started makes a session with its start and some steps in it, and keeps it
// held.
func (b *bench) started(t *testing.T, id dsh.SessionID, steps int) (*chain, dsh.Writer) {
	t.Helper()
	c, w := newChain(t, id), b.acquire(t, id)
	appendAll(t, w, append(slices.Clone(c.all), c.steps(steps)...)...)
	return c, w
}

// conflict checks that an append did not fit.
func conflict(t *testing.T, err error, id dsh.SessionID, at uint64, tail dsh.Tail) {
	t.Helper()
	var c *dsh.ConflictError
	if !errors.As(err, &c) {
		t.Fatalf("error %v, want a *dsh.ConflictError", err)
	}
	if c.Session != id || c.At != at || c.Tail != tail {
		t.Fatalf("%+v, want session %s, at %d, tail %+v", c, id, at, tail)
	}
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
