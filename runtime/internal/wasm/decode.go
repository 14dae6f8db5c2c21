package wasm

import (
	"bytes"
	"fmt"

	"github.com/dsh-agent/dsh/hostabi"
)

// Decode parses a module and holds it to the limits. The module that it
// returns has only known instructions and only indices that exist; whether
// the types of its code fit is left to the engine that compiles it. The error
// is a *[Refusal].
//
// It takes time and memory in proportion to the bytes, whatever they are.
func Decode(b []byte) (*Module, error) {
	m, err := decode(b)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func decode(b []byte) (*Module, *Refusal) {
	if len(b) > MaxModuleBytes {
		return nil, tooMany(RuleModuleBytes, uint64(len(b)), MaxModuleBytes, "bytes")
	}
	if !bytes.HasPrefix(b, []byte("\x00asm\x01\x00\x00\x00")) {
		return nil, refuse(RuleFormat, "is no core WebAssembly module of version 1")
	}
	d := &decoder{m: &Module{Bytes: b, Start: -1, dataCount: -1, ops: opcodes()}}
	r := reader{b: b, off: 8}
	for !r.done() {
		if err := d.section(&r); err != nil {
			d.name(err, r)
			return nil, err
		}
	}
	if err := d.whole(); err != nil {
		return nil, err
	}
	if err := d.names(); err != nil {
		return nil, err
	}
	return d.m, nil
}

// decoder collects what the sections say.
type decoder struct {
	m    *Module
	last int // the order of the section that was read last
}

// Order is the order in which sections stand: data count is between elements
// and code.
func Order(id byte) int {
	if id == SectionDataCount {
		return 2*SectionElement + 1
	}
	return 2 * int(id)
}

func (d *decoder) section(r *reader) *Refusal {
	at := r.off
	id := r.byte()
	size := r.u32()
	r.take(size)
	if r.err != nil {
		return damaged(r.err, "section %d at byte %d", id, at)
	}
	if len(d.m.Sections) >= MaxSections {
		return tooMany(RuleFormat, MaxSections+1, MaxSections, "sections")
	}
	s := Section{ID: id, Start: r.off - int(size), End: r.off}
	in := &reader{b: d.m.Bytes[:s.End], off: s.Start}
	switch {
	case id == SectionCustom:
		d.custom(in, &s)
	case id == 13:
		in.stop(unsupported("exceptions", "a section of tags"))
	case id > SectionDataCount:
		in.fail("the section's id is unknown")
	case Order(id) <= d.last:
		in.fail("the section is out of order, or the second of its kind")
	default:
		d.last = Order(id)
		d.content(id, in)
		_ = in.end() // kept in in.err
	}
	d.m.Sections = append(d.m.Sections, s)
	if in.err != nil {
		return damaged(in.err, "section %d at byte %d", id, at)
	}
	return nil
}

// damaged says where a module is not well-formed. Other refusals speak for
// themselves.
func damaged(err *Refusal, format string, args ...any) *Refusal {
	if err.Rule == RuleFormat && err.Func < 0 {
		err.text = fmt.Sprintf("is damaged: %s: %s", fmt.Sprintf(format, args...), err.text)
	}
	return err
}

func (d *decoder) content(id byte, r *reader) {
	switch id {
	case SectionType:
		d.types(r)
	case SectionImport:
		d.imports(r)
	case SectionFunction:
		d.functions(r)
	case SectionTable:
		d.tables(r)
	case SectionMemory:
		d.memories(r)
	case SectionGlobal:
		d.globals(r)
	case SectionExport:
		d.exports(r)
	case SectionStart:
		d.m.Start = int(r.u32())
	case SectionElement:
		d.elements(r)
	case SectionCode:
		d.codes(r)
	case SectionData:
		d.data(r)
	case SectionDataCount:
		d.m.dataCount = int(r.u32())
	}
}

// name finds the name of the function that a refusal is about in the sections
// that have not been read: that of names comes last.
func (d *decoder) name(err *Refusal, rest reader) {
	if err.Func < 0 || d.m.nameSection != nil {
		return
	}
	for !rest.done() {
		id := rest.byte()
		in := &reader{b: rest.take(rest.u32())}
		if id == SectionCustom && string(in.name()) == "name" && in.err == nil {
			d.m.nameSection = in.b[in.off:]
			err.Name = d.m.FunctionName(err.Func)
			return
		}
	}
}

func (d *decoder) custom(r *reader, s *Section) {
	s.Name = string(r.name())
	if r.err == nil && s.Name == "name" {
		if d.m.nameSection != nil {
			r.stop(refuse(RuleNames, "has two sections of names"))
			return
		}
		d.m.nameSection = d.m.Bytes[r.off:s.End:s.End]
	}
}

// whole checks what several sections say together.
func (d *decoder) whole() *Refusal {
	m := d.m
	defined := len(m.FuncTypes) - m.ImportedFuncs
	switch {
	case defined != len(m.Code):
		return refuse(RuleFormat, "is damaged: it declares %d functions and has the code of %d", defined, len(m.Code))
	case m.Start >= len(m.FuncTypes):
		return refuse(RuleFormat, "is damaged: its start function %d does not exist", m.Start)
	case m.dataCount >= 0 && m.dataCount != m.Data:
		return refuse(RuleFormat, "is damaged: it declares %d data segments and has %d", m.dataCount, m.Data)
	}
	return nil
}

func (d *decoder) types(r *reader) {
	n := r.count(RuleTypes, "types", MaxTypes, 3)
	d.m.Types = make([]hostabi.FuncType, 0, n)
	values := 0
	for range n {
		switch form := r.byte(); {
		case r.err != nil:
			return
		case form == 0x4e || form == 0x50 || form >= 0x5d && form <= 0x5f:
			r.stop(unsupported("garbage collection", "a type that is no function's"))
		case form != 0x60:
			r.fail("a type of the unknown form 0x%02x", form)
		}
		t := hostabi.FuncType{
			Params:  d.values(r, "parameters in one type"),
			Results: d.values(r, "results in one type"),
		}
		if values += len(t.Params) + len(t.Results); values > MaxTypeValues {
			r.stop(tooMany(RuleTypes, uint64(values), MaxTypeValues, "parameters and results in its types"))
		}
		d.m.Types = append(d.m.Types, t)
	}
}

func (d *decoder) values(r *reader, things string) []hostabi.ValueType {
	n := r.count(RuleArity, things, MaxArity, 1)
	if n == 0 {
		return nil
	}
	types := make([]hostabi.ValueType, n)
	for i := range types {
		types[i] = r.valueType()
	}
	return types
}

// typeIndex reads the index of a type.
func (d *decoder) typeIndex(r *reader) uint32 {
	i := r.u32()
	if r.err == nil && uint64(i) >= uint64(len(d.m.Types)) {
		r.fail("type %d does not exist", i)
	}
	return i
}

func (d *decoder) imports(r *reader) {
	m := d.m
	n := r.count(RuleImports, "imports", MaxImports, 4)
	m.Imports = make([]Import, 0, n)
	for range n {
		i := Import{Module: string(r.name()), Name: string(r.name()), Kind: hostabi.ExternKind(r.byte())}
		if r.err != nil {
			return
		}
		switch i.Kind {
		case hostabi.ExternFunc:
			i.Type = d.typeIndex(r)
			m.FuncTypes = append(m.FuncTypes, i.Type)
			m.ImportedFuncs++
		case hostabi.ExternTable:
			m.Tables = append(m.Tables, d.table(r))
			m.ImportedTables++
			m.ImportsEscape = true
		case hostabi.ExternMemory:
			m.Memories = append(m.Memories, d.memory(r))
			m.ImportedMemories++
		case hostabi.ExternGlobal:
			m.Globals = append(m.Globals, d.globalType(r))
			m.ImportedGlobals++
		case hostabi.ExternTag:
			r.stop(unsupported("exceptions", "an import of a tag"))
		default:
			r.fail("an import of the unknown kind %d", byte(i.Kind))
		}
		m.Imports = append(m.Imports, i)
	}
}

func (d *decoder) functions(r *reader) {
	n := r.count(RuleFunctions, "functions", MaxFunctions, 1)
	for range n {
		d.m.FuncTypes = append(d.m.FuncTypes, d.typeIndex(r))
	}
}

func (d *decoder) table(r *reader) Table {
	if r.off < len(r.b) && r.b[r.off] == 0x40 {
		r.stop(unsupported("typed function references", "a table with an initial value"))
	}
	t := Table{Type: r.valueType()}
	if r.err == nil && !isRef(byte(t.Type)) {
		r.fail("a table of %s", t.Type)
	}
	t.Limits = r.limits()
	return t
}

func (d *decoder) tables(r *reader) {
	n := r.count(RuleTables, "tables", MaxTables, 3)
	for range n {
		d.m.Tables = append(d.m.Tables, d.table(r))
	}
	sum := uint64(0)
	for _, t := range d.m.Tables {
		sum += uint64(t.Min)
	}
	if r.err == nil && sum > MaxTableEntries {
		r.stop(tooMany(RuleTables, sum, MaxTableEntries, "entries in its tables"))
	}
}

func (d *decoder) memories(r *reader) {
	n := r.u32()
	all := uint64(n) + uint64(len(d.m.Memories))
	switch {
	case r.err != nil:
	case all > 1:
		r.stop(tooMany(RuleMemory, all, 1, "memories"))
	case n == 1:
		d.m.Memories = append(d.m.Memories, d.memory(r))
	}
}

// maxPages is what 32 bits can address, in pages of 64 KiB.
const maxPages = 1 << 16

func (d *decoder) memory(r *reader) Limits {
	l := r.limits()
	if r.err == nil && max(l.Min, l.Max) > maxPages {
		r.fail("a memory of more than %d pages", maxPages)
	}
	return l
}

func (d *decoder) globalType(r *reader) Global {
	g := Global{Type: r.valueType()}
	mut := r.byte()
	if mut > 1 {
		r.fail("a global whose mutability is 0x%x", mut)
	}
	g.Mutable = mut == 1
	return g
}

func (d *decoder) globals(r *reader) {
	n := r.count(RuleGlobals, "globals", MaxGlobals, 4)
	for range n {
		if r.err != nil {
			return
		}
		g := d.globalType(r)
		d.constant(r)
		d.m.Globals = append(d.m.Globals, g)
	}
}

// constant reads a constant expression: one constant, and its end.
func (d *decoder) constant(r *reader) {
	switch op := r.byte(); op {
	case OpI32Const:
		r.signed(32)
	case OpI64Const:
		r.signed(64)
	case OpF32Const:
		r.skip(4)
	case OpF64Const:
		r.skip(8)
	case OpGlobalGet:
		switch i := r.u32(); {
		case r.err != nil:
		case uint64(i) >= uint64(len(d.m.Globals)):
			r.fail("global %d does not exist", i)
		case d.m.Globals[i].Mutable:
			r.fail("global %d is mutable, and a constant depends on it", i)
		}
	case OpRefNull:
		if b := r.byte(); r.err == nil && !isRef(b) {
			r.stop(unsupported("typed function references", "a null of another type"))
		}
	case OpRefFunc:
		d.reference(r)
	case 0xfd:
		r.stop(unsupported("SIMD", "a constant"))
	default:
		r.fail("the opcode 0x%02x in a constant expression", op)
	}
	switch end := r.byte(); {
	case r.err != nil || end == OpEnd:
	default:
		r.stop(unsupported("extended constant expressions", fmt.Sprintf("the opcode 0x%02x", end)))
	}
}

// function reads the index of a function. The sections that declare functions
// stand before all that refer to them.
func (d *decoder) function(r *reader) uint32 {
	i := r.u32()
	if r.err == nil && uint64(i) >= uint64(len(d.m.FuncTypes)) {
		r.fail("function %d does not exist", i)
	}
	return i
}

// reference reads the index of a function that gets into a table or a global.
func (d *decoder) reference(r *reader) {
	if i := d.function(r); r.err == nil && int(i) < d.m.ImportedFuncs {
		d.m.ImportsEscape = true
	}
}

func (d *decoder) exports(r *reader) {
	n := r.count(RuleExports, "exports", MaxExports, 3)
	d.m.Exports = make([]Export, 0, n)
	names := make(map[string]bool, n)
	for range n {
		e := Export{Name: string(r.name()), Kind: hostabi.ExternKind(r.byte()), Index: r.u32()}
		if r.err != nil {
			return
		}
		space := 0
		switch e.Kind {
		case hostabi.ExternFunc:
			space = len(d.m.FuncTypes)
		case hostabi.ExternTable:
			space = len(d.m.Tables)
		case hostabi.ExternMemory:
			space = len(d.m.Memories)
		case hostabi.ExternGlobal:
			space = len(d.m.Globals)
		case hostabi.ExternTag:
			r.stop(unsupported("exceptions", "an export of a tag"))
		default:
			r.fail("an export of the unknown kind %d", byte(e.Kind))
		}
		switch {
		case names[e.Name]:
			r.stop(refuse(RuleExports, "exports the name %q twice", e.Name))
		case uint64(e.Index) >= uint64(space):
			r.fail("the exported %s %d does not exist", e.Kind, e.Index)
		}
		names[e.Name] = true
		d.m.Exports = append(d.m.Exports, e)
	}
}

// elements reads the element segments.
// Source: the core specification 2.0, 5.5.12: bit 0 of the flags is passive or
// declarative, bit 1 an explicit table or declarative, bit 2 expressions.
func (d *decoder) elements(r *reader) {
	n := r.count(RuleElements, "element segments", MaxElements, 2)
	for range n {
		flags := r.u32()
		if r.err == nil && flags > 7 {
			r.fail("an element segment with the unknown flags %d", flags)
		}
		if r.err != nil {
			return
		}
		if flags&1 == 0 {
			table := uint32(0)
			if flags&2 != 0 {
				table = r.u32()
			}
			if r.err == nil && uint64(table) >= uint64(len(d.m.Tables)) {
				r.fail("table %d does not exist", table)
			}
			d.constant(r)
		}
		d.elementItems(r, flags)
		d.m.Elements++
	}
}

func (d *decoder) elementItems(r *reader, flags uint32) {
	expressions := flags&4 != 0
	if flags&3 != 0 {
		kind := r.byte()
		if expressions && r.err == nil && !isRef(kind) {
			r.stop(unsupported("typed function references", "elements of another type"))
		}
		if !expressions && kind != 0 {
			r.fail("elements of the unknown kind %d", kind)
		}
	}
	n := r.count(RuleElements, "elements in one segment", MaxElementItems, 1)
	d.m.elementItems += uint64(n)
	if d.m.elementItems > MaxElementItems {
		r.stop(tooMany(RuleElements, d.m.elementItems, MaxElementItems, "elements"))
	}
	for range n {
		if r.err != nil {
			return
		}
		if expressions {
			d.constant(r)
		} else {
			d.reference(r)
		}
	}
}

func (d *decoder) data(r *reader) {
	n := r.count(RuleData, "data segments", MaxData, 2)
	for range n {
		flags := r.u32()
		if r.err == nil && flags > 2 {
			r.fail("a data segment with the unknown flags %d", flags)
		}
		if flags == 2 {
			if i := r.u32(); i != 0 {
				r.stop(unsupported("several memories", "data for another memory"))
			}
		}
		if r.err != nil {
			return
		}
		if flags != 1 {
			if len(d.m.Memories) == 0 {
				r.fail("data without a memory")
			}
			d.constant(r)
		}
		r.take(r.u32())
		d.m.Data++
	}
}
