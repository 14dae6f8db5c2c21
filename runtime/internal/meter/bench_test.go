package meter_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// kernels are small programs that are measured plain and rewritten.
func kernels() []byte {
	var m Module
	m.Memory(16)
	typ := m.Type([]byte{I32}, []byte{I32})
	// A loop of four instructions, at different places in the code, since
	// where it stands makes a factor of two.
	for shift := range 4 {
		m.ExportFunc("loop"+string(rune('0'+shift)), m.Func(typ,
			Repeat(shift, I32Const(0), Get(0), Op(0x3a, 0, 0)),
			Loop(Empty, Get(0), I32Const(1), Op(I32Sub), Tee(0), BrIf(0)), Get(0)))
	}
	fib := uint32(m.Funcs)
	m.ExportFunc("recursion", m.Func(typ, Get(0), I32Const(2), Op(I32LtS), If(I32, Get(0), Op(Else),
		Get(0), I32Const(1), Op(I32Sub), Call(fib), Get(0), I32Const(2), Op(I32Sub), Call(fib), Op(I32Add))))
	// Loads, stores and branches.
	m.ExportFunc("memory", m.FuncLocals(typ, []byte{I32, I32}, Loop(Empty,
		Get(1), I32Const(0xffff), Op(0x71), Get(1), Op(0x3a, 0, 0),
		Get(1), I32Const(7), Op(I32Mul), I32Const(0xffff), Op(0x71), Op(0x2d, 0, 0), Get(2), Op(I32Add), Set(2),
		Get(1), I32Const(1), Op(0x71), If(Empty, Get(2), I32Const(3), Op(I32Mul), Set(2), Op(Else), Get(2), I32Const(5), Op(0x73), Set(2)),
		Get(1), I32Const(1), Op(I32Add), Tee(1), Get(0), Op(I32LtS), BrIf(0)), Get(2)))
	// Matrices of 32 × 32 float64: 0 the size, 1 2 3 the indices, 4 the sum.
	cell := func(base int32, row, column uint32) []byte {
		return Seq(Get(row), I32Const(32), Op(I32Mul), Get(column), Op(I32Add), I32Const(8), Op(I32Mul), I32Const(base), Op(I32Add))
	}
	next := func(i uint32) []byte {
		return Seq(Get(i), I32Const(1), Op(I32Add), Tee(i), I32Const(32), Op(I32LtS), BrIf(0))
	}
	m.ExportFunc("matrices", m.FuncLocals(typ, []byte{I32, I32, I32, F64}, Loop(Empty,
		I32Const(0), Set(1), Loop(Empty,
			I32Const(0), Set(2), Loop(Empty,
				F64Const(0), Set(4), I32Const(0), Set(3), Loop(Empty,
					Get(4), cell(0, 1, 3), Op(0x2b, 3, 0), cell(8192, 3, 2), Op(0x2b, 3, 0), Op(0xa2), Op(0xa0), Set(4), next(3)),
				cell(16384, 1, 2), Get(4), Op(0x39, 3, 0), next(2)), next(1)),
		Get(0), I32Const(1), Op(I32Sub), Tee(0), BrIf(0)), Get(0)))
	return m.Bytes()
}

// BenchmarkKernels is the price of metering on small programs: the best of many
// short runs, plain and rewritten, and the ratio of both.
func BenchmarkKernels(b *testing.B) {
	ctx := context.Background()
	bytes := kernels()
	best := func(code []byte, name string, n uint64) time.Duration {
		r := wazero.NewRuntimeWithConfig(ctx, engines()["compiler"])
		defer r.Close(ctx)
		m := start(b, r, code)
		least := time.Duration(1 << 62)
		for range 100 {
			if m.tank.Fuel != nil {
				m.tank.Fill(plenty, meter.StackBytes)
			}
			begin := time.Now()
			if _, err := m.ExportedFunction(name).Call(ctx, n); err != nil {
				b.Fatal(err)
			}
			least = min(least, time.Since(begin))
		}
		return least
	}
	for _, k := range []struct {
		name string
		n    uint64
	}{{"loop0", 500_000}, {"loop1", 500_000}, {"loop2", 500_000}, {"loop3", 500_000}, {"recursion", 18}, {"memory", 100_000}, {"matrices", 5}} {
		b.Run(k.name, func(b *testing.B) {
			out := rewrite(b, bytes, meter.Options{})
			for b.Loop() {
				plain, with := best(bytes, k.name, k.n), best(out, k.name, k.n)
				b.ReportMetric(float64(plain)/1e3, "µs-plain")
				b.ReportMetric(float64(with)/1e3, "µs-metered")
				b.ReportMetric(float64(with)/float64(plain), "ratio")
			}
		})
	}
}

