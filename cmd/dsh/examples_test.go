package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/adapters/scripted"
)

// examplePolicy is the module of one of examples/policies. The one in Go is not
// committed, and built.
func examplePolicy(t *testing.T, name string) string {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples", "policies", name))
	if err != nil {
		t.Fatal(err)
	}
	if name != "retry-budget" {
		return filepath.Join(folder, name+".wasm")
	}
	if testing.Short() {
		t.Skip("it takes a while to build")
	}
	plain, packed := filepath.Join(t.TempDir(), "plain.wasm"), filepath.Join(t.TempDir(), name+".wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-buildmode=c-shared", "-o", plain, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command("dsh", "policy", "pack", plain, "--manifest", filepath.Join(folder, "manifest.json"), "-o", packed).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return packed
}

// listed makes the policy the first of the world's waterfall, with a config in
// TOML, and others behind it. A retry waits a moment only.
func (w *world) listed(t *testing.T, name, module, grants, config string, others ...string) {
	t.Helper()
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf("[providers.test.retry_policy.backoff]\ninitial_delay_ms = 1\n[[recovery.policy]]\nname = %q\nmodule = %q\ncapabilities = [%s]\nconfig = { %s }\n",
		name, module, grants, config)
	for _, o := range others {
		more += fmt.Sprintf("[[recovery.policy]]\nname = %q\nmodule = \"builtin:%s\"\n", o, o)
	}
	if err := os.WriteFile(w.config, append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A turnOf is one dsh run: what the provider plays, and what comes of it.
type turnOf struct {
	steps    []scripted.Step
	exit     int
	requests int
	says     string // on stdout or stderr
}

// turns runs dsh, a process a turn, on one data folder.
func (w *world) turns(t *testing.T, name, module, grants, config string, others []string, turns ...turnOf) {
	t.Helper()
	for i, turn := range turns {
		if err := w.play(turn.steps...); err != nil {
			t.Fatal(err)
		}
		w.listed(t, name, module, grants, config, others...)
		r := w.run(t, "run", "hello")
		if got := len(w.server.Requests()); r.code != turn.exit || got != turn.requests || !strings.Contains(r.out+r.err, turn.says) {
			t.Fatalf("turn %d: exit %d and %d requests, want %d and %d, and %q in\n%s%s", i+1, r.code, got, turn.exit, turn.requests, turn.says, r.out, r.err)
		}
	}
}

func down() []scripted.Step { return []scripted.Step{{Do: scripted.Status, Status: 503, Times: -1}} }

func downFor(n int) []scripted.Step {
	return []scripted.Step{{Do: scripted.Status, Status: 503, Times: n}, {Do: scripted.Text, Text: "an answer"}}
}

func calls(tool, arguments string, then ...scripted.Step) []scripted.Step {
	return append([]scripted.Step{{Do: scripted.Tool, Name: tool, Arguments: arguments}}, then...)
}

// TestExamplePolicies runs what the pages of examples/policies say, on the built
// command.
func TestExamplePolicies(t *testing.T) {
	limited := []scripted.Step{{Do: scripted.Status, Status: 429, Code: "insufficient_quota", Message: "You exceeded your current quota", Headers: map[string]string{"Retry-After": "1"}}, {Do: scripted.Text, Text: "an answer"}}
	for _, c := range []struct {
		name, grants, config string
		others               []string
		turns                []turnOf
	}{
		{"circuit-breaker", `"state.shared"`, "threshold = 3, openMs = 3600000", nil, []turnOf{
			{downFor(1), 0, 2, "an answer"},
			{down(), 75, 2, "the circuit of test is open for another 3600000 ms"}, // the third failure, over two processes
			{down(), 75, 1, "the circuit of test is open for another"},
		}},
		{"quota-wait", "", "acceptableWaitMs = 5000", []string{"retry"}, []turnOf{
			{limited, 0, 2, "an answer"},
			{downFor(2), 0, 3, "an answer"}, // which is for retry
		}},
		{"quota-wait", "", "acceptableWaitMs = 500", []string{"retry"}, []turnOf{{limited, 3, 1, "the quota is renewed in 1 s, and acceptable are 0 s"}}},
		{"business-hours", "", "days = [1, 2, 3, 4, 5, 6, 7], fromHour = 0, toHour = 24", nil, []turnOf{{down(), 75, 3, "2 retries are enough for a person to decide"}}},
		{"business-hours", "", "days = [], patientRetries = 1", nil, []turnOf{{down(), 75, 2, "all 1 retries outside of business hours are used"}}},
		{"no-second-effect", `"log.read"`, "", nil, []turnOf{
			{calls("list", "{}", downFor(1)...), 0, 3, "an answer"},
		}},
		{"no-second-effect", `"log.read"`, `safe = ["read"]`, nil, []turnOf{
			{downFor(1), 0, 2, "an answer"},
			{calls("list", "{}", down()...), 75, 2, "list has run in this turn"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, down()...)
			w.turns(t, c.name, examplePolicy(t, c.name), c.grants, c.config, c.others, c.turns...)
		})
	}
	t.Run("resend-cap", func(t *testing.T) {
		t.Parallel()
		w := prepare(t, down()...)
		module, grants := examplePolicy(t, "resend-cap"), `"state.session"`
		w.turns(t, "resend-cap", module, grants, "", nil, turnOf{downFor(3), 0, 4, "an answer"})
		tokens := (len(w.server.Requests()[0].Body) + 3) / 4
		w.turns(t, "resend-cap", module, grants, fmt.Sprintf("maxTokens = %d", 2*tokens+tokens/2), nil,
			turnOf{down(), 75, 3, fmt.Sprintf("retries of this turn have sent %d tokens again", 2*tokens)})
	})
}

// TestExamplesAreAsTheirCasesSay holds each example to its cases, and its
// module to its manifest.
func TestExamplesAreAsTheirCasesSay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "examples", "policies", "*", "cases.jsonl"))
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, cases := range files {
		name := filepath.Base(filepath.Dir(cases))
		if name == "retry-budget" {
			continue // it takes long to build: see TestRetryBudget
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asItsCasesSay(t, prepare(t, down()...), name, examplePolicy(t, name))
		})
	}
}

