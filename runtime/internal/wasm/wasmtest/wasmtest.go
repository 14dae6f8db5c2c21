// Package wasmtest writes WebAssembly modules for tests, byte by byte, so that
// a test can also write what no toolchain would.
package wasmtest

import (
	"encoding/binary"
	"math"
	"slices"
)

// The types of values.
const (
	I32       = 0x7f
	I64       = 0x7e
	F32       = 0x7d
	F64       = 0x7c
	V128      = 0x7b
	Funcref   = 0x70
	Externref = 0x6f
	Empty     = 0x40 // the type of a block without parameters and results
)

// A Module collects the sections of a module. The zero value is an empty
// module.
type Module struct {
	types, imports, functions, tables, memories, globals, exports, elements, codes, data vector

	start     []byte
	dataCount []byte
	before    []byte // custom sections
	after     []byte
	Funcs     int // the functions so far, the imported ones counted
}

type vector struct {
	n int
	b []byte
}

func (v *vector) add(b ...byte) int {
	v.b = append(v.b, b...)
	v.n++
	return v.n - 1
}

// Bytes is the module.
func (m *Module) Bytes() []byte {
	b := []byte("\x00asm\x01\x00\x00\x00")
	b = append(b, m.before...)
	for id, v := range []*vector{nil, &m.types, &m.imports, &m.functions, &m.tables, &m.memories, &m.globals, &m.exports, nil, &m.elements} {
		if v != nil && v.n > 0 {
			b = append(b, Section(byte(id), U32(uint32(v.n)), v.b)...)
		}
		if id == 8 && m.start != nil {
			b = append(b, Section(8, m.start)...)
		}
	}
	if m.dataCount != nil {
		b = append(b, Section(12, m.dataCount)...)
	}
	if m.codes.n > 0 {
		b = append(b, Section(10, U32(uint32(m.codes.n)), m.codes.b)...)
	}
	if m.data.n > 0 {
		b = append(b, Section(11, U32(uint32(m.data.n)), m.data.b)...)
	}
	return append(b, m.after...)
}

// Section is one section.
func Section(id byte, contents ...[]byte) []byte {
	all := slices.Concat(contents...)
	return slices.Concat([]byte{id}, U32(uint32(len(all))), all)
}

// Type adds the type of a function.
func (m *Module) Type(params, results []byte) uint32 {
	return uint32(m.types.add(slices.Concat([]byte{0x60}, Bytes(params), Bytes(results))...))
}

// Import adds the import of a function.
func (m *Module) Import(module, name string, typ uint32) uint32 {
	m.imports.add(slices.Concat(Name(module), Name(name), []byte{0}, U32(typ))...)
	m.Funcs++
	return uint32(m.Funcs - 1)
}

// ImportRaw adds an import of another kind.
func (m *Module) ImportRaw(module, name string, description ...byte) {
	m.imports.add(slices.Concat(Name(module), Name(name), description)...)
}

// Func adds a function without locals. Its end is added.
func (m *Module) Func(typ uint32, body ...[]byte) uint32 {
	return m.FuncLocals(typ, nil, body...)
}

// FuncLocals adds a function with the given locals. Its end is added.
func (m *Module) FuncLocals(typ uint32, locals []byte, body ...[]byte) uint32 {
	var runs vector
	for len(locals) > 0 {
		n := 1
		for n < len(locals) && locals[n] == locals[0] {
			n++
		}
		runs.add(append(U32(uint32(n)), locals[0])...)
		locals = locals[n:]
	}
	return m.FuncRaw(typ, slices.Concat(U32(uint32(runs.n)), runs.b, slices.Concat(body...), []byte{0x0b}))
}

// FuncRaw adds a function with the bytes of its entry in the code section.
func (m *Module) FuncRaw(typ uint32, code []byte) uint32 {
	m.functions.add(U32(typ)...)
	m.codes.add(Bytes(code)...)
	m.Funcs++
	return uint32(m.Funcs - 1)
}

// Table adds a table.
func (m *Module) Table(typ byte, limits ...uint32) uint32 {
	return uint32(m.tables.add(append([]byte{typ}, Limits(limits...)...)...))
}

// Memory adds a memory.
func (m *Module) Memory(limits ...uint32) { m.memories.add(Limits(limits...)...) }

// Global adds a global; its end is added to its initial value.
func (m *Module) Global(typ byte, mutable bool, init ...[]byte) uint32 {
	mut := byte(0)
	if mutable {
		mut = 1
	}
	return uint32(m.globals.add(slices.Concat([]byte{typ, mut}, slices.Concat(init...), []byte{0x0b})...))
}

// Export adds an export of a kind: 0 function, 1 table, 2 memory, 3 global.
func (m *Module) Export(name string, kind byte, index uint32) {
	m.exports.add(slices.Concat(Name(name), []byte{kind}, U32(index))...)
}

// ExportFunc adds the export of a function.
func (m *Module) ExportFunc(name string, index uint32) { m.Export(name, 0, index) }

// Start sets the start function.
func (m *Module) Start(f uint32) { m.start = U32(f) }

