package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

// A Workshop makes and tries policies. What is wrong with the user's words or
// files is a *UsageError.
type Workshop struct {
	Languages []string // that New knows

	// New writes a policy's project into a new folder parent/name.
	New func(parent, name, language string) (Project, error)

	// Pack writes a module with a manifest to another file, and returns what it
	// is then.
	Pack func(ctx context.Context, c Common, file, manifest, out string) (Module, error)

	// Test holds a policy to cases. With update it writes what the policy
	// answers now into their file.
	Test func(ctx context.Context, c Common, file, cases string, update bool) (Tested, error)

	// Simulate asks a policy about the failures of a log, which it leaves open.
	Simulate func(ctx context.Context, c Common, log dsh.Log, s Simulation) (Simulated, error)
}

// A Project is what `dsh policy new` has written.
type Project struct {
	Dir      string   `json:"dir"`
	Name     string   `json:"name"`
	Language string   `json:"language"`
	Files    []string `json:"files"` // relative to Dir
}

// Tested is what a policy made of its cases.
type Tested struct {
	Cases   []TestedCase
	Updated int // how many cases were written anew
}

// A TestedCase is a line of `dsh policy test --json`.
type TestedCase struct {
	Line        int              `json:"line"` // of the file of cases
	Name        string           `json:"name"`
	OK          bool             `json:"ok"`
	Differences []CaseDifference `json:"differences"`
	Answer      json.RawMessage  `json:"answer,omitempty"`
	Fault       string           `json:"fault,omitempty"` // kind and message
	Fuel        uint64           `json:"fuel,omitempty"`
}

// A CaseDifference is a place at which an answer is not as expected.
type CaseDifference struct {
	Path string `json:"path"`
	Have any    `json:"have"`
	Want any    `json:"want"`
}

// workshopCommands are those for who writes policies.
func (a *app) workshopCommands() []*cobra.Command {
	return []*cobra.Command{a.newCommand(), a.testCommand(), a.packCommand(), a.simulateCommand()}
}

func (a *app) newCommand() *cobra.Command {
	var language string
	c := &cobra.Command{
		Use: "new NAME --lang " + strings.Join(a.program.Workshop.Languages, "|"), Short: "Write a policy's project: it builds, and has its test cases",
		Long: `Writes a folder NAME with a policy that decides something sensible, the kit of its
language, test cases and a page on how to go on. "make" in it builds NAME.wasm.
Nothing is ever written over.`,
		Args: between(1, 1, "one name"),
		RunE: func(_ *cobra.Command, args []string) error {
			if language == "" {
				return Usagef("dsh policy new needs --lang: one of %s", strings.Join(a.program.Workshop.Languages, ", "))
			}
			p, err := a.program.Workshop.New(".", args[0], language)
			if err != nil {
				return err
			}
			if a.common.JSON {
				return writeJSON(a.out, p)
			}
			_, err = fmt.Fprintf(a.out, "wrote %s: a policy in %s, %s\n", oneLine(p.Dir, 500), p.Language, count(len(p.Files), "file", "files"))
			a.progress(plain, fmt.Sprintf("cd %s && make test; README.md says how to go on", oneLine(p.Name, 64)))
			return err
		},
	}
	c.Flags().StringVar(&language, "lang", "", "the `language` that it is written in")
	return c
}

func (a *app) packCommand() *cobra.Command {
	var manifest, out string
	c := &cobra.Command{
		Use: "pack FILE --manifest MANIFEST -o OUT", Short: "Write a manifest into a module, for toolchains that cannot",
		Long: `Writes the module FILE to OUT with the manifest as its custom section dsh.policy, in
the place of one that it has. OUT may be FILE. The manifest is a JSON object:

  {"abi":"dsh:policy/v1","name":"…","version":"…","description":"…","capabilities":["…"]}`,
		Args: between(1, 1, "one file"),
		RunE: func(c *cobra.Command, args []string) error {
			if manifest == "" || out == "" {
				return Usagef("dsh policy pack needs --manifest and -o")
			}
			m, err := a.program.Workshop.Pack(c.Context(), a.common, args[0], manifest, out)
			if err != nil {
				return err
			}
			for _, p := range m.Problems {
				a.progress(yellow, "dsh: it would be refused: "+oneLine(p, longMessage))
			}
			if a.common.JSON {
				m.Asks, m.Hooks, m.Problems, m.Exports, m.Imports = listed(m.Asks), listed(m.Hooks), listed(m.Problems), listed(m.Exports), listed(m.Imports)
				return writeJSON(a.out, m)
			}
			_, err = fmt.Fprintf(a.out, "packed %s: %s %s, %d bytes, sha256 %.12s\n", oneLine(m.File, 500), orDash(oneLine(m.Name, 64)), orDash(oneLine(m.Version, 64)), m.Size, m.Digest)
			return err
		},
	}
	c.Flags().StringVar(&manifest, "manifest", "", "the `file` with the manifest")
	c.Flags().StringVarP(&out, "output-file", "o", "", "the `file` to write")
	return c
}

