package config

import (
	"encoding/json"
	"time"

	"github.com/dsh-agent/dsh"
)

// A Config is a configuration that holds: every value is in its range and
// names something that is there. It is not to be changed.
type Config struct {
	File         string // that was read, as named; "": none
	Agent        Agent
	Recovery     Recovery
	Compaction   Compaction
	Tools        Tools
	Store        Store
	Instructions *Instructions // nil: there are none, or they are left aside
	Own          []string      // absolute paths of what a later dsh goes by: its files and folders
	Settings     []Setting     // all values with their origins, in the documented order
	Hazards      Problems      // what holds and is likely not meant, for config check

	providers map[string]*Provider
	chosen    Origin   // of Agent.Provider
	looked    []string // variables that would have chosen one
	names     []string // of providers that can be used
}

// Agent is [agent].
type Agent struct {
	Provider        string // "": none could be chosen; Ready says so
	Model           string // "": none is known; Ready says so
	MaxSteps        int    // of a turn, at least 1
	System          string // added to the built-in system prompt; may be ""
	MaxOutputTokens int64  // 0: the provider's default
}

// A Provider is [providers.NAME], filled in from the preset of that name.
type Provider struct {
	Name              string
	Adapter           string
	BaseURL           string // absolute, http or https, without a slash at the end
	Script            string // of adapter "scripted": the absolute path of what it plays
	APIKey            Secret // zero: no key is sent
	Headers           map[string]string
	SecretHeaders     map[string]Secret
	AllowInsecureHTTP bool
	StreamIdleTimeout time.Duration // positive
	KeepaliveTimeout  time.Duration // positive
	ContextWindow     int64         // tokens; 0: unknown
	RetryPolicy       dsh.RetryPolicy

	origins map[string]Origin // of its keys
}

// Recovery is [recovery].
type Recovery struct {
	Dir              string // absolute; may not be there
	Engine           string
	RequireSignature bool
	Keys             []string
	Limits           Limits
	Policies         []Policy // the waterfall; none: every failure is final
}

// Limits is [recovery.limits]. A zero value is no ceiling.
type Limits struct {
	MaxAttemptsPerStep     int
	MaxWaitPerTurn         time.Duration
	MaxResentTokensPerTurn int64
	MinDelay               time.Duration
}

// A Policy is one [[recovery.policy]]. Of Builtin, Path and Reference one is
// set.
type Policy struct {
	Name         string
	Module       string // as written
	Builtin      string // the name after builtin:
	Path         string // absolute
	Reference    string // oci://…
	SHA256       string // that the module's bytes must have, lower case; "": any
	Capabilities []string
	FailOnFault  bool // on_fault = "fail"
	Process      bool // isolation = "process"
	Config       json.RawMessage
	MemoryMB     int
	HostCalls    int
	Origin       Origin // where the table stands

	node *node
}

// Compaction is [compaction].
type Compaction struct {
	ThresholdRatio   float64
	RetainRatio      float64
	SummaryMaxTokens int64
}

// Store is [store].
type Store struct {
	Backend string
	Dir     string // the data folder, absolute; may not be there

	// Redact are regular expressions: what matches is taken out of the events'
	// texts before they are logged.
	Redact []string

	// Key is what the log is encrypted with, or KeyFile the file (absolute) that
	// holds it. Neither: it is not encrypted.
	Key     Secret
	KeyFile string
}

// Instructions are the working folder's AGENTS.md, once it is trusted.
type Instructions struct {
	Path string
	Text string
}

// A Setting is one value as it was resolved.
type Setting struct {
	Key    string // dotted
	Value  any    // string, bool, int64, float64, []string, map[string]string or json.RawMessage
	Origin Origin
	Secret *Secret // the variable that Value names, if it names one

	title   string
	element *node
	name    string
}

// Sources is what a configuration is made of.
type Sources struct {
	File   string // --config; "": look for one
	NoFile bool   // read none at all

	// Cwd is the working folder; "": the process's.
	Cwd string
	// Env looks a variable up, as os.LookupEnv does, which nil stands for. An
	// empty variable counts as unset.
	Env func(string) (string, bool)

	Sets  []string // of --set, in order
	Flags []Flag   // stronger than Sets

	Support Support
	Presets []Preset
}
