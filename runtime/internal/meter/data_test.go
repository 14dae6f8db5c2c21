package meter_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// begins is the memory of a fresh instance.
func begins(t *testing.T, b []byte) []byte {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, engines()["interpreter"])
	defer r.Close(ctx)
	m, err := r.Instantiate(ctx, b)
	if err != nil {
		return nil
	}
	mem, _ := m.Memory().Read(0, m.Memory().Size())
	return bytes.Clone(mem)
}

// TestJoinedData: memory begins as in the plain module, whatever its segments
// are, and many become few where that can be.
func TestJoinedData(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	text := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(1 + r.IntN(255))
		}
		return b
	}
	for name, c := range map[string]struct {
		write func(m *Module)
		most  int // segments afterwards; 0: as many as before
	}{
		"in order": {func(m *Module) {
			for i, at := 0, 10; i < 500; i++ {
				n := r.IntN(20)
				m.Data(int32(at), text(n))
				at += n + r.IntN(30)
			}
		}, 1},
		"far apart": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i*120), text(10))
			}
		}, 500},
		"few": {func(m *Module) {
			for i := range 60 {
				m.Data(int32(i*8), text(8))
			}
		}, 0},
		"overlapping": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i*4), text(8))
			}
		}, 0},
		"backwards": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(5000-i*8), text(8))
			}
		}, 1},
		"two rows that interleave": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i/2*32+i%2*16000), text(8))
			}
			for i := range 500 {
				m.Data(int32(i/2*32+i%2*16000+16), text(8))
			}
		}, 2},
		"the same place": {func(m *Module) {
			for range 500 {
				m.Data(7, text(3))
			}
		}, 0},
		"empty ones": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i*2), nil)
			}
		}, 1},
		"beyond the memory": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(65_000+i*8), text(8))
			}
		}, 1},
		"below zero": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i*8-80), text(8))
			}
		}, 2},
		"passive among them": {func(m *Module) {
			for i := range 500 {
				m.Data(int32(i*8), text(8))
			}
			m.PassiveData(text(5))
		}, 0},
		"named by code": {func(m *Module) {
			m.DataCount(500)
			for i := range 500 {
				m.Data(int32(i*8), text(8))
			}
			m.ExportFunc("drop", m.Func(m.Type(nil, nil), Misc(9, 3)))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := build(func(m *Module) {
				m.Memory(1)
				m.Export("memory", 2, 0)
				c.write(m)
			})
			plain, err := wasm.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			out := rewrite(t, b, meter.Options{})
			again, err := wasm.Decode(out)
			if err != nil {
				t.Fatal(err)
			}
			want := c.most
			if want == 0 {
				want = plain.Data
			}
			if again.Data > want || c.most == 0 && again.Data != want {
				t.Errorf("%d segments became %d, want %d", plain.Data, again.Data, want)
			}
			if got, want := begins(t, out), begins(t, b); !bytes.Equal(got, want) {
				t.Error("memory begins otherwise")
			}
		})
	}
}
