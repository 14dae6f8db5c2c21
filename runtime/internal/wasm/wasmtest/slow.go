package wasmtest

import "maps"

// slow are programs that never end and that make each of their instructions
// take as long as they can: they wait for memory that is in no cache, for code
// that is in none, for jumps that are not foreseen, and for numbers that a
// processor is slow with. They are among [Endless].
func slow(name string) map[string]func(m *Module) {
	all := map[string]func(m *Module){}
	for _, kinds := range []map[string]func(m *Module){slowMemory(name), slowCode(name), slowNumbers(name)} {
		maps.Copy(all, kinds)
	}
	return all
}

// The instructions of these programs.
const (
	opI32And  = 0x71
	opI32Shl  = 0x74
	opI32ShrU = 0x76
	opLoad32  = 0x28
	opLoad64  = 0x29
	opStore32 = 0x36
	opStore64 = 0x37
	opStore8  = 0x3a
)

// endless exports a function of type () -> i32 that goes on for ever, after
// what comes before.
func endless(m *Module, name string, locals []byte, before []byte, body ...[]byte) {
	m.ExportFunc(name, m.FuncLocals(m.Type(nil, []byte{I32}), locals, before, Loop(Empty, Seq(body...), Br(0)), Op(Unreachable)))
}

// next makes the local the next of a sequence of pseudo-random numbers, and
// leaves its upper bits, so many, on the stack.
func next(local uint32, bits int32) []byte {
	return Seq(Get(local), I32Const(1664525), Op(I32Mul), I32Const(1013904223), Op(I32Add), Tee(local), I32Const(32-bits), Op(opI32ShrU))
}

// place is next, as an address of eight bytes in 16 MiB.
func place(local uint32) []byte { return Seq(next(local, 24), I32Const(0xfffff8), Op(opI32And)) }

// list writes an endless list over 16 MiB of memory, with an element in each of
// its lines of 64 bytes, no two of which are near each other. Locals 0 and 1
// are i32; both are 0 before and after.
func list() []byte {
	return Loop(Empty,
		Get(0), Get(0), I32Const(64*40503), Op(I32Add), I32Const(0xffffc0), Op(opI32And), Tee(1), Op(opStore32, 2, 0),
		Get(1), Tee(0), BrIf(0))
}

