package wasm

import "github.com/dsh-agent/dsh/hostabi"

// immediate says what follows an opcode.
type immediate uint8

const (
	immUnknown immediate = iota // no instruction
	immNone
	immBlock    // a block type
	immLabel    // a label
	immTable    // the targets of a br_table
	immFunc     // a function
	immIndirect // a type and a table
	immSelect   // the types of a select
	immLocal
	immGlobal
	immTableIndex
	immAccess // alignment and offset of a memory access
	immMemory // a memory
	immI32
	immI64
	immF32
	immF64
	immRefType
	immMisc // another opcode
)

// The opcodes that are known by name here.
const (
	OpUnreachable  = 0x00
	OpNop          = 0x01
	OpBlock        = 0x02
	OpLoop         = 0x03
	OpIf           = 0x04
	OpElse         = 0x05
	OpEnd          = 0x0b
	OpBr           = 0x0c
	OpBrIf         = 0x0d
	OpBrTable      = 0x0e
	OpReturn       = 0x0f
	OpCall         = 0x10
	OpCallIndirect = 0x11
	OpDrop         = 0x1a
	OpSelect       = 0x1b
	OpSelectTyped  = 0x1c
	OpLocalGet     = 0x20
	OpLocalSet     = 0x21
	OpLocalTee     = 0x22
	OpGlobalGet    = 0x23
	OpGlobalSet    = 0x24
	OpTableGet     = 0x25
	OpTableSet     = 0x26
	OpI32Load      = 0x28
	OpI64Store32   = 0x3e
	OpMemorySize   = 0x3f
	OpMemoryGrow   = 0x40
	OpI32Const     = 0x41
	OpI64Const     = 0x42
	OpF32Const     = 0x43
	OpF64Const     = 0x44
	OpRefNull      = 0xd0
	OpRefIsNull    = 0xd1
	OpRefFunc      = 0xd2
	opMisc         = 0xfc
)

// The opcodes behind the prefix 0xfc, as Instr.Op gives them.
const (
	OpMisc       = 0x100 // the first one
	OpMemoryInit = OpMisc + 8
	OpDataDrop   = OpMisc + 9
	OpMemoryCopy = OpMisc + 10
	OpMemoryFill = OpMisc + 11
	OpTableInit  = OpMisc + 12
	OpElemDrop   = OpMisc + 13
	OpTableCopy  = OpMisc + 14
	OpTableGrow  = OpMisc + 15
	OpTableSize  = OpMisc + 16
	OpTableFill  = OpMisc + 17
	opMiscEnd    = OpMisc + 18
)

// an opcode's immediate, and how many operands it takes and gives. Where that
// depends on types, the code that walks knows better.
type opcode struct {
	imm       immediate
	pop, push uint8
}

