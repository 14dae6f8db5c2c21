package meter

import (
	"encoding/binary"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// The opcodes that are written and that package wasm has no name for.
const (
	opI64Load32U   = 0x35 // the last of the loads
	opI32Store     = 0x36 // the first of the stores
	opI32LeU       = 0x4d
	opI64LtS       = 0x53
	opI64GeS       = 0x59
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Mul       = 0x7e
	opI64Or        = 0x84
	opI64ShrU      = 0x88
	opI32WrapI64   = 0xa7
	opI64ExtendI32 = 0xad // unsigned

	typeI32   = byte(hostabi.ValueI32)
	typeI64   = byte(hostabi.ValueI64)
	typeEmpty = 0x40
)

// emitter writes a function. Where the function has to be left early, or its
// end has something to do, its body stands in two blocks:
//
//	block $trap
//	  the charge of the function, a look at fuel and stack
//	  block $end (its results)
//	    its body, in which a return is a branch to $end
//	  end
//	  the frame is given back, a look at the fuel
//	  return
//	end
//	unreachable
//
// A branch to the function's own label goes to $end without a change, since
// the body is as deep in $end as it was in the function.
type emitter struct {
	b           []byte
	fuel, stack uint32 // the globals
	reserve     uint32 // the global of the fuel of all slices to come
	pauser      uint32 // the function that pauses
	temp        uint32 // the local that holds a number
	inBody      bool
}

func (e *emitter) op(ops ...byte) { e.b = append(e.b, ops...) }

func (e *emitter) index(op byte, i uint32) {
	e.b = binary.AppendUvarint(append(e.b, op), uint64(i))
}

func (e *emitter) i32(v uint32) { e.b = appendSigned(append(e.b, wasm.OpI32Const), int64(int32(v))) }

func (e *emitter) i64(v int64) { e.b = appendSigned(append(e.b, wasm.OpI64Const), v) }

// spend takes a constant from a global.
func (e *emitter) spend(global uint32, n int64) {
	e.index(wasm.OpGlobalGet, global)
	e.i64(n)
	e.op(opI64Sub)
	e.index(wasm.OpGlobalSet, global)
}

// test leaves the function if the number on the stack is negative. The shift
// is what wazero compiles best before a branch to a block with many ways in.
func (e *emitter) test(depth int) {
	if e.inBody {
		depth++
	}
	e.i64(63)
	e.op(opI64ShrU, opI32WrapI64)
	e.index(wasm.OpBrIf, uint32(depth))
}

// testLeft leaves the function if all of the fuel is out.
func (e *emitter) testLeft(depth int) {
	e.left()
	e.test(depth)
}

// look pauses if the number on the stack is negative. What stands behind an
// else is compiled to where it is not in the way of the rest.
func (e *emitter) look() {
	e.i64(0)
	e.op(opI64GeS, wasm.OpIf, typeEmpty, wasm.OpElse)
	e.index(wasm.OpCall, e.pauser)
	e.op(wasm.OpEnd)
}

// lookAtFuel pauses if the fuel of this slice is out.
func (e *emitter) lookAtFuel() {
	e.index(wasm.OpGlobalGet, e.fuel)
	e.look()
}

// left is the fuel that is left, of this slice and of all to come.
func (e *emitter) left() {
	e.index(wasm.OpGlobalGet, e.fuel)
	e.index(wasm.OpGlobalGet, e.reserve)
	e.op(opI64Add)
}

// trapIf traps if the number on the stack is negative.
func (e *emitter) trapIf() {
	e.i64(0)
	e.op(opI64LtS, wasm.OpIf, typeEmpty, wasm.OpUnreachable, wasm.OpEnd)
}

// frame is a function as it is to be written.
type frame struct {
	locals  []byte // as they are declared
	body    []byte // without its end
	start   int    // where the body stands in the module
	end     blockType
	bytes   int64 // of the stack; 0: none
	long    bool  // it may pause at its beginning, although it calls nothing
	ends    bool  // there is a look at the fuel at its end
	wrapped bool
}

// blockType is the type of a block as it is written.
type blockType []byte

func (e *emitter) function(f *frame, p *plan) {
	e.inBody = false
	e.declare(f.locals, p.bulk)
	if f.wrapped {
		e.op(wasm.OpBlock, typeEmpty)
	}
	e.enter(f, p.sites[0].cost)
	if f.wrapped {
		e.b = append(append(e.b, wasm.OpBlock), f.end...)
	}
	e.inBody = true
	e.body(f, p.sites[1:])
	if f.wrapped {
		e.leave(f)
	}
	e.op(wasm.OpEnd)
}

// declare writes the locals, and one more if a number has to be kept.
func (e *emitter) declare(locals []byte, temp bool) {
	if !temp {
		e.b = append(e.b, locals...)
		return
	}
	n, k := binary.Uvarint(locals)
	e.b = binary.AppendUvarint(e.b, n+1)
	e.b = append(e.b, locals[k:]...)
	e.op(1, typeI32)
}

func (e *emitter) enter(f *frame, cost int64) {
	if cost > 0 {
		e.spend(e.fuel, cost)
	}
	switch {
	case f.bytes > 0:
		e.spend(e.stack, f.bytes)
		e.index(wasm.OpGlobalGet, e.stack)
		e.index(wasm.OpGlobalGet, e.fuel)
		e.op(opI64Or)
		e.look()
	case f.long:
		e.lookAtFuel()
	case cost > 0:
		e.left()
		e.trapIf()
	}
}

func (e *emitter) leave(f *frame) {
	e.inBody = false
	e.op(wasm.OpEnd)
	if f.bytes > 0 {
		e.index(wasm.OpGlobalGet, e.stack)
		e.i64(f.bytes)
		e.op(opI64Add)
		e.index(wasm.OpGlobalSet, e.stack)
	}
	if f.ends {
		e.testLeft(0)
	}
	e.op(wasm.OpReturn, wasm.OpEnd, wasm.OpUnreachable)
}

func (e *emitter) body(f *frame, sites []site) {
	at := 0
	for k := range sites {
		s := &sites[k]
		off := s.off - f.start
		e.b = append(e.b, f.body[at:off]...)
		at = off
		switch s.kind {
		case siteCharge:
			if s.cost > 0 {
				e.spend(e.fuel, s.cost)
				if s.test {
					e.lookAtFuel()
				}
			}
		case siteTest:
			e.testLeft(s.depth)
		case siteReturn:
			if f.wrapped {
				e.index(wasm.OpBr, uint32(s.depth))
				at = s.end - f.start
			}
		default:
			e.length(s)
		}
	}
	e.b = append(e.b, f.body[at:]...)
}

// length charges by the number on the stack, which stays there.
func (e *emitter) length(s *site) {
	e.index(wasm.OpLocalTee, e.temp)
	e.index(wasm.OpGlobalGet, e.fuel)
	e.index(wasm.OpLocalGet, e.temp)
	e.op(opI64ExtendI32)
	switch s.kind {
	case siteBytes:
		e.i64(bytesShift)
		e.op(opI64ShrU)
	case sitePages, siteGrowTo:
		e.i64(0)
		e.index(wasm.OpLocalGet, e.temp)
		e.i32(s.max)
		e.op(opI32LeU, wasm.OpSelect)
		if s.kind == sitePages {
			e.i64(PricePage)
			e.op(opI64Mul)
		}
	}
	e.op(opI64Sub)
	e.index(wasm.OpGlobalSet, e.fuel)
	e.lookAtFuel()
}

// pauseFunc writes the function that is called where the fuel of a slice, or
// the stack, is out. It traps if stack or all of the fuel is. Otherwise it
// gives out the next slice, and grows the memory by nothing, for which an engine
// goes to the host's own code and back.
func (e *emitter) pauseFunc(slice int64) {
	const left = 0 // a local
	e.b = append(e.b[:0], 1, 1, typeI64)
	e.left()
	e.index(wasm.OpLocalTee, left)
	e.index(wasm.OpGlobalGet, e.stack)
	e.op(opI64Or)
	e.trapIf()
	e.index(wasm.OpLocalGet, left)
	e.i64(slice)
	e.index(wasm.OpLocalGet, left)
	e.i64(slice)
	e.op(opI64LtS, wasm.OpSelect)
	e.index(wasm.OpGlobalSet, e.fuel)
	e.index(wasm.OpLocalGet, left)
	e.index(wasm.OpGlobalGet, e.fuel)
	e.op(opI64Sub)
	e.index(wasm.OpGlobalSet, e.reserve)
	// An engine that looks at its context does so at the heads of loops.
	e.op(wasm.OpLoop, typeEmpty)
	e.i32(0)
	e.op(wasm.OpMemoryGrow, 0, wasm.OpDrop, wasm.OpEnd, wasm.OpEnd)
}

// fillFunc writes the function FillExport.
func (e *emitter) fillFunc(fuel, stack int64) {
	e.b = append(e.b[:0], 0) // no locals
	first := slice(fuel)
	for _, g := range []struct {
		global uint32
		value  int64
	}{{e.fuel, first}, {e.reserve, fuel - first}, {e.stack, stack}} {
		e.i64(g.value)
		e.index(wasm.OpGlobalSet, g.global)
	}
	e.i32(0)
	e.op(wasm.OpEnd)
}

// leftFunc writes the function LeftExport.
func (e *emitter) leftFunc() {
	const most = 1<<31 - 1
	e.b = append(e.b[:0], 0) // no locals
	for _, c := range []struct {
		number func()
		gives  int32
	}{{func() { e.index(wasm.OpGlobalGet, e.stack) }, LeftNoStack}, {e.left, LeftNoFuel}} {
		c.number()
		e.i64(0)
		e.op(opI64LtS, wasm.OpIf, typeEmpty)
		e.i32(uint32(c.gives))
		e.op(wasm.OpReturn, wasm.OpEnd)
	}
	e.left()
	e.i64(most)
	e.left()
	e.i64(most)
	e.op(opI64LtS, wasm.OpSelect, opI32WrapI64, wasm.OpEnd)
}

// appendSigned appends a signed LEB128 number.
func appendSigned(b []byte, v int64) []byte {
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}
