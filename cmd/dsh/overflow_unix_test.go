//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
)

// A mortalTurn is what a dsh does that is to be killed, on a session that is
// there before.
type mortalTurn struct {
	world    func(t *testing.T) *world
	args     []string
	answers  func(body string, asked int) string // words of narrow: to the asked-th request of its kind
	requests int                                 // at most, the one that was lost included
	check    func(events []dsh.Event) string     // what is wrong with the log; "" nothing
	answer   string                              // on stdout, once or, where its turn/end was lost, twice
}

// mortalTurns are the ways in which an overflow is got over.
func mortalTurns() map[string]mortalTurn {
	summarised := func(body string, asked int) string {
		if !strings.Contains(body, "You write the memory") {
			return "answer"
		}
		if asked == 1 {
			return "429"
		}
		return "summary"
	}
	oneSummary := func(events []dsh.Event) string {
		if n := len(ofType(events, dsh.TypeCompactionSummary)); n != 1 {
			return fmt.Sprintf("%d summaries", n)
		}
		return ""
	}
	return map[string]mortalTurn{
		"a conversation, with a 429 on the summary": {
			world: func(t *testing.T) *world { return talk(t, most) }, args: []string{"run", "--resume", "last", "and now?"},
			answers: summarised, requests: 6, check: oneSummary, answer: finalText,
		},
		"tool results": {
			world: longFiles, args: []string{"run", "--resume", "last", "read both"},
			answers: func(body string, _ int) string {
				if strings.Contains(body, `"role":"tool"`) {
					return "answer"
				}
				return "read both"
			},
			requests: 5, answer: finalText,
			check: func(events []dsh.Event) string {
				short := 0
				for _, e := range ofType(events, dsh.TypeToolResult) {
					if e.Surface != nil && e.Surface.Op == dsh.SurfaceReplace {
						short++
					}
				}
				if lost := bytes.Contains(bytes.Join(lines(events), nil), []byte("unknown")); short != 2 && !lost {
					return fmt.Sprintf("%d results were shortened", short)
				}
				return ""
			},
		},
		"a compaction by hand": {
			world: func(t *testing.T) *world { return talk(t, 6000) }, args: []string{"compact", "last"},
			answers: summarised, requests: 4, check: oneSummary,
		},
	}
}

// longFiles is a session with two files that are too long together.
func longFiles(t *testing.T) *world {
	w := prepare(t, answer("ready"))
	for n := 1; n <= 2; n++ {
		text := strings.Repeat(fmt.Sprintf("line of file %d, as long as lines are\n", n), 1000)
		if err := os.WriteFile(filepath.Join(w.dir, fmt.Sprintf("f%d.txt", n)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.run(t, "run", "hello"); r.code != 0 {
		t.Fatal(r.err)
	}
	return w
}

func lines(events []dsh.Event) (all [][]byte) {
	for _, e := range events {
		all = append(all, e.Line())
	}
	return all
}

// A dsh that is killed before or after any append of a turn that gets over an
// overflow goes on with it, and ends as if nothing had been.
func TestACompactionThatIsKilled(t *testing.T) {
	for name, turn := range mortalTurns() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := turn.world(t)
			data := filepath.Join(w.dir, "home", "data")
			old := filepath.Join(w.dir, "old")
			if err := os.CopyFS(old, os.DirFS(data)); err != nil {
				t.Fatal(err)
			}
			step, kills := 1, 0
			if testing.Short() {
				step = 9
			}
			for _, when := range []string{"before", "after"} {
				for n := 1; ; n += step {
					if err := os.RemoveAll(data); err != nil {
						t.Fatal(err)
					}
					if err := os.CopyFS(data, os.DirFS(old)); err != nil {
						t.Fatal(err)
					}
					if !w.killed(t, turn, fmt.Sprintf("%s:%d", when, n)) {
						break
					}
					kills++
				}
			}
			if !testing.Short() && kills < 12 {
				t.Errorf("%d kills: the turn has more appends than that", kills)
			}
		})
	}
}

