package runtime

import (
	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// An Inspection is what a module is, as far as its bytes tell.
type Inspection struct {
	Digest       string     `json:"digest"` // SHA-256, hex
	Bytes        int        `json:"bytes"`
	ABI          string     `json:"abi"`
	Name         string     `json:"name"`    // "": it has no manifest, or one without a name
	Version      string     `json:"version"` // may be ""
	Description  string     `json:"description"`
	HasManifest  bool       `json:"hasManifest"`
	Capabilities []string   `json:"capabilities"` // that it asks for
	Hooks        []dsh.Hook `json:"hooks"`
	ChecksConfig bool       `json:"checksConfig"`
	Warms        bool       `json:"warms"`
	Imports      []Extern   `json:"imports"`
	Exports      []Extern   `json:"exports"`
	Functions    int        `json:"functions"`
	MemoryPages  uint64     `json:"memoryPages"` // that it starts with, of 64 KiB

	// Problems keep it from being loaded, even if all is granted that it asks
	// for. One line each.
	Problems []string `json:"problems"`
}

// An Extern is one import or export.
type Extern struct {
	Module string `json:"module,omitempty"` // of an import
	Name   string `json:"name"`
	Kind   string `json:"kind"`           // function, table, memory, global or tag
	Type   string `json:"type,omitempty"` // of a function
}

// Inspect says what a module is without compiling or running it. Its error is
// for bytes that are no module.
func Inspect(wasm []byte) (Inspection, error) {
	m, err := hostabi.ParseModule(wasm)
	if err != nil {
		return Inspection{}, err
	}
	i := Inspection{
		Digest: digest(wasm), Bytes: m.Bytes, ABI: hostabi.ABI, Capabilities: []string{}, Hooks: m.Hooks(),
		Imports: []Extern{}, Exports: []Extern{}, Functions: m.Functions, Problems: []string{},
	}
	if m.Manifest != nil {
		i.HasManifest = true
		i.ABI, i.Name, i.Version, i.Description = m.Manifest.ABI, m.Manifest.Name, m.Manifest.Version, m.Manifest.Description
	}
	i.Capabilities = append(i.Capabilities, m.Asked()...)
	i.Problems = append(i.Problems, m.Problems()...)
	// As much memory as a configuration may give.
	_, refusals := verify(wasm, m.Asked(), Grants{Capabilities: m.Asked(), MemoryPages: hostabi.MaxMemoryPages})
	for _, r := range refusals {
		i.Problems = append(i.Problems, Printable(r.Error(), 512))
	}
	_, i.ChecksConfig = m.Export(hostabi.ExportCheckConfig)
	_, i.Warms = m.Export(hostabi.ExportWarm)
	for _, mem := range m.Memories {
		i.MemoryPages += mem.Min
	}
	for _, imp := range m.Imports {
		i.Imports = append(i.Imports, extern(imp.Module, imp.Name, imp.Kind, imp.Type))
	}
	for _, exp := range m.Exports {
		i.Exports = append(i.Exports, extern("", exp.Name, exp.Kind, exp.Type))
	}
	return i, nil
}

func extern(module, name string, kind hostabi.ExternKind, t hostabi.FuncType) Extern {
	e := Extern{Module: module, Name: name, Kind: kind.String()}
	if kind == hostabi.ExternFunc {
		e.Type = t.String()
	}
	return e
}
