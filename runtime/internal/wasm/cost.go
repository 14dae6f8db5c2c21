package wasm

import "github.com/dsh-agent/dsh/hostabi"

// What it takes to compile a module is judged before an engine is asked,
// since an engine cannot be stopped. The judgement follows what wazero's
// compiler does, of which some things grow faster than the code:
//
//   - it looks for a block's dominators along all blocks before it: blocks ×
//     edges (40 KiB of empty blocks: 2 s)
//   - it looks for a local's value along all blocks since the last merge
//     (120 KiB of br_if: 30 s)
//   - it passes each value that is merged along each edge, and goes over all
//     of a block's values for each of them, again for each loop around it
//     (9 KB of loops around 900 locals: 9 s; a br_table of 1,000 targets to a
//     loop with 900 locals: 1.2 s and 340 MiB)
//   - it keeps which values live at each block, and which addresses are in
//     bounds (120 KiB of loads and br_if: 10 s and 1.1 GiB)
//   - it reads all mutable globals after each call (9 KB of calls with 1,000
//     globals: 360 ms and 320 MiB), and package meter adds a call to each loop
//     and to the beginning of a function
//
// The figures are processor time, measured with wazero 1.12.0 on an x86-64
// server, and so are the weights. Over 40 real modules (Go, TinyGo, Rust, C,
// Zig, AssemblyScript, SQLite) the judgement is 1.5 to 4 times the measured
// time; over modules that are made to be slow it is 0.9 to 4 times.

// The limits of that judgement. A module is given time in proportion to its
// size, so that a small one is refused early: the slowest of the real ones,
// SQLite, is judged at two thirds of that.
const (
	compileTimeBase    = 400e6 // ns
	compileTimePerByte = 3_000 // ns
	compileTimeMax     = 14e9  // ns; a Go module of 8 MiB is judged at 12 s
	compileSpaceMax    = MaxCompileSpace
)

// effort counts what makes one function slow or big to compile. Dead code is
// not counted: it is not compiled.
type effort struct {
	instructions int64
	accesses     int64 // of memory, each with a check of its bounds
	calls        int64
	values       int64 // that calls, branches and blocks take and give
	reloads      int64 // of mutable globals after a call
	indirects    int64
	traps        int64 // instructions with a check that leaves the code: divisions, truncations
	fills        int64
	copies       int64
	tables       int64
	exits        int64 // instructions that ask the engine: growing, references to functions

	blocks    int64 // basic blocks, without the ways out of br_tables
	targets   int64 // the ways out of br_tables
	edges     int64 // into blocks with several
	merged    int64 // values that come together in a block
	passed    int64 // the same, for each edge
	squares   int64 // edges × values²
	walks     int64 // blocks on the way from a use of a local to the last merge
	edgeWalks int64 // the same, from an edge
	heights   int64 // operands that live at the blocks
	bounds    int64 // addresses that are in bounds at the blocks

	path    int64 // blocks since the last merge
	inBound int64 // addresses that are in bounds here
	sets    int64
	gets    int64
	seen    []byte // of each local: seenSet, seenGet
	setters int64  // locals that are set
	getters int64  // locals that are read
}

const (
	seenSet = 1 << iota
	seenGet
)

// scope is what effort remembers of a block around the code.
type scope struct {
	path    int64 // at its beginning
	exit    int64 // the longest one at an edge to its end
	inBound int64 // at its beginning
	least   int64 // the least at an edge to its end
	edges   int64 // to its label
	sets    int64 // before it
	gets    int64
}

func (e *effort) reset(locals int) {
	seen := e.seen
	if cap(seen) < locals {
		seen = make([]byte, locals)
	}
	seen = seen[:locals]
	clear(seen)
	*e = effort{seen: seen}
}

// addBlocks counts blocks at which so many operands live.
func (e *effort) addBlocks(n int64, height int) {
	e.blocks += n
	e.heights += n * int64(height)
	e.bounds += n * e.inBound
}

func (e *effort) enter(op, height, values int) scope {
	s := scope{path: e.path, inBound: e.inBound, least: e.inBound, sets: e.sets, gets: e.gets}
	e.values += int64(values)
	switch op {
	case OpBlock:
		e.addBlocks(1, height)
	case OpLoop:
		e.addBlocks(2, height)
		e.path = 0
	case OpIf:
		e.addBlocks(3, height)
		e.path++
	}
	return s
}

// branch counts a branch to a block's label.
func (e *effort) branch(s *scope, values int) {
	e.edge(s)
	e.values += int64(values)
}

func (e *effort) edge(s *scope) {
	if s.edges == 0 {
		s.least = e.inBound
	}
	s.edges++
	s.exit = max(s.exit, e.path)
	s.least = min(s.least, e.inBound)
	e.edgeWalks += e.path
}

