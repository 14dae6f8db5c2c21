package wasm_test

import (
	"errors"
	"testing"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// FuzzVerify: no bytes make it panic, every error is a refusal of one line,
// and what is accepted can be walked over.
func FuzzVerify(f *testing.F) {
	f.Add(policy(nil))
	for _, write := range Bombs() {
		var m Module
		write(&m, 300)
		f.Add(m.Bytes())
	}
	var m Module
	v := m.Type(nil, nil)
	m.Memory(1, 2)
	m.Table(Funcref, 1, 2)
	m.Global(I64, true, I64Const(-1))
	m.DataCount(2)
	m.Func(v, Block(Empty, I32Const(3), BrTable(0, 0, 1)), I32Const(0), If(I32, F64Const(1), Op(0xaa), Op(Else), I32Const(1)), CallIndirect(0, 0))
	m.Elements(0, 0)
	m.Data(3, []byte("data"))
	m.PassiveData([]byte("more"))
	m.Custom("name", Section(1, U32(1), U32(0), Name("f")))
	f.Add(m.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		verified, err := wasm.Verify(b, wasm.Rules{Exports: map[string]hostabi.FuncType{"f": {}}, MemoryPages: 10})
		if err == nil {
			walk(t, verified)
			for i := range min(10, len(verified.FuncTypes)) {
				verified.FunctionName(i)
			}
			return
		}
		var r *wasm.Refusal
		if !errors.As(err, &r) || r.Error() == "" || verified != nil {
			t.Fatalf("%v", err)
		}
	})
}

// BenchmarkVerify takes the slowest modules that are accepted, and a real one
// of Go's.
func BenchmarkVerify(b *testing.B) {
	run := func(name string, bytes []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bytes)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wasm.Verify(bytes, wasm.Rules{MemoryPages: 1 << 16}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	var big Module
	typ := big.Type([]byte{I32}, []byte{I32})
	for range (wasm.MaxModuleBytes - 2000) / (wasm.MaxBodyBytes + 20) {
		big.Func(typ, Get(0), Repeat((wasm.MaxBodyBytes-5)/33, I32Const(-1<<20), Op(I32Add), Op(Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop, Nop)))
	}
	run("8 MiB", big.Bytes())
}
