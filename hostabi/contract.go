package hostabi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// Asked returns the capabilities that the module asks for.
func (m *Module) Asked() []string {
	if m.Manifest == nil {
		return nil
	}
	return slices.Clone(m.Manifest.Capabilities)
}

// Hooks returns the hooks of a waterfall that the module has.
func (m *Module) Hooks() []dsh.Hook {
	hooks := []dsh.Hook{}
	for _, h := range []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep} {
		if _, ok := m.Export(string(h)); ok {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// Problems holds what the module's manifest says to the contract. Each problem
// is one sentence without a full stop, which says what is wrong and what is
// allowed. What its bytes are is for package runtime to judge.
func (m *Module) Problems() []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if m.Manifest != nil && m.Manifest.ABI != ABI {
		add("it speaks the ABI %q, and this host speaks %q", m.Manifest.ABI, ABI)
	}
	for _, c := range m.Asked() {
		if !slices.Contains(Capabilities(), c) {
			add("its manifest asks for %q, which is no capability: there are %s", c, strings.Join(Capabilities(), ", "))
		}
	}
	return problems
}

// Denial says why a guest may not import a function that is neither among
// [Allowed] nor among what is [Granted] to it, given what its manifest asks for
// and what is granted. It ends a sentence that begins with "the module imports
// NAME, ".
func Denial(module, name string, asked, granted []string) string {
	switch {
	case module == ABI:
		return hostDenial(name, asked, granted)
	case module == NamespaceWASI:
		return "which is no function of WASI preview 1"
	case module == NamespaceKernel && (strings.HasPrefix(name, "http_") || strings.HasPrefix(name, "var_")):
		return "and a policy has no network and no Extism variables"
	case module == NamespaceKernel:
		return "which is not among Extism's functions that a policy may use"
	}
	return fmt.Sprintf("which is in no allowed namespace: those are %s, %s and %s", NamespaceKernel, NamespaceWASI, ABI)
}

func hostDenial(name string, asked, granted []string) string {
	all := hostFunctions()
	k := slices.IndexFunc(all, func(f hostFunction) bool { return f.name == name })
	if k < 0 {
		return "which is no function of that ABI"
	}
	need := strings.Join(all[k].anyOf, " or ")
	if !all[k].within(asked) {
		return "and its manifest does not ask for the capability " + need
	}
	if !all[k].within(granted) {
		return "and the capability " + need + " is not granted"
	}
	return "which this version of the host does not offer yet"
}
