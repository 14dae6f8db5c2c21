package wasm

import (
	"fmt"

	"github.com/dsh-agent/dsh/hostabi"
)

// codes reads the code section.
func (d *decoder) codes(r *reader) {
	m := d.m
	n := r.count(RuleFunctions, "functions", MaxFunctions, 2)
	if want := len(m.FuncTypes) - m.ImportedFuncs; r.err == nil && n != want {
		r.fail("it has the code of %d functions, and %d are declared", n, want)
		return
	}
	m.Code = make([]Func, 0, n)
	a := analysis{m: m}
	for _, g := range m.Globals {
		if g.Mutable {
			a.mutables++
		}
	}
	a.mutables += meterGlobals
	locals := uint64(0)
	for i := range n {
		size := r.u32()
		start := r.off
		r.take(size)
		if r.err != nil {
			return
		}
		f, err := a.function(m.ImportedFuncs+i, start, r.off)
		if err != nil {
			r.stop(err)
			return
		}
		if locals += uint64(f.Locals); locals > MaxLocalsTotal {
			r.stop(tooMany(RuleLocalsTotal, locals, MaxLocalsTotal, "locals in all its functions"))
			return
		}
		m.Code = append(m.Code, f)
	}
	m.compileTime = a.time
}

// compileLimit is how long the module may take to compile, in ns.
func (m *Module) compileLimit() int64 {
	return min(compileTimeMax, compileTimeBase+compileTimePerByte*int64(len(m.Bytes)))
}

// meterGlobals are the mutable globals that package meter adds.
const meterGlobals = 3

// analysis walks over the functions, one after the other.
type analysis struct {
	m        *Module
	mutables int   // the mutable globals
	time     int64 // that all functions take to compile, in ns
	slow     int   // the function that takes most of it
	slowest  int64 // and how much

	f       Func
	typ     hostabi.FuncType
	code    Code
	frames  []frame
	height  int // of the operand stack
	loops   int // around the instruction
	nesting int // the most of them
	effort  effort
}

// frame is a block around the instruction that is looked at.
type frame struct {
	op              int
	height          int // of the operand stack at its beginning, without its parameters
	params, results int
	dead            bool // what follows is behind a branch: its operands may be anything
	idle            bool // what follows is behind a block that is never left
	born            bool // it is itself in code that is run
	elsed           bool
	scope           scope
}

// function looks at the function of an index, whose code stands there.
func (a *analysis) function(index, start, end int) (Func, *Refusal) {
	a.f = Func{Start: start, End: end}
	a.typ = a.m.FuncType(index)
	a.code = Code{r: reader{b: a.m.Bytes[:end], off: start}, ops: a.m.ops}
	a.height, a.loops, a.nesting = 0, 0, 0
	a.whole()
	if err := a.code.r.err; err != nil {
		err.Func = index
		err.Name = a.m.FunctionName(index)
		if err.Rule == RuleFormat {
			err.text = fmt.Sprintf("is damaged: at byte %d: %s", a.code.r.off, err.text)
		}
		return a.f, err
	}
	if a.f.Calls > 0 {
		a.pause()
	}
	a.f.Slots = int(a.effort.slots()) + len(a.typ.Params) + a.f.Locals
	return a.f, a.judge(index)
}

// pause counts a place at which package meter lets the code pause, by a call.
func (a *analysis) pause() {
	a.effort.reloads += int64(a.mutables)
	a.effort.blocks++
}

// judge holds the functions so far to what they may take to compile.
func (a *analysis) judge(index int) *Refusal {
	t := a.effort.time(a.nesting)
	if a.time += t; t > a.slowest {
		a.slow, a.slowest = index, t
	}
	limit := a.m.compileLimit()
	space := a.effort.space()
	a.m.compileSpace = max(a.m.compileSpace, space)
	var err *Refusal
	switch {
	case a.time > limit:
		err = refuse(RuleCompileTime, "takes %d of more than %d ms that the module would take to compile, and one of %d bytes may take %d",
			a.slowest/1e6, a.time/1e6, len(a.m.Bytes), limit/1e6)
		err.Func, err.Have, err.Max = a.slow, uint64(a.time/1e6), uint64(limit/1e6)
	case space > compileSpaceMax:
		err = refuse(RuleCompileSpace, "would take about %d MiB to compile, and at most %d are allowed", space>>20, compileSpaceMax>>20)
		err.Func, err.Have, err.Max = index, uint64(space), compileSpaceMax
	default:
		return nil
	}
	err.Name = a.m.FunctionName(err.Func)
	return err
}

