package meter_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// hosted makes a runtime with the one host function that tests import.
func hosted(tb testing.TB, config wazero.RuntimeConfig) wazero.Runtime {
	tb.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(256))
	tb.Cleanup(func() { r.Close(ctx) })
	nothing := func(context.Context, api.Module, []uint64) {}
	_, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(nothing), nil, nil).Export("nothing").Instantiate(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func build(write func(m *Module)) []byte {
	var m Module
	write(&m)
	return m.Bytes()
}

// slow is what a test allows where a figure is far below it: the machine may
// be busy.
const slow = 10 * time.Second

// TestEndless: each is stopped by its fuel or its stack, at the same place
// each time and on both engines, and little memory is left behind.
func TestEndless(t *testing.T) {
	const fuel = 1_000_000
	for name, write := range Endless("run") {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			b := rewrite(t, build(write), meter.Options{MemoryPages: 256})
			cause, left := stopped(t, "compiler", b, fuel)
			for _, engine := range []string{"compiler", "interpreter"} {
				c, l := stopped(t, engine, b, fuel)
				if c == meter.CauseNone && strings.Contains(name, "recursion") {
					continue // the interpreter stops by itself at 2,000 calls within each other
				}
				if c != cause || l != left {
					t.Errorf("%s: stopped by %q with %d left, and before by %q with %d", engine, c, l, cause, left)
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
				t.Errorf("%d MiB more are in use", grown>>20)
			}
		})
	}
}

// stopped runs a program in a fresh instance: what stopped it, and what is left
// of the fuel.
func stopped(t *testing.T, engine string, b []byte, fuel int64) (meter.Cause, int64) {
	r := hosted(t, engines()[engine])
	m := start(t, r, b)
	begin := time.Now()
	_, used, err := m.call(fuel, "run")
	took := time.Since(begin)
	cause := m.tank.Cause()
	switch {
	case err == nil:
		t.Fatalf("%s: it ends", engine)
	case took > slow:
		t.Errorf("%s: it took %v", engine, took)
	case engine == "compiler" && cause == meter.CauseNone:
		t.Errorf("it was not stopped: %v", err)
	case cause == meter.CauseFuel && used != fuel:
		t.Errorf("%s: %d of %d used", engine, used, fuel)
	}
	return cause, int64(m.tank.Fuel.Get())
}

// TestCollector: while a guest spins, which Go cannot interrupt, the garbage
// collector waits for it, and it does not wait long.
func TestCollector(t *testing.T) {
	for _, name := range []string{"empty loop", "exponential recursion", "long straight code", "calls of calls", "fills of memory"} {
		t.Run(name, func(t *testing.T) {
			r := hosted(t, engines()["compiler"])
			m := metered(t, r, build(Endless("run")[name]), meter.Options{})
			done := make(chan error)
			go func() {
				_, _, err := m.call(meter.DecisionFuel, "run")
				done <- err
			}()
			begin, worst, n := time.Now(), time.Duration(0), 0
			for {
				select {
				case err := <-done:
					if err == nil || m.tank.Cause() != meter.CauseFuel {
						t.Errorf("%v, %q", err, m.tank.Cause())
					}
					if worst > slow {
						t.Errorf("a collection took %v", worst)
					}
					t.Logf("%v, %d collections, the longest %v", time.Since(begin), n, worst)
					return
				default:
				}
				start := time.Now()
				runtime.GC()
				worst = max(worst, time.Since(start))
				n++
			}
		})
	}
}

// BenchmarkEndless is how long a unit of fuel takes in each, at best: what the
// prices and the budgets come from. Those that end by the stack end early.
func BenchmarkEndless(b *testing.B) {
	const fuel = 1_000_000
	for name, write := range Endless("run") {
		b.Run(name, func(b *testing.B) {
			r := hosted(b, engines()["compiler"])
			m := metered(b, r, build(write), meter.Options{MemoryPages: 256})
			best, units := time.Duration(1<<62), int64(0)
			for b.Loop() {
				start := time.Now()
				_, used, _ := m.call(fuel, "run")
				if d := time.Since(start); d < best {
					best, units = d, used
				}
			}
			b.ReportMetric(float64(best)/float64(units), "ns/unit")
			b.ReportMetric(float64(units), "units")
		})
	}
}

// TestPauses: others go on beside a guest that never ends. The garbage
// collector's stops of the world end while it runs, and an engine that looks at
// its context stops it, although nothing in it is a loop.
func TestPauses(t *testing.T) {
	for name, write := range Endless("run") {
		switch name {
		case "exponential recursion", "nested loops", "long straight code", "calls with many parameters", "small fills of memory", "calls along the code", "long straight code of calls":
		default:
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := hosted(t, engines()["compiler"].WithCloseOnContextDone(true))
			m := metered(t, r, build(write), meter.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			m.tank.Fill(plenty, meter.StackBytes)
			done := make(chan error)
			go func() {
				_, err := m.ExportedFunction("run").Call(ctx)
				done <- err
			}()
			for range 3 {
				runtime.GC()
			}
			select {
			case err := <-done:
				t.Fatalf("it has ended: %v", err)
			default:
			}
			cancel()
			if err := <-done; err == nil || m.tank.Cause() != meter.CauseNone {
				t.Errorf("%v, %q", err, m.tank.Cause())
			}
		})
	}
}
