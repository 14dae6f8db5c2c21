// Package hostabi is the contract between the host and its guests, as
// constants, payload types and JSON Schemas. A guest is one core WebAssembly
// module that speaks Extism's kernel ABI and, for what is the host's own, the
// import namespace [ABI].
//
// # Host functions
//
// While it decides, a guest may call what it is granted of namespace [ABI]:
//
//	log_read      log.read       events of the session's log
//	surface_read  surface.read   what the model sees
//	state_get     state.session  the policy's own memory, in this session
//	state_put     state.shared   or for all sessions
//	emit          log.append     an event of its own, policy/NAME/TYPE
//
// A text of the conversation is shown with surface.content alone. What is stored
// is durable before the call returns, and stays if the decision comes to
// nothing. Every answer is in the log: see [HostCall]. A refusal is a value,
// {"err":{"code","message"}}, and never a trap; only one call too many ends the
// guest.
//
// # Modules
//
// The package reads what a module says of itself (its imports, exports, memory
// and manifest) from its bytes alone. Nothing is compiled and nothing runs.
package hostabi

import "github.com/dsh-agent/dsh"

// ABI is the name and version of the contract, and the import namespace of the
// host functions that it adds to Extism's.
const ABI = "dsh:policy/v1"

// The other import namespaces that a guest may use.
const (
	NamespaceKernel = "extism:host/env"        // bytes in and out, errors, config, logs
	NamespaceWASI   = "wasi_snapshot_preview1" // there for Go and C guests, with nothing behind it
)

// ManifestSection is the name of the custom section that holds the manifest.
const ManifestSection = "dsh.policy"

// The exports. Each is a function of no parameters that returns an i32, where
// 0 is success. Only recover is required.
const (
	ExportRecover     = string(dsh.HookRecover)     // RecoverInput → Decision
	ExportBeforeStep  = string(dsh.HookBeforeStep)  // StepInput → StepAnswer
	ExportCheckConfig = string(dsh.HookCheckConfig) // the policy's config → ConfigAnswer
	ExportWarm        = "warm"                      // warms a fresh instance; no input, no output
)

// The limits that every guest is held to, whatever runs it.
const (
	MaxModuleBytes   = 8 << 20   // of a module
	MaxManifestBytes = 64 << 10  // of the manifest's section
	MaxInputBytes    = 256 << 10 // of a call's input
	MaxOutputBytes   = 64 << 10  // of a call's output
	MaxHostCalls     = 64        // of functions of namespace ABI, in one decision
	MaxLogLines      = 64        // in one decision
	MaxLogBytes      = 16 << 10  // in one decision, over all lines

	MaxFunctions = 20_000 // defined in one module
	MaxImports   = 1_000
	MaxExports   = 10_000
	MaxTypes     = 20_000
	maxParams    = 1_000 // of one function type; the engines' own limit is no higher
)

// Memory is counted in pages of 64 KiB.
const (
	PageBytes          = 64 << 10
	DefaultMemoryPages = 256   // 16 MiB
	MinMemoryPages     = 16    // 1 MiB: what Extism's own kernel starts with
	MaxMemoryPages     = 16384 // 1 GiB, the most that a configuration may give
)

// The payloads, which are types of the vocabulary: their JSON is the contract.
type (
	// RecoverInput is the input of recover.
	RecoverInput = dsh.RecoverInput
	// StepInput is the input of before_step.
	StepInput = dsh.StepInput
	// Decision is the answer to recover, and to before_step.
	Decision = dsh.Decision
	// Repair is what a decision may ask for.
	Repair = dsh.Repair
)

// A ConfigAnswer is the output of check_config. Any problem refuses the load.
type ConfigAnswer struct {
	Problems []string `json:"problems"`
}
