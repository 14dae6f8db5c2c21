// Package workshop is where policies are made and tried: it writes the project
// that a policy begins as, holds a policy to cases, and asks it about every
// failure that a log holds. It runs no guest itself: what does is handed in as
// a [Load].
package workshop

import (
	"context"
	"encoding/json"

	"github.com/dsh-agent/dsh"
)

// A Load makes a policy of the module that is tried, with a config. It may be
// called from several goroutines.
type Load func(ctx context.Context, config json.RawMessage) (Loaded, error)

// A Loaded is a policy with one config. The policy is asked however often it
// fails: it has no breaker.
type Loaded struct {
	Policy   dsh.Policy   // nil with Problems
	Problems []string     // what keeps it from being loaded with this config: what check_config says, a sentence each
	Free     func() error // nil: there is nothing to let go of
}
