package runtime_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// However many ask at once, a bounded number of them is computed, and waiting for
// a turn is not the guest's time.
func TestDecisionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		opts := options(t)
		opts.Deadline = time.Second
		opts.Engine = &fake{call: func(ctx context.Context, _ runtime.Call) (runtime.Result, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			select {
			case <-time.After(600 * time.Millisecond):
				return runtime.Result{Output: []byte(delegates)}, nil
			case <-ctx.Done():
				return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "late"}
			}
		}}
		p := open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, "delegate")})[0]
		var all sync.WaitGroup
		for range 200 * goruntime.GOMAXPROCS(0) {
			all.Go(func() {
				if _, err := decide(t, p, runtimetest.Input("p")); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got, want := most.Load(), int64(32*goruntime.GOMAXPROCS(0)); got != want {
			t.Errorf("%d at once, want %d", got, want)
		}
	})
}

// A call that was over its deadline and had hardly used fuel was kept from its
// processor, and is made once more. One that had used some is a fault.
func TestACallThatWasStarvedIsMadeAgain(t *testing.T) {
	late := &dsh.Fault{Kind: dsh.FaultDeadline, Message: "it did not answer in time"}
	for _, k := range []struct {
		name   string
		fuel   []uint64 // used by the calls that are late
		faults bool
		calls  int
	}{
		{"once", []uint64{1000}, false, 2},
		{"twice", []uint64{1000, 0}, true, 2},
		{"it has computed", []uint64{20_000_000}, true, 1},
	} {
		t.Run(k.name, func(t *testing.T) {
			f := &fake{}
			f.call = func(context.Context, runtime.Call) (runtime.Result, error) {
				if n := len(f.called()); n <= len(k.fuel) {
					return runtime.Result{Fuel: k.fuel[n-1]}, late
				}
				return runtime.Result{Output: []byte(delegates)}, nil
			}
			opts := options(t)
			opts.Engine = f
			p := open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, "delegate")})[0]
			_, err := decide(t, p, runtimetest.Input("p"))
			if errors.Is(err, late) != k.faults || err != nil && !k.faults || len(f.called()) != k.calls {
				t.Errorf("%d calls, %v", len(f.called()), err)
			}
		})
	}
}