// large is a real module: a Go guest of 2 MB, or the file that
// DSH_METER_MODULE names.
func large(b *testing.B) []byte {
	if name := os.Getenv("DSH_METER_MODULE"); name != "" {
		bytes, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		return bytes
	}
	bytes, ok := Real(b)["/wasm/count_vowels_std.wasm"]
	if !ok {
		b.Skip("Extism's SDK does not bring its Go guest")
	}
	return bytes
}

// BenchmarkRewrite is how fast a Go guest is decoded and rewritten.
func BenchmarkRewrite(b *testing.B) {
	bytes := large(b)
	m, err := wasm.Decode(bytes)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(bytes)))
		for b.Loop() {
			if _, err := wasm.Decode(bytes); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rewrite", func(b *testing.B) {
		b.SetBytes(int64(len(bytes)))
		size := 0
		for b.Loop() {
			out, err := meter.Rewrite(m, meter.Options{})
			if err != nil {
				b.Fatal(err)
			}
			size = len(out)
		}
		b.ReportMetric(float64(size)/float64(len(bytes)), "size-ratio")
	})
}

// BenchmarkCompile is what metering does to the time that wazero compiles.
func BenchmarkCompile(b *testing.B) {
	bytes := large(b)
	for name, code := range map[string][]byte{"plain": bytes, "metered": rewrite(b, bytes, meter.Options{})} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			for b.Loop() {
				r := wazero.NewRuntimeWithConfig(ctx, engines()["compiler"])
				if _, err := r.CompileModule(ctx, code); err != nil {
					b.Fatal(err)
				}
				r.Close(ctx)
			}
		})
	}
}

// BenchmarkGuest is a call of a guest in a warm instance, plain and rewritten:
// the best, and the median, of many. DSH_METER_MODULE names another guest, with
// the exports _initialize and recover.
func BenchmarkGuest(b *testing.B) {
	bytes, init, export := Real(b)["/wasm/count_vowels.wasm"], "", "count_vowels"
	if os.Getenv("DSH_METER_MODULE") != "" {
		bytes, init, export = large(b), "_initialize", "recover"
	}
	if bytes == nil {
		b.Skip("Extism's SDK does not bring its guest")
	}
	input := `{"attempt":3,"failure":{"message":"slow down","code":"RATE_LIMIT","status":429},"retryPolicy":{"mode":"normal",` +
		`"maxRetries":5,"initialDelayMs":500,"maxDelayMs":10000,"jitterRatio":0.1},"random":[0.4242,0.1717,0.9001,0.5005],"config":{}}`
	for _, c := range []struct {
		name string
		code []byte
	}{{"plain", bytes}, {"metered", rewrite(b, bytes, meter.Options{})}} {
		b.Run(c.name, func(b *testing.B) {
			ctx := context.Background()
			r := wazero.NewRuntimeWithConfig(ctx, engines()["compiler"])
			defer r.Close(ctx)
			k := &kernel{input: []byte(input)}
			k.install(b, r)
			m := start(b, r, c.code)
			call := func(name string) {
				k.memory = k.memory[:8]
				if m.tank.Fuel != nil {
					m.tank.Fill(meter.StartFuel, meter.StackBytes)
				}
				if _, err := m.ExportedFunction(name).Call(ctx); err != nil {
					b.Fatal(err)
				}
			}
			if init != "" {
				call(init)
			}
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				call(export)
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[0])/1e3, "µs-best")
			b.ReportMetric(float64(took[len(took)/2])/1e3, "µs-median")
			if m.tank.Fuel != nil {
				b.ReportMetric(float64(m.tank.Used(meter.StartFuel)), "units")
			}
		})
	}
}
