package wasm

import "fmt"

// A Rule names what a module is held to. It is stable: logs and tests may
// compare it.
type Rule string

// The rules. The figures that belong to them are the Max… constants.
const (
	RuleFormat       Rule = "format"        // the bytes are no well-formed module
	RuleFeature      Rule = "feature"       // it uses a WebAssembly proposal that is not supported
	RuleModuleBytes  Rule = "module-bytes"  // the module's size
	RuleTypes        Rule = "types"         // the number of function types, and what is in them
	RuleArity        Rule = "arity"         // the parameters or results of one type
	RuleImports      Rule = "imports"       // the number of imports
	RuleImport       Rule = "import"        // one import: not in the allow-list, or of another type
	RuleFunctions    Rule = "functions"     // the number of functions
	RuleBody         Rule = "body"          // the bytes of a function's body
	RuleLocals       Rule = "locals"        // the locals of a function
	RuleLocalsTotal  Rule = "locals-total"  // the locals of all functions
	RuleNesting      Rule = "nesting"       // blocks within blocks
	RuleBranchTable  Rule = "br-table"      // the targets of one br_table
	RuleMemory       Rule = "memory"        // the number of memories, and their size
	RuleMemoryGrant  Rule = "memory-grant"  // it begins with more memory than is granted
	RuleTables       Rule = "tables"        // the number of tables, and their size
	RuleElements     Rule = "elements"      // the element segments, and what is in them
	RuleGlobals      Rule = "globals"       // the number of globals
	RuleData         Rule = "data"          // the number of data segments
	RuleExports      Rule = "exports"       // the number of exports, a name that stands twice
	RuleExport       Rule = "export"        // one export: missing, of another type, a reserved name
	RuleStart        Rule = "start"         // a start function
	RuleNames        Rule = "names"         // the section of names
	RuleCompileTime  Rule = "compile-time"  // what the code would take an engine to compile
	RuleCompileSpace Rule = "compile-space" // the memory that compiling the code would take
)

// A Refusal says why a module is not run. It is the only error of this
// package, so that errors.As always finds it.
type Refusal struct {
	Rule Rule
	Func int    // the function's index, imported ones counted first; -1: it is not about one
	Name string // the function's name, if the module has it
	Have uint64 // what was found; 0 where the rule knows no figure
	Max  uint64 // what is allowed; 0 where the rule knows no figure

	text string // what it is or does, without the subject
}

// Error is one line: what, where, and what is allowed.
func (r *Refusal) Error() string {
	switch {
	case r.Func < 0:
		return "the module " + r.text
	case r.Name == "":
		return fmt.Sprintf("function %d %s", r.Func, r.text)
	}
	return fmt.Sprintf("function %d (%s) %s", r.Func, r.Name, r.text)
}

// refuse makes a refusal that is not about one function.
func refuse(rule Rule, format string, args ...any) *Refusal {
	return &Refusal{Rule: rule, Func: -1, text: fmt.Sprintf(format, args...)}
}

// tooMany makes a refusal with figures: "has 7 things, and at most 5 are
// allowed".
func tooMany(rule Rule, have, limit uint64, things string) *Refusal {
	r := refuse(rule, "has %d %s, and at most %d are allowed", have, things, limit)
	r.Have, r.Max = have, limit
	return r
}
