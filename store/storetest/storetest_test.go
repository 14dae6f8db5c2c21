package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/storetest"
)

// session seals the events of a session: its start, and then some of the given
// types.
func session(t *testing.T, types ...dsh.EventType) []dsh.Event {
	t.Helper()
	drafts := []dsh.Draft{{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: "s"}}}
	for _, typ := range types {
		drafts = append(drafts, dsh.Draft{Type: typ, Data: map[string]int{"turn": 1}})
	}
	events, err := dsh.Tail{}.SealAll(time.UnixMilli(1_790_000_000_000), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestFaulty: the n-th append fails, before or after its write, once or for
// good.
func TestFaulty(t *testing.T) {
	errDisk := errors.New("the disk is gone")
	for _, k := range []struct {
		name    string
		fault   storetest.Fault
		want    []bool // of each of five appends: whether it fails
		durable int    // of the five
	}{
		{"none", storetest.Fault{}, []bool{false, false, false, false, false}, 5},
		{"the first, before", storetest.Fault{N: 1, Err: errDisk}, []bool{true, true, true, true, true}, 0},
		{"the third, before", storetest.Fault{N: 3, Err: errDisk}, []bool{false, false, true, true, true}, 2},
		{"the third, after", storetest.Fault{N: 3, After: true, Err: errDisk}, []bool{false, false, true, true, true}, 3},
		{"the third, after, once", storetest.Fault{N: 3, After: true, Passing: true, Err: errDisk}, []bool{false, false, true, false, false}, 5},
		{"the last, before", storetest.Fault{N: 5, Err: errDisk}, []bool{false, false, false, false, true}, 4},
		{"none of these", storetest.Fault{N: 6, Err: errDisk}, []bool{false, false, false, false, false}, 5},
	} {
		t.Run(k.name, func(t *testing.T) {
			log := storetest.Faulty(memory.New(), k.fault)
			w, err := log.Acquire(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range session(t, dsh.TypeTurnStart, dsh.TypeStepStart, dsh.TypeStepStart, dsh.TypeStepEnd) {
				if err := w.Append(t.Context(), e); errors.Is(err, errDisk) != k.want[i] {
					t.Errorf("append %d: %v", i+1, err)
				}
			}
			if got := count(log.Read(t.Context(), "s", 0)); got != k.durable {
				t.Errorf("%d events are durable, want %d", got, k.durable)
			}
		})
	}
}

// TestFaultyRelaxed: the failure of relaxed events is told by what comes next.
func TestFaultyRelaxed(t *testing.T) {
	for name, next := range map[string]func(dsh.Writer, dsh.Event) error{
		"append":  func(w dsh.Writer, e dsh.Event) error { return w.Append(t.Context(), e) },
		"sync":    func(w dsh.Writer, _ dsh.Event) error { return w.Sync(t.Context()) },
		"release": func(w dsh.Writer, _ dsh.Event) error { return w.Release(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			log := storetest.Faulty(memory.New(), storetest.Fault{N: 2})
			w, err := log.Acquire(t.Context(), "s")
			if err != nil {
				t.Fatal(err)
			}
			events := session(t, dsh.TypeAssistantChunk, dsh.TypeStepStart)
			for _, e := range events[:2] {
				if err := w.Append(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			if err := next(w, events[2]); err == nil || !strings.Contains(err.Error(), "injected") {
				t.Errorf("error %v, want the injected one", err)
			}
			if got := count(log.Read(t.Context(), "s", 0)); got != 1 {
				t.Errorf("%d events are durable, want 1", got)
			}
		})
	}
}

func count(events iter.Seq2[dsh.Event, error]) (n int) {
	for _, err := range events {
		if err != nil {
			break
		}
		n++
	}
	return n
}

// mutants are logs with a fault each, and the test of the suite that has to
// find it.
func mutants() map[string]struct {
	test string
	log  func() dsh.Log
} {
	type m = struct {
		test string
		log  func() dsh.Log
	}
	hook := func(h hooks) func() dsh.Log { return func() dsh.Log { return &mutant{Log: memory.New(), hooks: h} } }
	return map[string]m{
		"sound": {"", func() dsh.Log { return memory.New() }},
		"no conflicts": {"conflicts", hook(hooks{append: func(ctx context.Context, w dsh.Writer, e []dsh.Event) error {
			err := w.Append(ctx, e...)
			var c *dsh.ConflictError
			if errors.As(err, &c) {
				return nil
			}
			return err
		}})},
		"half an append": {"conflicts", hook(hooks{append: func(ctx context.Context, w dsh.Writer, all []dsh.Event) error {
			for _, e := range all {
				if err := w.Append(ctx, e); err != nil {
					return err
				}
			}
			return nil
		}})},
		"no repetition": {"the_same_bytes_again", hook(hooks{append: func(ctx context.Context, w dsh.Writer, e []dsh.Event) error {
			if len(e) > 0 && e[0].Seq <= w.Tail().Seq {
				return &dsh.ConflictError{}
			}
			return w.Append(ctx, e...)
		}})},
		"drops relaxed ones": {"relaxed_events", hook(hooks{append: func(ctx context.Context, w dsh.Writer, e []dsh.Event) error {
			if len(e) == 1 && e[0].Type.Relaxed() {
				return nil
			}
			return w.Append(ctx, e...)
		}})},
		"deaf to contexts": {"ended_contexts", hook(hooks{append: func(ctx context.Context, w dsh.Writer, e []dsh.Event) error {
			return w.Append(context.WithoutCancel(ctx), e...)
		}})},
		"reads from the start": {"append_and_read", hook(hooks{read: func(log dsh.Log, ctx context.Context, id dsh.SessionID, _ uint64) iter.Seq2[dsh.Event, error] {
			return log.Read(ctx, id, 0)
		}})},
		"changes bytes": {"unknown_types_and_fields", hook(hooks{read: func(log dsh.Log, ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
			return func(yield func(dsh.Event, error) bool) {
				for e, err := range log.Read(ctx, id, after) {
					if err == nil && bytes.Contains(e.Line(), []byte("future")) {
						e, err = dsh.ParseEvent(bytes.Replace(e.Line(), []byte("1.50"), []byte("1.5"), 1))
					}
					if !yield(e, err) {
						return
					}
				}
			}
		}})},
		"two writers": {"one_writer", hook(hooks{acquire: func(log dsh.Log, ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
			return memory.New().Acquire(ctx, id)
		}})},
	}
}

type hooks struct {
	append  func(context.Context, dsh.Writer, []dsh.Event) error
	read    func(dsh.Log, context.Context, dsh.SessionID, uint64) iter.Seq2[dsh.Event, error]
	acquire func(dsh.Log, context.Context, dsh.SessionID) (dsh.Writer, error)
}

type mutant struct {
	dsh.Log
	hooks hooks
}

func (m *mutant) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	acquire := m.hooks.acquire
	if acquire == nil {
		acquire = dsh.Log.Acquire
	}
	w, err := acquire(m.Log, ctx, id)
	if err != nil {
		return nil, err
	}
	return &mutantWriter{w, m}, nil
}

func (m *mutant) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	if m.hooks.read != nil {
		return m.hooks.read(m.Log, ctx, id, after)
	}
	return m.Log.Read(ctx, id, after)
}

type mutantWriter struct {
	dsh.Writer
	log *mutant
}

func (w *mutantWriter) Append(ctx context.Context, events ...dsh.Event) error {
	if w.log.hooks.append != nil {
		return w.log.hooks.append(ctx, w.Writer, events)
	}
	return w.Writer.Append(ctx, events...)
}

const mutantVar = "DSH_STORE_TEST_MUTANT"

// TestMutant runs the suite over a faulty log, in a process of TestSuiteFinds.
func TestMutant(t *testing.T) {
	m, ok := mutants()[os.Getenv(mutantVar)]
	if !ok {
		t.Skip("run by TestSuiteFinds")
	}
	storetest.Run(t, func(*testing.T) storetest.Store {
		return storetest.Store{Open: func(testing.TB) dsh.Log { return m.log() }}
	})
}

// TestSuiteFinds: the suite fails on logs that are wrong, in the test that is
// meant for it.
func TestSuiteFinds(t *testing.T) {
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := "^TestMutant$"
			if m.test != "" {
				run += "/^" + m.test + "$"
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", run)
			cmd.Env = append(os.Environ(), mutantVar+"="+name)
			out, err := cmd.CombinedOutput()
			if found := err != nil; found != (m.test != "") {
				t.Errorf("found: %v, %s", found, out)
			}
			if m.test != "" && !bytes.Contains(out, []byte("--- FAIL: TestMutant/"+m.test)) {
				t.Errorf("another end: %s", out)
			}
		})
	}
}
