// Command retry-budget is a recovery policy for dsh that shares a budget of
// retries among all sessions. What it exports is in exports_wasip1.go.
package main

import (
	"encoding/json"
	"math"
	"sort"

	sdk "github.com/dsh-agent/dsh/guests/sdk/go"
)

// A Config is what dsh.toml may set, with its defaults.
type Config struct {
	Retries float64 `json:"retries"` // 20: so many at once, and
	PerMs   float64 `json:"perMs"`   // 60000: so many in this time
}

// A Bucket is what is left of the budget: it fills up evenly, and each retry
// takes one.
type Bucket struct {
	Left float64 `json:"left"`
	AtMs int64   `json:"atMs"` // when it was that much
}

const (
	key   = "budget"
	tries = 5 // if others store at the same time
)

// Decide lets the built-in policy's decision pass as long as there is something
// in the budget.
func Decide(in sdk.RecoverInput) sdk.Decision {
	c := Config{Retries: 20, PerMs: 60000}
	if err := in.ConfigInto(&c); err != nil {
		return sdk.Delegate("the config cannot be read")
	}
	d := in.Standard()
	if d.Kind != "retry" && d.Fallback == nil {
		return d // nothing is sent again
	}
	var refused *sdk.HostError
	for range tries {
		b := Bucket{Left: c.Retries, AtMs: in.NowMs}
		version, err := sdk.GetState(sdk.Shared, key, &b)
		if err != nil {
			refused = err
			break
		}
		now := b.Fill(c, in.NowMs)
		if now.Left < 1 {
			return sdk.Delegate("all sessions together have used their %v retries in %v ms: the next is there in %v ms",
				c.Retries, c.PerMs, math.Ceil((1-now.Left)*c.PerMs/c.Retries))
		}
		now.Left--
		if refused = sdk.PutState(sdk.Shared, key, now, version); refused == nil {
			return d
		}
		if !refused.Conflict() {
			break
		}
	}
	return sdk.Delegate("the budget cannot be had: %s", refused.Code) // who cannot count does not spend
}

// Fill is the bucket at a later time. A clock that was set back fills nothing.
func (b Bucket) Fill(c Config, nowMs int64) Bucket {
	passed := math.Max(0, float64(nowMs-b.AtMs))
	return Bucket{Left: math.Min(c.Retries, b.Left+float64(passed*c.Retries)/c.PerMs), AtMs: max(b.AtMs, nowMs)}
}

// CheckConfig is asked when the policy is loaded.
func CheckConfig(config map[string]json.RawMessage) []string {
	var problems []string
	for name, raw := range config {
		var n float64
		switch {
		case name != "retries" && name != "perMs":
			problems = append(problems, name+" is an unknown key: retries and perMs are known")
		case json.Unmarshal(raw, &n) != nil || n < 1:
			problems = append(problems, name+" has to be a number from 1 on")
		}
	}
	sort.Strings(problems)
	return problems
}

// main is never called: the module is a library.
func main() {}
