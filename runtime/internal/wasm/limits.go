package wasm

import "github.com/dsh-agent/dsh/hostabi"

// The limits that every module is held to. Those of the contract with guests
// are hostabi's; the others keep what an engine does before any code runs
// small. The times are wazero 1.12.0's, on an x86-64 server.
const (
	MaxModuleBytes = hostabi.MaxModuleBytes
	MaxFunctions   = hostabi.MaxFunctions
	MaxTypes       = hostabi.MaxTypes
	MaxImports     = hostabi.MaxImports
	MaxExports     = hostabi.MaxExports

	// MaxArity bounds the parameters, and the results, of one type; MaxTypeValues
	// those of all types: the engine compiles a way in for each type, which
	// takes 0.1 s for 100,000 of them, and 7 s for 8 MiB.
	MaxArity      = 1_000
	MaxTypeValues = 100_000

	MaxBodyBytes     = 128 << 10 // of one function's code, without its locals
	MaxLocals        = 1_000     // that one function declares
	MaxLocalsTotal   = 1_000_000 // of all functions
	MaxNesting       = 2_000     // blocks within each other
	MaxBranchTargets = 8_192     // of one br_table, without its default

	// MaxTableEntries bounds the entries of all tables at their beginning, and
	// those of each table at any time: 8 bytes each, in every instance.
	MaxTableEntries = 65_536
	MaxTables       = 16

	MaxElements     = 10_000 // segments
	MaxElementItems = 65_536 // in all of them
	MaxGlobals      = 1_000  // 48 bytes each, in every instance

	// MaxData bounds the segments of data: Go's linker writes 36,000 of them
	// for a small policy. 100,000 take 30 ms to read, and 10 ms an instance.
	MaxData = 100_000

	// MaxNames bounds the names in the section of names, 32 bytes each in the
	// engine: two for each function with all its locals named is far below.
	MaxNames = 500_000

	MaxSections = 1_000

	// MaxCompileSpace bounds the memory that a function is judged to take to
	// compile, in bytes, and that of all that are compiled at once.
	MaxCompileSpace = 64 << 20
)
