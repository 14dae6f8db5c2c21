package meter

import (
	"encoding/binary"
	"fmt"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// The names under which a rewritten module exports its globals, each a mutable
// i64.
const (
	FuelExport    = wasm.ReservedPrefix + "fuel"
	StackExport   = wasm.ReservedPrefix + "stack"
	ReserveExport = wasm.ReservedPrefix + "reserve"
)

// The names of the functions that Options.Functions adds, of type () -> i32.
const (
	// FillExport sets fuel and stack to what a fresh instance has, and gives 0.
	FillExport = wasm.ReservedPrefix + "fill"
	// LeftExport gives the fuel that is left, as far as 31 bits can tell; or
	// LeftNoFuel or LeftNoStack, where a call was stopped by a limit.
	LeftExport = wasm.ReservedPrefix + "left"

	LeftNoFuel  = -1
	LeftNoStack = -2
)

// Options are the grants of a module. The zero value lowers nothing, and gives
// no fuel: the host fills the [Tank].
type Options struct {
	// MemoryPages is the most that memory may grow to, in pages of 64 KiB; 0:
	// what the module says.
	MemoryPages uint32

	// KeepMemoryMax leaves the most that the module says of its memory: an
	// engine's allocator holds it to MemoryPages, and sees what it refuses.
	// What would be refused is not charged.
	KeepMemoryMax bool

	// HostCall is the price of a call of the host; 0: PriceHostCall.
	HostCall int64

	// Fuel and Stack are what the globals hold in a fresh instance.
	Fuel, Stack int64

	// Slice is the fuel after which code pauses; 0: SliceFuel.
	Slice int64

	// Functions adds two exported functions that do what a [Tank] does, for a
	// host whose library hides an instance's globals: FillExport and LeftExport.
	Functions bool
}

// Rewrite writes the limits into a module. The module is not changed, and its
// bytes are not kept. The result is valid if the module was: a module whose
// types do not fit is refused by the engine, rewritten or not.
//
// The error is one of a module that exports one of the host's names.
func Rewrite(m *wasm.Module, o Options) ([]byte, error) {
	for _, name := range []string{FuelExport, StackExport, ReserveExport, FillExport, LeftExport} {
		if _, ok := m.Exported(name); ok {
			return nil, fmt.Errorf("the module exports %q, which is the host's name", name)
		}
	}
	w := newRewriter(m, o)
	code := w.codes()
	w.out = append(make([]byte, 0, len(m.Bytes)+len(code)-len(m.Bytes)/8+1024), m.Bytes[:8]...)
	added := w.needed()
	for _, s := range m.Sections {
		contents := m.Bytes[s.Start:s.End]
		if s.ID == wasm.SectionCustom {
			if s.Name == "name" || s.Name == hostabi.ManifestSection {
				w.section(s.ID, contents)
			}
			continue
		}
		for len(added) > 0 && wasm.Order(added[0]) <= wasm.Order(s.ID) {
			if added[0] != s.ID {
				w.content(added[0], []byte{0}, code)
			}
			added = added[1:]
		}
		w.content(s.ID, contents, code)
	}
	for _, id := range added {
		w.content(id, []byte{0}, code)
	}
	return w.out, nil
}

// needed are the sections that there have to be, in their order.
func (w *rewriter) needed() []byte {
	var ids []byte
	if len(w.added) > 0 {
		ids = append(ids, wasm.SectionType, wasm.SectionFunction)
	}
	if w.memory {
		ids = append(ids, wasm.SectionMemory)
	}
	ids = append(ids, wasm.SectionGlobal, wasm.SectionExport)
	if len(w.added) > 0 {
		ids = append(ids, wasm.SectionCode)
	}
	return ids
}

type rewriter struct {
	m      *wasm.Module
	o      Options
	out    []byte
	types  []hostabi.FuncType // that are added
	known  map[string]int     // them, by their results
	ends   []bool             // of each function: it is exported
	added  []addedFunc
	memory bool // one is added, of no pages: the code cannot pause without

	exports []addedExport
	p       planner
	e       emitter
}

func newRewriter(m *wasm.Module, o Options) *rewriter {
	if o.HostCall == 0 {
		o.HostCall = PriceHostCall
	}
	if o.Slice == 0 {
		o.Slice = SliceFuel
	}
	w := &rewriter{m: m, o: o, ends: make([]bool, len(m.FuncTypes)), known: map[string]int{}}
	for _, e := range m.Exports {
		if e.Kind == hostabi.ExternFunc {
			w.ends[e.Index] = true
		}
	}
	w.p = planner{m: m, hostCall: o.HostCall, pages: maxMemoryPages}
	for _, memory := range m.Memories {
		w.p.pages = w.pages(memory).Max
	}
	for _, t := range m.Tables {
		w.p.entries = append(w.p.entries, entries(t.Limits).Max)
	}
	w.e.fuel = uint32(len(m.Globals))
	w.e.stack = w.e.fuel + 1
	w.e.reserve = w.e.fuel + 2
	w.exports = []addedExport{
		{FuelExport, hostabi.ExternGlobal, w.e.fuel},
		{StackExport, hostabi.ExternGlobal, w.e.stack},
		{ReserveExport, hostabi.ExternGlobal, w.e.reserve},
	}
	w.functions()
	return w
}

// functions says which functions are added.
func (w *rewriter) functions() {
	add := func(results []hostabi.ValueType, write func()) uint32 {
		w.added = append(w.added, addedFunc{w.typeOf(results), write})
		return uint32(len(w.m.FuncTypes) + len(w.added) - 1)
	}
	if w.o.Functions {
		i32 := []hostabi.ValueType{hostabi.ValueI32}
		fill := add(i32, func() { w.e.fillFunc(w.o.Fuel, w.o.Stack) })
		left := add(i32, w.e.leftFunc)
		w.exports = append(w.exports, addedExport{FillExport, hostabi.ExternFunc, fill}, addedExport{LeftExport, hostabi.ExternFunc, left})
	}
	if len(w.m.Code) > 0 {
		w.e.pauser = add(nil, func() { w.e.pauseFunc(w.o.Slice) })
		w.memory = len(w.m.Memories) == 0
	}
}

// addedFunc is a function that is added: its type and what writes its code.
type addedFunc struct {
	typ   int
	write func()
}

// pages are the limits of a memory within the grant.
func (w *rewriter) pages(l wasm.Limits) wasm.Limits {
	if !l.HasMax {
		l.Max, l.HasMax = maxMemoryPages, true
	}
	if w.o.MemoryPages > 0 {
		l.Max = max(l.Min, min(l.Max, w.o.MemoryPages))
	}
	return l
}

// declared are the limits that a memory is given.
func (w *rewriter) declared(l wasm.Limits) wasm.Limits {
	if w.o.KeepMemoryMax && l.HasMax {
		return l
	}
	if w.o.KeepMemoryMax {
		l.Max, l.HasMax = maxMemoryPages, true
		return l
	}
	return w.pages(l)
}

// entries are the limits of a table.
func entries(l wasm.Limits) wasm.Limits {
	if !l.HasMax {
		l.Max, l.HasMax = maxTableEntries, true
	}
	l.Max = max(l.Min, min(l.Max, maxTableEntries))
	return l
}

// section appends a section.
func (w *rewriter) section(id byte, contents ...[]byte) {
	size := 0
	for _, c := range contents {
		size += len(c)
	}
	w.out = binary.AppendUvarint(append(w.out, id), uint64(size))
	for _, c := range contents {
		w.out = append(w.out, c...)
	}
}

// content appends a section that is not custom, with what is added to it.
func (w *rewriter) content(id byte, contents, code []byte) {
	switch id {
	case wasm.SectionType:
		w.section(id, more(contents, len(w.types)), w.addedTypes())
	case wasm.SectionTable:
		w.section(id, w.tables())
	case wasm.SectionMemory:
		w.section(id, w.memories())
	case wasm.SectionGlobal:
		first := slice(w.o.Fuel)
		w.section(id, more(contents, 3), global(first), global(w.o.Stack), global(w.o.Fuel-first))
	case wasm.SectionFunction:
		w.section(id, more(contents, len(w.added)), w.functionTypes())
	case wasm.SectionExport:
		w.section(id, more(contents, len(w.exports)), w.exported())
	case wasm.SectionCode:
		w.section(id, code)
	case wasm.SectionData:
		if j := joined(w.m, contents); j != nil {
			contents = j
		}
		w.section(id, contents)
	default:
		w.section(id, contents)
	}
}

// more is a vector of n more elements, which are to be appended.
func more(vector []byte, n int) []byte {
	if n == 0 {
		return vector
	}
	old, k := binary.Uvarint(vector)
	return append(binary.AppendUvarint(nil, old+uint64(n)), vector[k:]...)
}

func global(v int64) []byte {
	return append(appendSigned([]byte{typeI64, 1, wasm.OpI64Const}, v), wasm.OpEnd)
}

// addedExport is an export that is added.
type addedExport struct {
	name  string
	kind  hostabi.ExternKind
	index uint32
}

func (w *rewriter) exported() (b []byte) {
	for _, e := range w.exports {
		b = append(binary.AppendUvarint(b, uint64(len(e.name))), e.name...)
		b = binary.AppendUvarint(append(b, byte(e.kind)), uint64(e.index))
	}
	return b
}

// functionTypes are the types of the functions that are added.
func (w *rewriter) functionTypes() (b []byte) {
	for _, f := range w.added {
		b = binary.AppendUvarint(b, uint64(f.typ))
	}
	return b
}

func (w *rewriter) addedTypes() (b []byte) {
	for _, t := range w.types {
		b = append(b, 0x60, 0)
		b = binary.AppendUvarint(b, uint64(len(t.Results)))
		for _, v := range t.Results {
			b = append(b, byte(v))
		}
	}
	return b
}

// tables are the tables that the module defines, with their new limits.
func (w *rewriter) tables() []byte {
	own := w.m.Tables[w.m.ImportedTables:]
	b := binary.AppendUvarint(nil, uint64(len(own)))
	for _, t := range own {
		b = appendLimits(append(b, byte(t.Type)), entries(t.Limits))
	}
	return b
}

// memories is the memory that the module defines.
func (w *rewriter) memories() []byte {
	own := w.m.Memories[w.m.ImportedMemories:]
	if w.memory {
		return []byte{1, 1, 0, 0}
	}
	b := binary.AppendUvarint(nil, uint64(len(own)))
	for _, l := range own {
		b = appendLimits(b, w.declared(l))
	}
	return b
}

func appendLimits(b []byte, l wasm.Limits) []byte {
	b = binary.AppendUvarint(append(b, 1), uint64(l.Min))
	return binary.AppendUvarint(b, uint64(l.Max))
}

// codes is the code section.
func (w *rewriter) codes() []byte {
	n := len(w.m.Code) + len(w.added)
	out := make([]byte, 0, w.codeBytes())
	out = binary.AppendUvarint(out, uint64(n))
	add := func() {
		out = binary.AppendUvarint(out, uint64(len(w.e.b)))
		out = append(out, w.e.b...)
	}
	for i := range w.m.Code {
		w.function(i)
		add()
	}
	for _, f := range w.added {
		f.write()
		add()
	}
	return out
}

// codeBytes guesses the size of the code: it grows by about a half.
func (w *rewriter) codeBytes() int {
	n := 0
	for i := range w.m.Code {
		n += w.m.Code[i].End - w.m.Code[i].Start
	}
	return n + n/2 + 64
}

func (w *rewriter) function(i int) {
	f := &w.m.Code[i]
	index := w.m.ImportedFuncs + i
	typ := w.m.FuncType(index)
	w.p.function(f)
	w.e.b = w.e.b[:0]
	w.e.temp = uint32(len(typ.Params) + f.Locals)
	out := frame{
		locals: w.m.Bytes[f.Start:f.Body],
		body:   w.m.Bytes[f.Body : f.End-1],
		start:  f.Body,
		ends:   w.ends[index],
		long:   f.End-f.Body > longBody,
	}
	if f.Calls > 0 {
		out.bytes = FrameBytes(f)
	}
	if out.wrapped = out.ends || out.bytes > 0 || w.p.tests; out.wrapped {
		out.end = w.blockType(typ.Results)
	}
	w.e.function(&out, &w.p.plan)
}

// blockType is the type of a block without parameters that gives results. One
// with several results needs a type of the module's.
func (w *rewriter) blockType(results []hostabi.ValueType) blockType {
	switch len(results) {
	case 0:
		return blockType{typeEmpty}
	case 1:
		return blockType{byte(results[0])}
	}
	return appendSigned(nil, int64(w.typeOf(results)))
}

// typeOf is the index of a type without parameters that gives results, which
// is added where it has not been yet.
func (w *rewriter) typeOf(results []hostabi.ValueType) int {
	key := make([]byte, len(results))
	for i, v := range results {
		key[i] = byte(v)
	}
	k, ok := w.known[string(key)]
	if !ok {
		k = len(w.types)
		w.known[string(key)] = k
		w.types = append(w.types, hostabi.FuncType{Results: results})
	}
	return len(w.m.Types) + k
}

// longBody is the size above which a function without calls pauses, in bytes.
// Those up to it are gone through before their caller gets to a place where it
// does: 40,000 of them at most.
const longBody = 200

// frameOverhead is what a call keeps besides values, in bytes: addresses,
// registers, and what lies between. wazero 1.12 keeps 80 to 272 on amd64.
const frameOverhead = 288

// FrameBytes is what a function that calls others is charged of the stack. It
// is no less than what wazero's compiler uses on amd64, over 18,000 functions
// of real, random and hostile modules: 1.2 times at least, 16 times in the
// middle, since real code keeps most of its values in registers.
func FrameBytes(f *wasm.Func) int64 { return 8*int64(f.Slots) + frameOverhead }