// opcodes is the instruction set: WebAssembly 2.0 without SIMD.
// Source: the WebAssembly core specification 2.0, appendix "Index of
// Instructions".
func opcodes() *[256]opcode {
	var t [256]opcode
	set := func(from, to int, imm immediate, pop, push uint8) {
		for op := from; op <= to; op++ {
			t[op] = opcode{imm, pop, push}
		}
	}
	set(OpUnreachable, OpNop, immNone, 0, 0)
	set(OpBlock, OpLoop, immBlock, 0, 0)
	set(OpIf, OpIf, immBlock, 1, 0)
	set(OpElse, OpElse, immNone, 0, 0)
	set(OpEnd, OpEnd, immNone, 0, 0)
	set(OpBr, OpBr, immLabel, 0, 0)
	set(OpBrIf, OpBrIf, immLabel, 1, 0)
	set(OpBrTable, OpBrTable, immTable, 1, 0)
	set(OpReturn, OpReturn, immNone, 0, 0)
	set(OpCall, OpCall, immFunc, 0, 0)
	set(OpCallIndirect, OpCallIndirect, immIndirect, 1, 0)
	set(OpDrop, OpDrop, immNone, 1, 0)
	set(OpSelect, OpSelect, immNone, 3, 1)
	set(OpSelectTyped, OpSelectTyped, immSelect, 3, 1)
	set(OpLocalGet, OpLocalGet, immLocal, 0, 1)
	set(OpLocalSet, OpLocalSet, immLocal, 1, 0)
	set(OpLocalTee, OpLocalTee, immLocal, 1, 1)
	set(OpGlobalGet, OpGlobalGet, immGlobal, 0, 1)
	set(OpGlobalSet, OpGlobalSet, immGlobal, 1, 0)
	set(OpTableGet, OpTableGet, immTableIndex, 1, 1)
	set(OpTableSet, OpTableSet, immTableIndex, 2, 0)
	set(OpI32Load, 0x35, immAccess, 1, 1)
	set(0x36, OpI64Store32, immAccess, 2, 0)
	set(OpMemorySize, OpMemorySize, immMemory, 0, 1)
	set(OpMemoryGrow, OpMemoryGrow, immMemory, 1, 1)
	set(OpI32Const, OpI32Const, immI32, 0, 1)
	set(OpI64Const, OpI64Const, immI64, 0, 1)
	set(OpF32Const, OpF32Const, immF32, 0, 1)
	set(OpF64Const, OpF64Const, immF64, 0, 1)
	set(0x45, 0x45, immNone, 1, 1) // i32.eqz
	set(0x46, 0x4f, immNone, 2, 1) // i32 comparisons
	set(0x50, 0x50, immNone, 1, 1) // i64.eqz
	set(0x51, 0x66, immNone, 2, 1) // i64, f32 and f64 comparisons
	set(0x67, 0x69, immNone, 1, 1) // i32 clz, ctz, popcnt
	set(0x6a, 0x78, immNone, 2, 1) // i32 arithmetic
	set(0x79, 0x7b, immNone, 1, 1) // i64 clz, ctz, popcnt
	set(0x7c, 0x8a, immNone, 2, 1) // i64 arithmetic
	set(0x8b, 0x91, immNone, 1, 1) // f32 abs … sqrt
	set(0x92, 0x98, immNone, 2, 1) // f32 arithmetic
	set(0x99, 0x9f, immNone, 1, 1) // f64 abs … sqrt
	set(0xa0, 0xa6, immNone, 2, 1) // f64 arithmetic
	set(0xa7, 0xc4, immNone, 1, 1) // conversions, sign extensions
	set(OpRefNull, OpRefNull, immRefType, 0, 1)
	set(OpRefIsNull, OpRefIsNull, immNone, 1, 1)
	set(OpRefFunc, OpRefFunc, immFunc, 0, 1)
	set(opMisc, opMisc, immMisc, 0, 0)
	return &t
}

// miscOpcode is the instruction set behind the prefix 0xfc.
func miscOpcode(op int) opcode {
	switch op {
	case OpDataDrop, OpElemDrop:
		return opcode{immMisc, 0, 0}
	case OpTableGrow:
		return opcode{immMisc, 2, 1}
	case OpTableSize:
		return opcode{immMisc, 0, 1}
	case OpMemoryInit, OpMemoryCopy, OpMemoryFill, OpTableInit, OpTableCopy, OpTableFill:
		return opcode{immMisc, 3, 0}
	}
	return opcode{immNone, 1, 1} // the saturating truncations
}

// proposal names what an opcode belongs to that is not supported.
func proposal(op byte) string {
	switch {
	case op == 0xfd:
		return "SIMD"
	case op == 0xfe:
		return "threads"
	case op == 0xfb || op == 0xd3:
		return "garbage collection"
	case op >= 0x06 && op <= 0x0a || op == 0x18 || op == 0x19 || op == 0x1f:
		return "exceptions"
	case op == 0x12 || op == 0x13:
		return "tail calls"
	case op == 0x14 || op == 0x15 || op >= 0xd4 && op <= 0xd6:
		return "typed function references"
	}
	return ""
}

// An Instr is one instruction.
type Instr struct {
	Op         int // the opcode; OpMisc and above: those behind the prefix 0xfc
	Start, End int // where it stands, as an offset into the module's bytes

	// A is its index: a local, global, function, table, label, or type of a
	// call_indirect; of memory.init, table.init and the drops the segment; of
	// table.copy the table that is written. Of a br_table it is the number of
	// targets without the default.
	A uint32
	// B is its second index: the table of call_indirect and table.init, the
	// table that table.copy reads.
	B uint32
	// Targets is where a br_table's targets stand.
	Targets int
	// Block is the type of a block, loop or if.
	Block BlockType
}

// A BlockType is the type of a block: of an index, or of at most one result.
type BlockType struct {
	Index  int // -1: it has no parameter, and Result
	Result hostabi.ValueType
}
