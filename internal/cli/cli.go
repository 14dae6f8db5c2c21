// Package cli is the command line of dsh: it reads arguments, runs a turn or
// reads the log, and writes the answer to stdout and all else to stderr.
//
// It knows the vocabulary and the loop. Everything that is real (the store,
// the providers, the policies, the configuration) is handed in as a [Program].
// It starts no process-wide thing: signals reach it as the cause of a context
// that ended, loop.ErrAbort or loop.ErrSuspend.
package cli

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// A Program is the rest of dsh as the command line sees it. Every function is
// called at most once in a process, and only by the commands that need it.
// What is wrong with the user's words or configuration is a *UsageError.
type Program struct {
	Build Build

	// Log opens the log of the data folder; the caller closes it.
	Log func(ctx context.Context, c Common) (dsh.Log, error)

	// Upkeep is what the commands need that look after the log.
	Upkeep Upkeep

	// Setup resolves and checks all that a turn runs with. The caller closes it.
	Setup func(ctx context.Context, c Common, o RunOptions) (*Setup, error)

	// Demo is the Setup of `dsh demo`: a provider that fails on cue.
	Demo func(ctx context.Context, c Common) (*Setup, error)

	// Policies is the configured waterfall in its order.
	Policies func(ctx context.Context, c Common) ([]Policy, error)

	// Inspect says what a module is, without running it.
	Inspect func(ctx context.Context, c Common, file string) (Module, error)

	// Install puts a module into the policies folder, Rollback exchanges a
	// policy's file there with the one before, and Remove takes it out.
	Install  func(ctx context.Context, c Common, i Installation) (Change, error)
	Rollback func(ctx context.Context, c Common, name string) (Change, error)
	Remove   func(ctx context.Context, c Common, name string) (Change, error)

	// Explain prepares a session, kept nowhere, that meets a failure under the
	// configured waterfall. What it returns plays it, and tells each event since
	// the failure; it is called once.
	Explain func(ctx context.Context, c Common, f dsh.Failure) (func(context.Context, func(dsh.Event) error) error, error)

	// Replayer makes what runs logged decisions again.
	Replayer func(ctx context.Context, c Common) (Replayer, error)

	// Sign signs a module, or makes a key to sign with.
	Sign func(ctx context.Context, c Common, s Signing) (Signed, error)

	// Workshop makes and tries policies.
	Workshop Workshop

	// Push puts a module into a registry.
	Push func(ctx context.Context, c Common, file, reference string) (Pushed, error)

	// Adapters are the names that Classify knows.
	Adapters []string

	// Classify makes the failure that an adapter makes of a response, nil for
	// a good one, and says in words how it came to it.
	Classify func(ctx context.Context, adapter string, r Response) (*dsh.Failure, string, error)

	// Config reads the configuration for `dsh config check` and `show`.
	Config func(ctx context.Context, c Common) (Resolved, error)

	// Trust makes the configuration of the working folder count, and says what
	// it did, a line each.
	Trust func(ctx context.Context, c Common) ([]string, error)
}

// Common is what every command is given: its flags, and an ear.
type Common struct {
	ConfigFile string   // --config
	DataDir    string   // --data-dir
	Provider   string   // --provider
	Model      string   // --model
	Set        []string // --set, KEY=VALUE each
	Quiet      bool     // --quiet: no progress
	Verbose    bool     // --verbose: more of it
	JSON       bool     // --json

	// Warn is told what the user should know although the command goes on: what
	// was left aside or mended, in one line each. It may be called from several
	// goroutines. It is set.
	Warn func(string)

	// Tell is told what shows with --verbose only. Otherwise it is as Warn.
	Tell func(string)
}

// RunOptions are the flags of `dsh run` that decide what a turn runs with.
type RunOptions struct {
	Cwd      string    // --cwd; "": the session's folder, or the present one
	Tools    *[]string // --tools; nil: as configured
	MaxSteps int       // --max-steps; 0: as configured
	MaxWait  time.Duration
	Yes      bool // --yes: tools that change things run without a question

	// Ask asks the person at the terminal whether a tool may do what the text
	// says. nil: there is no such person. It is for one question at a time, and
	// its error is the cause of a context that ended.
	Ask func(ctx context.Context, tool, text string) (Answer, error)
}

// A Setup is all that turns run with.
type Setup struct {
	Log dsh.Log

	// Cwd is the absolute working folder of a new session.
	Cwd string

	// Configure makes the loop's configuration for a session in a folder. The
	// front is left out.
	Configure func(cwd string) (loop.Config, error)

	// Describe tells what errors name of a provider.
	Describe func(provider string) ProviderFacts

	// Close lets go of everything, the log too. It is called once. What the log
	// could not make durable is a *LogError.
	Close func() error
}

// ProviderFacts are what an error for people names of a provider.
type ProviderFacts struct {
	BaseURL     string
	KeyVariable string // "": it takes no key
}