// Elements adds an active segment of functions for table 0.
func (m *Module) Elements(offset int32, funcs ...uint32) {
	b := slices.Concat(U32(0), I32Const(offset), []byte{0x0b}, U32(uint32(len(funcs))))
	for _, f := range funcs {
		b = append(b, U32(f)...)
	}
	m.elements.add(b...)
}

// ElementsRaw adds an element segment.
func (m *Module) ElementsRaw(b ...[]byte) { m.elements.add(slices.Concat(b...)...) }

// Data adds an active segment of data.
func (m *Module) Data(offset int32, b []byte) {
	m.data.add(slices.Concat(U32(0), I32Const(offset), []byte{0x0b}, Bytes(b))...)
}

// PassiveData adds a passive segment of data.
func (m *Module) PassiveData(b []byte) { m.data.add(slices.Concat(U32(1), Bytes(b))...) }

// DataRaw adds a data segment.
func (m *Module) DataRaw(b ...[]byte) { m.data.add(slices.Concat(b...)...) }

// DataCount sets the count of data segments, which memory.init needs.
func (m *Module) DataCount(n uint32) { m.dataCount = U32(n) }

// Custom adds a custom section behind the others.
func (m *Module) Custom(name string, contents []byte) {
	m.after = append(m.after, Section(0, Name(name), contents)...)
}

// CustomBefore adds a custom section before the others.
func (m *Module) CustomBefore(name string, contents []byte) {
	m.before = append(m.before, Section(0, Name(name), contents)...)
}

// Limits writes limits of one or two numbers.
func Limits(limits ...uint32) []byte {
	if len(limits) == 1 {
		return append([]byte{0}, U32(limits[0])...)
	}
	return slices.Concat([]byte{1}, U32(limits[0]), U32(limits[1]))
}

// U32 is an unsigned number.
func U32(v uint32) []byte { return binary.AppendUvarint(nil, uint64(v)) }

// S64 is a signed number.
func S64(v int64) (b []byte) {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

// Bytes are bytes with their number before them.
func Bytes(b []byte) []byte { return append(U32(uint32(len(b))), b...) }

// Name is a name with its length before it.
func Name(s string) []byte { return Bytes([]byte(s)) }

// Op is an instruction of single bytes.
func Op(b ...byte) []byte { return b }

// Seq is several instructions.
func Seq(code ...[]byte) []byte { return slices.Concat(code...) }

// Repeat is instructions several times.
func Repeat(n int, code ...[]byte) []byte { return slices.Repeat(slices.Concat(code...), n) }

// Index is an instruction with an index.
func Index(op byte, index uint32) []byte { return append([]byte{op}, U32(index)...) }

// Misc is an instruction behind the prefix 0xfc, with indices.
func Misc(op uint32, indices ...uint32) []byte {
	b := append([]byte{0xfc}, U32(op)...)
	for _, i := range indices {
		b = append(b, U32(i)...)
	}
	return b
}

// I32Const is i32.const.
func I32Const(v int32) []byte { return append([]byte{0x41}, S64(int64(v))...) }

// I64Const is i64.const.
func I64Const(v int64) []byte { return append([]byte{0x42}, S64(v)...) }

// F64Const is f64.const.
func F64Const(v float64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{0x44}, math.Float64bits(v))
}

// Get is local.get.
func Get(i uint32) []byte { return Index(0x20, i) }

// Set is local.set.
func Set(i uint32) []byte { return Index(0x21, i) }

// Tee is local.tee.
func Tee(i uint32) []byte { return Index(0x22, i) }

// Call is call.
func Call(f uint32) []byte { return Index(0x10, f) }

// CallIndirect is call_indirect.
func CallIndirect(typ, table uint32) []byte {
	return slices.Concat([]byte{0x11}, U32(typ), U32(table))
}

// Br is br.
func Br(l uint32) []byte { return Index(0x0c, l) }

// BrIf is br_if.
func BrIf(l uint32) []byte { return Index(0x0d, l) }

// BrTable is br_table; the last label is the default.
func BrTable(labels ...uint32) []byte {
	b := Index(0x0e, uint32(len(labels)-1))
	for _, l := range labels {
		b = append(b, U32(l)...)
	}
	return b
}

// Block is a block of a type, with its end.
func Block(typ byte, body ...[]byte) []byte { return block(0x02, typ, body) }

// Loop is a loop of a type, with its end.
func Loop(typ byte, body ...[]byte) []byte { return block(0x03, typ, body) }

// If is an if of a type, with its end.
func If(typ byte, body ...[]byte) []byte { return block(0x04, typ, body) }

func block(op, typ byte, body [][]byte) []byte {
	return slices.Concat([]byte{op, typ}, slices.Concat(body...), []byte{0x0b})
}

// The instructions without immediates that tests use most.
const (
	Unreachable = 0x00
	Nop         = 0x01
	Else        = 0x05
	End         = 0x0b
	Return      = 0x0f
	Drop        = 0x1a
	Select      = 0x1b
	I32Eqz      = 0x45
	I32LtS      = 0x48
	I32Add      = 0x6a
	I32Sub      = 0x6b
	I32Mul      = 0x6c
	I32DivU     = 0x6e
	I64Add      = 0x7c
	I64Sub      = 0x7d
)
