package runtimetest

import (
	"context"
	"errors"

	"os"
	goruntime "runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// What a hostile guest is held to, on a machine with nothing else to do.
const (
	hostileTime   = 500 * time.Millisecond
	hostileMemory = 64 << 20
	hostileDelay  = 50 * time.Millisecond // of a heartbeat, 99 of 100
)

// The variables that make the hostile suite longer or stricter. DSH_STRICT=1
// holds the times of the wall to the figures, for a machine at rest; without,
// they are held to what a busy one can promise. DSH_KILLS is how many guests
// are killed in the last part, 200 by default.
const (
	strictVariable = "DSH_STRICT"
	killsVariable  = "DSH_KILLS"
)

// A hostile is one module and what it may have.
type hostile struct {
	name         string
	wasm         []byte
	capabilities []string
}

// hostiles are all modules of the suite: more than a hundred.
func hostiles(tb testing.TB) []hostile {
	tb.Helper()
	var all []hostile
	build := func(write func(m *wasmtest.Module)) []byte {
		var m wasmtest.Module
		write(&m)
		return m.Bytes()
	}
	for name, write := range wasmtest.Endless(hostabi.ExportRecover) {
		all = append(all, hostile{name: name, wasm: build(write)})
	}
	for name, write := range wasmtest.Bombs() {
		all = append(all, hostile{name: "bomb: " + name, wasm: build(func(m *wasmtest.Module) {
			m.ExportFunc(hostabi.ExportRecover, m.Func(m.Type(nil, []byte{wasmtest.I32}), wasmtest.I32Const(0)))
			write(m, 400<<10)
		})})
	}
	for name, f := range wasmtest.Floods(hostabi.ExportRecover) {
		h := hostile{name: "flood: " + name, wasm: build(f.Write)}
		if f.Capability != "" {
			var err error
			if h.wasm, err = hostabi.Pack(h.wasm, hostabi.Manifest{Capabilities: []string{f.Capability}}); err != nil {
				tb.Fatal(err)
			}
			h.capabilities = []string{f.Capability}
		}
		all = append(all, h)
	}
	all = append(all, hostile{name: "large functions at once", wasm: build(func(m *wasmtest.Module) {
		// Each takes much memory to compile, and no more than it may.
		m.ExportFunc(hostabi.ExportRecover, m.Func(m.Type(nil, []byte{wasmtest.I32}), wasmtest.I32Const(0)))
		typ := m.Type([]byte{wasmtest.I32}, nil)
		for range 4 {
			m.Func(typ, wasmtest.Repeat(30_000, wasmtest.Get(0), wasmtest.Call(1)))
		}
	})})
	for name, text := range wasmtest.Answers() {
		all = append(all, hostile{name: "answer: " + name, wasm: build(func(m *wasmtest.Module) { wasmtest.Answer(m, hostabi.ExportRecover, text) })})
	}
	// A start that does not end, and exports that are called at load.
	for _, export := range []string{"_initialize", "__wasm_call_ctors", hostabi.ExportWarm, hostabi.ExportCheckConfig} {
		all = append(all, hostile{name: "endless " + export, wasm: build(func(m *wasmtest.Module) { endlessExport(m, export) })})
	}
	for _, name := range Guests(tb) {
		all = append(all, hostile{name: "guest: " + name, wasm: Guest(tb, name), capabilities: hostabi.Capabilities()})
	}
	slices.SortFunc(all, func(a, b hostile) int { return strings.Compare(a.name, b.name) })
	return all
}

// endlessExport is a module whose recover is fine, and whose other export is
// not: exponential recursion.
func endlessExport(m *wasmtest.Module, export string) {
	hook := m.Type(nil, []byte{wasmtest.I32})
	typ := m.Type([]byte{wasmtest.I32}, []byte{wasmtest.I32})
	void := m.Type(nil, nil)
	twice := m.Func(typ, wasmtest.Get(0), wasmtest.If(wasmtest.I32,
		wasmtest.Get(0), wasmtest.I32Const(1), wasmtest.Op(wasmtest.I32Sub), wasmtest.Call(0),
		wasmtest.Get(0), wasmtest.I32Const(1), wasmtest.Op(wasmtest.I32Sub), wasmtest.Call(0),
		wasmtest.Op(wasmtest.I32Add, wasmtest.Else), wasmtest.I32Const(1)))
	m.ExportFunc(hostabi.ExportRecover, m.Func(hook, wasmtest.I32Const(0)))
	if strings.HasPrefix(export, "_") {
		m.ExportFunc(export, m.Func(void, wasmtest.I32Const(50), wasmtest.Call(twice), wasmtest.Op(wasmtest.Drop)))
		return
	}
	m.ExportFunc(export, m.Func(hook, wasmtest.I32Const(50), wasmtest.Call(twice)))
}

// Hostile holds an engine to what is promised of a stranger's module: whatever
// it is, it is refused, or faults, or decides, in time and in little memory;
// others go on meanwhile; and nothing is left of it. every says that each
// every-th module is tried, for an engine that takes long: 1 is all. Where
// DSH_STRICT is set all are.
func Hostile(t *testing.T, newEngine func(testing.TB) runtime.Engine, every int) {
	s := &suite{newEngine}
	all := hostiles(t)
	if len(all) < 100 {
		t.Fatalf("%d modules: these are not all", len(all))
	}
	if os.Getenv(strictVariable) != "" {
		every = 1
	}
	var tried []hostile
	for i, h := range all {
		if i%every == 0 {
			tried = append(tried, h)
		}
	}
	t.Run("contained", func(t *testing.T) { s.contained(t, tried, every) })
	t.Run("killed", func(t *testing.T) { s.killed(t, all) })
}

// figures are the worst of what was measured.
type figures struct {
	load, decide, collection time.Duration
	memory                   uint64
	loadOf, decideOf         string
	memoryOf, collectionOf   string
}

func worse[T time.Duration | uint64](have *T, of *string, v T, name string) {
	if v > *have {
		*have, *of = v, name
	}
}

// contained loads each module and lets it decide once, as a program does.
func (s *suite) contained(t *testing.T, all []hostile, every int) {
	strict := os.Getenv(strictVariable) != ""
	limit, delay, room := late, late, uint64(2*hostileMemory) // the garbage collector is late, too
	deadline := late / 4
	if strict {
		deadline = 0
		limit, delay, room = hostileTime, hostileDelay, hostileMemory
	}
	engine := s.newEngine(t)
	beat := startHeartbeat()
	var worst figures
	kinds := map[string]int{}
	for _, h := range all {
		w := startWatcher(engine)
		loaded, decided, what := hostileDecision(t, engine, h, deadline)
		peak, collection := w.stop()
		kinds[what]++
		worse(&worst.load, &worst.loadOf, loaded, h.name)
		worse(&worst.decide, &worst.decideOf, decided, h.name)
		worse(&worst.memory, &worst.memoryOf, peak, h.name)
		worse(&worst.collection, &worst.collectionOf, collection, h.name)
		if decided > limit || collection > limit {
			t.Errorf("%s: %s: its decision took %v, a garbage collection beside it %v", h.name, what, decided, collection)
		}
		if peak > room {
			t.Errorf("%s: %s: %d MiB more than before", h.name, what, peak>>20)
		}
	}
	p99 := beat.stop()
	if p99 > delay {
		t.Errorf("99 of 100 heartbeats are late by up to %v", p99)
	}
	t.Logf("%d modules: %v", len(all), kinds)
	t.Logf("the slowest load %v (%s), decision %v (%s), garbage collection %v (%s), most memory %d KiB (%s), heartbeat late by %v (p99)",
		worst.load, worst.loadOf, worst.decide, worst.decideOf, worst.collection, worst.collectionOf, worst.memory>>10, worst.memoryOf, p99)
	if kinds["refused"] < 20/every || kinds[string(dsh.FaultFuel)] < 50/every {
		t.Errorf("these are not all: %v", kinds)
	}
}

// hostileDecision says how long loading and deciding took, and what came of it:
// refused, a kind of fault, or a decision. A deadline of 0 is the usual one.
func hostileDecision(t *testing.T, engine runtime.Engine, h hostile, deadline time.Duration) (loaded, decided time.Duration, what string) {
	t.Helper()
	begin := time.Now()
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: h.wasm, Capabilities: h.capabilities}},
		runtime.Options{Engine: engine, Deadline: deadline, Warn: func(string) {}})
	loaded = time.Since(begin)
	var failed *runtime.LoadError
	if errors.As(err, &failed) {
		return loaded, 0, "refused"
	} else if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	policies, _ := set.Policies()
	raw, err := dsh.JSON(Input("p"))
	if err != nil {
		t.Fatal(err)
	}
	begin = time.Now()
	v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
	decided = time.Since(begin)
	var f *dsh.Fault
	switch {
	case errors.As(err, &f):
		what = string(f.Kind)
	case err != nil:
		t.Errorf("%s: the error is no fault: %v", h.name, err)
	default:
		what = string(v.Decision.Kind)
	}
	if err := set.Close(); err != nil {
		t.Errorf("%s: %v", h.name, err)
	}
	return loaded, decided, what
}

