package runtime_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// TestWarmState: each decision begins in the state that warm has left, globals,
// memory and its size, whether its instance was warmed or thawed, and never in
// what another decision has left.
func TestWarmState(t *testing.T) {
	engines := map[string]runtime.Engine{
		"native":      native.New(native.Options{}),
		"interpreter": native.New(native.Options{Interpreter: true}),
		"extism":      extism.New(extism.Options{}),
	}
	for guest, want := range map[string]string{"warm-state": "<320", "warm-table": "<325"} {
		for name, e := range engines {
			t.Run(guest+"/"+name, func(t *testing.T) {
				policies := open(t, runtime.Options{Engine: e}, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, guest)})
				fuel := uint64(0)
				for n := range 8 {
					v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: benchInput(t).Input})
					if err != nil || v.Decision.Reason != want {
						t.Fatalf("decision %d: %s, %v; want the reason %s", n, v.Raw, err, want)
					}
					if n > 0 && v.Fuel != fuel {
						t.Errorf("decision %d took %d units of fuel, and the one before %d", n, v.Fuel, fuel)
					}
					fuel = v.Fuel
				}
			})
		}
	}
}

// TestFreeze: what a program makes in the state of a warm instance is a fresh
// instance; one that has state elsewhere is not frozen.
func TestFreeze(t *testing.T) {
	for guest, freezes := range map[string]bool{"warm-state": true, "warm-table": false, "retry": false} {
		t.Run(guest, func(t *testing.T) {
			p, err := native.New(native.Options{}).Compile(t.Context(), moduleOf(t, runtimetest.Guest(t, guest)))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			i, err := p.Instance(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			if freezes {
				if _, err := i.Call(t.Context(), runtime.Call{Export: hostabi.ExportWarm}); err != nil {
					t.Fatal(err)
				}
			}
			thaw, err := p.(runtime.Freezer).Freeze(t.Context(), i)
			if err != nil || (thaw != nil) != freezes {
				t.Fatalf("frozen: %t, %v; want %t", thaw != nil, err, freezes)
			}
			if thaw != nil {
				thawedAre(t, thaw, "<320")
			}
		})
	}
}

// thawedAre asks several thawed instances twice each: the second answer is
// another than the first, and no instance knows of the ones before it.
func thawedAre(t *testing.T, thaw func(context.Context) (runtime.Instance, error), reason string) {
	t.Helper()
	for n := range 4 {
		i, err := thaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var answers [2]string
		for k := range answers {
			r, err := i.Call(t.Context(), benchInput(t))
			if err != nil {
				t.Fatal(err)
			}
			answers[k] = string(r.Output)
		}
		if want := fmt.Sprintf(`{"kind":"delegate","reason":"%s"}`, reason); answers[0] != want || answers[1] == want {
			t.Errorf("instance %d: %q; want %s and then another", n, answers, want)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// counter is an engine that counts the instances that are thawed.
type counter struct {
	runtime.Engine
	thawed atomic.Int64
}

func (e *counter) Compile(ctx context.Context, m runtime.Module) (runtime.Program, error) {
	p, err := e.Engine.Compile(ctx, m)
	return counted{p, e}, err
}

type counted struct {
	runtime.Program
	engine *counter
}

func (p counted) Freeze(ctx context.Context, i runtime.Instance) (func(context.Context) (runtime.Instance, error), error) {
	thaw, err := p.Program.(runtime.Freezer).Freeze(ctx, i)
	return func(ctx context.Context) (runtime.Instance, error) {
		p.engine.thawed.Add(1)
		return thaw(ctx)
	}, err
}

// TestDecisionsThaw: once a warm instance has been frozen, the ones to come begin
// in its state, and decide the same.
func TestDecisionsThaw(t *testing.T) {
	e := &counter{Engine: native.New(native.Options{})}
	policies := open(t, runtime.Options{Engine: e}, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, "warm-state")})
	for n := 0; e.thawed.Load() < 10; n++ {
		v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: benchInput(t).Input})
		if err != nil || v.Decision.Reason != "<320" {
			t.Fatalf("decision %d: %s, %v", n, v.Raw, err)
		}
		if n == 10_000 {
			t.Fatalf("%d instances of %d decisions were thawed", e.thawed.Load(), n)
		}
	}
}