func slowMemory(name string) map[string]func(m *Module) {
	const most = 0xffffc0 // the last line of 16 MiB
	return map[string]func(m *Module){
		"chain of loads": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, list(), Get(0), Op(opLoad32, 2, 0), Set(0))
		},
		"chain of loads in straight code": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, list(), Get(0), Repeat(500, Op(opLoad32, 2, 0)), Set(0))
		},
		"chain of loads and stores": func(m *Module) {
			// Each element that has been read is written, too.
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, list(), Repeat(100,
				Get(0), Op(opLoad32, 2, 0), Tee(0), Get(0), Op(opStore32, 2, 4)))
		},
		"chain through copies": func(m *Module) {
			// The next address is what has been copied from the last.
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, list(), Repeat(50,
				I32Const(8), Get(0), I32Const(8), Misc(10), Op(0, 0), I32Const(8), Op(opLoad32, 2, 0), Set(0)))
		},
		"strided loads": func(m *Module) {
			// A page of the machine's further each time, and a line.
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, nil, Repeat(50,
				Get(0), I32Const(4096+64), Op(I32Add), I32Const(most), Op(opI32And), Tee(0), Op(opLoad32, 2, 0), Get(1), Op(I32Add), Set(1)))
		},
		"scattered loads": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32}, nil, Repeat(50, place(0), Op(opLoad32, 0, 0), Op(Drop)))
		},
		"scattered stores": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32}, nil, Repeat(50, place(0), I64Const(-1), Op(opStore64, 0, 0)))
		},
		"strided stores": func(m *Module) {
			// As many as can be for one address.
			var stores []byte
			for i := range uint32(500) {
				stores = append(stores, Seq(Get(0), Get(0), Op(opStore32, 2), U32((i*40503%(1<<18))*64))...)
			}
			m.Memory(256)
			endless(m, name, []byte{I32}, nil, stores, Get(0), I32Const(4), Op(I32Add), I32Const(60), Op(opI32And), Set(0))
		},
		"additions all over": func(m *Module) {
			// As an atomic counter would be used: read, add, write, at a place
			// that depends on what was read.
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, nil, Repeat(50,
				place(0), Tee(1), Get(1), Op(opLoad32, 2, 0), I32Const(1), Op(I32Add), Op(opStore32, 2, 0),
				Get(0), Get(1), Op(opLoad32, 2, 0), Op(I32Add), Set(0)))
		},
		"loads over the ends of pages": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, nil, Repeat(50,
				Get(0), I32Const(4096), Op(I32Add), I32Const(0xfff000), Op(opI32And), Tee(0), Op(opLoad64, 0), U32(4092), Op(0xa7), Get(0), Op(I32Add), I32Const(0xffe000), Op(opI32And), Set(0)))
		},
		"loads of what was just stored in parts": func(m *Module) {
			m.Memory(1)
			endless(m, name, []byte{I32, I64}, nil, Repeat(50,
				I32Const(0), Get(1), Op(0x3c, 0, 3), I32Const(0), Op(opLoad64, 0, 0), Set(1)))
		},
		"small fills all over": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32}, nil, Repeat(50, place(0), I32Const(1), I32Const(7), Misc(11), Op(0)))
		},
		"small copies all over": func(m *Module) {
			m.Memory(256)
			endless(m, name, []byte{I32}, nil, Repeat(50, place(0), place(0), I32Const(7), Misc(10), Op(0, 0)))
		},
		"entries all over a table": func(m *Module) {
			m.Table(Funcref, 65_536)
			endless(m, name, []byte{I32, I32}, nil, Repeat(50,
				next(0, 16), Index(0x25, 0), Op(0xd1), Get(0), Op(I32Add), Set(0)))
		},
		"entries set all over a table": func(m *Module) {
			m.Table(Funcref, 65_536)
			endless(m, name, []byte{I32}, nil, Repeat(50, next(0, 16), Op(0xd0, Funcref), Index(0x26, 0)))
		},
		"all of the globals": func(m *Module) {
			var sum []byte
			for i := range uint32(990) {
				m.Global(I64, true, I64Const(0))
				sum = append(sum, Seq(Index(0x23, i), I64Const(3), Op(I64Add), Index(0x24, (i*7+1)%990))...)
			}
			endless(m, name, nil, nil, sum)
		},
	}
}

func slowCode(name string) map[string]func(m *Module) {
	// Functions of an i32 whose code is a page of the machine's long, and is
	// jumped over.
	const many = 2048
	padded := func(m *Module) (typ, first uint32) {
		typ = m.Type([]byte{I32}, []byte{I32})
		first = uint32(m.Funcs)
		for range many {
			m.Func(typ, Get(0), I32Const(7), Op(opI32And), If(Empty, Repeat(80, Get(0), I32Const(3), Op(I32Mul), Set(0))), Get(0))
		}
		return typ, first
	}
	return map[string]func(m *Module){
		"calls all over the code": func(m *Module) {
			typ, first := padded(m)
			functions := make([]uint32, many)
			for i := range functions {
				functions[i] = first + uint32(i)
			}
			m.Table(Funcref, many)
			m.Elements(0, functions...)
			endless(m, name, []byte{I32}, nil, Repeat(20, I32Const(0), next(0, 11), CallIndirect(typ, 0), Op(Drop)))
		},
		"calls along the code": func(m *Module) {
			_, first := padded(m)
			var calls []byte
			for i := range uint32(many) {
				calls = append(calls, Seq(I32Const(0), Call(first+i*811%many), Op(Drop))...)
			}
			endless(m, name, nil, nil, calls)
		},
		"jumps all over the code": func(m *Module) {
			// A br_table to a thousand places.
			const ways = 1024
			labels := make([]uint32, ways+1)
			for i := range labels {
				labels[i] = uint32(min(i, ways-1))
			}
			code := Seq(next(0, 10), BrTable(labels...))
			for i := range int32(ways) {
				code = Seq(Op(0x02, Empty), code, Op(End), Get(1), I32Const(i), Op(I32Add), Set(1), Br(uint32(ways-1-i)))
			}
			endless(m, name, []byte{I32, I32}, nil, code)
		},
		"branches that depend on loads": func(m *Module) {
			// Each is decided by memory that is in no cache.
			m.Memory(256)
			endless(m, name, []byte{I32, I32}, nil, Repeat(20,
				place(0), Op(opLoad32, 0, 0), Get(0), Op(I32Add), I32Const(1<<30), Op(opI32And),
				If(Empty, Get(0), I32Const(77), Op(I32Add), Set(0))))
		},
		"long straight code of calls": func(m *Module) {
			// Of a function that waits for memory and looks at nothing else.
			m.Memory(256)
			typ := m.Type([]byte{I32}, []byte{I32})
			chain := m.Func(typ, Get(0), Repeat(60, Op(opLoad32, 2, 0)))
			endless(m, name, []byte{I32, I32}, list(), Get(0), Repeat(20_000, Call(chain)), Set(0))
		},
		"many small functions": func(m *Module) {
			typ := m.Type(nil, nil)
			for range 10_000 {
				m.Func(typ)
			}
			var calls []byte
			for i := range uint32(10_000) {
				calls = append(calls, Call(i*4099%10_000)...)
			}
			endless(m, name, nil, nil, calls)
		},
	}
}

