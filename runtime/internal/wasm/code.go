package wasm

import (
	"github.com/dsh-agent/dsh/hostabi"
)

// A Code walks over the instructions of a function.
type Code struct {
	r   reader
	ops *[256]opcode
	op  opcode // of the instruction that was read last
}

// Walk begins a walk over the body of a function that the module defines.
func (m *Module) Walk(f *Func) Code {
	return Code{r: reader{b: m.Bytes[:f.End], off: f.Body}, ops: m.ops}
}

// Next reads the next instruction. It reports false at the end of the code,
// and where an instruction is not well-formed, which cannot be in a module
// that has been decoded.
func (c *Code) Next(i *Instr) bool {
	if c.r.done() {
		return false
	}
	*i = Instr{Start: c.r.off}
	b := c.r.byte()
	i.Op = int(b)
	c.op = c.ops[b]
	c.immediate(i)
	i.End = c.r.off
	return c.r.err == nil
}

func (c *Code) immediate(i *Instr) {
	r := &c.r
	switch c.op.imm {
	case immNone:
	case immBlock:
		i.Block = c.blockType()
	case immLabel, immFunc, immLocal, immGlobal, immTableIndex:
		i.A = r.u32()
	case immTable:
		i.A = uint32(r.count(RuleBranchTable, "targets in a br_table", MaxBranchTargets, 1))
		i.Targets = r.off
		for range i.A {
			r.u32()
		}
		r.u32()
	case immIndirect:
		i.A, i.B = r.u32(), r.u32()
	case immSelect:
		if n := r.u32(); r.err == nil && n != 1 {
			r.fail("a select of %d types", n)
		}
		r.valueType()
	case immAccess:
		if align := r.u32(); align >= 32 && r.err == nil {
			r.stop(unsupported("several memories", "a memory access of another memory"))
		}
		r.u32()
	case immMemory:
		c.memoryIndex()
	case immI32:
		r.signed(32)
	case immI64:
		r.signed(64)
	case immF32:
		r.skip(4)
	case immF64:
		r.skip(8)
	case immRefType:
		if b := r.byte(); r.err == nil && !isRef(b) {
			r.stop(unsupported("typed function references", "a null of another type"))
		}
	case immMisc:
		c.misc(i)
	default:
		c.unknown(byte(i.Op))
	}
}

func (c *Code) unknown(op byte) {
	if p := proposal(op); p != "" {
		c.r.stop(unsupported(p, opName(int(op))))
		return
	}
	c.r.fail("the unknown opcode 0x%02x", op)
}

func (c *Code) misc(i *Instr) {
	r := &c.r
	sub := r.u32()
	if r.err == nil && OpMisc+int64(sub) >= opMiscEnd {
		r.stop(unsupported("an unknown proposal", opName(OpMisc+int(sub))))
		return
	}
	i.Op = OpMisc + int(sub)
	c.op = miscOpcode(i.Op)
	switch i.Op {
	case OpMemoryInit:
		i.A = r.u32()
		c.memoryIndex()
	case OpDataDrop, OpElemDrop, OpTableGrow, OpTableSize, OpTableFill:
		i.A = r.u32()
	case OpMemoryCopy:
		c.memoryIndex()
		c.memoryIndex()
	case OpMemoryFill:
		c.memoryIndex()
	case OpTableInit, OpTableCopy:
		i.A, i.B = r.u32(), r.u32()
	}
}

// memoryIndex reads the index of a memory, which is a single zero byte.
func (c *Code) memoryIndex() {
	if b := c.r.byte(); b != 0 {
		c.r.stop(unsupported("several memories", "an instruction on another memory"))
	}
}

func (c *Code) blockType() BlockType {
	r := &c.r
	if r.off < len(r.b) && r.b[r.off]&0xc0 == 0x40 { // a negative number of one byte
		b := r.byte()
		if b == 0x40 {
			return BlockType{Index: -1}
		}
		if !plainType(b) {
			r.stop(badType(b))
		}
		return BlockType{Index: -1, Result: hostabi.ValueType(b)}
	}
	index := r.signed(33)
	if index < 0 {
		r.fail("a block of an unknown type")
		return BlockType{Index: -1}
	}
	return BlockType{Index: int(index)}
}
