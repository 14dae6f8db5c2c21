package meter_test

import (
	"context"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// TestPrices are the figures of small programs, counted by hand.
func TestPrices(t *testing.T) {
	one := func(m *Module, body ...[]byte) {
		m.Memory(2, 100)
		m.Table(Funcref, 10, 100)
		m.DataCount(1)
		v := m.Type(nil, nil)
		m.Import("host", "nothing", v)
		typ := m.Type([]byte{I32}, []byte{I32})
		m.ExportFunc("run", m.FuncLocals(typ, []byte{I64, F64}, body...))
		m.Func(v)
		m.Func(v, Op(Nop))
		m.Elements(0, 2, 3)
		m.PassiveData(make([]byte, 1000))
	}
	const host, empty, idle = 0, 2, 3
	zero := I32Const(0)
	for name, c := range map[string]struct {
		body []byte
		want int64
	}{
		"nothing":        {zero, 1},
		"no code":        {Seq(Op(Nop, Nop), Block(Empty, Op(Nop)), Loop(Empty), zero), 1},
		"arithmetic":     {Seq(zero, I32Const(1), Op(I32Add), Get(0), Op(I32Mul)), 5},
		"load":           {Seq(zero, Op(0x28, 2, 0)), 1 + meter.PriceLoad},
		"store":          {Seq(zero, zero, Op(0x36, 2, 0), zero), 3 + meter.PriceStore},
		"product":        {Seq(F64Const(2), F64Const(2), Op(0xa2), Op(Drop), zero), 4 + meter.PriceFloat},
		"division":       {Seq(I32Const(1), I32Const(1), Op(I32DivU)), 2 + meter.PriceDivide},
		"root":           {Seq(F64Const(2), Op(0x9f), Op(Drop), zero), 3 + meter.PriceRoot},
		"then":           {Seq(I32Const(1), If(I32, Op(Nop), zero, Op(Else), zero, zero, Op(I32Add))), 3},
		"else":           {Seq(I32Const(0), If(I32, Op(Nop), zero, Op(Else), zero, zero, Op(I32Add))), 5},
		"if, taken":      {Seq(I32Const(1), If(Empty, Op(Nop), zero, Op(Drop)), zero), 5},
		"if, not taken":  {Seq(I32Const(0), If(Empty, Op(Nop), zero, Op(Drop)), zero), 3},
		"loop":           {Seq(I32Const(10), Set(0), Loop(Empty, Get(0), I32Const(1), Op(I32Sub), Tee(0), BrIf(0)), zero), 2 + 10*5 + 1},
		"branch out":     {Seq(Block(Empty, Br(0), zero, zero, zero, Op(Drop, Drop, Drop)), zero), 2},
		"br_if":          {Seq(Block(Empty, I32Const(1), BrIf(0), zero, Op(Drop)), zero), 3},
		"br_if, not":     {Seq(Block(Empty, I32Const(0), BrIf(0), zero, Op(Drop)), zero), 5},
		"br_table":       {Seq(Block(Empty, Block(Empty, zero, BrTable(1, 0)), zero, Op(Drop)), zero), 1 + meter.PriceBranchTable + 1},
		"default":        {Seq(Block(Empty, Block(Empty, I32Const(9), BrTable(1, 0)), zero, Op(Drop)), zero), 1 + meter.PriceBranchTable + 3},
		"return":         {Seq(zero, Op(Return), zero, zero, Op(I32Add)), 2},
		"function label": {Seq(zero, I32Const(1), BrIf(0), Op(Drop), zero), 3},
		"call":           {Seq(Call(empty), zero), meter.PriceCall + 1},
		"call_indirect":  {Seq(I32Const(1), CallIndirect(0, 0), zero), 1 + meter.PriceCallIndirect + 1},
		"host call":      {Seq(Call(host), zero), meter.PriceHostCall + 1},
		"table.get":      {Seq(zero, Index(0x25, 0), Op(Drop), zero), 3 + meter.PriceTableAccess},
		"ref.func":       {Seq(Index(0xd2, idle), Op(Drop), zero), 2 + meter.PriceReference},
		"memory.fill":    {Seq(zero, zero, I32Const(800), Misc(11), Op(0), zero), 4 + meter.PriceBulk + 800/meter.BytesPerUnit},
		"memory.copy":    {Seq(zero, zero, I32Const(801), Misc(10), Op(0, 0), zero), 4 + meter.PriceBulk + 800/meter.BytesPerUnit},
		"memory.init":    {Seq(zero, zero, I32Const(1000), Misc(8, 0), Op(0), zero), 4 + meter.PriceBulk + 1000/meter.BytesPerUnit},
		"table.fill":     {Seq(zero, Op(0xd0, Funcref), I32Const(10), Misc(17, 0), zero), 4 + meter.PriceBulk + 10},
		"table.copy":     {Seq(zero, zero, I32Const(7), Misc(14, 0, 0), zero), 4 + meter.PriceBulk + 7},
		"table.init":     {Seq(zero, zero, I32Const(0), Misc(12, 0, 0), zero), 4 + meter.PriceBulk},
		"memory.grow":    {Seq(I32Const(3), Op(0x40, 0)), 1 + meter.PriceGrow + 3*meter.PricePage},
		"memory.grow, failing for the module's own most": {Seq(I32Const(99), Op(0x40, 0)), 1 + meter.PriceGrow + 99*meter.PricePage},
		"memory.grow, of more than can be":               {Seq(I32Const(-1), Op(0x40, 0)), 1 + meter.PriceGrow},
		"table.grow":                                     {Seq(Op(0xd0, Funcref), I32Const(5), Misc(15, 0)), 2 + meter.PriceGrow + 5},
		"table.grow, of more than can be":                {Seq(Op(0xd0, Funcref), I32Const(101), Misc(15, 0)), 2 + meter.PriceGrow},
	} {
		t.Run(name, func(t *testing.T) {
			b := build(func(m *Module) { one(m, c.body) })
			for name, config := range engines() {
				m := metered(t, hosted(t, config), b, meter.Options{Slice: slice})
				if _, used, err := m.call(plenty, "run", 0); err != nil || used != c.want {
					t.Errorf("%s: %d units, and it should be %d (%v)", name, used, c.want, err)
				}
				if m.tank.Stack.Get() != meter.StackBytes {
					t.Errorf("%s: the stack is not given back", name)
				}
				if c.want == 0 {
					continue
				}
				if _, _, err := m.call(c.want, "run", 0); err != nil || m.tank.Cause() != meter.CauseNone {
					t.Errorf("%s: with exactly its fuel: %v %q", name, err, m.tank.Cause())
				}
				if _, _, err := m.call(c.want-1, "run", 0); err == nil || m.tank.Cause() != meter.CauseFuel {
					t.Errorf("%s: with one unit less: %v %q", name, err, m.tank.Cause())
				}
			}
		})
	}
}

// TestHostSeesNothingOnCredit: a host function is not called where the fuel
// does not reach, directly or through a table.
func TestHostSeesNothingOnCredit(t *testing.T) {
	ctx := context.Background()
	for name, body := range map[string][]byte{
		"directly":        Seq(Call(0), I32Const(0)),
		"through a table": Seq(I32Const(0), CallIndirect(0, 0), I32Const(0)),
		"in a branch":     Seq(I32Const(1), If(Empty, Call(0)), I32Const(0)),
		"in a loop":       Seq(Loop(Empty, Call(0)), I32Const(0)),
	} {
		t.Run(name, func(t *testing.T) {
			for engine, config := range engines() {
				r := wazero.NewRuntimeWithConfig(ctx, config)
				calls := 0
				if _, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func() { calls++ }).Export("count").Instantiate(ctx); err != nil {
					t.Fatal(err)
				}
				m := metered(t, r, build(func(m *Module) {
					v := m.Type(nil, nil)
					m.Import("host", "count", v)
					m.Table(Funcref, 1)
					m.ExportFunc("run", m.Func(m.Type(nil, []byte{I32}), body))
					if name == "through a table" {
						m.Elements(0, 0)
					}
				}), meter.Options{})
				_, used, err := m.call(plenty, "run")
				if err != nil || calls != 1 || used < meter.PriceHostCall {
					t.Fatalf("%s: %d calls, %d units, %v", engine, calls, used, err)
				}
				for fuel := range int64(meter.PriceHostCall) {
					if _, _, err := m.call(fuel, "run"); err == nil || m.tank.Cause() != meter.CauseFuel {
						t.Fatalf("%s: with %d units: %v, %q", engine, fuel, err, m.tank.Cause())
					}
				}
				if calls != 1 {
					t.Errorf("%s: the host was called %d times without fuel", engine, calls-1)
				}
				r.Close(ctx)
			}
		})
	}
}