func (a *analysis) whole() {
	r := &a.code.r
	a.locals()
	if r.err != nil {
		return
	}
	a.f.Body = r.off
	if size := uint64(a.f.End - a.f.Body); size > MaxBodyBytes {
		r.stop(tooMany(RuleBody, size, MaxBodyBytes, "bytes in its body"))
		return
	}
	a.effort.reset(len(a.typ.Params) + a.f.Locals)
	a.frames = append(a.frames[:0], frame{op: OpBlock, results: len(a.typ.Results), born: true})
	var i Instr
	for len(a.frames) > 0 && a.code.Next(&i) {
		a.instruction(&i)
	}
	switch {
	case r.err != nil:
	case len(a.frames) > 0:
		r.fail("its body ends within a block")
	case !r.done():
		r.fail("its body goes on behind its end")
	}
}

func (a *analysis) locals() {
	r := &a.code.r
	n := uint64(0)
	for range r.count(RuleFormat, "declarations of locals", MaxBodyBytes, 2) {
		n += uint64(r.u32())
		r.valueType()
		if r.err != nil {
			return
		}
		if n > MaxLocals {
			r.stop(tooMany(RuleLocals, n, MaxLocals, "locals"))
			return
		}
	}
	a.f.Locals = int(n)
}

func (a *analysis) fail(format string, args ...any) { a.code.r.fail(format, args...) }

// top is the innermost block.
func (a *analysis) top() *frame { return &a.frames[len(a.frames)-1] }

// live reports whether the code that is looked at may be run.
func (a *analysis) live() bool { return a.top().live() }

func (f *frame) live() bool { return f.born && !f.dead && !f.idle }

func (a *analysis) pop(n int) {
	f := a.top()
	if a.height -= n; a.height >= f.height {
		return
	}
	if !f.dead {
		a.fail("an operand is missing")
	}
	a.height = f.height
}

func (a *analysis) push(n int) { a.height += n }

// unreachable marks what follows in the block as dead.
func (a *analysis) unreachable() {
	f := a.top()
	f.dead = true
	a.height = f.height
}

// branch finds the block that a branch goes to, and how many values go there.
func (a *analysis) branch(label uint32) int {
	if uint64(label) >= uint64(len(a.frames)) {
		a.fail("a branch out of %d blocks, and it is in %d", uint64(label)+1, len(a.frames))
		return 0
	}
	f := &a.frames[len(a.frames)-1-int(label)]
	values := f.results
	if f.op == OpLoop {
		values = f.params
	}
	if a.live() {
		a.effort.branch(&f.scope, values)
	}
	return values
}

// exists checks an index.
func (a *analysis) exists(what string, index uint32, n int) bool {
	if uint64(index) < uint64(n) {
		return true
	}
	a.fail("%s %d does not exist", what, index)
	return false
}

func (a *analysis) instruction(i *Instr) {
	op := a.code.op
	if !structural(i.Op) && a.live() {
		a.effort.instruction(i.Op)
	}
	a.pop(int(op.pop))
	switch i.Op {
	case OpBlock, OpLoop, OpIf:
		a.enter(i)
	case OpElse:
		a.otherwise()
	case OpEnd:
		a.leave()
	case OpBr:
		a.pop(a.branch(i.A))
		a.unreachable()
	case OpBrIf:
		a.branchIf(i.A)
	case OpBrTable:
		a.table(i)
	case OpReturn:
		a.pop(len(a.typ.Results))
		a.unreachable()
	case OpUnreachable:
		a.unreachable()
	case OpCall:
		if a.exists("function", i.A, len(a.m.FuncTypes)) {
			imported := int(i.A) < a.m.ImportedFuncs
			a.call(a.m.FuncTypes[i.A], !imported)
		}
	case OpCallIndirect:
		if a.exists("type", i.A, len(a.m.Types)) && a.exists("table", i.B, len(a.m.Tables)) {
			a.call(i.A, true)
		}
	case OpLocalGet, OpLocalSet, OpLocalTee:
		a.local(i)
		a.push(int(op.push))
	default:
		a.indices(i)
		a.push(int(op.push))
	}
}

// structural reports whether an instruction is only structure, of which no
// code is made.
func structural(op int) bool {
	switch op {
	case OpNop, OpBlock, OpLoop, OpElse, OpEnd:
		return true
	}
	return false
}

func (a *analysis) local(i *Instr) {
	if !a.exists("local", i.A, len(a.typ.Params)+a.f.Locals) || !a.live() {
		return
	}
	if i.Op == OpLocalGet {
		a.effort.get(i.A)
	} else {
		a.effort.set(i.A)
	}
}

