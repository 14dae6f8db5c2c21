package native_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// outcome is all that a call leaves behind.
type outcome struct {
	output, fault, message string
	fuel                   uint64
	logs                   []runtime.LogLine
}

// both are the engine and its judge, whose kernel is compiled once.
func both(t *testing.T) []runtime.Engine {
	return []runtime.Engine{native.New(native.Options{Logs: true}), extism.New(extism.Options{Logs: true, CacheDir: t.TempDir()})}
}

// run calls an export in a fresh instance, as often as there are inputs.
func run(t *testing.T, e runtime.Engine, m runtime.Module, calls ...runtime.Call) []outcome {
	t.Helper()
	p, err := e.Compile(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var all []outcome
	for _, c := range calls {
		i, err := p.Instance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.Call(t.Context(), c)
		o := outcome{output: string(r.Output), fuel: r.Fuel, logs: r.Logs}
		var fault *dsh.Fault
		if errors.As(err, &fault) {
			o.fault, o.message = string(fault.Kind), fault.Message
		} else if err != nil {
			t.Errorf("%s: %T: %v", e.Name(), err, err)
		}
		all = append(all, o)
		if err := i.Close(); err != nil {
			t.Error(err)
		}
		if o.fault == string(dsh.FaultFuel) {
			break // it will be so each time
		}
	}
	return all
}

func inputs(t *testing.T) []runtime.Call {
	t.Helper()
	var calls []runtime.Call
	for _, change := range []func(in *dsh.RecoverInput){
		func(*dsh.RecoverInput) {},
		func(in *dsh.RecoverInput) { in.Failure = dsh.Failure{Code: dsh.CodeAuth, Message: "no ☃ \u2028"} },
		func(in *dsh.RecoverInput) { in.Random = [4]float64{0.99, 0, 0.3, 0.7}; in.NowMs++ },
	} {
		in := runtimetest.Input("p")
		change(&in)
		raw, err := dsh.JSON(in)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, runtime.Call{
			Export: hostabi.ExportRecover, Input: raw, NowMs: in.NowMs, Random: in.Random,
			Host: func(_ context.Context, function string, argument []byte) []byte {
				return fmt.Appendf(nil, `{"value":{"function":%q,"bytes":%d}}`, function, len(argument))
			},
		})
	}
	return append(calls, runtime.Call{Export: hostabi.ExportRecover})
}

// TestSameAsExtism: every guest of the suite and every policy that ships gives
// the same output or fault, logs the same, and uses the same fuel under Extism.
func TestSameAsExtism(t *testing.T) {
	modules := map[string][]byte{}
	for _, name := range runtimetest.Guests(t) {
		modules[name] = runtimetest.Guest(t, name)
	}
	for _, name := range guests.Names() {
		modules["builtin "+name], _ = guests.Builtin(name)
	}
	engines := both(t)
	for name, wasm := range modules {
		m, err := runtime.Prepare(wasm, runtime.Grants{Capabilities: hostabi.Capabilities(), MemoryPages: 64, Config: map[string]string{"answer": `{"kind":"delegate"}`}})
		if err != nil || slices.Contains([]string{"types-do-not-fit", "kernel-flood"}, name) {
			continue // Extism's kernel takes minutes to be full
		}
		t.Run(name, func(t *testing.T) {
			calls := inputs(t)
			ours, theirs := run(t, engines[0], m, calls...), run(t, engines[1], m, calls...)
			for i := range max(len(ours), len(theirs)) {
				a, b := ours[i], theirs[i]
				// The words of a trap are the kernel's own. A flood of blocks is
				// charged as the engine can.
				fuel := a.fuel == b.fuel || a.fault != "" || name == "logs"
				if a.output != b.output || a.fault != b.fault || !fuel || !slices.Equal(a.logs, b.logs) {
					t.Errorf("call %d: %+v; under extism %+v", i, a, b)
				}
			}
			if ours[0].fault == "" { // a fault may take the interpreter minutes
				slow := run(t, native.New(native.Options{Logs: true, Interpreter: true}), m, calls[0])[0]
				if a := ours[0]; a.output != slow.output || a.fault != slow.fault || a.fuel != slow.fuel || !slices.Equal(a.logs, slow.logs) {
					t.Errorf("%+v; interpreted %+v", a, slow)
				}
			}
		})
	}
}

