package meter_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// kernel is as much of Extism's as the guests of a test need.
type kernel struct {
	memory        []byte // blocks, of which a handle is the offset
	sizes         map[uint64]uint64
	input, output []byte
}

func (k *kernel) alloc(n uint64) uint64 {
	at := uint64(len(k.memory))
	k.memory = append(k.memory, make([]byte, n)...)
	k.sizes[at] = n
	return at
}

func (k *kernel) word(b []byte, at uint64) uint64 {
	v := uint64(0)
	for i := range uint64(8) {
		if at+i < uint64(len(b)) {
			v |= uint64(b[at+i]) << (8 * i)
		}
	}
	return v
}

func (k *kernel) byte(b []byte, at uint64) uint64 {
	if at < uint64(len(b)) {
		return uint64(b[at])
	}
	return 0
}

// install puts the kernel and WASI into a runtime.
func (k *kernel) install(tb testing.TB, r wazero.Runtime) {
	tb.Helper()
	ctx := context.Background()
	k.memory, k.sizes = make([]byte, 8), map[uint64]uint64{}
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	type types = []api.ValueType
	b := r.NewHostModuleBuilder("extism:host/env")
	add := func(name string, params, results types, f func(s []uint64)) {
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) { f(s) }), params, results).Export(name)
	}
	add("input_length", nil, types{i64}, func(s []uint64) { s[0] = uint64(len(k.input)) })
	add("input_offset", nil, types{i64}, func(s []uint64) {
		s[0] = k.alloc(uint64(len(k.input)))
		copy(k.memory[s[0]:], k.input)
	})
	add("input_load_u8", types{i64}, types{i32}, func(s []uint64) { s[0] = k.byte(k.input, s[0]) })
	add("input_load_u64", types{i64}, types{i64}, func(s []uint64) { s[0] = k.word(k.input, s[0]) })
	add("alloc", types{i64}, types{i64}, func(s []uint64) { s[0] = k.alloc(s[0]) })
	add("free", types{i64}, nil, func([]uint64) {})
	add("length", types{i64}, types{i64}, func(s []uint64) { s[0] = k.sizes[s[0]] })
	add("length_unsafe", types{i64}, types{i64}, func(s []uint64) { s[0] = k.sizes[s[0]] })
	add("load_u8", types{i64}, types{i32}, func(s []uint64) { s[0] = k.byte(k.memory, s[0]) })
	add("load_u64", types{i64}, types{i64}, func(s []uint64) { s[0] = k.word(k.memory, s[0]) })
	add("store_u8", types{i64, i32}, nil, func(s []uint64) { k.memory[s[0]] = byte(s[1]) })
	add("store_u64", types{i64, i64}, nil, func(s []uint64) {
		for i := range uint64(8) {
			k.memory[s[0]+i] = byte(s[1] >> (8 * i))
		}
	})
	add("output_set", types{i64, i64}, nil, func(s []uint64) { k.output = bytes.Clone(k.memory[s[0] : s[0]+s[1]]) })
	add("error_set", types{i64}, nil, func([]uint64) {})
	add("config_get", types{i64}, types{i64}, func(s []uint64) { s[0] = 0 })
	add("var_get", types{i64}, types{i64}, func(s []uint64) { s[0] = 0 })
	add("var_set", types{i64, i64}, nil, func([]uint64) {})
	add("http_request", types{i64, i64}, types{i64}, func(s []uint64) { s[0] = 0 })
	add("http_status_code", nil, types{i32}, func(s []uint64) { s[0] = 0 })
	add("http_headers", nil, types{i64}, func(s []uint64) { s[0] = 0 })
	add("get_log_level", nil, types{i32}, func(s []uint64) { s[0] = 2 })
	for _, level := range []string{"trace", "debug", "info", "warn", "error"} {
		add("log_"+level, types{i64}, nil, func([]uint64) {})
	}
	if _, err := b.Instantiate(ctx); err != nil {
		tb.Fatal(err)
	}
}

// guest runs an export of a fresh instance of one of Extism's test guests: its
// output, and the fuel of its start and of the call.
func (k *kernel) guest(tb testing.TB, r wazero.Runtime, c wazero.CompiledModule, init, export string) (output string, started, used int64) {
	tb.Helper()
	ctx := context.Background()
	m, err := r.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		tb.Fatal(err)
	}
	defer m.Close(ctx)
	fuel := tank(m)
	call := func(name string, budget int64) int64 {
		if fuel.Fuel != nil {
			fuel.Fill(budget, meter.StackBytes)
		}
		var exit *sys.ExitError
		_, err := m.ExportedFunction(name).Call(ctx)
		if exited := errors.As(err, &exit) && exit.ExitCode() == 0; err != nil && !exited {
			tb.Fatalf("%s: %v", name, err)
		}
		if fuel.Fuel == nil {
			return 0
		}
		if fuel.Cause() != meter.CauseNone || exit == nil && fuel.Stack.Get() != meter.StackBytes {
			tb.Fatalf("%s: %q, %d bytes of stack left", name, fuel.Cause(), fuel.Stack.Get())
		}
		return fuel.Used(budget)
	}
	if init != "" {
		started = call(init, meter.StartFuel)
	}
	used = call(export, meter.DecisionFuel)
	return string(k.output), started, used
}

