package native_test

import (
	goruntime "runtime"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// TestWhatGrowsIsNotKept: a policy whose instances take all of their memories
// when they are warmed, 30 MiB each, does not have several kept ready.
func TestWhatGrowsIsNotKept(t *testing.T) {
	const most = 56 << 20 // one instance, and what is left for the next
	var m Module
	Floods(hostabi.ExportRecover)["all of both memories"].Write(&m)
	before := heap()
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: m.Bytes()}}, runtime.Options{Engine: native.New(native.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	policies, _ := set.Policies()
	raw, err := dsh.JSON(runtimetest.Input("p"))
	if err != nil {
		t.Fatal(err)
	}
	least := ^uint64(0) // in a moment when no instance is made for later
	for range 8 {
		if _, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw}); err == nil {
			t.Error("it decides")
		}
		least = min(least, heap())
	}
	if least > before+most {
		t.Errorf("%d MiB more than before", (least-before)>>20)
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
}

// heap is the memory in use after a collection.
func heap() uint64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}
