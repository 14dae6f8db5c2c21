package loop_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// picky is a waterfall that has not taken in everything.
type picky struct {
	policies []dsh.Policy
	changed  chan struct{}
	refused  []dsh.PolicyFault
}

func (p *picky) Policies() ([]dsh.Policy, <-chan struct{}) { return p.policies, p.changed }
func (p *picky) Refusals() []dsh.PolicyFault               { return p.refused }

// TestRefusals: what a waterfall did not take in is in the log of each session
// that asks it, once, also after a resume, and a new one while a wait runs.
func TestRefusals(t *testing.T) {
	refused := func(name string) dsh.PolicyFault {
		return dsh.PolicyFault{Hook: dsh.HookCheckConfig, Policy: name, Digest: "d", Kind: dsh.FaultUnavailable, Message: "no module"}
	}
	w := &picky{changed: make(chan struct{}), refused: []dsh.PolicyFault{refused("a")}}
	w.policies = []dsh.Policy{dsh.NativePolicy("waits", func(dsh.RecoverInput) dsh.Decision {
		return dsh.Decision{Kind: dsh.KindRetry, DelayMs: dsh.Millis(time.Hour)}
	})}
	log := memory.New()
	ctx, stop := context.WithCancelCause(t.Context())
	waits := 0
	cfg := loop.Config{
		Provider: "p", Model: "m", Policies: w,
		Providers: func(string) (loop.Provider, error) {
			return loop.Provider{Adapter: failing{}, Retry: dsh.DefaultRetryPolicy()}, nil
		},
		Front: loop.Front{Event: func(e dsh.Event) error {
			switch {
			case e.Type == dsh.TypeRetry: // a file comes while it waits
				waits++
				w.refused = append(w.refused, refused("b"))
				close(w.changed)
				w.changed = make(chan struct{})
			case e.Type == dsh.TypePolicyFault && waits > 0:
				stop(loop.ErrSuspend)
			}
			return nil
		}},
	}
	s, err := loop.Create(ctx, log, dsh.SessionStart{ID: "s"}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prompt(ctx, []dsh.Block{dsh.TextBlock("q")}); err != loop.ErrSuspend {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, end := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, loop.ErrSuspend)
	defer end()
	if s, err = loop.Open(t.Context(), log, "s", cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resume(again); err != loop.ErrSuspend {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for e, err := range log.Read(t.Context(), "s", 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != dsh.TypePolicyFault {
			continue
		}
		var d dsh.PolicyFault
		if err := e.Decode(&d); err != nil || d.Turn != 1 || d.Step != 1 || d.Attempt != 1 {
			t.Errorf("%s, %v", e.Data, err)
		}
		said[d.Policy]++
	}
	if len(said) != 2 || said["a"] != 1 || said["b"] != 1 || waits != 1 {
		t.Errorf("said %v, %d waits", said, waits)
	}
	if _, err := loop.Verify(log.Read(t.Context(), "s", 0)); err != nil {
		t.Error(err)
	}
}

// failing is a provider that fails in a way that passes.
type failing struct{}

func (failing) Encode(dsh.Request) ([]byte, error) { return []byte("{}"), nil }

func (failing) Send(context.Context, []byte) iter.Seq2[dsh.Chunk, error] {
	return func(yield func(dsh.Chunk, error) bool) {
		yield(dsh.Chunk{}, &dsh.Failure{Code: dsh.CodeServer, Message: "m"})
	}
}