// testHelp describes a file of cases.
const testHelp = `Asks a policy about each case of a file, and prints each difference between what
it answers and what is expected. Exits with 1 if there is any.

A case is a JSON object on a line of its own:

  {"name":"…","failure":{"code":"RATE_LIMIT","providerRetryAfterMs":2000},
   "context":{"retries":1},"expect":{"kind":"retry","delayMs":2000}}

failure   what failed: code, and if it matters message, status,
          providerRetryAfterMs and requestId
context   what else is known, where it is not as in a session's first failure:
          any field of the input (config, attempt, purpose, provider, nowMs,
          random, retryPolicy, retryCounts, repairs, surface, limits, …), objects
          field by field; and
          retries    how often the policy has retried in this step
          state      its memory: {"session":{KEY:VALUE},"shared":{KEY:VALUE}}
          log        the events that log_read finds: [{"seq","at","type","data"}]
          hostCalls  answers of host functions: [{"function","argument","answer"}]
expect    fields of the answer; those that are not named may be as they like. A
          number may be a range: {"min":200,"max":300}. Besides those of a
          decision: fault (its kind), state (its memory afterwards) and emitted
          (a list of {"type","data"})
hook      recover (if it is left out), before_step, or check_config, of which
          problems are expected: the sentences about context.config

A key that is not known is refused. The policy gets every capability that it asks
for. --update writes what the policy answers now into each case that differs.`

func (a *app) testCommand() *cobra.Command {
	var cases string
	var update bool
	c := &cobra.Command{
		Use: "test FILE --cases CASES.jsonl", Short: "Hold a policy to cases: what is known, and what it is to decide", Long: testHelp,
		Args: between(1, 1, "one file, or builtin:NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if cases == "" {
				return Usagef("dsh policy test needs --cases: a file with a case a line")
			}
			t, err := a.program.Workshop.Test(c.Context(), a.common, args[0], cases, update)
			if err != nil {
				return err
			}
			return a.tested(t, cases)
		},
	}
	c.Flags().StringVar(&cases, "cases", "", "the `file` of cases, JSON Lines")
	c.Flags().BoolVar(&update, "update", false, "write what the policy answers now into the cases that differ")
	return c
}

// tested says what a policy made of its cases.
func (a *app) tested(t Tested, file string) error {
	bad := 0
	for _, c := range t.Cases {
		if !c.OK {
			bad++
		}
		c.Differences = listed(c.Differences)
		var err error
		if a.common.JSON {
			err = writeJSON(a.out, c)
		} else {
			err = a.testedCase(c)
		}
		if err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s, %d as expected", count(len(t.Cases), "case", "cases"), len(t.Cases)-bad)
	if t.Updated > 0 {
		a.progress(yellow, fmt.Sprintf("%s; %s written anew in %s: look at the difference before you keep it", text, count(t.Updated, "case was", "cases were"), oneLine(file, 200)))
	} else {
		a.progress(plain, text)
	}
	if bad > t.Updated {
		return exit(ExitError)
	}
	return nil
}

// maxShownDifferences bounds what is printed of one case.
const maxShownDifferences = 20

func (a *app) testedCase(c TestedCase) error {
	name := c.Name
	if name == "" {
		name = "the case"
	}
	var b strings.Builder
	word := "ok  "
	if !c.OK {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s  line %d: %s\n", word, c.Line, oneLine(name, 200))
	for i, d := range c.Differences {
		if i == maxShownDifferences {
			fmt.Fprintf(&b, "      and %d more\n", len(c.Differences)-i)
			break
		}
		path := d.Path
		if path == "" {
			path = "the answer"
		}
		fmt.Fprintf(&b, "      %s is %s, and %s is expected\n", oneLine(path, 200), shownValue(d.Have), shownValue(d.Want))
	}
	if !c.OK && c.Fault != "" {
		fmt.Fprintf(&b, "      fault: %s\n", oneLine(c.Fault, longMessage))
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// shownValue is a value for a person.
func shownValue(v any) string {
	if v == nil {
		return "nothing"
	}
	raw, err := dsh.JSON(v)
	if err != nil {
		return "?"
	}
	return oneLine(string(raw), 300)
}
