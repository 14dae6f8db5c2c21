package kernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/kernel"
	"github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// original is Extism's own kernel, as its Go SDK brings it, with what the SDK
// puts before it.
type original struct {
	tb  testing.TB
	mod api.Module
	in  uint64
}

func newOriginal(tb testing.TB, pages uint32) *original {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(wasmtest.ModuleDir(tb, "github.com/extism/go-sdk"), "extism-runtime.wasm"))
	if err != nil {
		tb.Skip("the SDK brings no kernel: ", err)
	}
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(pages))
	tb.Cleanup(func() { r.Close(ctx) })
	mod, err := r.Instantiate(ctx, b)
	if err != nil {
		tb.Fatal(err)
	}
	return &original{tb: tb, mod: mod}
}

// call runs a function. ok is false where it has trapped.
func (o *original) call(name string, args ...uint64) (uint64, bool) {
	got, err := o.mod.ExportedFunction(name).Call(context.Background(), args...)
	if err != nil || len(got) == 0 {
		return 0, err == nil
	}
	return got[0], true
}

func (o *original) reset(input []byte) {
	o.call("reset")
	handle, _ := o.call("alloc", uint64(len(input)))
	o.mod.Memory().Write(uint32(handle), input)
	o.call("input_set", handle, uint64(len(input)))
	o.in = handle
}

// do runs an operation of a guest's: its result, and whether it did not trap.
func (o *original) do(op byte, a, b uint64) (uint64, bool) {
	switch op {
	case opLoad64:
		return o.mod.Memory().ReadUint64Le(uint32(a))
	case opStore64:
		return 0, o.mod.Memory().WriteUint64Le(uint32(a), b)
	case opInputLoad64:
		return o.mod.Memory().ReadUint64Le(uint32(a + o.in))
	case opOutput:
		at, _ := o.call("output_offset")
		n, _ := o.call("output_length")
		out, _ := o.mod.Memory().Read(uint32(at), uint32(n))
		return sum(out), true
	case opError:
		at, _ := o.call("error_get")
		if at == 0 {
			return sum(nil), true
		}
		n, ok := o.call("length", at)
		out, _ := o.mod.Memory().Read(uint32(at), uint32(n))
		return sum(out), ok
	case opStore8:
		return o.call("store_u8", a, b&0xffffffff)
	case opSetOutput:
		return o.call("output_set", a, b)
	case opInput:
		return o.call("input_offset")
	case opInputLength:
		return o.call("input_length")
	}
	return o.call(map[byte]string{opAlloc: "alloc", opFree: "free", opLength: "length", opLengthUnsafe: "length_unsafe",
		opLoad8: "load_u8", opInputLoad8: "input_load_u8", opSetError: "error_set"}[op], a)
}

// sum tells contents apart.
func sum(b []byte) uint64 {
	h := uint64(len(b))
	for _, c := range b {
		h = h*1099511628211 + uint64(c)
	}
	return h
}

const (
	opAlloc = byte(iota)
	opFree
	opLength
	opLengthUnsafe
	opLoad8
	opLoad64
	opStore8
	opStore64
	opInput
	opInputLength
	opInputLoad8
	opInputLoad64
	opSetOutput
	opSetError
	opOutput
	opError
	ops
)

// ours runs an operation on the kernel in Go.
func ours(k *kernel.Kernel, in uint64, op byte, a, b uint64) (uint64, error) {
	switch op {
	case opAlloc:
		return k.Alloc(a)
	case opFree:
		return 0, k.Free(a)
	case opLength:
		return k.Length(a)
	case opLengthUnsafe:
		return k.LengthUnsafe(a)
	case opLoad8:
		v, err := k.Load8(a)
		return uint64(v), err
	case opLoad64:
		return k.Load64(a)
	case opStore8:
		return 0, k.Store8(a, byte(b))
	case opStore64:
		return 0, k.Store64(a, b)
	case opInput:
		return k.Input(), nil
	case opInputLength:
		return k.InputLength(), nil
	case opInputLoad8:
		v, err := k.InputLoad8(a)
		return uint64(v), err
	case opInputLoad64:
		return k.InputLoad64(in, a)
	case opSetOutput:
		k.SetOutput(a, b)
		return 0, nil
	case opSetError:
		k.SetError(a)
		return 0, nil
	case opOutput:
		return sum(k.Output()), nil
	}
	b2, err := k.Error()
	return sum(b2), err
}