// indices checks the indices of the instructions that are no control.
func (a *analysis) indices(i *Instr) {
	m := a.m
	if i.Op >= OpI32Load && i.Op <= OpMemoryGrow || i.Op >= OpMemoryInit && i.Op <= OpMemoryFill && i.Op != OpDataDrop {
		a.exists("memory", 0, len(m.Memories))
	}
	switch i.Op {
	case OpTableSet, OpTableFill, OpTableGrow, OpTableInit, OpTableCopy, OpElemDrop, OpDataDrop:
		m.Rearranges = true
	}
	switch i.Op {
	case OpGlobalGet, OpGlobalSet:
		a.exists("global", i.A, len(m.Globals))
	case OpTableGet, OpTableSet, OpTableSize, OpTableFill, OpTableGrow:
		a.exists("table", i.A, len(m.Tables))
	case OpRefFunc:
		a.exists("function", i.A, len(m.FuncTypes))
		m.ImportsEscape = m.ImportsEscape || int(i.A) < m.ImportedFuncs
	case OpMemoryInit, OpDataDrop:
		a.exists("data segment", i.A, max(0, m.dataCount))
	case OpTableInit:
		a.exists("element segment", i.A, m.Elements)
		a.exists("table", i.B, len(m.Tables))
	case OpElemDrop:
		a.exists("element segment", i.A, m.Elements)
	case OpTableCopy:
		a.exists("table", i.A, len(m.Tables))
		a.exists("table", i.B, len(m.Tables))
	}
}

func (a *analysis) call(typ uint32, local bool) {
	t := &a.m.Types[typ]
	a.pop(len(t.Params))
	if a.live() {
		imports := 0
		if !local {
			imports = len(a.m.Imports)
		}
		a.effort.call(t, a.mutables, imports)
	}
	a.push(len(t.Results))
	if local {
		a.f.Calls++
	}
}

// arity is how many values a block takes and gives.
func (a *analysis) arity(t BlockType) (params, results int) {
	switch {
	case t.Index >= 0:
		if a.exists("type", uint32(t.Index), len(a.m.Types)) {
			typ := &a.m.Types[t.Index]
			return len(typ.Params), len(typ.Results)
		}
	case t.Result != 0:
		return 0, 1
	}
	return 0, 0
}

func (a *analysis) enter(i *Instr) {
	params, results := a.arity(i.Block)
	a.pop(params)
	f := frame{op: i.Op, height: a.height, params: params, results: results, born: a.live()}
	if f.born {
		f.scope = a.effort.enter(i.Op, a.height, params+results)
	}
	a.frames = append(a.frames, f)
	depth := len(a.frames) - 1
	if depth > MaxNesting {
		a.code.r.stop(tooMany(RuleNesting, uint64(depth), MaxNesting, "blocks within each other"))
	}
	a.push(params)
	if i.Op == OpLoop {
		a.f.Loops++
		if f.born {
			a.pause()
		}
		a.loops++
		a.nesting = max(a.nesting, a.loops)
	}
}

func (a *analysis) otherwise() {
	f := a.top()
	if f.op != OpIf || f.elsed {
		a.fail("an else without an if")
	}
	if f.born {
		a.effort.otherwise(&f.scope, f.live())
	}
	a.pop(f.results)
	if a.height != f.height {
		a.fail("%d operands are left over in a block", a.height-f.height)
	}
	f.elsed, f.dead, f.idle = true, false, false
	a.push(f.params)
}

func (a *analysis) leave() {
	f := *a.top()
	a.pop(f.results)
	open := f.op == OpIf && !f.elsed
	switch {
	case a.height != f.height:
		a.fail("%d operands are left over in a block", a.height-f.height)
	case open && f.params != f.results:
		a.fail("an if without an else that gives other values than it takes")
	}
	switch {
	case f.op == OpLoop:
		a.loops--
		if f.born {
			a.effort.leaveLoop(&f.scope)
		}
	case f.born:
		a.effort.leave(&f.scope, f.live(), open, f.results)
	}
	if a.frames = a.frames[:len(a.frames)-1]; len(a.frames) == 0 {
		return
	}
	if f.born && !f.live() && !open && (f.op == OpLoop || f.scope.edges == 0) {
		a.top().idle = true
	}
	a.push(f.results)
}

func (a *analysis) branchIf(label uint32) {
	n := a.branch(label)
	a.pop(n)
	a.push(n)
	if a.live() {
		a.effort.addBlocks(1, a.height)
		a.effort.path++
	}
}

func (a *analysis) table(i *Instr) {
	r := reader{b: a.code.r.b, off: i.Targets}
	arity := -1
	for range i.A + 1 {
		n := a.branch(r.u32())
		if arity >= 0 && n != arity {
			a.fail("a br_table whose targets take %d and %d values", arity, n)
		}
		arity = n
	}
	if a.live() {
		a.effort.targets += int64(i.A) + 1
	}
	a.pop(arity)
	a.unreachable()
}
