package hostabi

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A ValueType is the type of a WebAssembly value, as the binary format writes
// it.
type ValueType byte

// The value types that a contract's function may have.
const (
	ValueI32 ValueType = 0x7f
	ValueI64 ValueType = 0x7e
	ValueF32 ValueType = 0x7d
	ValueF64 ValueType = 0x7c
)

func (v ValueType) String() string {
	switch v {
	case ValueI32:
		return "i32"
	case ValueI64:
		return "i64"
	case ValueF32:
		return "f32"
	case ValueF64:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	}
	return fmt.Sprintf("type 0x%x", byte(v))
}

// A FuncType is the type of a function.
type FuncType struct {
	Params, Results []ValueType
}

// String writes the type as "(i64, i64) -> i32"; no result is "()".
func (t FuncType) String() string {
	return list(t.Params) + " -> " + results(t.Results)
}

func list(types []ValueType) string {
	var b bytes.Buffer
	b.WriteByte('(')
	for i, v := range types {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(v.String())
	}
	b.WriteByte(')')
	return b.String()
}

func results(types []ValueType) string {
	if len(types) == 1 {
		return types[0].String()
	}
	return list(types)
}

// Equal reports whether two types are the same.
func (t FuncType) Equal(u FuncType) bool {
	return bytes.Equal(valueBytes(t.Params), valueBytes(u.Params)) &&
		bytes.Equal(valueBytes(t.Results), valueBytes(u.Results))
}

func valueBytes(types []ValueType) []byte {
	b := make([]byte, len(types))
	for i, v := range types {
		b[i] = byte(v)
	}
	return b
}

// An ExternKind says what is imported or exported.
type ExternKind byte

// The kinds, as the binary format numbers them.
const (
	ExternFunc ExternKind = iota
	ExternTable
	ExternMemory
	ExternGlobal
	ExternTag
)

func (k ExternKind) String() string {
	switch k {
	case ExternFunc:
		return "function"
	case ExternTable:
		return "table"
	case ExternMemory:
		return "memory"
	case ExternGlobal:
		return "global"
	}
	return "tag"
}

// An Import is something that a module wants of its host.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Type         FuncType // of a function
}

// An Export is something that a module offers.
type Export struct {
	Name string
	Kind ExternKind
	Type FuncType // of a function
}

// A Memory is a linear memory that a module defines, in pages of 64 KiB.
type Memory struct {
	Min    uint64
	Max    uint64 // only if HasMax
	HasMax bool
	Shared bool
	Wide   bool // 64-bit addresses
}

// A Module is what the bytes of a module say of it.
type Module struct {
	Bytes     int // the module's size
	Imports   []Import
	Exports   []Export
	Functions int // defined, without the imported ones
	Memories  []Memory
	Manifest  *Manifest // nil: the module has none
	Customs   []string  // the names of its custom sections
}

// Export finds a function by the name that it is exported under.
func (m *Module) Export(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name && e.Kind == ExternFunc {
			return e, true
		}
	}
	return Export{}, false
}

// ImportsFrom reports whether anything of a namespace is imported.
func (m *Module) ImportsFrom(namespace string) bool {
	for _, i := range m.Imports {
		if i.Module == namespace {
			return true
		}
	}
	return false
}

// ErrNotWasm is the error of bytes that are no core WebAssembly module at all.
var ErrNotWasm = errors.New("not a WebAssembly module")

// What a core module of version 1 begins with, and a component.
const (
	moduleHeader    = "\x00asm\x01\x00\x00\x00"
	componentHeader = "\x00asm\x0d\x00\x01\x00"
)

// ParseModule reads what a module says of itself. It keeps nothing of the
// bytes, allocates in proportion to them at most, and does not look at the
// code: whether that is valid is for an engine to say.
func ParseModule(wasm []byte) (*Module, error) {
	switch {
	case len(wasm) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrNotWasm)
	case len(wasm) > MaxModuleBytes:
		return nil, fmt.Errorf("the module has %d bytes, and at most %d are allowed", len(wasm), MaxModuleBytes)
	case bytes.HasPrefix(wasm, []byte(componentHeader)):
		return nil, fmt.Errorf("%w: it is a component, and a policy is a core module", ErrNotWasm)
	case !bytes.HasPrefix(wasm, []byte(moduleHeader[:4])):
		return nil, fmt.Errorf("%w: it does not begin with \\0asm", ErrNotWasm)
	case !bytes.HasPrefix(wasm, []byte(moduleHeader)):
		return nil, fmt.Errorf("%w of version 1", ErrNotWasm)
	}
	p := parser{m: &Module{Bytes: len(wasm)}}
	r := reader{b: wasm, off: len(moduleHeader)}
	for !r.done() {
		if err := p.section(&r); err != nil {
			return nil, fmt.Errorf("a damaged module: %w", err)
		}
	}
	if err := p.resolve(); err != nil {
		return nil, fmt.Errorf("a damaged module: %w", err)
	}
	return p.m, nil
}