// TestGuests runs guests of Extism's SDK plain and rewritten: the same output,
// and the same fuel in each fresh instance.
func TestGuests(t *testing.T) {
	files := Real(t)
	for _, c := range []struct{ file, init, export, toolchain string }{
		{"/wasm/count_vowels_std.wasm", "", "_start", "Go, a command"},
		{"/wasm/count_vowels.wasm", "", "count_vowels", "Rust"},
		{"/wasm/replace.wasm", "_start", "run_test", "TinyGo"},
		{"/wasm/input_offset.wasm", "", "input_offset_length", "text"},
		{"/wasm/hello.wasm", "", "run_test", "AssemblyScript"},
	} {
		t.Run(c.toolchain, func(t *testing.T) {
			b, ok := files[c.file]
			if !ok {
				t.Skipf("the SDK does not bring %s", c.file)
			}
			m, err := wasm.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := m.Exported(c.export); !ok {
				t.Skipf("it does not export %s", c.export)
			}
			ctx := context.Background()
			outputs := map[bool]string{}
			for _, rewritten := range []bool{false, true} {
				r := wazero.NewRuntimeWithConfig(ctx, engines()["compiler"])
				defer r.Close(ctx)
				k := &kernel{input: []byte(strings.Repeat("the quick brown fox ", 50))}
				k.install(t, r)
				code := b
				if rewritten {
					code = rewrite(t, b, meter.Options{MemoryPages: 256})
				}
				compiled, err := r.CompileModule(ctx, code)
				if err != nil {
					t.Fatal(err)
				}
				output, started, used := k.guest(t, r, compiled, c.init, c.export)
				outputs[rewritten] = output
				for range 2 {
					again, s, u := k.guest(t, r, compiled, c.init, c.export)
					if again != output || s != started || u != used {
						t.Errorf("it differs: %q %d %d, and before %q %d %d", again, s, u, output, started, used)
					}
				}
				if rewritten {
					t.Logf("start %d units, call %d units, %q", started, used, output)
				}
			}
			if outputs[true] != outputs[false] || outputs[true] == "" {
				t.Errorf("plain %q, rewritten %q", outputs[false], outputs[true])
			}
		})
	}
}

// TestRealModules: the engine takes every rewritten module whose plain one it
// takes, and no other.
func TestRealModules(t *testing.T) {
	n := 0
	for path, b := range Real(t) {
		if _, err := wasm.Decode(b); err != nil {
			continue
		}
		want, got := accepts(b), accepts(rewrite(t, b, meter.Options{}))
		if (want == nil) != (got == nil) {
			t.Errorf("%s: plain: %v, rewritten: %v", path, want, got)
		}
		n++
	}
	if n < 40 {
		t.Errorf("only %d modules", n)
	}
}

// TestInvalid: what the engine refuses stays refused.
func TestInvalid(t *testing.T) {
	n := 0
	for _, s := range Spec(t) {
		for _, c := range s.Commands {
			if c.Type != "assert_invalid" || !strings.HasSuffix(c.Filename, ".wasm") {
				continue
			}
			b := s.File(t, c.Filename)
			m, err := wasm.Decode(b)
			if err != nil || accepts(b) == nil {
				continue
			}
			n++
			out, err := meter.Rewrite(m, meter.Options{})
			if err != nil {
				t.Errorf("%s: %v", c.Filename, err)
			} else if accepts(out) == nil {
				t.Errorf("%s: accepted when rewritten: %s", c.Filename, c.Text)
			}
		}
	}
	t.Logf("%d modules whose types do not fit", n)
	if n < 300 {
		t.Errorf("only %d modules", n)
	}
}

// accepts is what the engine says of a module.
func accepts(b []byte) error {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, engines()["interpreter"])
	defer r.Close(ctx)
	_, err := r.CompileModule(ctx, b)
	return err
}

// FuzzRewrite: the engine takes a rewritten module if and only if it takes the
// plain one.
func FuzzRewrite(f *testing.F) {
	for _, write := range Endless("run") {
		if b := build(write); len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wasm.Decode(b)
		if err != nil {
			return
		}
		out, err := meter.Rewrite(m, meter.Options{MemoryPages: 16})
		if err != nil {
			return
		}
		want := accepts(b)
		if got := accepts(out); (want == nil) != (got == nil) {
			t.Errorf("plain: %v, rewritten: %v", want, got)
		}
		if out, err = meter.Rewrite(m, meter.Options{Functions: true}); err != nil {
			t.Fatal(err)
		}
		if got := accepts(out); (want == nil) != (got == nil) {
			t.Errorf("plain: %v, rewritten with functions: %v", want, got)
		}
	})
}