// TestHostCharges: what a host function takes from the tank is gone for the
// guest, and a guest that cannot pay does not go on.
func TestHostCharges(t *testing.T) {
	each(t, func(t *testing.T, r wazero.Runtime) {
		ctx := context.Background()
		var k meter.Tank
		enough := true
		_, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().
			WithFunc(func(_ context.Context, n int64) { enough = k.Charge(n) }).Export("charge").Instantiate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		m := metered(t, r, build(func(m *Module) {
			m.Import("host", "charge", m.Type([]byte{I64}, nil))
			m.ExportFunc("run", m.Func(m.Type([]byte{I64}, nil), Get(0), Call(0)))
		}), meter.Options{})
		k = m.tank
		_, base, err := m.call(10_000, "run", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, used, err := m.call(10_000, "run", 5000); err != nil || used != base+5000 || !enough {
			t.Errorf("%d units, %v", used, err)
		}
		if _, used, err := m.call(10_000, "run", uint64(10_000-base)); err != nil || used != 10_000 || !enough {
			t.Errorf("%d units, %v", used, err)
		}
		for _, n := range []int64{10_001 - base, 1 << 62, -1} {
			if _, used, err := m.call(10_000, "run", uint64(n)); err == nil || used != 10_000 || enough || k.Cause() != meter.CauseFuel {
				t.Errorf("a charge of %d: %d units, %q, %v", n, used, k.Cause(), err)
			}
		}
	})
}

// TestOwnTraps: a guest's own trap has no cause, and keeps its message.
func TestOwnTraps(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		says string
	}{
		"unreachable": {Op(Unreachable), "unreachable"},
		"division":    {Seq(I32Const(1), I32Const(0), Op(I32DivU)), "integer divide by zero"},
		"memory":      {Seq(I32Const(-1), Op(0x28, 0, 0)), "out of bounds memory access"},
		"table":       {Seq(I32Const(7), CallIndirect(0, 0)), "invalid table access"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r wazero.Runtime) {
				m := metered(t, r, build(func(m *Module) {
					m.Memory(1)
					m.Table(Funcref, 1)
					m.ExportFunc("run", m.Func(m.Type(nil, []byte{I32}), c.body))
				}), meter.Options{})
				_, used, err := m.call(1000, "run")
				if err == nil || !strings.Contains(err.Error(), c.says) || m.tank.Cause() != meter.CauseNone || used < 1 || used > 50 {
					t.Errorf("%v, %q, %d units", err, m.tank.Cause(), used)
				}
			})
		})
	}
}

