package runtime_test

import (
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// moduleOf is a guest as an engine is given it.
func moduleOf(tb testing.TB, wasm []byte) runtime.Module {
	tb.Helper()
	m, err := runtime.Prepare(wasm, runtime.Grants{})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func benchInput(tb testing.TB) runtime.Call {
	tb.Helper()
	raw, err := dsh.JSON(runtimetest.Input("retry"))
	if err != nil {
		tb.Fatal(err)
	}
	return runtime.Call{Export: hostabi.ExportRecover, Input: raw, NowMs: 1767225600000}
}

// benchEngines are the engines, with compiled code in a folder, or without.
func benchEngines(dir string) map[string]runtime.Engine {
	return map[string]runtime.Engine{
		"native": native.New(native.Options{CacheDir: dir}),
		"extism": extism.New(extism.Options{CacheDir: dir}),
	}
}

// BenchmarkPrepare is what verifying and metering take.
func BenchmarkPrepare(b *testing.B) {
	wasm, _ := guests.Builtin("retry")
	for b.Loop() {
		if _, err := runtime.Prepare(wasm, runtime.Grants{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	wasm, _ := guests.Builtin("retry")
	m := moduleOf(b, wasm)
	for _, cached := range []string{"plain", "cached"} {
		dir := ""
		if cached == "cached" {
			dir = b.TempDir()
		}
		for name, e := range benchEngines(dir) {
			b.Run(name+"/"+cached, func(b *testing.B) {
				for b.Loop() {
					p, err := e.Compile(b.Context(), m)
					if err != nil {
						b.Fatal(err)
					}
					if err := p.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	wasm, _ := guests.Builtin("retry")
	call := benchInput(b)
	for name, e := range benchEngines("") {
		p, err := e.Compile(b.Context(), moduleOf(b, wasm))
		if err != nil {
			b.Fatal(err)
		}
		defer p.Close()
		run := func(b *testing.B, i runtime.Instance) {
			if _, err := i.Call(b.Context(), call); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name+"/fresh", func(b *testing.B) {
			for b.Loop() {
				i, err := p.Instance(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				run(b, i)
				if err := i.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/warm", func(b *testing.B) {
			i, err := p.Instance(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer i.Close()
			for b.Loop() {
				run(b, i)
			}
		})
	}
}

// BenchmarkDecisions is what a program does: whole decisions of the built-in
// policy, each in a fresh instance, on all processors.
func BenchmarkDecisions(b *testing.B) {
	for name, e := range benchEngines(b.TempDir()) {
		b.Run(name, func(b *testing.B) {
			set, err := runtime.Open(b.Context(), []runtime.Spec{builtin}, runtime.Options{Engine: e, Builtin: guests.Builtin})
			if err != nil {
				b.Fatal(err)
			}
			defer set.Close()
			policies, _ := set.Policies()
			q := dsh.Question{Hook: dsh.HookRecover, Input: benchInput(b).Input}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := policies[0].Decide(b.Context(), q); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkCold is what a process pays that has its first failure: the
// built-in policies loaded, and one decision of each, with compiled code kept.
func BenchmarkCold(b *testing.B) {
	for name, e := range benchEngines(b.TempDir()) {
		b.Run(name, func(b *testing.B) {
			var specs []runtime.Spec
			for _, name := range guests.Names() {
				specs = append(specs, runtime.Spec{Name: name, Module: "builtin:" + name, Capabilities: hostabi.Capabilities()})
			}
			q := dsh.Question{Hook: dsh.HookRecover, Input: benchInput(b).Input}
			for b.Loop() {
				set, err := runtime.Open(b.Context(), specs, runtime.Options{Engine: e, Builtin: guests.Builtin})
				if err != nil {
					b.Fatal(err)
				}
				policies, _ := set.Policies()
				for _, p := range policies {
					if _, err := p.Decide(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				if err := set.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