// killed: guests that are stopped leave nothing behind, however many they are.
func (s *suite) killed(t *testing.T, all []hostile) {
	kills := 200
	if n, err := strconv.Atoi(os.Getenv(killsVariable)); err == nil {
		kills = n
	}
	var programs []runtime.Program
	engine := s.newEngine(t)
	for _, h := range all {
		// Those that are stopped early: the others take a tenth of a second each.
		if !slices.Contains([]string{"recursion", "recursion with fat frames", "guest: grow", "guest: trap", "guest: exit-1", "flood: calls of host functions", "flood: random numbers", "guest: recursion"}, h.name) {
			continue
		}
		m, err := runtime.Prepare(h.wasm, runtime.Grants{Capabilities: h.capabilities})
		if err != nil {
			t.Fatal(err)
		}
		p, err := engine.Compile(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		programs = append(programs, p)
	}
	kill := func(n int) {
		for i := range n {
			instance, err := programs[i%len(programs)].Instance(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = instance.Call(t.Context(), runtime.Call{Export: hostabi.ExportRecover, Input: []byte("{}"),
				Host: func(context.Context, string, []byte) []byte { return []byte("{}") }})
			var f *dsh.Fault
			if !errors.As(err, &f) {
				t.Fatalf("it was not killed: %v", err)
			}
			if err := instance.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	kill(4 * len(programs))
	before, goroutines := heap(), goruntime.NumGoroutine()
	begin := time.Now()
	kill(kills)
	took := time.Since(begin)
	after := heap()
	if after > before+8<<20 {
		t.Errorf("after %d kills the heap has %d KiB, and before %d", kills, after>>10, before>>10)
	}
	if n := outside(engine); n > 0 {
		t.Errorf("after %d kills %d KiB are taken outside of the heap", kills, n>>10)
	}
	for deadline := time.Now().Add(late); goruntime.NumGoroutine() > goroutines; goruntime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, and there were %d", goruntime.NumGoroutine(), goroutines)
		}
	}
	t.Logf("%d kills in %v: the heap has %d KiB, and before %d", kills, took, after>>10, before>>10)
}

// heartbeat is a goroutine that wants to run every few milliseconds, as those of
// other sessions do.
type heartbeat struct {
	over atomic.Bool
	done chan []time.Duration
}

func startHeartbeat() *heartbeat {
	const every = 5 * time.Millisecond
	h := &heartbeat{done: make(chan []time.Duration)}
	go func() {
		var behind []time.Duration
		for next := time.Now(); !h.over.Load(); {
			next = next.Add(every)
			time.Sleep(time.Until(next))
			behind = append(behind, time.Since(next))
			if now := time.Now(); now.After(next) {
				next = now
			}
		}
		h.done <- behind
	}()
	return h
}

// stop says by how much 99 of 100 beats were late at most.
func (h *heartbeat) stop() time.Duration {
	h.over.Store(true)
	behind := <-h.done
	slices.Sort(behind)
	return behind[len(behind)*99/100]
}

// watcher collects garbage and looks at the memory while something runs.
type watcher struct {
	over atomic.Bool
	done chan figures
}

func startWatcher(e runtime.Engine) *watcher {
	before := heap() + outside(e)
	w := &watcher{done: make(chan figures)}
	go func() {
		var f figures
		for n := 0; !w.over.Load(); n++ {
			if now := inUse(e); now > before {
				f.memory = max(f.memory, now-before)
			}
			if n%8 == 4 { // a collection makes room, which would hide a peak
				begin := time.Now()
				goruntime.GC()
				f.collection = max(f.collection, time.Since(begin))
			}
			time.Sleep(time.Millisecond)
		}
		w.done <- f
	}()
	return w
}

func (w *watcher) stop() (memory uint64, collection time.Duration) {
	w.over.Store(true)
	f := <-w.done
	return f.memory, f.collection
}

// inUse is the memory of the heap, of goroutines' stacks, and what the engine
// takes beside them, without a stop of the world.
func inUse(e runtime.Engine) uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64() + outside(e)
}

// outside is what an engine takes that is not Go's.
func outside(e runtime.Engine) uint64 {
	if e, ok := e.(interface{ OutsideBytes() int64 }); ok {
		return uint64(e.OutsideBytes())
	}
	return 0
}