// TestEmptyTank: without fuel nothing runs.
func TestEmptyTank(t *testing.T) {
	each(t, func(t *testing.T, r wazero.Runtime) {
		m := metered(t, r, build(func(m *Module) {
			m.ExportFunc("run", m.Func(m.Type(nil, []byte{I32}), I32Const(0)))
		}), meter.Options{})
		_, err := m.ExportedFunction("run").Call(context.Background())
		if err == nil || m.tank.Cause() != meter.CauseFuel {
			t.Errorf("%v, %q", err, m.tank.Cause())
		}
		if _, _, err := m.call(1, "run"); err != nil {
			t.Error(err)
		}
	})
}

// TestStack: depth is counted in bytes, is given back on every way out, and is
// the same each time.
func TestStack(t *testing.T) {
	b := build(func(m *Module) {
		typ := m.Type([]byte{I32}, []byte{I32})
		down := func(rest ...[]byte) []byte {
			return Seq(append([][]byte{Get(0), Op(I32Eqz), If(Empty, I32Const(0), Op(Return)), Get(0), I32Const(1), Op(I32Sub)}, rest...)...)
		}
		m.ExportFunc("return", m.Func(typ, down(Call(0), Op(Return))))
		m.ExportFunc("end", m.Func(typ, down(Call(1))))
		m.ExportFunc("br", m.Func(typ, down(Call(2), Br(0))))
		m.ExportFunc("br_if", m.Func(typ, down(Call(3), I32Const(1), BrIf(0))))
		m.ExportFunc("br_table", m.Func(typ, Block(Empty, down(Call(4), Get(0), BrTable(1, 1, 1))), Op(Unreachable)))
		two := m.Type([]byte{I32}, []byte{I32, I64})
		m.ExportFunc("two", m.Func(two, Get(0), Op(I32Eqz), If(Empty, I32Const(1), I64Const(2), Op(Return)), Get(0), I32Const(1), Op(I32Sub), Call(5)))
		m.ExportFunc("none", m.Func(m.Type([]byte{I32}, nil), Get(0), If(Empty, Get(0), I32Const(1), Op(I32Sub), Call(6), Op(Return))))
	})
	each(t, func(t *testing.T, r wazero.Runtime) {
		m := metered(t, r, b, meter.Options{})
		for _, name := range []string{"return", "end", "br", "br_if", "br_table", "two", "none"} {
			if _, _, err := m.call(plenty, name, 1000); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if left := m.tank.Stack.Get(); left != meter.StackBytes {
				t.Errorf("%s: %d bytes of stack are left of %d", name, left, meter.StackBytes)
			}
			m.tank.Fill(plenty, 300_000)
			if _, err := m.ExportedFunction(name).Call(context.Background(), 1900); err == nil || m.tank.Cause() != meter.CauseStack {
				t.Errorf("%s: %v, %q", name, err, m.tank.Cause())
			}
		}
	})
}