func slowNumbers(name string) map[string]func(m *Module) {
	const (
		tiny    = 5e-324 // the smallest number that is not normal
		almost  = 2.2250738585072011e-308
		f64Add  = 0xa0
		f64Sub  = 0xa1
		f64Mul  = 0xa2
		f64Div  = 0xa3
		f64Sqrt = 0x9f
		f64Of32 = 0xbb // promote
		f32Of64 = 0xb6 // demote
	)
	float := func(body ...[]byte) func(m *Module) {
		return func(m *Module) {
			endless(m, name, []byte{F64, I64}, Seq(F64Const(almost), Set(0)), Repeat(50, body...))
		}
	}
	return map[string]func(m *Module){
		"sums of what is not normal":        float(Get(0), F64Const(tiny), Op(f64Add), Set(0), Get(0), F64Const(tiny), Op(f64Sub), Set(0)),
		"products of what is not normal":    float(Get(0), F64Const(0.5), Op(f64Mul), F64Const(2), Op(f64Mul), Set(0)),
		"quotients of what is not normal":   float(Get(0), F64Const(2), Op(f64Div), F64Const(0.5), Op(f64Div), Set(0)),
		"roots of what is not normal":       float(F64Const(almost), Op(f64Sqrt), Get(0), Op(f64Mul), F64Const(tiny), Op(f64Add), F64Const(almost), Op(0xa4), Set(0)),
		"conversions of what is not normal": float(Get(0), F64Const(1e270), Op(f64Mul), Op(f32Of64), Op(f64Of32), F64Const(1e-270), Op(f64Mul), Set(0)),
		"chain of divisions of 64 bits": func(m *Module) {
			endless(m, name, []byte{I64}, nil, Repeat(100, I64Const(-1), Get(0), I64Const(1), Op(0x84), Op(0x80), I64Const(3), Op(0x84), Set(0)))
		},
		"chain of remainders of 32 bits": func(m *Module) {
			endless(m, name, []byte{I32}, nil, Repeat(100, I32Const(-1), Get(0), I32Const(1), Op(0x72), Op(0x6f), I32Const(3), Op(0x72), Set(0)))
		},
		"conversions of numbers without a sign": func(m *Module) {
			endless(m, name, []byte{I64, F64}, Seq(I64Const(-5), Set(0)), Repeat(50, Get(0), Op(0xba), Set(1), Get(1), Op(0xfc, 7), I64Const(-5), Op(0x84), Set(0)))
		},
		"rotations and selections": func(m *Module) {
			endless(m, name, []byte{I64, I64}, nil, Repeat(100, Get(0), Get(1), Op(0x89), Get(1), Get(0), Op(0xa7), Op(Select), Tee(1), Get(0), Op(0x7e), Set(0)))
		},
	}
}
