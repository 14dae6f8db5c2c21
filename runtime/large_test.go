package runtime_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
	"github.com/dsh-agent/dsh/runtime/native"
)

// largePages is a memory of 12.5 MiB, which is not Go's.
const largePages = 200

// large is a module with a large memory, and what write adds.
func large(write func(m *wasmtest.Module, hook uint32)) []byte {
	var m wasmtest.Module
	hook := m.Type(nil, []byte{wasmtest.I32})
	m.Memory(largePages)
	m.ExportFunc(hostabi.ExportRecover, m.Func(hook, wasmtest.I32Const(0)))
	write(&m, hook)
	return m.Bytes()
}

func outsideBytes(t *testing.T, e runtime.Engine) int64 {
	t.Helper()
	o, ok := e.(interface{ OutsideBytes() int64 })
	if !ok {
		t.Fatal("the engine does not say what it takes outside of the heap")
	}
	return o.OutsideBytes()
}

// TestLargeThatDoesNotBegin: the memory of an instance that does not come to be
// is given back.
func TestLargeThatDoesNotBegin(t *testing.T) {
	e := native.New(native.Options{})
	wasm := large(func(m *wasmtest.Module, _ uint32) { m.Data(largePages*hostabi.PageBytes-1, []byte("xx")) })
	for range 3 {
		_, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: wasm}}, runtime.Options{Engine: e})
		if err == nil || !strings.Contains(err.Error(), "cannot be instantiated") {
			t.Fatalf("it is taken: %v", err)
		}
		if n := outsideBytes(t, e); n != 0 {
			t.Fatalf("%d KiB are left of it", n>>10)
		}
	}
}

// TestLargeIsNotKept: what takes much memory is not kept ready, also before the
// first decision.
func TestLargeIsNotKept(t *testing.T) {
	e := native.New(native.Options{})
	wasm := large(func(m *wasmtest.Module, hook uint32) {
		m.ExportFunc(hostabi.ExportWarm, m.Func(hook, wasmtest.I32Const(0)))
	})
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: wasm}}, runtime.Options{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if n := outsideBytes(t, e); n != 0 {
		t.Errorf("%d KiB are kept ready", n>>10)
	}
}

// TestCloseWhileItLoads: a set that is closed while a module runs at load does
// not take its memory away under it, and loads nothing more.
func TestCloseWhileItLoads(t *testing.T) {
	e := native.New(native.Options{})
	endless := large(func(m *wasmtest.Module, hook uint32) {
		m.ExportFunc(hostabi.ExportWarm, m.Func(hook,
			wasmtest.Loop(wasmtest.Empty, wasmtest.I32Const(1<<20), wasmtest.I32Const(1), wasmtest.Op(0x36, 2, 0), wasmtest.Br(0)), wasmtest.I32Const(0)))
	})
	for wait := range 12 {
		set, err := runtime.Open(t.Context(), nil, runtime.Options{Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		spec := []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: endless}}
		loaded := make(chan error, 1)
		go func() { loaded <- set.Reload(t.Context(), spec, nil) }()
		time.Sleep(time.Duration(wait) * 5 * time.Millisecond) // any moment
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		if err := <-loaded; err == nil {
			t.Error("a module that does not end is loaded")
		}
		if err := set.Reload(t.Context(), spec, nil); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("a closed set loads: %v", err)
		}
		if n := outsideBytes(t, e); n != 0 {
			t.Fatalf("%d KiB are left", n>>10)
		}
	}
}