// TestClamp: memory and tables grow to what is granted.
func TestClamp(t *testing.T) {
	for name, c := range map[string]struct {
		memory, table []uint32
		grant         uint32
		pages         uint64 // that memory can grow by
		entries       uint64 // that the table can grow by
	}{
		"no most":      {[]uint32{1}, []uint32{1}, 10, 9, wasm.MaxTableEntries - 1},
		"more":         {[]uint32{1, 100}, []uint32{0, 100_000}, 10, 9, wasm.MaxTableEntries},
		"less":         {[]uint32{1, 5}, []uint32{3, 7}, 10, 4, 4},
		"exactly":      {[]uint32{10, 10}, []uint32{7, 7}, 10, 0, 0},
		"no grant":     {[]uint32{1, 30}, []uint32{0, 0}, 0, 29, 0},
		"beyond grant": {[]uint32{20}, []uint32{0, 0}, 10, 0, 0}, // the verifier refuses it before
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r wazero.Runtime) {
				m := metered(t, r, build(func(m *Module) {
					m.Memory(c.memory...)
					m.Table(Funcref, c.table...)
					typ := m.Type([]byte{I32}, []byte{I32})
					m.ExportFunc("grow", m.Func(typ, Get(0), Op(0x40, 0)))
					m.ExportFunc("table", m.Func(typ, Op(0xd0, Funcref), Get(0), Misc(15, 0)))
				}), meter.Options{MemoryPages: c.grant})
				for name, by := range map[string]uint64{"grow": c.pages, "table": c.entries} {
					if got, _, err := m.call(plenty, name, by+1); err != nil || int32(got[0]) != -1 {
						t.Errorf("%s by %d: %v %v", name, by+1, got, err)
					}
					if got, _, err := m.call(plenty, name, by); err != nil || int32(got[0]) < 0 {
						t.Errorf("%s by %d: %v %v", name, by, got, err)
					}
				}
			})
		})
	}
}

