package wasm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh/hostabi"
)

// ReservedPrefix begins the names of exports that belong to the host: no
// module may use them.
const ReservedPrefix = "dsh:"

// A Symbol is what an import names.
type Symbol struct{ Module, Name string }

func (s Symbol) String() string { return printable(s.Module) + "." + printable(s.Name) }

// Rules are what a module is held to beyond what every module is held to. The
// zero value allows no import, no memory, and asks for no export.
type Rules struct {
	// Imports are the functions that may be imported, with their types. Grants
	// add to them.
	Imports map[Symbol]hostabi.FuncType

	// Denied says why a function that is not among Imports is refused, as the
	// end of the sentence "the module imports NAME, …". nil, or "": that it is
	// not granted, and what is.
	Denied func(Symbol) string

	// Exports are the types that exports of these names have to have; they are
	// functions. An export of another name may be anything.
	Exports map[string]hostabi.FuncType

	// Required are the names that have to be exported.
	Required []string

	// MemoryPages is the most memory that the module may begin with, in pages
	// of 64 KiB.
	MemoryPages uint32
}

// PolicyExports are the exports of a policy and of the initialisers that
// toolchains write. The caller may change the map.
func PolicyExports() map[string]hostabi.FuncType {
	hook := hostabi.FuncType{Results: []hostabi.ValueType{hostabi.ValueI32}}
	return map[string]hostabi.FuncType{
		hostabi.ExportRecover:     hook,
		hostabi.ExportBeforeStep:  hook,
		hostabi.ExportCheckConfig: hook,
		hostabi.ExportWarm:        hook,
		"_initialize":             {},
		"_start":                  {},
		"__wasm_call_ctors":       {},
	}
}

// Verify decodes a module and holds it to the limits of this package and to
// the rules. None of its code is run, and no engine is asked. The error is a
// *[Refusal]: the first of those that [Check] finds.
func Verify(b []byte, rules Rules) (*Module, error) {
	m, refusals := Check(b, rules)
	if len(refusals) > 0 {
		return nil, refusals[0]
	}
	return m, nil
}

// maxRefusals bounds what is said about one module.
const maxRefusals = 20

// Check is Verify that finds all that breaks a rule. A module that breaks a
// limit has one refusal. With refusals there is no module.
func Check(b []byte, rules Rules) (*Module, []*Refusal) {
	m, err := decode(b)
	if err != nil {
		return nil, []*Refusal{err}
	}
	if refusals := rules.hold(m); len(refusals) > 0 {
		return nil, refusals[:min(len(refusals), maxRefusals)]
	}
	return m, nil
}

func (rules *Rules) hold(m *Module) (all []*Refusal) {
	add := func(r *Refusal) {
		if r != nil {
			all = append(all, r)
		}
	}
	if m.Start >= 0 {
		err := refuse(RuleStart, "is a start function, which would run before any limit holds: call it from an export")
		err.Func, err.Name = m.Start, m.FunctionName(m.Start)
		add(err)
	}
	for _, i := range m.Imports {
		add(rules.imported(m, &i))
	}
	for _, e := range m.Exports {
		add(rules.exported(m, &e))
	}
	for _, name := range rules.Required {
		if _, ok := m.Exported(name); !ok {
			add(refuse(RuleExport, "lacks the export %q", name))
		}
	}
	for _, memory := range m.Memories {
		if memory.Min > rules.MemoryPages {
			err := refuse(RuleMemoryGrant, "begins with %d KiB of memory, and %d KiB are allowed", uint64(memory.Min)*64, uint64(rules.MemoryPages)*64)
			err.Have, err.Max = uint64(memory.Min), uint64(rules.MemoryPages)
			add(err)
		}
	}
	return all
}

func (rules *Rules) imported(m *Module, i *Import) *Refusal {
	name := Symbol{i.Module, i.Name}
	if i.Kind != hostabi.ExternFunc {
		return refuse(RuleImport, "imports the %s %s, and only functions may be imported", i.Kind, name)
	}
	want, ok := rules.Imports[name]
	switch have := m.Types[i.Type]; {
	case !ok:
		return refuse(RuleImport, "imports %s, %s", name, rules.denied(name))
	case !have.Equal(want):
		return refuse(RuleImport, "imports %s with the type %s, and it has the type %s", name, show(have), show(want))
	}
	return nil
}

// denied says why an import is refused.
func (rules *Rules) denied(name Symbol) string {
	if rules.Denied != nil {
		if why := rules.Denied(name); why != "" {
			return why
		}
	}
	var names []string
	for s := range rules.Imports {
		if s.Module == name.Module {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return "which is not granted: nothing of " + printable(name.Module) + " is"
	}
	slices.Sort(names)
	return "which is not granted: there are " + strings.Join(names, ", ")
}

func (rules *Rules) exported(m *Module, e *Export) *Refusal {
	if strings.HasPrefix(e.Name, ReservedPrefix) {
		return refuse(RuleExport, "exports %q, and names with %q belong to the host", e.Name, ReservedPrefix)
	}
	if e.Name == "memory" && e.Kind != hostabi.ExternMemory {
		return refuse(RuleExport, "exports a %s as %q, and it has to be its memory", e.Kind, e.Name)
	}
	want, ok := rules.Exports[e.Name]
	switch {
	case !ok:
		return nil
	case e.Kind != hostabi.ExternFunc:
		return refuse(RuleExport, "exports a %s as %q, and it has to be a function of the type %s", e.Kind, e.Name, show(want))
	}
	if int(e.Index) < m.ImportedFuncs {
		return refuse(RuleExport, "exports the function of the host %s as %q, and it has to be one of its own", m.FunctionName(int(e.Index)), e.Name)
	}
	if have := m.FuncType(int(e.Index)); !have.Equal(want) {
		err := refuse(RuleExport, "is exported as %q with the type %s, and has to have the type %s", e.Name, show(have), show(want))
		err.Func, err.Name = int(e.Index), m.FunctionName(int(e.Index))
		return err
	}
	return nil
}

// maxShownTypes bounds the parameters and results of a type in a message.
const maxShownTypes = 16

func show(t hostabi.FuncType) string {
	if len(t.Params)+len(t.Results) > maxShownTypes {
		return fmt.Sprintf("of %d parameters and %d results", len(t.Params), len(t.Results))
	}
	return t.String()
}
