package config

import "slices"

// Support is what a build can do. The package knows all words of the contract;
// one that is not listed here is refused as not yet supported. The zero value
// supports nothing.
type Support struct {
	Adapters     []string // wire protocols; the first is the default
	Engines      []string // what runs guests; the first is the default
	Builtins     []Builtin
	Capabilities []string // that can be granted to a policy
	Tools        []string // that a model can be allowed
	DefaultTools []string // of those, what is allowed where nothing is said
	Backends     []string // of the store; the first is the default

	Signatures       bool // recovery.require_signature and recovery.keys
	Registries       bool // oci:// modules
	ProcessIsolation bool // isolation = "process"
	Compaction       bool // [compaction]
	WasmTools        bool // [[tools.wasm]]
	MCP              bool // [[tools.mcp]]
	Instructions     bool // the working folder's AGENTS.md
}

// Shell reports whether the tool shell is there.
func (s Support) Shell() bool { return slices.Contains(s.Tools, "shell") }

// A Builtin is a policy that ships in the binary.
type Builtin struct {
	Name         string
	Default      bool     // part of the waterfall where nothing is said, in this order
	Capabilities []string // granted there
}

// A Preset is what the name of a known provider fills in.
type Preset struct {
	Name          string
	Adapter       string
	BaseURL       string
	APIKeyEnv     string // "": no key is sent
	Model         string // "": agent.model must be set
	ContextWindow int64  // tokens; 0: unknown
}