// compare runs operations, three numbers each, on both kernels.
func compare(t *testing.T, input []byte, script []byte) {
	const pages = 40
	o := newOriginal(t, pages)
	fuel := int64(1 << 22)
	k := kernel.New(nil, pages)
	k.Charge = func(n int64) bool { fuel -= n; return fuel >= 0 }
	o.reset(input)
	if !k.Reset(input) {
		t.Fatal("no memory for the input")
	}
	in := k.Input()
	handles := []uint64{in}
	for n := 0; len(script) >= 6; n++ {
		op := script[0] % ops
		// Most numbers are handles, or near one.
		number := func(b []byte) uint64 {
			v := uint64(binary.LittleEndian.Uint16(b[1:]))
			switch b[0] % 8 {
			case 0:
				return v
			case 1:
				return v << 6
			case 2:
				return v << 48
			case 3:
				return uint64(k.InputLength()) - v%9
			default:
				return handles[int(b[0]/8)%len(handles)] + v%17 - min(v%17, 8)
			}
		}
		a, b := number(script[:3]), number(script[3:6])
		script = script[6:]
		if op == opAlloc {
			a %= 1 << 20
		}
		got, err := ours(&k, in, op, a, b)
		if errors.Is(err, kernel.ErrFuel) {
			return // the original would run on for ever
		}
		want, ok := o.do(op, a, b)
		if ok != (err == nil) || ok && got != want {
			t.Fatalf("operation %d: %d(%d, %d): %d, %v; the original %d, %v", n, op, a, b, got, err, want, ok)
		}
		if op == opAlloc && got != 0 {
			handles = append(handles, got)
		}
	}
}

// TestAsTheOriginal: random operations have the same results as in Extism's own
// kernel.
func TestAsTheOriginal(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		script := make([]byte, 6*r.IntN(200))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		compare(t, script[:min(len(script), r.IntN(300))], script)
	}
}

func FuzzAsTheOriginal(f *testing.F) {
	f.Add([]byte("input"), []byte{opAlloc, 8, 1, 0, 0, 0, opFree, 12, 0, 0, 0, 0, opAlloc, 4, 1, 0, 0, 0})
	f.Fuzz(compare)
}

// TestForgedBlocks: a walk over blocks that a guest has written ends with its
// fuel.
func TestForgedBlocks(t *testing.T) {
	fuel := int64(1_000_000)
	k := kernel.New(nil, 16)
	k.Charge = func(n int64) bool { fuel -= n; return fuel >= 0 }
	k.Reset([]byte("input"))
	// The first block's size leads back to itself.
	if err := k.Store64(65, 0xfffffff400000003); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Length(1000); !errors.Is(err, kernel.ErrFuel) || fuel >= 0 {
		t.Errorf("%v, %d units are left", err, fuel)
	}
}

// TestLargeInput: an input that does not fit is said to.
func TestLargeInput(t *testing.T) {
	k := kernel.New(nil, 32)
	if k.Reset(make([]byte, 3<<20)) || !k.Refused {
		t.Error("an input of 3 MiB fits into 2")
	}
	if !k.Reset(make([]byte, 900<<10)) || k.InputLength() != 900<<10 {
		t.Error("one of 900 KiB does not")
	}
}

// TestMost: memory grows to what it may have, and the next call finds it empty.
func TestMost(t *testing.T) {
	k := kernel.New(make([]byte, 0, 100), 20)
	k.Reset(nil)
	n := 0
	for {
		at, err := k.Alloc(60_000)
		if err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			break
		}
		n++
	}
	if n != 5 || !k.Refused {
		t.Errorf("%d blocks, refused: %v", n, k.Refused)
	}
	if !k.Reset([]byte("again")) || k.Refused || k.InputLength() != 5 {
		t.Error("the next call")
	}
	if err := k.Store64(5<<20, 1); !errors.Is(err, kernel.ErrBounds) {
		t.Error(err)
	}
}

// TestSplitMoves: the second half of a block that is split may lie where nothing
// was written yet, so that the memory moves: the first half has its new size all
// the same.
func TestSplitMoves(t *testing.T) {
	k := kernel.New(make([]byte, 0, 1024), 32)
	if !k.Reset([]byte("{}")) {
		t.Fatal("the input does not fit")
	}
	large, err := k.Alloc(60_000)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Free(large); err != nil {
		t.Fatal(err)
	}
	small, err := k.Alloc(10_000)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := k.Length(small); n != 10_000 || err != nil {
		t.Errorf("a block of 10,000 bytes has %d, %v", n, err)
	}
}