// TestKeepMemoryMax: memory keeps the most that its module says, and growth
// beyond the grant costs no more than the instruction.
func TestKeepMemoryMax(t *testing.T) {
	for _, c := range []struct {
		memory []uint32
		want   wasm.Limits
	}{
		{[]uint32{1}, wasm.Limits{Min: 1, Max: 65_536, HasMax: true}},
		{[]uint32{1, 100}, wasm.Limits{Min: 1, Max: 100, HasMax: true}},
		{[]uint32{1, 5}, wasm.Limits{Min: 1, Max: 5, HasMax: true}},
	} {
		b := build(func(m *Module) {
			m.Memory(c.memory...)
			m.ExportFunc("grow", m.Func(m.Type([]byte{I32}, []byte{I32}), Get(0), Op(0x40, 0)))
		})
		o := meter.Options{MemoryPages: 10, KeepMemoryMax: true}
		out, err := wasm.Decode(rewrite(t, b, o))
		if err != nil || len(out.Memories) != 1 || out.Memories[0] != c.want {
			t.Errorf("%v became %v, %v", c.memory, out.Memories, err)
		}
		each(t, func(t *testing.T, r wazero.Runtime) {
			m := metered(t, r, b, o)
			if _, used, err := m.call(plenty, "grow", 15); err != nil || used >= meter.PricePage {
				t.Errorf("a growth beyond the grant costs %d, %v", used, err)
			}
			if _, used, err := m.call(plenty, "grow", 2); err != nil || used < 2*meter.PricePage {
				t.Errorf("a growth costs %d, %v", used, err)
			}
		})
	}
}

