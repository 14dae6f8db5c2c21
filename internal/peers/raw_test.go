package peers_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// bare is as much of Extism's kernel as a guest needs that can be trusted: no
// blocks are given back, and nothing is held to anything.
type bare struct{ input, memory, output []byte }

// raw measures wazero with nothing around it: no fuel, no limits, no checks.
func raw(b *testing.B, t *table, toolchain string, wasm []byte) {
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	k := &bare{input: input(b)}
	if err := k.install(ctx, r); err != nil {
		b.Fatal(err)
	}
	code, err := r.CompileModule(ctx, wasm)
	if err != nil {
		b.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	instance := func(b *testing.B) api.Module {
		m, err := r.InstantiateModule(ctx, code, config)
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	decide := func(b *testing.B, m api.Module) {
		k.memory = k.memory[:0]
		if _, err := m.ExportedFunction("recover").Call(ctx); err != nil || len(k.output) == 0 {
			b.Fatal(err)
		}
	}
	b.Run(toolchain+"/fresh/wazero", func(b *testing.B) {
		t.measure(b, toolchain+"/fresh", func() {
			m := instance(b)
			decide(b, m)
			if err := m.Close(ctx); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run(toolchain+"/warm/wazero", func(b *testing.B) {
		m := instance(b)
		defer m.Close(ctx)
		t.measure(b, toolchain+"/warm", func() { decide(b, m) })
	})
}

// install defines the functions that policies call. A handle is an offset into
// memory, behind a page that stands for the input.
func (k *bare) install(ctx context.Context, r wazero.Runtime) error {
	const inputAt, page = 8, 1 << 20
	byteAt := func(b []byte, at uint64) uint64 {
		if at < uint64(len(b)) {
			return uint64(b[at])
		}
		return 0
	}
	word := func(b []byte, at uint64) uint64 {
		if at+8 <= uint64(len(b)) {
			return binary.LittleEndian.Uint64(b[at:])
		}
		return 0
	}
	load := func(at uint64) ([]byte, uint64) {
		if at >= page {
			return k.memory, at - page
		}
		return k.input, at - inputAt
	}
	const i32, i64 = api.ValueTypeI32, api.ValueTypeI64
	type types = []api.ValueType
	builder := r.NewHostModuleBuilder("extism:host/env")
	for name, f := range map[string]struct {
		params, results types
		run             func(s []uint64)
	}{
		"input_length":   {nil, types{i64}, func(s []uint64) { s[0] = uint64(len(k.input)) }},
		"input_offset":   {nil, types{i64}, func(s []uint64) { s[0] = inputAt }},
		"input_load_u8":  {types{i64}, types{i32}, func(s []uint64) { s[0] = byteAt(k.input, s[0]) }},
		"input_load_u64": {types{i64}, types{i64}, func(s []uint64) { s[0] = word(k.input, s[0]) }},
		"length":         {types{i64}, types{i64}, func(s []uint64) { s[0] = uint64(len(k.input)) }},
		"length_unsafe":  {types{i64}, types{i64}, func(s []uint64) { s[0] = uint64(len(k.input)) }},
		"load_u8": {types{i64}, types{i32}, func(s []uint64) {
			b, at := load(s[0])
			s[0] = byteAt(b, at)
		}},
		"load_u64": {types{i64}, types{i64}, func(s []uint64) {
			b, at := load(s[0])
			s[0] = word(b, at)
		}},
		"alloc": {types{i64}, types{i64}, func(s []uint64) {
			at := len(k.memory)
			k.memory = append(k.memory, make([]byte, s[0])...)
			s[0] = page + uint64(at)
		}},
		"free":       {types{i64}, nil, func([]uint64) {}},
		"store_u8":   {types{i64, i32}, nil, func(s []uint64) { k.memory[s[0]-page] = byte(s[1]) }},
		"store_u64":  {types{i64, i64}, nil, func(s []uint64) { binary.LittleEndian.PutUint64(k.memory[s[0]-page:], s[1]) }},
		"output_set": {types{i64, i64}, nil, func(s []uint64) { k.output = append(k.output[:0], k.memory[s[0]-page:][:s[1]]...) }},
		"error_set":  {types{i64}, nil, func([]uint64) {}},
		"config_get": {types{i64}, types{i64}, func(s []uint64) { s[0] = 0 }},
	} {
		builder.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, s []uint64) { f.run(s) }), f.params, f.results).Export(name)
	}
	_, err := builder.Instantiate(ctx)
	return err
}
