// Package guests holds the policies that ship in the binary. Their sources and
// builds are in the folders beside it.
package guests

import (
	_ "embed"
)

//go:embed compaction/compaction.wasm
var compaction []byte

//go:embed retry/retry.wasm
var retry []byte

// Builtin returns the module of a built-in policy. The bytes are not to be
// changed.
func Builtin(name string) ([]byte, bool) {
	switch name {
	case "compaction":
		return compaction, true
	case "retry":
		return retry, true
	}
	return nil, false
}

// Names returns the names of the built-in policies, in the order of the
// default waterfall.
func Names() []string { return []string{"compaction", "retry"} }
