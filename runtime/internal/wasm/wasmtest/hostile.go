package wasmtest

import (
	"maps"
	"slices"
)

// The modules of this file are hostile. They are for the tests of all that
// stands between a guest and its host.

// Bombs are modules of about the given size that take a compiler much longer
// than their size lets expect, or much more memory. A verifier refuses them.
func Bombs() map[string]func(m *Module, bytes int) {
	// fill is instructions up to a number of bytes.
	fill := func(bytes int, unit func(i int) []byte) (b []byte) {
		for i := 0; len(b) < bytes; i++ {
			b = append(b, unit(i)...)
		}
		return b
	}
	// with makes functions of up to 100 KiB of a type with one i32.
	with := func(m *Module, bytes int, locals int, body func(bytes int) []byte) {
		typ := m.Type([]byte{I32}, nil)
		for ; bytes > 0; bytes -= 100 << 10 {
			m.FuncLocals(typ, repeat(I32, locals), body(min(bytes, 100<<10)))
		}
	}
	// touch reads and writes local 1 and above, and read only reads them.
	touch := func(n int) []byte {
		return fill(n*7, func(i int) []byte { l := uint32(1 + i%n); return Seq(Get(l), Op(I32Eqz), Set(l)) })
	}
	read := func(n int) []byte {
		return fill(n*4, func(i int) []byte { return Seq(Get(uint32(1+i%n)), Op(Drop)) })
	}
	return map[string]func(m *Module, bytes int){
		"blocks": func(m *Module, bytes int) {
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/3, Block(Empty)) })
		},
		"ways out of a block": func(m *Module, bytes int) {
			with(m, bytes, 0, func(n int) []byte { return Block(Empty, Repeat(n/4, Get(0), BrIf(0))) })
		},
		"ifs": func(m *Module, bytes int) {
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/5, Get(0), If(Empty)) })
		},
		"loops": func(m *Module, bytes int) {
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/7, Loop(Empty, Get(0), BrIf(0))) })
		},
		"loops around locals": func(m *Module, bytes int) {
			with(m, 1, 900, func(int) []byte {
				n := min(1990, bytes/12)
				return Seq(Repeat(n, Op(0x03, Empty)), touch(900), Repeat(n, Get(0), BrIf(0), Op(End)))
			})
		},
		"loops around locals that only are read": func(m *Module, bytes int) {
			with(m, 1, 900, func(int) []byte {
				n := min(1990, bytes/12)
				return Seq(touch(900), Repeat(n, Op(0x03, Empty)), read(900), Repeat(n, Get(0), BrIf(0), Op(End)))
			})
		},
		"br_table to a loop around locals": func(m *Module, bytes int) {
			with(m, 1, 900, func(int) []byte {
				return Loop(Empty, touch(900), Get(0), BrTable(make([]uint32, min(8000, bytes))...))
			})
		},
		"merges of locals": func(m *Module, bytes int) {
			with(m, bytes, 900, func(n int) []byte {
				return Loop(Empty, touch(900), fill(n, func(i int) []byte {
					l := uint32(1 + i%900)
					return Seq(Get(0), If(Empty, Get(l), Op(I32Eqz), Set(l)))
				}), Get(0), BrIf(0))
			})
		},
		"loads and branches": func(m *Module, bytes int) {
			m.Memory(1)
			with(m, bytes, 0, func(n int) []byte {
				return Block(Empty, fill(n, func(i int) []byte {
					return Seq(Get(0), I32Const(int32(i%64)), Op(I32Add), Op(0x28, 0, 0, Drop), Get(0), BrIf(0))
				}))
			})
		},
		"fills": func(m *Module, bytes int) {
			m.Memory(1)
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/9, Get(0), Get(0), Get(0), Misc(11), Op(0)) })
		},
		"calls with globals": func(m *Module, bytes int) {
			for range 1000 {
				m.Global(I32, true, I32Const(0))
			}
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/4, Get(0), Call(0)) })
		},
		"calls with results": func(m *Module, bytes int) {
			typ := m.Type(nil, repeat(I32, 1000))
			m.Func(typ, Repeat(1000, I32Const(0)))
			m.Func(m.Type(nil, nil), Repeat(min(50_000, bytes/2), Call(0)), Op(Unreachable))
		},
		"blocks with results": func(m *Module, bytes int) {
			typ := m.Type(repeat(I32, 1000), repeat(I32, 1000))
			m.Func(m.Type(nil, nil), Repeat(1000, I32Const(0)), Repeat(min(30_000, bytes/3), Op(0x02), S64(int64(typ)), Op(End)), Op(Unreachable))
		},
		"branches with results": func(m *Module, bytes int) {
			typ := m.Type(nil, repeat(I32, 1000))
			m.Func(typ, Repeat(1000, I32Const(0)), Repeat(min(30_000, bytes/4), I32Const(0), BrIf(0)))
		},
		"operands over branches": func(m *Module, bytes int) {
			with(m, min(bytes, 80<<10), 0, func(n int) []byte {
				return Seq(Block(Empty, Repeat(n/4, Get(0)), Repeat(n/12, Get(0), BrIf(0)), Repeat(n/4, Op(Drop))))
			})
		},
		"divisions": func(m *Module, bytes int) {
			with(m, bytes, 0, func(n int) []byte { return Seq(Get(0), Repeat(n/3, Get(0), Op(0x6d)), Op(Drop)) })
		},
		"indirect calls": func(m *Module, bytes int) {
			m.Table(Funcref, 1)
			with(m, bytes, 0, func(n int) []byte { return Repeat(n/7, Get(0), Get(0), CallIndirect(0, 0)) })
		},
	}
}