// wasiGuest is a module that calls one function of WASI several times, and
// whose output is what each call returned and its first 2 KiB of memory.
func wasiGuest(f hostabi.Import, calls [][]uint64) []byte {
	vec := func(parts ...string) string {
		body := strings.Join(parts, "")
		return string(binary.AppendUvarint(nil, uint64(len(body)))) + body
	}
	list := func(items ...string) string {
		return string(binary.AppendUvarint(nil, uint64(len(items)))) + strings.Join(items, "")
	}
	types := func(of []hostabi.ValueType) string {
		b := ""
		for _, v := range of {
			b += string([]byte{byte(v)})
		}
		return vec(b)
	}
	signed := func(v int64) string {
		var b []byte
		for {
			c := byte(v & 0x7f)
			v >>= 7
			if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
				return string(append(b, c))
			}
			b = append(b, c|0x80)
		}
	}
	i32 := func(v int64) string { return "\x41" + signed(int64(int32(v))) }
	i64 := func(v int64) string { return "\x42" + signed(v) }
	// Imports: 0 the function, 1 alloc, 2 store_u64, 3 output_set.
	const size = 2048
	code := ""
	for n, args := range calls {
		code += i32(int64(4*n + 1024)) // where its result goes
		for k, p := range f.Type.Params {
			if p == hostabi.ValueI64 {
				code += i64(int64(args[k]))
			} else {
				code += i32(int64(args[k]))
			}
		}
		code += "\x10\x00" + "\x36\x02\x00"
	}
	code += i64(size) + "\x10\x01" + "\x21\x00" // local 0: the block
	code += "\x03\x40" +                        // loop: local 1 is the offset
		"\x20\x00\x20\x01\xad\x7c" + "\x20\x01\x29\x03\x00" + "\x10\x02" +
		"\x20\x01" + i32(8) + "\x6a\x22\x01" + i32(size) + "\x49\x0d\x00\x0b"
	code += "\x20\x00" + i64(size) + "\x10\x03" + i32(0) + "\x0b"
	kernel := func(name string, typ byte) string {
		return vec(hostabi.NamespaceKernel) + vec(name) + "\x00" + string([]byte{typ})
	}
	return []byte("\x00asm\x01\x00\x00\x00" +
		"\x01" + vec(list("\x60\x00\x01\x7f", "\x60"+types(f.Type.Params)+types(f.Type.Results), "\x60\x01\x7e\x01\x7e", "\x60\x02\x7e\x7e\x00")) +
		"\x02" + vec(list(vec(f.Module)+vec(f.Name)+"\x00\x01", kernel("alloc", 2), kernel("store_u64", 3), kernel("output_set", 3))) +
		"\x03" + vec("\x01\x00") + "\x05" + vec("\x01\x00\x01") +
		"\x07" + vec(list(vec("recover")+"\x00\x04", vec("memory")+"\x02\x00")) +
		"\x0a" + vec(list(vec("\x02\x01\x7e\x01\x7f"+code))) +
		"\x0b" + vec(list(
		// Buffers for vectors and subscriptions, and a path.
		"\x00"+i32(0)+"\x0b"+vec(strings.Repeat("\x80\x00\x00\x00\x10\x00\x00\x00", 2)+"\x00\x00\x00\x00\x00\x00\x00\x00a/b../c\x00"),
		"\x00"+i32(256)+"\x0b"+vec(strings.Repeat("\x07\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00", 12)),
	)))
}

// TestWASIAsUnderExtism: with random arguments, valid ones among them, every
// function of WASI does what wazero's own does with nothing behind it.
func TestWASIAsUnderExtism(t *testing.T) {
	engines := both(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, f := range hostabi.Allowed() {
		if f.Module != hostabi.NamespaceWASI || len(f.Type.Results) == 0 {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			var calls [][]uint64
			for range 60 {
				args := make([]uint64, len(f.Type.Params))
				for i := range args {
					args[i] = []uint64{0, 0, 1, 2, 3, 8, 24, 25, 31, 256, 512, 65_535, 1 << 31, r.Uint64() % 70_000}[r.IntN(14)]
				}
				// wazero has no file system for the standard files' times.
				if f.Name == "fd_filestat_set_times" && args[0] < 3 {
					args[0] = 3
				}
				calls = append(calls, args)
			}
			m, err := runtime.Prepare(wasiGuest(f, calls), runtime.Grants{})
			if err != nil {
				t.Fatal(err)
			}
			call := runtime.Call{Export: hostabi.ExportRecover, NowMs: 1767225600123, Random: [4]float64{0.1, 0.2, 0.3, 0.4}}
			ours, theirs := run(t, engines[0], m, call)[0], run(t, engines[1], m, call)[0]
			if theirs.fault != "" || ours.fault != "" {
				t.Fatalf("%+v; under extism %+v", ours, theirs)
			}
			for n, args := range calls {
				a, b := ours.output[1024+4*n], theirs.output[1024+4*n]
				if a != b {
					t.Errorf("%s%v gives %d; under extism %d", f.Name, args, a, b)
				}
			}
			for at := range 1024 {
				if a, b := ours.output[at], theirs.output[at]; a != b {
					t.Fatalf("it leaves %d at %d; under extism %d", a, at, b)
				}
			}
		})
	}
}