// parser collects what the sections say.
type parser struct {
	m        *Module
	types    []FuncType
	imported []uint32 // the type index of each imported function
	defined  []uint32 // the type index of each defined function
	exported []uint32 // the index of each export
	seen     [16]bool // the sections met, by id
}

// The section ids that matter here, and the highest that there is.
const (
	secCustom   = 0
	secType     = 1
	secImport   = 2
	secFunction = 3
	secMemory   = 5
	secExport   = 7
	secHighest  = 13
)

func (p *parser) section(r *reader) error {
	at := r.off
	id := r.byte()
	size := r.u32()
	body := r.take(size)
	if r.err != nil {
		return fmt.Errorf("section at byte %d: %w", at, r.err)
	}
	if id > secHighest {
		return fmt.Errorf("section at byte %d has the unknown id %d", at, id)
	}
	s := &reader{b: body}
	if id == secCustom {
		if err := p.custom(s); err != nil {
			return fmt.Errorf("custom section at byte %d: %w", at, err)
		}
		return nil
	}
	if p.seen[id] {
		return fmt.Errorf("section at byte %d: a second one of id %d", at, id)
	}
	p.seen[id] = true
	var err error
	switch id {
	case secType:
		err = p.typeSection(s)
	case secImport:
		err = p.importSection(s)
	case secFunction:
		err = p.functionSection(s)
	case secMemory:
		err = p.memorySection(s)
	case secExport:
		err = p.exportSection(s)
	default:
		return nil
	}
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return fmt.Errorf("section %d at byte %d: %w", id, at, err)
	}
	return nil
}

func (p *parser) custom(s *reader) error {
	name := s.name()
	if s.err != nil {
		return s.err
	}
	if len(p.m.Customs) < MaxExports {
		p.m.Customs = append(p.m.Customs, name)
	}
	if name != ManifestSection {
		return nil
	}
	if p.m.Manifest != nil {
		return fmt.Errorf("a second manifest (%s)", ManifestSection)
	}
	manifest, err := ParseManifest(s.rest())
	p.m.Manifest = manifest
	return err
}

func (p *parser) typeSection(s *reader) error {
	n, err := s.count("types", MaxTypes, 3)
	if err != nil {
		return err
	}
	p.types = make([]FuncType, 0, n)
	for range n {
		if form := s.byte(); s.err == nil && form != 0x60 {
			return fmt.Errorf("a type of form 0x%x, which is no function type", form)
		}
		t := FuncType{Params: s.values(), Results: s.values()}
		if s.err != nil {
			return s.err
		}
		p.types = append(p.types, t)
	}
	return nil
}

func (p *parser) importSection(s *reader) error {
	n, err := s.count("imports", MaxImports, 4)
	if err != nil {
		return err
	}
	p.m.Imports = make([]Import, 0, n)
	for range n {
		i := Import{Module: s.name(), Name: s.name(), Kind: ExternKind(s.byte())}
		switch i.Kind {
		case ExternFunc:
			p.imported = append(p.imported, s.u32())
		case ExternTable:
			s.byte()
			s.limits()
		case ExternMemory:
			s.limits()
		case ExternGlobal:
			s.byte()
			s.byte()
		case ExternTag:
			s.byte()
			s.u32()
		default:
			return fmt.Errorf("an import of the unknown kind %d", byte(i.Kind))
		}
		if s.err != nil {
			return s.err
		}
		p.m.Imports = append(p.m.Imports, i)
	}
	return nil
}

func (p *parser) functionSection(s *reader) error {
	n, err := s.count("functions", MaxFunctions, 1)
	if err != nil {
		return err
	}
	p.m.Functions = n
	p.defined = make([]uint32, n)
	for i := range p.defined {
		p.defined[i] = s.u32()
	}
	return s.err
}

func (p *parser) memorySection(s *reader) error {
	n, err := s.count("memories", 100, 2)
	if err != nil {
		return err
	}
	for range n {
		p.m.Memories = append(p.m.Memories, s.limits())
	}
	return s.err
}