// TestSections: what is kept, and what is left out.
func TestSections(t *testing.T) {
	b := build(func(m *Module) {
		m.CustomBefore("before", []byte("x"))
		m.Func(m.Type(nil, nil))
		m.Custom("name", Section(1, U32(1), U32(0), Name("f")))
		m.Custom(".debug_info", make([]byte, 100))
		m.Custom(hostabi.ManifestSection, []byte(`{"abi":"dsh:policy/v1"}`))
		m.Custom("producers", nil)
	})
	out, err := wasm.Decode(rewrite(t, b, meter.Options{Fuel: 7, Stack: -9}))
	if err != nil {
		t.Fatal(err)
	}
	var customs []string
	for _, s := range out.Sections {
		if s.ID == wasm.SectionCustom {
			customs = append(customs, s.Name)
		}
	}
	if got := strings.Join(customs, " "); got != "name dsh.policy" {
		t.Errorf("custom sections: %s", got)
	}
	if out.FunctionName(0) != "f" {
		t.Error("the name is gone")
	}
	for i, name := range []string{meter.FuelExport, meter.StackExport} {
		e, ok := out.Exported(name)
		if !ok || e.Kind != hostabi.ExternGlobal || int(e.Index) != i {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestRewriteTwice: a module that has the host's names is not taken.
func TestRewriteTwice(t *testing.T) {
	m, err := wasm.Decode(rewrite(t, build(func(m *Module) { m.Func(m.Type(nil, nil)) }), meter.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := meter.Rewrite(m, meter.Options{}); err == nil || !strings.Contains(err.Error(), "dsh:fuel") {
		t.Errorf("%v", err)
	}
}

// TestGuestCannotName: code that refers to the globals' indices is refused
// before they are added.
func TestGuestCannotName(t *testing.T) {
	for _, index := range []uint32{1, 2} {
		b := build(func(m *Module) {
			m.Global(I64, true, I64Const(0))
			m.Func(m.Type(nil, nil), I64Const(1<<40), Index(0x24, index))
		})
		if _, err := wasm.Decode(b); err == nil {
			t.Errorf("global %d is reached", index)
		}
	}
}

// TestFunctions: a host that cannot reach globals fills and asks by functions.
func TestFunctions(t *testing.T) {
	const fuel, stack = 5000, 20_000
	b := build(func(m *Module) {
		typ := m.Type([]byte{I32}, nil)
		m.Type(nil, []byte{I32})
		m.ExportFunc("loop", m.Func(typ, Loop(Empty, Get(0), I32Const(1), Op(I32Sub), Tee(0), BrIf(0))))
		m.ExportFunc("down", m.Func(typ, Get(0), If(Empty, Get(0), I32Const(1), Op(I32Sub), Call(1))))
	})
	each(t, func(t *testing.T, r wazero.Runtime) {
		m := metered(t, r, b, meter.Options{Fuel: fuel, Stack: stack, Functions: true})
		ctx := context.Background()
		ask := func(name string) int32 {
			results, err := m.ExportedFunction(name).Call(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return int32(results[0])
		}
		for range 2 {
			for _, c := range []struct {
				export string
				n      uint64
				left   int32
			}{{"loop", 10, fuel - 50}, {"loop", 1000, fuel - 5000}, {"loop", 1001, meter.LeftNoFuel}, {"down", 1000, meter.LeftNoStack}} {
				if got := ask(meter.FillExport); got != 0 || ask(meter.LeftExport) != fuel {
					t.Errorf("filled: %d", got)
				}
				_, err := m.ExportedFunction(c.export).Call(ctx, c.n)
				if left := ask(meter.LeftExport); left != c.left || (err == nil) != (c.left >= 0) {
					t.Errorf("%s %d: %d left, and it should be %d: %v", c.export, c.n, left, c.left, err)
				}
			}
		}
		m.tank.Fill(1<<40, stack)
		if left := ask(meter.LeftExport); left != 1<<31-1 {
			t.Errorf("much is left: %d", left)
		}
	})
	// The rest is as it is without.
	for name, write := range map[string]func(m *Module){"nothing": func(*Module) {}, "a memory": func(m *Module) { m.Memory(1) }} {
		each(t, func(t *testing.T, r wazero.Runtime) {
			m := metered(t, r, build(write), meter.Options{Fuel: 3, Functions: true})
			if got, err := m.ExportedFunction(meter.LeftExport).Call(context.Background()); err != nil || got[0] != 3 {
				t.Errorf("%s: %v %v", name, got, err)
			}
		})
	}
}

// TestEmptyModules: modules with next to nothing in them stay valid.
func TestEmptyModules(t *testing.T) {
	for name, write := range map[string]func(m *Module){
		"nothing":       func(m *Module) {},
		"a memory":      func(m *Module) { m.Memory(1) },
		"a type":        func(m *Module) { m.Type(nil, nil) },
		"a global":      func(m *Module) { m.Global(I32, false, I32Const(3)) },
		"data":          func(m *Module) { m.Memory(1); m.Data(0, []byte("x")); m.DataCount(1) },
		"an export":     func(m *Module) { m.Memory(1); m.Export("memory", 2, 0) },
		"only a custom": func(m *Module) { m.Custom("x", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, r wazero.Runtime) {
				m := metered(t, r, build(write), meter.Options{Fuel: 3, Stack: 4})
				if m.tank.Fuel.Get() != 3 || m.tank.Stack.Get() != 4 {
					t.Error("the tank is not as it was made")
				}
			})
		})
	}
}

// TestPausesInStraightCode: code without a loop pauses after every 64 calls of
// functions that are too short to do it themselves.
func TestPausesInStraightCode(t *testing.T) {
	const calls, pauser = 200, 2 // the function behind the module's own
	m, err := wasm.Decode(rewrite(t, build(func(m *Module) {
		v := m.Type(nil, nil)
		m.Func(v)
		m.Func(v, Repeat(calls, Call(0)))
	}), meter.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	code := m.Walk(&m.Code[1])
	looks := 0
	for i := (wasm.Instr{}); code.Next(&i); {
		if i.Op == wasm.OpCall && i.A == pauser {
			looks++
		}
	}
	if want := 1 + calls/64; looks != want {
		t.Errorf("it looks %d times whether to pause, and it should %d times", looks, want)
	}
}