// TestOddModules: modules that are valid and that no toolchain writes.
func TestOddModules(t *testing.T) {
	const kernel, wasi = hostabi.NamespaceKernel, hostabi.NamespaceWASI
	none, i32, i64 := []byte{}, []byte{I32}, []byte{I64}
	engines := both(t)
	for name, write := range map[string]func(m *Module, hook uint32){
		"one import twice": func(m *Module, hook uint32) {
			alloc := m.Type(i64, i64)
			m.Import(kernel, "alloc", alloc)
			m.Import(kernel, "alloc", alloc)
			m.ExportFunc("recover", m.Func(hook, I64Const(8), Call(0), Op(Drop), I64Const(8), Call(1), Op(0xa7)))
		},
		"WASI without a memory": func(m *Module, hook uint32) {
			m.Import(wasi, "random_get", m.Type([]byte{I32, I32}, i32))
			m.ExportFunc("recover", m.Func(hook, I32Const(0), I32Const(8), Call(0)))
		},
		"an export that calls itself": func(m *Module, hook uint32) {
			m.Global(I32, true, I32Const(3))
			m.ExportFunc("recover", m.Func(hook, Index(0x23, 0), If(I32,
				Index(0x23, 0), I32Const(1), Op(I32Sub), Index(0x24, 0), Call(0), Op(Else), I32Const(0))))
		},
		"a start that calls the export": func(m *Module, hook uint32) {
			m.Import(wasi, "sched_yield", hook)
			recover := m.Func(hook, I32Const(5))
			m.ExportFunc("recover", recover)
			m.ExportFunc("_initialize", m.Func(m.Type(nil, nil), Call(recover), Op(Drop)))
		},
		"a start that never ends": func(m *Module, hook uint32) {
			m.Import(wasi, "sched_yield", hook)
			m.ExportFunc("recover", m.Func(hook, I32Const(0)))
			m.ExportFunc("_initialize", m.Func(m.Type(nil, nil), Loop(Empty, Br(0))))
		},
		"an exit in the start": func(m *Module, hook uint32) {
			m.Import(wasi, "proc_exit", m.Type(i32, none))
			m.ExportFunc("recover", m.Func(hook, I32Const(0)))
			m.ExportFunc("_initialize", m.Func(m.Type(nil, nil), I32Const(0), Call(0)))
		},
		"a memory of nothing": func(m *Module, hook uint32) {
			m.Memory(0, 0)
			m.ExportFunc("recover", m.Func(hook, I32Const(1), Op(0x40, 0)))
		},
		"a global for a memory's name": func(m *Module, hook uint32) {
			m.Export("stack", 3, m.Global(I32, true, I32Const(0)))
			m.ExportFunc("recover", m.Func(hook, I32Const(7)))
		},
		"an error of control characters": func(m *Module, hook uint32) {
			m.Import(kernel, "alloc", m.Type(i64, i64))
			m.Import(kernel, "store_u64", m.Type([]byte{I64, I64}, none))
			m.Import(kernel, "error_set", m.Type(i64, none))
			m.ExportFunc("recover", m.FuncLocals(hook, i64, I64Const(8), Call(0), Tee(0), I64Const(0x1b0d0a1b1b0a0a1b), Call(1), Get(0), Call(2), I32Const(0)))
		},
		"an input that is read beyond its end": func(m *Module, hook uint32) {
			m.Import(kernel, "input_load_u64", m.Type(i64, i64))
			m.ExportFunc("recover", m.Func(hook, I64Const(1<<40), Call(0), Op(0xa7)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b Module
			write(&b, b.Type(nil, i32))
			m, err := runtime.Prepare(b.Bytes(), runtime.Grants{})
			if err != nil {
				t.Fatal(err)
			}
			calls := inputs(t)[:2]
			ours, theirs := run(t, engines[0], m, calls...), run(t, engines[1], m, calls...)
			for i := range max(len(ours), len(theirs)) {
				if ours[i].fault != "" && ours[i].message == "" {
					t.Errorf("call %d: a fault without words: %+v", i, ours[i])
				}
				if a, b := ours[i], theirs[i]; a.output != b.output || a.fault != b.fault || a.fault == "" && a.fuel != b.fuel {
					t.Errorf("call %d: %+v; under extism %+v", i, a, b)
				}
			}
			t.Logf("%s: %s", ours[0].fault, ours[0].message)
		})
	}
}