func (p *parser) exportSection(s *reader) error {
	n, err := s.count("exports", MaxExports, 3)
	if err != nil {
		return err
	}
	p.m.Exports = make([]Export, 0, n)
	names := make(map[string]bool, n)
	for range n {
		e := Export{Name: s.name(), Kind: ExternKind(s.byte())}
		index := s.u32()
		switch {
		case s.err != nil:
			return s.err
		case e.Kind > ExternTag:
			return fmt.Errorf("an export of the unknown kind %d", byte(e.Kind))
		case names[e.Name]:
			return fmt.Errorf("a second export of the name %q", e.Name)
		}
		names[e.Name] = true
		p.m.Exports = append(p.m.Exports, e)
		p.exported = append(p.exported, index)
	}
	return nil
}

// resolve puts the types to the functions, which the sections give by index.
func (p *parser) resolve() error {
	typeOf := func(index uint32) (FuncType, error) {
		if int(index) >= len(p.types) {
			return FuncType{}, fmt.Errorf("type %d does not exist", index)
		}
		return p.types[index], nil
	}
	var err error
	next := 0
	for i := range p.m.Imports {
		if p.m.Imports[i].Kind != ExternFunc {
			continue
		}
		if p.m.Imports[i].Type, err = typeOf(p.imported[next]); err != nil {
			return err
		}
		next++
	}
	all := append(p.imported, p.defined...)
	for i := range p.m.Exports {
		if p.m.Exports[i].Kind != ExternFunc {
			continue
		}
		index := p.exported[i]
		if int(index) >= len(all) {
			return fmt.Errorf("export %q is of function %d, which does not exist", p.m.Exports[i].Name, index)
		}
		if p.m.Exports[i].Type, err = typeOf(all[index]); err != nil {
			return err
		}
	}
	return nil
}

// reader reads the primitives of the binary format. The first error sticks,
// and every later read gives zero.
type reader struct {
	b   []byte
	off int
	err error
}

func (r *reader) done() bool { return r.err != nil || r.off >= len(r.b) }

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// end reports an error, or bytes that nothing has asked for.
func (r *reader) end() error {
	if r.err == nil && r.off != len(r.b) {
		r.fail("%d bytes are left over at its end", len(r.b)-r.off)
	}
	return r.err
}

func (r *reader) byte() byte {
	if r.err != nil || r.off >= len(r.b) {
		r.fail("it ends too early")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

// leb reads an unsigned LEB128 number of at most the given bits.
func (r *reader) leb(bits int) uint64 {
	var v uint64
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
		if rest := bits - shift; rest < 7 && b>>rest != 0 {
			r.fail("a number of more than %d bits", bits)
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return v
		}
	}
	r.fail("a number of more than %d bits", bits)
	return 0
}

func (r *reader) u32() uint32 { return uint32(r.leb(32)) }

func (r *reader) take(n uint32) []byte {
	if left := len(r.b) - r.off; r.err == nil && uint64(n) > uint64(left) {
		r.fail("it says that it has %d bytes, and %d are left", n, left)
	}
	if r.err != nil {
		return nil
	}
	r.off += int(n)
	return r.b[r.off-int(n) : r.off]
}

func (r *reader) rest() []byte { return r.take(uint32(len(r.b) - r.off)) }

func (r *reader) name() string {
	b := r.take(r.u32())
	if !utf8.Valid(b) {
		r.fail("a name that is not UTF-8")
		return ""
	}
	return string(b)
}

// count reads how many things of at least so many bytes each follow, and
// refuses a number that the bytes left cannot hold.
func (r *reader) count(what string, limit, each int) (int, error) {
	n := r.u32()
	switch {
	case r.err != nil:
		return 0, r.err
	case int64(n) > int64(limit):
		return 0, fmt.Errorf("%d %s, and at most %d are allowed", n, what, limit)
	case int64(n)*int64(each) > int64(len(r.b)-r.off):
		return 0, fmt.Errorf("it says that it has %d %s, and only %d bytes follow", n, what, len(r.b)-r.off)
	}
	return int(n), nil
}

func (r *reader) values() []ValueType {
	n, err := r.count("values", maxParams, 1)
	if err != nil {
		r.fail("%w", err)
		return nil
	}
	types := make([]ValueType, n)
	for i, b := range r.take(uint32(n)) {
		if b < 0x40 {
			r.fail("a value of the unknown type 0x%x", b)
		}
		types[i] = ValueType(b)
	}
	return types
}

// limits reads the limits of a memory or a table.
func (r *reader) limits() Memory {
	flags := r.byte()
	if flags > 7 {
		r.fail("limits with the unknown flags 0x%x", flags)
	}
	m := Memory{HasMax: flags&1 != 0, Shared: flags&2 != 0, Wide: flags&4 != 0}
	bits := 32
	if m.Wide {
		bits = 64
	}
	m.Min = r.leb(bits)
	if m.HasMax {
		m.Max = r.leb(bits)
	}
	return m
}
