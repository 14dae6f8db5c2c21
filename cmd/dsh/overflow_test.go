package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
)

// most is how many bytes of a request the providers here take.
const most = 40_000

// upTo refuses what is too long, and does step otherwise.
func upTo(step scripted.Step) scripted.Step {
	return scripted.Step{Do: scripted.Overflow, IfBodyOver: most, Else: &step}
}

// saying answers with so many bytes, in a few pieces.
func saying(n int) scripted.Step {
	return scripted.Step{Do: scripted.Text, Text: strings.Repeat("one more word ", n/14), Chunks: 10}
}

// talk plays a session of two turns with a long answer each.
func talk(t *testing.T, each int) *world {
	t.Helper()
	w := prepare(t, saying(each), saying(each))
	for _, args := range [][]string{{"run", "tell me"}, {"run", "--resume", "last", "and more"}} {
		if r := w.run(t, args...); r.code != 0 {
			t.Fatalf("exit %d: %s", r.code, r.err)
		}
	}
	return w
}

// went checks how a dsh ended, and after how many requests at the most.
func (w *world) went(t *testing.T, r ran, code, requests int, said ...string) {
	t.Helper()
	if n := len(w.server.Requests()); r.code != code || n > requests {
		t.Errorf("exit %d after %d requests, want %d after %d at most; stdout %q, stderr %s", r.code, n, code, requests, r.out, r.err)
	}
	for _, s := range said {
		if !strings.Contains(r.err, s) {
			t.Errorf("stderr does not say %q: %s", s, r.err)
		}
	}
}

// Two tool results that are too long together are shortened, and the answer
// comes; the whole results stay in the log.
func TestOverflowOfToolResults(t *testing.T) {
	t.Parallel()
	calls := scripted.Step{Do: scripted.Tool, Tools: []scripted.Call{
		{Name: "read", Arguments: `{"path":"f1.txt"}`}, {Name: "read", Arguments: `{"path":"f2.txt"}`},
	}}
	done := upTo(answer("the answer"))
	done.Times = -1
	w := prepare(t, upTo(calls), done)
	for n := 1; n <= 2; n++ {
		text := strings.Repeat(fmt.Sprintf("line of file %d, as long as lines are\n", n), 1000)
		if err := os.WriteFile(filepath.Join(w.dir, fmt.Sprintf("f%d.txt", n)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := w.run(t, "run", "read both")
	w.went(t, r, cli.ExitDone, 8, "is shortened for the model", "decided by compaction")
	if r.out != "the answer\n" {
		t.Errorf("stdout %q", r.out)
	}
	whole := 0
	for _, e := range ofType(w.events(t), dsh.TypeToolResult) {
		if len(e.Data) > 30_000 {
			whole++
		}
	}
	if whole != 2 {
		t.Errorf("%d whole results in the log", whole)
	}
}

// A conversation with nothing to prune is summarised, over a rate limit on the
// request for the summary, which is the retry policy's.
func TestOverflowOfAConversation(t *testing.T) {
	t.Parallel()
	w := talk(t, most)
	if err := w.play(upTo(answer("x")), rateLimit("1"), upTo(answer("They talked of words.")), upTo(answer("the answer"))); err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "run", "--resume", "last", "and now?")
	w.went(t, r, cli.ExitDone, 4, "compaction (overflow)", "decided by retry", "the summary stands for")
	if r.out != "the answer\n" {
		t.Errorf("stdout %q", r.out)
	}
	last := w.server.Requests()[3]
	if body := string(last.Body); !strings.Contains(body, "They talked of words.") || !strings.Contains(body, "and now?") || len(body) > most/2 {
		t.Errorf("the last request has %d bytes: %.300s", len(body), body)
	}
	if r := w.run(t, "sessions", "show", "last"); !strings.Contains(r.out, "context   about ") || !strings.Contains(r.out, "the summary stands for") {
		t.Errorf("sessions show: %s", r.out)
	}
}

// What is too long however short it is made ends within the budgets, and the
// largest parts are named.
func TestOverflowForever(t *testing.T) {
	t.Parallel()
	w := talk(t, most)
	always := scripted.Step{Do: scripted.Overflow, Times: -1}
	if err := w.play(always); err != nil {
		t.Fatal(err)
	}
	w.went(t, w.run(t, "run", "--resume", "last", "and now?"), cli.ExitFailed, 12,
		"CONTEXT_WINDOW_EXCEEDED", "the largest parts of the request are", "(39998 bytes)")
	if err := w.play(always); err != nil {
		t.Fatal(err)
	}
	w.went(t, w.run(t, "run", "hi"), cli.ExitFailed, 3, "the largest parts of the request are the")
	summary := scripted.Rule{BodyContains: "You write the memory", Step: answer("short")}
	if err := w.script(scripted.Script{Rules: []scripted.Rule{summary}, Steps: []scripted.Step{always}}); err != nil {
		t.Fatal(err)
	}
	w.went(t, w.run(t, "run", strings.Repeat("one prompt that is too long ", 3000)), cli.ExitFailed, 6, "the user's message of event 3 (84000 bytes)")
}

// A provider that counts more than the threshold, or more than the window, in
// every answer does not make dsh compact without end.
func TestPressureIsBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tokens int64
		code   int
	}{{3900, cli.ExitDone}, {9000, cli.ExitFailed}} {
		w := talk(t, 6000)
		full := scripted.Step{Do: scripted.Text, Text: "the answer", InputTokens: c.tokens, Times: -1}
		summary := scripted.Rule{BodyContains: "You write the memory", Step: answer("They talked.")}
		if err := w.script(scripted.Script{Rules: []scripted.Rule{summary}, Steps: []scripted.Step{full}}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			before := len(w.server.Requests())
			r := w.run(t, "run", "--resume", "last", "go on", "--set", "providers.test.context_window=4000")
			w.went(t, r, c.code, before+3)
		}
		summaries := 0
		for _, q := range w.server.Requests() {
			if strings.Contains(string(q.Body), "You write the memory") {
				summaries++
			}
		}
		if summaries == 0 {
			t.Error("pressure did not lead to a summary")
		}
	}
}