// otherwise is an else; live says whether the code before it ends there.
func (e *effort) otherwise(s *scope, live bool) {
	if live {
		e.edge(s)
	}
	e.path = s.path + 1
	e.inBound = s.inBound
}

// leaveLoop is the end of a loop: its edges go to its beginning.
func (e *effort) leaveLoop(s *scope) {
	e.path++
	if s.edges == 0 {
		return
	}
	edges := s.edges + 1
	changed := min(e.sets-s.sets, e.setters)
	looked := min(e.gets-s.gets+e.sets-s.sets, int64(len(e.seen)))
	e.edges += edges
	e.merged += changed
	e.passed += edges * changed
	e.squares += edges * looked * looked
}

// leave is the end of a block or an if: live says whether the code before it
// ends there, open whether it is an if without else.
func (e *effort) leave(s *scope, live, open bool, results int) {
	if live {
		e.edge(s)
	}
	if open {
		s.edges++
		s.least = min(s.least, s.inBound)
	}
	if s.edges < 2 {
		e.path = max(s.exit, s.path) + 1
		e.inBound = s.least
		return
	}
	n := min(e.sets-s.sets, e.setters) + int64(results)
	e.edges += s.edges
	e.merged += n
	e.passed += s.edges * n
	e.squares += s.edges * n * n
	e.path, e.inBound = 0, s.least
}

func (e *effort) get(local uint32) {
	e.gets++
	e.walks += e.path
	if e.seen[local]&seenGet == 0 {
		e.getters++
	}
	e.seen[local] |= seenGet
}

func (e *effort) set(local uint32) {
	e.sets++
	if e.seen[local]&seenSet == 0 {
		e.setters++
	}
	e.seen[local] |= seenSet
}

// call counts a call in a module with so many mutable globals; imports is how
// many imports are gone through to find the function.
func (e *effort) call(t *hostabi.FuncType, globals, imports int) {
	e.calls++
	e.values += int64(len(t.Params) + len(t.Results))
	e.reloads += int64(globals) + int64(imports)/128
}

func (e *effort) instruction(op int) {
	e.instructions++
	switch {
	case op >= OpI32Load && op <= OpI64Store32:
		e.accesses++
		e.inBound++
	case traps(op):
		e.traps++
	}
	switch op {
	case OpCallIndirect:
		e.indirects++
	case OpMemoryFill, OpTableFill:
		e.fills++
		e.addBlocks(4, 0)
	case OpMemoryCopy, OpMemoryInit, OpTableCopy, OpTableInit:
		e.copies++
	case OpMemoryGrow, OpTableGrow, OpRefFunc:
		e.exits++
	case OpTableGet, OpTableSet, OpTableSize, OpDataDrop, OpElemDrop:
		e.tables++
	}
}

// traps reports whether an instruction on numbers may trap: the divisions, and
// the truncations that do not saturate.
func traps(op int) bool {
	return op >= 0x6d && op <= 0x70 || op >= 0x7f && op <= 0x82 ||
		op >= 0xa8 && op <= 0xab || op >= 0xae && op <= 0xb1
}

// live is how many values live at all blocks together.
func (e *effort) live() int64 { return (e.blocks+e.targets)*e.getters + e.heights }

// time is how long the function takes to compile, in ns.
func (e *effort) time(loopNesting int) int64 {
	linear := 15_000 + e.instructions*900 + e.accesses*3_500 + e.calls*2_500 + e.values*500 +
		e.reloads*700 + e.indirects*25_000 + e.traps*13_000 + e.fills*30_000 + e.copies*40_000 +
		e.tables*8_000 + e.exits*4_000 + e.blocks*1_000 + e.targets*8_000 + e.passed*1_500
	searched := e.walks*14 + e.edgeWalks*e.getters*10 + e.edges*e.getters*20
	crossed := 5*(e.blocks+e.targets)*e.blocks + e.squares*int64(1+loopNesting)
	return linear + searched + crossed + e.live()*400 + e.bounds*120
}

// space is the memory that the compiler needs for the function, in bytes.
func (e *effort) space() int64 {
	return e.instructions*250 + e.calls*600 + e.indirects*5_500 + e.traps*3_000 + e.fills*22_000 + e.copies*8_000 +
		e.reloads*170 + e.values*220 + e.passed*370 + e.live()*60 + e.bounds*24 +
		e.blocks*1_000 + e.targets*2_300
}

// slots is an upper bound of the values that are on the stack while the
// function calls another: wazero gives each value that it cannot keep in a
// register a place of its own, which no other value takes over.
func (e *effort) slots() int64 {
	return e.instructions + e.accesses + e.values + e.merged + 2*(e.calls+e.edges)
}
