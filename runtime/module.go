package runtime

import (
	"fmt"
	"strings"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/frozen"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// A Module is what an engine is given to compile: see Prepare.
type Module struct {
	Wasm        []byte // as it is compiled, with its limits written in; not to be changed
	Key         string // SHA-256 of Wasm, hex: what compiled code is kept by
	Digest      string // SHA-256 of the bytes that it was made from, hex
	Info        *hostabi.Module
	Config      map[string]string // what Extism's config_get answers
	MemoryPages uint32            // the most that its memory may have, in pages of 64 KiB
	HostCalls   int               // the most host functions that one decision may call; 0: hostabi.MaxHostCalls

	// CompileBytes is what its largest function takes to compile, as it is
	// judged: how many are compiled at once follows from it. 0: nobody knows.
	CompileBytes uint64

	// Globals are exports that Wasm has for the engine: all of the module's own
	// globals that change. Together with its memory they are all the state of an
	// instance: see Freezer. nil: a module that has other state, or is not warmed.
	Globals []string
}

// Grants are what a module may have. The zero value grants nothing that costs
// anything, and the default memory.
type Grants struct {
	Capabilities []string          // of those that it asks for
	Config       map[string]string // what Extism's config_get answers
	MemoryPages  uint32            // of 64 KiB; 0: hostabi.DefaultMemoryPages
	HostCalls    int               // a decision's; 0: hostabi.MaxHostCalls
}

// Prepare makes the module that an engine compiles. It holds the bytes to the
// contract and to the limits of package wasm, and writes fuel and stack limits
// into the code, so that every engine stops it at the same place. Nothing of
// the module runs. Its error says, in a line each, why the module is refused.
func Prepare(bytes []byte, g Grants) (Module, error) {
	info, err := hostabi.ParseModule(bytes)
	if err != nil {
		return Module{}, err
	}
	problems := info.Problems()
	v, refusals := verify(bytes, info.Asked(), g)
	for _, r := range refusals {
		problems = append(problems, r.Error())
	}
	if len(problems) > 0 {
		return Module{}, fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return prepare(v, info, digest(bytes), g)
}

// prepare makes the module of bytes that have been verified.
func prepare(v *wasm.Module, info *hostabi.Module, digestOf string, g Grants) (Module, error) {
	code, err := meter.Rewrite(v, meter.Options{MemoryPages: g.memoryPages(), KeepMemoryMax: true})
	if err != nil {
		return Module{}, err
	}
	var globals []string
	if _, warms := info.Export(hostabi.ExportWarm); warms {
		code, globals = frozen.Export(code, v)
	}
	return Module{
		Globals: globals, CompileBytes: v.CompileSpace(),
		Wasm: code, Key: digest(code), Digest: digestOf, Info: info,
		Config: g.Config, MemoryPages: g.memoryPages(), HostCalls: g.HostCalls,
	}, nil
}

func (g *Grants) memoryPages() uint32 {
	if g.MemoryPages == 0 {
		return hostabi.DefaultMemoryPages
	}
	return g.MemoryPages
}

// verify holds a module's bytes to the rules that come of its grants.
func verify(bytes []byte, asked []string, g Grants) (*wasm.Module, []*wasm.Refusal) {
	imports := map[wasm.Symbol]hostabi.FuncType{}
	for _, list := range [][]hostabi.Import{hostabi.Allowed(), hostabi.Granted(asked, g.Capabilities)} {
		for _, i := range list {
			imports[wasm.Symbol{Module: i.Module, Name: i.Name}] = i.Type
		}
	}
	return wasm.Check(bytes, wasm.Rules{
		Imports: imports,
		Denied: func(s wasm.Symbol) string {
			return hostabi.Denial(s.Module, s.Name, asked, g.Capabilities)
		},
		Exports:     wasm.PolicyExports(),
		Required:    []string{hostabi.ExportRecover},
		MemoryPages: g.memoryPages(),
	})
}