// Endless are programs that never end by themselves, or not in a lifetime, each
// with an export of the given name and of type () -> i32. Some import
// host.nothing, of type () -> (). Memory begins with up to 256 pages.
func Endless(name string) map[string]func(m *Module) {
	const (
		load   = 0x28
		store8 = 0x3a
		add    = I32Add
	)
	// export adds the function.
	export := func(m *Module, locals []byte, body ...[]byte) {
		m.ExportFunc(name, m.FuncLocals(m.Type(nil, []byte{I32}), locals, body...))
	}
	forever := func(body ...[]byte) []byte { return Seq(Loop(Empty, Seq(body...), Br(0)), Op(Unreachable)) }
	all := map[string]func(m *Module){
		"empty loop": func(m *Module) { export(m, nil, forever()) },
		"nested loops": func(m *Module) {
			export(m, nil, Loop(Empty, Loop(Empty, Loop(Empty, I32Const(1), BrIf(2), Br(0)))), Op(Unreachable))
		},
		"loop of a br_table": func(m *Module) {
			export(m, []byte{I32}, Loop(Empty, Get(0), I32Const(1), Op(add), Tee(0), I32Const(3), Op(0x71), BrTable(0, 0, 0, 0)), Op(Unreachable))
		},
		"jumps that are not foreseen": func(m *Module) {
			export(m, []byte{I32}, Loop(Empty,
				Get(0), I32Const(1664525), Op(I32Mul), I32Const(1013904223), Op(add), Set(0),
				Block(Empty, Block(Empty, Block(Empty, Block(Empty, Get(0), I32Const(29), Op(0x76), BrTable(0, 1, 2, 3, 0, 1, 2, 3))))), Br(0)), Op(Unreachable))
		},
		"branches that are not foreseen": func(m *Module) {
			export(m, []byte{I32, I32}, Loop(Empty,
				Get(0), I32Const(1664525), Op(I32Mul), I32Const(1013904223), Op(add), Tee(0), I32Const(31), Op(0x76),
				If(Empty, Get(1), I32Const(3), Op(add), Set(1)), Br(0)), Op(Unreachable))
		},
		"recursion": func(m *Module) {
			export(m, nil, Call(0))
		},
		"exponential recursion": func(m *Module) {
			export(m, nil, I32Const(40), Call(1))
			typ := m.Type([]byte{I32}, []byte{I32})
			m.Func(typ, Get(0), If(I32, Get(0), I32Const(1), Op(I32Sub), Call(1), Get(0), I32Const(1), Op(I32Sub), Call(1), Op(add), Op(Else), I32Const(1)))
		},
		"mutual recursion through a table": func(m *Module) {
			m.Table(Funcref, 2)
			typ := m.Type(nil, []byte{I32})
			m.Func(typ, I32Const(1), CallIndirect(typ, 0))
			m.ExportFunc(name, m.Func(typ, I32Const(0), CallIndirect(typ, 0)))
			m.Elements(0, 0, 1)
		},
		"recursion with fat frames": func(m *Module) {
			// 900 values live over each call.
			locals := repeat(I64, 900)
			typ := m.Type(nil, []byte{I64})
			m.ExportFunc(name, m.Func(m.Type(nil, []byte{I32}), Call(1), Op(0xa7)))
			var body []byte
			for i := range uint32(900) {
				body = append(body, Seq(Call(2), Set(i))...)
			}
			body = append(body, Call(1)...)
			for i := range uint32(900) {
				body = append(body, Seq(Get(i), Op(I64Add))...)
			}
			m.FuncLocals(typ, locals, body)
			m.Func(typ, I64Const(7))
		},
		"recursion with many values of one local": func(m *Module) {
			typ := m.Type([]byte{I64}, []byte{I64})
			m.ExportFunc(name, m.Func(m.Type(nil, []byte{I32}), I64Const(1), Call(1), Op(0xa7)))
			m.FuncLocals(typ, nil, Repeat(400, Get(0), Call(2)), Get(0), Call(1), Repeat(400, Op(I64Add)))
			m.Func(typ, Get(0), I64Const(7), Op(I64Add))
		},
		"recursion with many parameters and results": func(m *Module) {
			typ := m.Type(repeat(I64, 100), repeat(I64, 100))
			params := []byte{}
			for i := range uint32(100) {
				params = append(params, Get(i)...)
			}
			m.ExportFunc(name, m.Func(m.Type(nil, []byte{I32}), Repeat(100, I64Const(1)), Call(1), Repeat(99, Op(Drop)), Op(0xa7)))
			m.Func(typ, params, Call(1))
		},
		"returns of a deep recursion": func(m *Module) {
			// Each level goes through long straight code after its call.
			export(m, nil, I32Const(3000), Call(1))
			typ := m.Type([]byte{I32}, []byte{I32})
			m.Func(typ, Get(0), If(Empty, Get(0), I32Const(1), Op(I32Sub), Call(1), Set(0)), Repeat(17_000, Get(0), I32Const(3), Op(I32Mul), Set(0)), Get(0))
		},
		"dependent loads": func(m *Module) {
			// A pseudo-random walk over 16 MiB.
			m.Memory(256)
			export(m, []byte{I32}, forever(Get(0), Op(load, 2, 0), Get(0), I32Const(1664525), Op(I32Mul), Op(add), I32Const(1013904223), Op(add), Tee(0), I32Const(0xfffffc), Op(0x71), Set(0)))
		},
		"stores all over": func(m *Module) {
			m.Memory(256)
			export(m, []byte{I32}, forever(Get(0), I32Const(4099*16), Op(add), I32Const(0xffffff), Op(0x71), Tee(0), I32Const(1), Op(store8, 0, 0)))
		},
		"divisions": func(m *Module) {
			export(m, []byte{I64}, I64Const(-1), Set(0), forever(Repeat(50, I64Const(0x7fffffffffffffff), Get(0), I64Const(3), Op(0x84), Op(0x80), Set(0))))
		},
		"signed remainders": func(m *Module) {
			export(m, []byte{I64}, forever(Repeat(50, I64Const(-0x7fffffffffffffff), Get(0), I64Const(3), Op(0x84), Op(0x81), Set(0))))
		},
		"roots": func(m *Module) {
			export(m, []byte{F64}, F64Const(1e300), Set(0), forever(Repeat(50, Get(0), Op(0x9f), F64Const(1.5), Op(0xa0), Set(0))))
		},
		"floating-point divisions": func(m *Module) {
			export(m, []byte{F64}, F64Const(1e300), Set(0), forever(Repeat(50, F64Const(1.1), Get(0), Op(0xa3), Set(0))))
		},
		"minima and maxima": func(m *Module) {
			export(m, []byte{F64}, forever(Repeat(50, Get(0), F64Const(1.5), Op(0xa4), F64Const(0.5), Op(0xa5), Set(0))))
		},
		"rounding and conversions": func(m *Module) {
			export(m, []byte{F64, I64}, forever(Repeat(20, Get(0), Op(0x9e), Op(0xfc, 7), Tee(1), Op(0xba), Set(0))))
		},
		"trapping truncations": func(m *Module) {
			export(m, []byte{F64}, F64Const(12345), Set(0), forever(Repeat(20, Get(0), Op(0xb1), Op(0xba), Set(0))))
		},
		"counting bits": func(m *Module) {
			export(m, []byte{I64}, forever(Repeat(50, Get(0), Op(0x7b), Op(0x79), Op(0x7a), Set(0))))
		},
		"calls": func(m *Module) {
			export(m, nil, forever(Repeat(20, Call(1))))
			m.Func(m.Type(nil, nil))
		},
		"calls of calls": func(m *Module) {
			export(m, nil, forever(Repeat(20, Call(1))))
			v := m.Type(nil, nil)
			m.Func(v, Call(2))
			m.Func(v)
		},
		"calls with many parameters": func(m *Module) {
			export(m, nil, forever(Repeat(100, I64Const(1)), Call(1), Repeat(100, Op(Drop))))
			m.Func(m.Type(repeat(I64, 100), repeat(I64, 100)), Repeat(100, I64Const(2)))
		},
		"indirect calls": func(m *Module) {
			m.Table(Funcref, 1)
			export(m, nil, forever(Repeat(20, I32Const(0), CallIndirect(1, 0))))
			m.Func(m.Type(nil, nil))
			m.Elements(0, 1)
		},
		"fills of memory": func(m *Module) {
			m.Memory(256)
			export(m, nil, forever(I32Const(0), I32Const(1), I32Const(16<<20), Misc(11), Op(0)))
		},
		"small fills of memory": func(m *Module) {
			m.Memory(1)
			export(m, nil, forever(Repeat(20, I32Const(0), I32Const(1), I32Const(1), Misc(11), Op(0))))
		},
		"fills of nothing": func(m *Module) {
			m.Memory(1)
			export(m, nil, forever(Repeat(20, I32Const(0), I32Const(1), I32Const(0), Misc(11), Op(0))))
		},
		"copies of memory": func(m *Module) {
			m.Memory(256)
			export(m, nil, forever(I32Const(0), I32Const(8<<20), I32Const(8<<20), Misc(10), Op(0, 0)))
		},
		"overlapping copies": func(m *Module) {
			m.Memory(256)
			export(m, nil, forever(I32Const(1), I32Const(0), I32Const(16<<20-1), Misc(10), Op(0, 0)))
		},
		"initialising memory": func(m *Module) {
			m.Memory(2)
			m.DataCount(1)
			export(m, nil, forever(I32Const(0), I32Const(0), I32Const(100_000), Misc(8, 0), Op(0)))
			m.PassiveData(make([]byte, 100_000))
		},
		"fills of a table": func(m *Module) {
			m.Table(Funcref, 60_000)
			export(m, nil, forever(I32Const(0), Op(0xd0, Funcref), I32Const(60_000), Misc(17, 0)))
		},
		"copies of a table": func(m *Module) {
			m.Table(Funcref, 60_000)
			export(m, nil, forever(I32Const(0), I32Const(1), I32Const(59_999), Misc(14, 0, 0)))
		},
		"growing memory by nothing": func(m *Module) {
			m.Memory(1)
			export(m, nil, forever(Repeat(20, I32Const(0), Op(0x40, 0), Op(Drop))))
		},
		"growing memory": func(m *Module) {
			m.Memory(0, 256)
			export(m, nil, forever(I32Const(1), Op(0x40, 0), Op(Drop)))
		},
		"growing memory beyond its most": func(m *Module) {
			m.Memory(0)
			export(m, nil, forever(I32Const(-1), Op(0x40, 0), Op(Drop)))
		},
		"growing a table": func(m *Module) {
			m.Table(Funcref, 0)
			export(m, nil, forever(Op(0xd0, Funcref), I32Const(1), Misc(15, 0), Op(Drop)))
		},
		"references to functions": func(m *Module) {
			m.Table(Funcref, 1)
			export(m, nil, forever(Repeat(20, Index(0xd2, 0), Op(Drop))))
			m.Elements(0, 0)
		},
		"calls of the host": func(m *Module) {
			m.Import("host", "nothing", m.Type(nil, nil))
			export(m, nil, forever(Repeat(20, Call(0))))
		},
		"indirect calls of the host": func(m *Module) {
			v := m.Type(nil, nil)
			m.Import("host", "nothing", v)
			m.Table(Funcref, 1)
			export(m, nil, forever(Repeat(20, I32Const(0), CallIndirect(v, 0))))
			m.Elements(0, 0)
		},
		"globals": func(m *Module) {
			m.Global(I64, true, I64Const(0))
			export(m, nil, forever(Repeat(50, Index(0x23, 0), I64Const(1), Op(I64Add), Index(0x24, 0))))
		},
		"long straight code": func(m *Module) {
			export(m, []byte{I32}, forever(Repeat(17_000, Get(0), I32Const(3), Op(I32Mul), Set(0))))
		},
	}
	maps.Copy(all, slow(name))
	return all
}

func repeat(typ byte, n int) []byte { return slices.Repeat([]byte{typ}, n) }