func TestCompactByHand(t *testing.T) {
	t.Parallel()
	w := talk(t, 6000)
	for _, c := range []struct {
		name     string
		steps    []scripted.Step
		args     []string
		code     int
		requests int
		said     string
	}{
		{"a key that is not accepted", []scripted.Step{{Do: scripted.Status, Status: 401}}, nil, cli.ExitFailed, 1, "to try again: dsh compact"},
		{"a rate limit", []scripted.Step{{Do: scripted.Status, Status: 429, Times: -1}}, []string{"--set", "providers.test.retry_policy.max_retries=0"}, cli.ExitTransient, 1, "RATE_LIMIT"},
		{"a summary that is cut", []scripted.Step{{Do: scripted.Text, Text: "short", Finish: "length"}}, nil, cli.ExitError, 1, "is as it was: the summary was cut"},
		{"a good one", []scripted.Step{rateLimit("1"), answer("They talked of words.")}, nil, cli.ExitDone, 2, "is compacted"},
		{"nothing to summarise", []scripted.Step{answer("They talked of words.")}, nil, cli.ExitError, 0, "is as it was: "},
	} {
		if err := w.play(c.steps...); err != nil {
			t.Fatal(err)
		}
		r := w.run(t, append([]string{"compact", "last"}, c.args...)...)
		if r.out != "" {
			t.Errorf("%s: stdout %q", c.name, r.out)
		}
		t.Log(c.name)
		w.went(t, r, c.code, c.requests, c.said)
	}
	if err := w.play(answer("the answer")); err != nil {
		t.Fatal(err)
	}
	if r := w.run(t, "run", "--resume", "last", "and now?"); r.code != 0 || !strings.Contains(string(w.server.Requests()[0].Body), "They talked of words.") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	if r := w.run(t, "compact", "no-such"); r.code == 0 || r.code == cli.ExitFailed {
		t.Errorf("no such session: exit %d", r.code)
	}
	if r := w.run(t, "compact"); r.code != cli.ExitUsage {
		t.Errorf("no session named: exit %d", r.code)
	}
}