func asItsCasesSay(t *testing.T, w *world, name, module string) {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join("..", "..", "examples", "policies", name))
	if err != nil {
		t.Fatal(err)
	}
	if r := w.run(t, "policy", "test", module, "--cases", filepath.Join(folder, "cases.jsonl")); r.code != 0 {
		t.Errorf("%s%s", r.out, r.err)
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := os.ReadFile(module)
	if err != nil || !strings.Contains(string(wasm), strings.TrimSpace(string(manifest))) {
		t.Errorf("%v: the module has another manifest than manifest.json", err)
	}
}

// TestRetryBudget is all of the above of the one example in Go, which is built
// and compiled once.
func TestRetryBudget(t *testing.T) {
	t.Parallel()
	module := examplePolicy(t, "retry-budget")
	w := prepare(t, down()...)
	asItsCasesSay(t, w, "retry-budget", module)
	const said = "all sessions together have used their 3 retries"
	w.turns(t, "retry-budget", module, `"state.shared"`, "retries = 3, perMs = 36000000", nil,
		turnOf{downFor(2), 0, 3, "an answer"}, turnOf{down(), 75, 2, said}, turnOf{down(), 75, 1, said})
	other := prepare(t, down()...)
	other.env = append(other.env, "XDG_CACHE_HOME="+filepath.Join(filepath.Dir(w.config), "cache"))
	atOnce(t, other, module)
}

// atOnce: four processes at a time fail as often as they may, and together they
// have retried as often as the one budget allows.
func atOnce(t *testing.T, w *world, module string) {
	t.Helper()
	const processes, budget = 4, 6
	w.listed(t, "retry-budget", module, `"state.shared"`, fmt.Sprintf("retries = %d, perMs = 360000000", budget))
	results := make(chan ran, processes)
	for range processes {
		go func() { results <- w.run(t, "run", "hello") }()
	}
	for range processes {
		if r := <-results; r.code != 75 || !strings.Contains(r.err, "retry-budget delegated") {
			t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
		}
	}
	if got := len(w.server.Requests()); got != processes+budget {
		t.Errorf("%d requests, want %d first ones and %d retries", got, processes, budget)
	}
}
