package meter

import "github.com/dsh-agent/dsh/runtime/internal/wasm"

// The prices, in units of fuel. They are part of what a run's fuel means: a
// change of one changes the figures in the log.
const (
	PriceCall         = 20  // of a function of the module: its code may be in no cache
	PriceCallIndirect = 40  // of one through a table, which may be in none, too
	PriceHostCall     = 200 // of a function of the host, whatever it does: it may charge more

	PriceLoad        = 32  // a load may wait for memory that is in no cache
	PriceStore       = 4   // nothing waits for a store
	PriceBranchTable = 3   // br_table: the jump is often not foreseen
	PriceDivide      = 8   // integer divisions and remainders
	PriceFloat       = 8   // sums and products of floating-point numbers: those that are not normal take some processors 50 ns
	PriceRoot        = 16  // divisions and roots of them
	PriceTableAccess = 4   // table.get, table.set, table.size
	PriceReference   = 500 // ref.func: the engine is asked

	PriceBulk    = 40    // memory.fill, copy and init, table.fill, copy and init; and:
	BytesPerUnit = 2     // bytes of memory that they touch for one more unit; an entry of a table is one
	PriceGrow    = 500   // memory.grow and table.grow, even of nothing, and one for each entry of a table; and:
	PricePage    = 8_192 // each page of 64 KiB that memory may grow by
)

const (
	bytesShift      = 1      // log2 of BytesPerUnit
	maxMemoryPages  = 65_536 // what 32 bits can address
	maxTableEntries = wasm.MaxTableEntries
)

// price is what an instruction costs before its length, if it has one.
func (p *planner) price(i *wasm.Instr) int64 {
	switch i.Op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpElse, wasm.OpEnd, wasm.OpNop:
		return 0
	case wasm.OpCall:
		if p.imported(i) {
			return p.hostCall
		}
		return PriceCall
	case wasm.OpCallIndirect:
		if p.m.ImportsEscape {
			return PriceCallIndirect + p.hostCall
		}
		return PriceCallIndirect
	case wasm.OpBrTable:
		return PriceBranchTable
	case wasm.OpTableGet, wasm.OpTableSet, wasm.OpTableSize:
		return PriceTableAccess
	case wasm.OpRefFunc:
		return PriceReference
	case wasm.OpMemoryGrow, wasm.OpTableGrow:
		return PriceGrow
	case wasm.OpMemoryInit, wasm.OpMemoryCopy, wasm.OpMemoryFill,
		wasm.OpTableInit, wasm.OpTableCopy, wasm.OpTableFill:
		return PriceBulk
	}
	return numeric(i.Op)
}

// numeric is the price of an instruction on numbers.
func numeric(op int) int64 {
	switch op {
	case 0x6d, 0x6e, 0x6f, 0x70, 0x7f, 0x80, 0x81, 0x82: // i32 and i64 div, rem
		return PriceDivide
	case 0x91, 0x95, 0x9f, 0xa3: // f32 and f64 sqrt, div
		return PriceRoot
	case 0x92, 0x93, 0x94, 0xa0, 0xa1, 0xa2, 0xb6, 0xbb: // f32 and f64 add, sub, mul; from one to the other
		return PriceFloat
	}
	switch {
	case op >= wasm.OpI32Load && op <= opI64Load32U:
		return PriceLoad
	case op >= opI32Store && op <= wasm.OpI64Store32:
		return PriceStore
	}
	return 1
}
