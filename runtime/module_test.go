package runtime_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// odd is a module whose recover is fine and which write adds to.
func odd(write func(m *wasmtest.Module, hook uint32)) []byte {
	var m wasmtest.Module
	hook := m.Type(nil, []byte{wasmtest.I32})
	write(&m, hook)
	m.ExportFunc("recover", m.Func(hook, wasmtest.I32Const(0)))
	return m.Bytes()
}

// TestPrepare: what is compiled has its limits in it, is the same each time,
// and is kept under a digest of its own; the module's digest stays.
func TestPrepare(t *testing.T) {
	wasm, _ := guests.Builtin("retry")
	before := bytes.Clone(wasm)
	m, err := runtime.Prepare(wasm, runtime.Grants{HostCalls: 3, Config: map[string]string{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	hexOf := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	if m.Digest != hexOf(wasm) || m.Key != hexOf(m.Wasm) || m.Key == m.Digest || !bytes.Equal(wasm, before) {
		t.Errorf("digest %s, key %s", m.Digest, m.Key)
	}
	if m.MemoryPages != hostabi.DefaultMemoryPages || m.HostCalls != 3 || m.Config["a"] != "b" || m.Info.Manifest.Name != "retry" {
		t.Errorf("%+v", m)
	}
	again, err := runtime.Prepare(wasm, runtime.Grants{})
	if err != nil || again.Key != m.Key {
		t.Errorf("again: %s, %v", again.Key, err)
	}
	// Its own limits are no module's to set.
	if _, err := runtime.Prepare(m.Wasm, runtime.Grants{}); err == nil || !strings.Contains(err.Error(), "dsh:fuel") {
		t.Errorf("what was prepared is prepared again: %v", err)
	}
}

// TestRefusalsName: a refusal names the rule's function and figure, wherever it is
// asked for; all that break a rule are named.
func TestRefusalsName(t *testing.T) {
	locals := odd(func(m *wasmtest.Module, hook uint32) {
		m.FuncLocals(hook, bytes.Repeat([]byte{wasmtest.I32}, 1001), wasmtest.I32Const(0))
		m.Custom("name", wasmtest.Section(1, wasmtest.U32(1), wasmtest.U32(0), wasmtest.Name("greedy")))
	})
	two := odd(func(m *wasmtest.Module, hook uint32) {
		m.Import("env", "abort", hook)
		m.Import(hostabi.NamespaceKernel, "http_request", hook)
	})
	starts := runtimetest.Guest(t, "start")
	for _, c := range []struct {
		name string
		wasm []byte
		want []string
	}{
		{"locals", locals, []string{"function 0 (greedy) has 1001 locals, and at most 1000 are allowed"}},
		{"imports", two, []string{"imports env.abort, which is in no allowed namespace", "imports extism:host/env.http_request, and a policy has no network"}},
		{"start", starts, []string{"is a start function"}},
	} {
		_, err := runtime.Prepare(c.wasm, runtime.Grants{})
		if err == nil {
			t.Errorf("%s is prepared", c.name)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		i, inspected := runtime.Inspect(c.wasm)
		_, opened := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: c.wasm}}, runtime.Options{Engine: &fake{}})
		var load *runtime.LoadError
		if inspected != nil || !errors.As(opened, &load) || len(lines) != len(c.want) || len(i.Problems) != len(c.want) || len(load.Problems) != len(c.want) {
			t.Errorf("%s: prepared %q, inspected %q, opened %v", c.name, lines, i.Problems, opened)
			continue
		}
		for k, want := range c.want {
			if !strings.Contains(lines[k], want) || i.Problems[k] != lines[k] || !strings.HasSuffix(load.Problems[k].Message, lines[k]) || load.Problems[k].Key != "module" {
				t.Errorf("%s: %q, %q, %+v; want %q", c.name, lines[k], i.Problems[k], load.Problems[k], want)
			}
		}
	}
}

// TestWarmOf: what begins with much memory is not kept ready.
func TestWarmOf(t *testing.T) {
	for pages, want := range map[uint32]int64{1: 3, 64: 3, 128: 2, 256: 1} {
		f := &fake{call: answers(`{"kind":"delegate"}`)}
		wasm := odd(func(m *wasmtest.Module, _ uint32) { m.Memory(pages) })
		set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: wasm}}, runtime.Options{Engine: f})
		if err != nil {
			t.Fatal(err)
		}
		policies, _ := set.Policies()
		if _, err := decide(t, policies[0], runtimetest.Input("p")); err != nil {
			t.Fatal(err)
		}
		if err := set.Close(); err != nil { // waits for those that are made
			t.Fatal(err)
		}
		if n := f.instances.Load(); n != want && n != want+1 { // one may have been made at load
			t.Errorf("%d pages: %d instances, want %d", pages, n, want)
		}
	}
}