// killed kills the turn, resumes it, and checks how it came out. It reports
// false where the turn was over before.
func (w *world) killed(t *testing.T, turn mortalTurn, when string) bool {
	t.Helper()
	requests := w.narrow(t, turn.answers)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	c := exec.CommandContext(ctx, "dsh-dying", turn.args...)
	c.Dir, c.Env, c.Stdout = w.dir, append(append(os.Environ(), w.env...), "DSH_TEST_DIE="+when), &out
	if err := c.Run(); err == nil {
		return false
	}
	r := w.run(t, "run", "--resume", "last")
	if r.code == cli.ExitUsage && len(ofType(w.stored(t), dsh.TypeCompactionSummary)) == 0 && out.Len() == 0 {
		r = w.run(t, turn.args...) // nothing of it was stored
	}
	text := out.String() + r.out
	if r.code != cli.ExitDone && r.code != cli.ExitUsage || strings.ReplaceAll(text, turn.answer+"\n", "") != "" || !strings.Contains(text, turn.answer) {
		t.Errorf("%s: exit %d, stdout %q and %q, %s", when, r.code, out.String(), r.out, r.err)
	}
	events := w.stored(t)
	if problem := turn.check(events); problem != "" {
		t.Errorf("%s: %s", when, problem)
	}
	if a, b := len(ofType(events, dsh.TypeCompactionStart)), len(ofType(events, dsh.TypeCompactionEnd)); a != b {
		t.Errorf("%s: %d compactions begun, %d ended", when, a, b)
	}
	if n := int(requests.Load()); n > turn.requests {
		t.Errorf("%s: %d requests", when, n)
	}
	return true
}

// narrow lets a provider answer that takes no bodies over most. It counts what
// it was sent.
func (w *world) narrow(t *testing.T, answers func(body string, asked int) string) *atomic.Int64 {
	t.Helper()
	var requests, summaries atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its sender died
		}
		requests.Add(1)
		if len(body) > most {
			http.Error(rw, `{"error":{"message":"This model's maximum context length is 10000 tokens.","code":"context_length_exceeded"}}`, http.StatusBadRequest)
			return
		}
		asked := 0
		if strings.Contains(string(body), "You write the memory") {
			asked = int(summaries.Add(1))
		}
		respond(rw, answers(string(body), asked))
	}))
	t.Cleanup(s.Close)
	if err := w.configure(s.URL + "/v1"); err != nil {
		t.Fatal(err)
	}
	return &requests
}

// Alternating rate limits and overflows in one step: each policy spends its own
// budget alone, and the sum bounds the whole.
func TestAlternatingFailures(t *testing.T) {
	t.Parallel()
	w := talk(t, most)
	limited := scripted.Step{Do: scripted.Status, Status: 429, Headers: map[string]string{"Retry-After-Ms": "1"}}
	var steps []scripted.Step
	for range 20 {
		steps = append(steps, limited, scripted.Step{Do: scripted.Overflow})
	}
	summary := scripted.Rule{BodyContains: "You write the memory", Step: scripted.Step{Do: scripted.Text, Text: "They talked of words.", Times: -1}}
	if err := w.script(scripted.Script{Rules: []scripted.Rule{summary}, Steps: steps}); err != nil {
		t.Fatal(err)
	}
	quick := "providers.test.retry_policy.backoff.initial_delay_ms=1"
	r := w.run(t, "run", "--resume", "last", "and now?", "--set", quick)
	// One reply, five retries of the retry policy, two rounds of compaction
	// with a summary each.
	w.went(t, r, cli.ExitFailed, 1+5+2+2, "CONTEXT_WINDOW_EXCEEDED")
	spent := map[string]int{}
	for _, e := range ofType(w.events(t), dsh.TypeRetry) {
		var d dsh.Retry
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		spent[d.Policy]++
	}
	if spent["retry"] < 1 || spent["retry"] > 5 || spent["compaction"] < 1 || spent["compaction"] > 2 {
		t.Errorf("retries by policy: %v", spent)
	}
}
