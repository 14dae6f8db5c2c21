package runtime_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// busy are workers that decide by the first policy of a set, some thousand times a
// second.
type busy struct {
	work    sync.RWMutex // held by each decision; who holds it for writing has no decision beside
	stop    chan struct{}
	workers sync.WaitGroup
	decided atomic.Int64
}

func (b *busy) start(t *testing.T, s *swapped, workers int) {
	input, err := dsh.JSON(runtimetest.Input("a"))
	if err != nil {
		t.Fatal(err)
	}
	b.stop = make(chan struct{})
	for range workers {
		b.workers.Go(func() {
			for {
				select {
				case <-b.stop:
					return
				default:
				}
				b.work.RLock()
				policies, _ := s.Policies()
				v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: input})
				b.work.RUnlock()
				if err != nil || v.Decision.Kind != dsh.KindDelegate {
					t.Errorf("decided %s, %v", v.Raw, err)
					return
				}
				b.decided.Add(1)
				time.Sleep(200 * time.Microsecond) // for the swaps
			}
		})
	}
}

// A weight is what a process holds, with nothing under way.
type weight struct {
	heap uint64 // bytes in use after a collection
	code int    // mappings that can be run: each compiled module has some; -1: not known
}

// weigh stops the workers for a moment, and weighs the process with a version in
// place that has decided nothing: how many instances another one keeps depends on
// how many decisions met in it.
func (b *busy) weigh(reload func()) weight {
	b.work.Lock()
	defer b.work.Unlock()
	reload()
	w := weight{code: -1}
	// What was retired is freed beside the swap, and what has a finalizer one
	// collection later: it has settled when two weigh the same.
	for range 50 {
		goruntime.GC()
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		now := weight{m.HeapAlloc, -1}
		if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
			now.code = bytes.Count(maps, []byte(" r-xp "))
		}
		if now.code == w.code && now.heap < w.heap+w.heap/100 && w.heap < now.heap+now.heap/100 {
			return now
		}
		w = now
		time.Sleep(time.Millisecond)
	}
	return w
}

// swapper returns two ways to put a version of policy a in place: through the
// folder that is watched, and through the configuration.
func swapper(t *testing.T, s *swapped, version string) (byFolder, direct func()) {
	wasm := module(t, version)
	is := func() bool {
		policies, _ := s.Policies()
		return policies[0].Info().Version == version
	}
	byFolder = func() {
		if err := runtime.Folder(s.dir).Install("a", wasm); err != nil {
			t.Fatal(err)
		}
		s.until(t, "swapped to "+version, is)
	}
	return byFolder, func() {
		if err := os.RemoveAll(filepath.Join(s.dir, "a.wasm")); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(t.Context(), []runtime.Spec{{Name: "a", Module: "a.wasm", Wasm: wasm}, builtin}, nil); err != nil {
			t.Fatal(err)
		}
		if !is() {
			t.Fatalf("it is not swapped to %s", version)
		}
	}
}

// TestSwapMemory: a thousand swaps under busy workers on the real engine, every
// tenth through the watched folder, leave the heap, the compiled code and the
// goroutines as they are after a hundred.
func TestSwapMemory(t *testing.T) {
	swaps := 1000
	if testing.Short() {
		swaps = 200
	}
	s := swap(t, runtime.Options{Engine: native.New(native.Options{})}, runtime.Spec{Name: "a", Module: "a.wasm", Wasm: module(t, "0")}, builtin)
	s.names()
	goroutines := goruntime.NumGoroutine()
	b := &busy{}
	b.start(t, s, 8)
	var first weight
	for i := 1; i <= swaps; i++ {
		byFolder, direct := swapper(t, s, fmt.Sprint(i))
		if i%10 == 0 {
			byFolder()
		} else {
			direct()
		}
		if i == swaps/10 {
			_, again := swapper(t, s, "weighed")
			first = b.weigh(again)
		}
	}
	_, again := swapper(t, s, "weighed")
	last := b.weigh(again)
	close(b.stop)
	b.workers.Wait()
	t.Logf("%d decisions; after %d swaps %d KiB in use and %d mappings of code, after %d %d and %d",
		b.decided.Load(), swaps/10, first.heap>>10, first.code, swaps, last.heap>>10, last.code)
	if last.heap > first.heap+first.heap/10 {
		t.Errorf("the heap has grown from %d to %d KiB", first.heap>>10, last.heap>>10)
	}
	if last.code > first.code+4 {
		t.Errorf("the mappings of code have become %d, from %d", last.code, first.code)
	}
	for end := time.Now().Add(20 * time.Second); goruntime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := goruntime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if said := s.said(); len(said) > 0 {
		t.Errorf("said %q", said)
	}
}