// Build says which build of dsh this is.
type Build struct {
	Version  string   // of the module, or "devel"
	Revision string   // of the source; may be ""
	Go       string   // the toolchain
	Platform string   // os/arch
	ABIs     []string // of guests
	Engines  []string // that run guests
}

// A Policy is one line of `dsh policy list`.
type Policy struct {
	dsh.PolicyInfo
	State   string // ready, or why it is not
	Origin  string // what puts it into the waterfall: config or folder
	Trust   string // built-in, signed, pinned or accepted; "": nobody vouches for it
	Signer  string // "": nobody has signed it
	Refused bool   // it is a file that was refused, and decides nothing
}

// An Installation is what `dsh policy install` is to do.
type Installation struct {
	File   string // or a reference
	Name   string // "": the module's own
	Accept bool   // it may have what its name is granted, and be older than before
}

// A Change is what became of a policy of the policies folder.
type Change struct {
	Did      string   `json:"did"` // installed, removed or rolled back
	Name     string   `json:"name"`
	File     string   `json:"file"` // its place in the folder
	Version  string   `json:"version,omitempty"`
	Digest   string   `json:"digest,omitempty"` // of the module that is there now; "": none
	Granted  []string `json:"granted"`
	Withheld []string `json:"withheld"` // grants that it has not because nobody vouches for it
	Signer   string   `json:"signer,omitempty"`
	Accepted bool     `json:"accepted"`
	Before   string   `json:"before,omitempty"` // source of what decided under the name before; "": nothing
	After    string   `json:"after,omitempty"`  // and after, where Digest is ""
}

// A Module is what `dsh policy inspect` tells of a file.
type Module struct {
	File        string   `json:"file"`
	Size        int64    `json:"size"`   // bytes
	Digest      string   `json:"digest"` // SHA-256, hex
	Name        string   `json:"name,omitempty"`
	Version     string   `json:"version,omitempty"`
	Description string   `json:"description,omitempty"`
	ABI         string   `json:"abi,omitempty"`
	Asks        []string `json:"asks"` // capabilities
	Hooks       []string `json:"hooks"`
	Functions   int      `json:"functions"`   // defined
	MemoryPages uint64   `json:"memoryPages"` // that it starts with, of 64 KiB
	Exports     []string `json:"exports"`
	Imports     []string `json:"imports"`
	Problems    []string `json:"problems"` // why it would be refused; none: it would not

	Signature *ModuleSignature `json:"signature"` // null: it has none
}

// A ModuleSignature is what `dsh policy inspect` tells of a signature.
type ModuleSignature struct {
	Key     string `json:"key"` // the id of the key that is said to have made it
	Name    string `json:"name"`
	Version string `json:"version"`
	Good    *bool  `json:"good"` // whether it is; null: the key is not listed
}

// A Response is a recorded answer of a provider.
type Response struct {
	Status int // 0: 200
	Header http.Header
	Body   []byte
}

// A Resolved is the configuration as it counts.
type Resolved struct {
	File    string   // that was read; "": none
	Hazards []string // what holds and is likely not meant, a line each

	// WriteText writes every setting with its origin for a person, WriteJSON
	// one object a line.
	WriteText, WriteJSON func(io.Writer) error
}

// The exit codes.
const (
	ExitDone        = 0
	ExitError       = 1
	ExitUsage       = 2   // usage, or a configuration that does not hold
	ExitFailed      = 3   // the provider failed for good
	ExitLog         = 4   // the log could not be opened, read or written
	ExitCut         = 5   // a limit cut the turn
	ExitTransient   = 75  // the provider failed in a way that passes: EX_TEMPFAIL of sysexits.h
	ExitInterrupted = 130 // SIGINT: 128 plus its number
	ExitTerminated  = 143 // SIGTERM: 128 plus its number
)

// Run runs the command of args, which do not name the program, and returns its
// exit code. It returns soon after ctx ends; the cause says how: see
// loop.ErrAbort and loop.ErrSuspend. A panic becomes one line.
func Run(ctx context.Context, args []string, p Program, s Streams) (code int) {
	out := newOutput(s.Out)
	a := &app{program: p, in: s.In, inTerminal: s.InTerminal, out: out, say: newScreen(out, s)}
	defer a.say.close()
	a.common.Warn = func(text string) { a.say.line(yellow, "dsh: "+oneLine(text, longWarning)) }
	a.common.Tell = func(text string) {
		if a.verbose() {
			a.say.line(dim, oneLine(text, longWarning))
		}
	}
	defer func() {
		if v := recover(); v != nil {
			a.say.error("a fault of dsh itself: %v; what is in the log is safe", v)
			code = ExitError
		}
	}()
	root := a.root()
	root.SetArgs(reorder(root, args))
	root.SetIn(s.In)
	root.SetOut(a.out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.out.err()
	}
	return a.report(ctx, err)
}
