package wasm

import (
	"time"

	"github.com/dsh-agent/dsh/hostabi"
)

// A Module is a module that has been decoded. Its slices are views of the
// bytes that it was decoded from where that is possible; nothing of it is to
// be changed.
type Module struct {
	Bytes    []byte
	Sections []Section // in the module's order

	Types   []hostabi.FuncType
	Imports []Import
	Exports []Export

	// The index spaces: what is imported stands first.
	FuncTypes []uint32 // the type of each function
	Tables    []Table
	Memories  []Limits // in pages of 64 KiB
	Globals   []Global

	ImportedFuncs    int
	ImportedTables   int
	ImportedMemories int
	ImportedGlobals  int

	Code []Func // the functions that the module defines

	// ImportsEscape says that an imported function may be called through a
	// table.
	ImportsEscape bool

	// Rearranges says that there is code that changes a table or drops a segment:
	// an instance has more state then than its memory and its globals.
	Rearranges bool

	Start    int // the start function's index; -1: there is none
	Elements int // the number of element segments
	Data     int // the number of data segments

	ops          *[256]opcode
	compileTime  int64  // in ns
	compileSpace int64  // in bytes, of the function that takes most
	elementItems uint64 // all entries of all element segments
	dataCount    int    // what the section of that name says; -1: there is none
	nameSection  []byte // the contents of the section "name", without its title
}

// A Section is where a section stands in the module's bytes.
type Section struct {
	ID         byte
	Name       string // of a custom section
	Start, End int    // of its contents, without id and size; for a custom section with its name
}

// The ids of the sections.
const (
	SectionCustom = iota
	SectionType
	SectionImport
	SectionFunction
	SectionTable
	SectionMemory
	SectionGlobal
	SectionExport
	SectionStart
	SectionElement
	SectionCode
	SectionData
	SectionDataCount
)

// An Import is something that a module wants of its host.
type Import struct {
	Module, Name string
	Kind         hostabi.ExternKind
	Type         uint32 // of a function: its type's index
}

// An Export is something that a module offers.
type Export struct {
	Name  string
	Kind  hostabi.ExternKind
	Index uint32
}

// Limits are the limits of a memory, in pages of 64 KiB, or of a table, in
// entries.
type Limits struct {
	Min, Max uint32
	HasMax   bool
}

// A Table is a table of references.
type Table struct {
	Type hostabi.ValueType
	Limits
}

// A Global is a global variable.
type Global struct {
	Type    hostabi.ValueType
	Mutable bool
}

// A Func is a function that the module defines, as its code says.
type Func struct {
	Start, End int // of its entry in the code section: the declarations of locals, and the body
	Body       int // where the body begins, behind the declarations of locals
	Locals     int // declared, without the parameters

	Loops int // the number of loops
	Calls int // the number of calls that may be of the module's own functions: call and call_indirect

	// Slots is an upper bound of the values that it keeps on the stack while
	// it calls, 8 bytes each.
	Slots int
}

// FuncType is the type of a function, by its index. The index is right in a
// module that has been decoded.
func (m *Module) FuncType(index int) hostabi.FuncType { return m.Types[m.FuncTypes[index]] }

// Exported finds what is exported under a name.
func (m *Module) Exported(name string) (Export, bool) {
	for _, e := range m.Exports {
		if e.Name == name {
			return e, true
		}
	}
	return Export{}, false
}

// CompileSpace is what the function that takes most memory to compile is judged
// to take, in bytes; MaxCompileSpace is the most that one may.
func (m *Module) CompileSpace() uint64 { return uint64(m.compileSpace) }

// CompileTime is what the module is judged to take to compile: 1.5 to 4 times
// of what wazero 1.12 takes for real modules on an x86-64 server.
func (m *Module) CompileTime() time.Duration { return time.Duration(m.compileTime) }
