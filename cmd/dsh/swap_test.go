package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/store/memory"
)

// waiting runs sessions whose provider asks for a wait of 9 s, until all of
// them wait.
type waiting struct {
	log      dsh.Log
	set      *runtime.Set
	folder   runtime.Folder
	sessions sync.WaitGroup
	stop     context.CancelCauseFunc
	waits    chan dsh.SessionID // of each llm/retry
}

func wait(t *testing.T, sessions int) *waiting {
	t.Helper()
	dir := t.TempDir()
	keep(t, dir)
	w := &waiting{log: memory.New(), folder: runtime.Folder(filepath.Join(dir, "policies")), waits: make(chan dsh.SessionID, 8*sessions)}
	var err error
	w.set, err = runtime.Open(t.Context(), []runtime.Spec{{Name: "retry", Module: "builtin:retry"}}, runtime.Options{
		Engine: extism.New(extism.Options{}), Builtin: guests.Builtin, Folder: w.folder, Modules: runtime.ModuleStore(filepath.Join(dir, "data", "modules")),
		Warn:     func(text string) { t.Error(text) },
		Deadline: 20 * time.Second, // on a machine that does much else
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	w.stop = stop
	for i := range sessions {
		w.sessions.Go(func() { w.run(ctx, t, dsh.SessionID(fmt.Sprintf("s%03d", i))) })
	}
	t.Cleanup(func() {
		stop(loop.ErrSuspend)
		w.sessions.Wait()
		if err := w.set.Close(); err != nil {
			t.Error(err)
		}
		keepLog(t, w.log, filepath.Join(dir, "data"))
	})
	w.all(t, sessions)
	return w
}

func (w *waiting) run(ctx context.Context, t *testing.T, id dsh.SessionID) {
	adapter := &failing{}
	s, err := loop.Create(ctx, w.log, dsh.SessionStart{ID: id}, loop.Config{
		Provider: "p", Model: "m", Policies: w.set,
		Providers: func(string) (loop.Provider, error) {
			return loop.Provider{Adapter: adapter, Retry: dsh.DefaultRetryPolicy()}, nil
		},
		Front: loop.Front{Event: func(e dsh.Event) error {
			if e.Type == dsh.TypeRetry {
				w.waits <- id
				adapter.failure = &dsh.Failure{Code: dsh.CodeRateLimit, Status: 429, RetryAfter: 9 * time.Second}
			}
			return nil
		}},
	})
	if err != nil {
		t.Error(err)
		return
	}
	adapter.failure = &dsh.Failure{Code: dsh.CodeRateLimit, Status: 429, RetryAfter: 9 * time.Second}
	if _, err := s.Prompt(ctx, []dsh.Block{dsh.TextBlock("q")}); err != nil && !errors.Is(err, loop.ErrSuspend) {
		t.Error(err)
	}
	if err := s.Close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

// all waits until every session waits.
func (w *waiting) all(t *testing.T, sessions int) {
	t.Helper()
	seen := map[dsh.SessionID]bool{}
	for end := time.After(patience); len(seen) < sessions; {
		select {
		case id := <-w.waits:
			seen[id] = true
		case <-end:
			t.Fatalf("%d sessions wait", len(seen))
		}
	}
}

// count counts the events of a type for which a test holds, in all sessions.
func (w *waiting) count(t *testing.T, typ dsh.EventType, ok func(e dsh.Event) bool) int {
	t.Helper()
	n := 0
	for h, err := range w.log.Heads(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range w.log.Read(t.Context(), h.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == typ && ok(e) {
				n++
			}
		}
	}
	return n
}

func by(policy string) func(dsh.Event) bool {
	return func(e dsh.Event) bool {
		var d struct {
			Policy string `json:"policy"`
		}
		return e.Decode(&d) == nil && d.Policy == policy
	}
}

// dayLong is a guest whose retries wait for a day.
func dayLong(t *testing.T) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("..", "..", "runtime", "runtimetest", "testdata", "retry.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	before, after := `5.5, "later": [1, {"a": null}]`, `86400000, "later": 1`
	changed := bytes.Replace(wasm, []byte(before), fmt.Appendf(nil, "%-*s", len(before), after), 1)
	if bytes.Equal(changed, wasm) {
		t.Fatal("the guest is another")
	}
	return changed
}

// TestHundredWaits: a policy that is put into the folder decides every wait
// anew within a second; taken out again it sends nothing more.
func TestHundredWaits(t *testing.T) {
	const sessions = 100
	w := wait(t, sessions)
	wasm := dayLong(t)
	began := time.Now()
	if err := w.folder.Install("first", wasm); err != nil {
		t.Fatal(err)
	}
	w.all(t, sessions)
	t.Logf("all were decided anew after %v", time.Since(began)) // a second is promised, on a machine that does nothing else
	if n := w.count(t, dsh.TypeRetryCancelled, func(e dsh.Event) bool {
		var d dsh.RetryCancelled
		return e.Decode(&d) == nil && d.Reason == dsh.CancelPoliciesChanged
	}); n != sessions {
		t.Errorf("%d waits were cancelled", n)
	}
	if n := w.count(t, dsh.TypeRetry, by("first")); n != sessions {
		t.Errorf("%d waits are of the new policy", n)
	}
	if err := w.folder.Remove("first"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		if policies, changed := w.set.Policies(); len(policies) == 1 {
			break
		} else if time.Now().After(end) {
			t.Fatal("it is still there")
		} else {
			<-changed
		}
	}
	w.all(t, sessions) // the waits that the listed policy decides in its place
	if n := w.count(t, dsh.TypePolicyDecision, by("first")); n != sessions {
		t.Errorf("%d decisions of the policy that is gone", n)
	}
	if n := w.count(t, dsh.TypeRetryCancelled, func(dsh.Event) bool { return true }); n != 2*sessions {
		t.Errorf("%d waits were cancelled", n)
	}
	if n := w.count(t, dsh.TypeRetryStarted, func(dsh.Event) bool { return true }); n != 0 {
		t.Errorf("%d attempts were sent", n)
	}
}
