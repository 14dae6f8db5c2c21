package meter

import (
	"encoding/binary"

	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// siteKind says what is written at a place in a function.
type siteKind uint8

const (
	siteCharge siteKind = iota // a run begins: its cost
	siteTest                   // a look at the fuel
	siteReturn                 // a return, which becomes a branch to the function's end
	siteBytes                  // an instruction that touches as many bytes as its last operand says
	siteItems                  // the same, of entries of a table
	sitePages                  // memory.grow
	siteGrowTo                 // table.grow
)

// site is a place in a function at which code is written.
type site struct {
	kind  siteKind
	test  bool   // of a charge: look at the fuel, too
	off   int    // before the instruction that stands there
	end   int    // of a return: behind it
	depth int    // the blocks around it, in the function
	cost  int64  // of a charge
	max   uint32 // of a growth: what is more than this cannot succeed, and is not charged
}

// plan is what is to be written into one function. The first site is the
// charge at its beginning.
type plan struct {
	sites []site
	tests bool // there are calls of the host
	bulk  bool // there are instructions whose last operand is needed
}

// planner makes plans.
type planner struct {
	m        *wasm.Module
	hostCall int64
	pages    uint32 // what memory may grow to
	entries  []uint32

	plan
	blocks []block
	run    int // the site of the run that the code belongs to; dead: it is not run
	calls  int // since the last place where the code pauses, in the order of the code
}

const dead = -1

// callsAtOnce is how many calls stand one behind the other at most until the
// code looks whether to pause: a short function that calls nothing does not.
const callsAtOnce = 64

// block is a block around the code.
type block struct {
	op      int
	dead    bool // it begins in code that is not run
	entered bool // its end is branched to, or the code before its else goes there
}

// function plans a function.
func (p *planner) function(f *wasm.Func) {
	p.sites, p.tests, p.bulk = p.sites[:0], false, false
	p.blocks = append(p.blocks[:0], block{op: wasm.OpBlock})
	p.run, p.calls = dead, 0
	p.begin(f.Body, false)
	code := p.m.Walk(f)
	var i wasm.Instr
	for code.Next(&i) {
		p.instruction(&i)
	}
}

// begin begins a run.
func (p *planner) begin(off int, test bool) {
	p.run = len(p.sites)
	if test {
		p.calls = 0
	}
	p.sites = append(p.sites, site{kind: siteCharge, off: off, depth: len(p.blocks) - 1, test: test})
}

// add adds a site that belongs to the run.
func (p *planner) add(s site) {
	s.depth = len(p.blocks) - 1
	p.sites = append(p.sites, s)
}

func (p *planner) live() bool { return p.run != dead }

func (p *planner) imported(i *wasm.Instr) bool { return int(i.A) < p.m.ImportedFuncs }

func (p *planner) instruction(i *wasm.Instr) {
	if p.live() {
		p.sites[p.run].cost += p.price(i)
	}
	switch i.Op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
		p.blocks = append(p.blocks, block{op: i.Op, dead: !p.live()})
		if p.live() && i.Op != wasm.OpBlock {
			p.begin(i.End, i.Op == wasm.OpLoop)
		}
	case wasm.OpElse:
		b := &p.blocks[len(p.blocks)-1]
		b.op = wasm.OpElse
		b.entered = b.entered || p.live()
		if !b.dead {
			p.begin(i.End, false)
		}
	case wasm.OpEnd:
		p.end(i)
	case wasm.OpBr:
		p.branch(i.A)
		p.run = dead
	case wasm.OpBrIf:
		p.branch(i.A)
		if p.live() {
			p.begin(i.End, false)
		}
	case wasm.OpBrTable:
		p.table(i)
		p.run = dead
	case wasm.OpReturn:
		if p.live() {
			p.add(site{kind: siteReturn, off: i.Start, end: i.End})
		}
		p.run = dead
	case wasm.OpUnreachable:
		p.run = dead
	default:
		if p.live() {
			p.effect(i)
			p.called(i)
		}
	}
}

// called counts a call.
func (p *planner) called(i *wasm.Instr) {
	if i.Op != wasm.OpCall && i.Op != wasm.OpCallIndirect {
		return
	}
	if p.calls++; p.calls >= callsAtOnce {
		p.begin(i.End, true)
	}
}

// end is the end of a block. Behind it a run begins if code comes there from
// several places. Otherwise the run before it goes on, if there is one.
func (p *planner) end(i *wasm.Instr) {
	last := len(p.blocks) - 1
	b := p.blocks[last]
	p.blocks = p.blocks[:last]
	switch {
	case b.dead || last == 0 || b.op == wasm.OpLoop:
	case b.op == wasm.OpIf || b.entered:
		p.begin(i.End, false)
	}
}

func (p *planner) branch(label uint32) {
	if p.live() {
		p.blocks[len(p.blocks)-1-int(label)].entered = true
	}
}

func (p *planner) table(i *wasm.Instr) {
	off := i.Targets
	for range i.A + 1 {
		label, n := binary.Uvarint(p.m.Bytes[off:])
		off += n
		p.branch(uint32(label))
	}
}

// effect adds sites for what reaches the host, and for what works by a number.
func (p *planner) effect(i *wasm.Instr) {
	s := site{off: i.Start}
	switch i.Op {
	case wasm.OpCall:
		if !p.imported(i) {
			return
		}
		s.kind = siteTest
	case wasm.OpCallIndirect:
		if !p.m.ImportsEscape {
			return
		}
		s.kind = siteTest
	case wasm.OpMemoryGrow:
		s.kind, s.max = sitePages, p.pages
	case wasm.OpTableGrow:
		s.kind, s.max = siteGrowTo, p.entries[i.A]
	case wasm.OpMemoryInit, wasm.OpMemoryCopy, wasm.OpMemoryFill:
		s.kind = siteBytes
	case wasm.OpTableInit, wasm.OpTableCopy, wasm.OpTableFill:
		s.kind = siteItems
	default:
		return
	}
	p.tests = p.tests || s.kind == siteTest
	p.bulk = p.bulk || s.kind != siteTest
	p.add(s)
}
