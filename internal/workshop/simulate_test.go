package workshop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/workshop"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// nothing is a tool that does nothing.
type nothing struct{}

func (nothing) Spec() dsh.ToolSpec {
	return dsh.ToolSpec{Name: "nothing", Schema: json.RawMessage(`{"type":"object"}`), Idempotent: true}
}

func (nothing) Run(context.Context, json.RawMessage) (dsh.ToolResult, error) {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock("done")}}, nil
}

// counted retries some codes so often, a little later each time.
func counted(name string, most int, stepMs float64, codes ...dsh.Code) dsh.Policy {
	return dsh.NativePolicy(name, func(in dsh.RecoverInput) dsh.Decision {
		n := 0
		for _, c := range in.RetryCounts {
			if c.Policy == in.Policy && c.Purpose == in.Purpose {
				n += c.Count
			}
		}
		for _, c := range codes {
			if c == in.Failure.Code && n < most {
				return dsh.Decision{Kind: dsh.KindRetry, DelayMs: stepMs * float64(n+1)}
			}
		}
		return dsh.Decision{Kind: dsh.KindDelegate, Reason: fmt.Sprintf("%d retries", n)}
	})
}

// play runs one prompt a script under a waterfall, into a log.
func play(t *testing.T, log dsh.Log, limits loop.Limits, scripts [][]scripted.Step, policies ...dsh.Policy) {
	t.Helper()
	for i, steps := range scripts {
		server, err := scripted.Serve(steps...)
		if err != nil {
			t.Fatal(err)
		}
		adapter, err := openaichat.New(openaichat.Settings{BaseURL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		s, err := loop.Create(t.Context(), log, dsh.SessionStart{ID: dsh.SessionID(fmt.Sprintf("s%d", i))}, loop.Config{
			Provider: "test", Model: "m", Tools: []dsh.Tool{nothing{}}, Limits: limits, Policies: dsh.FixedWaterfall(policies),
			Providers: func(string) (loop.Provider, error) {
				return loop.Provider{Adapter: adapter, Retry: dsh.DefaultRetryPolicy()}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prompt(t.Context(), []dsh.Block{dsh.TextBlock("go on")}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		adapter.Close()
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func simulate(t *testing.T, log dsh.Log, p dsh.Policy, name string) (*workshop.Report, []workshop.Row) {
	t.Helper()
	var rows []workshop.Row
	r, err := workshop.Simulation{Log: log, Policy: p, Name: name, Failure: func(row workshop.Row) error {
		rows = append(rows, row)
		return nil
	}}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, rows
}

func fails(status, times int) scripted.Step {
	return scripted.Step{Do: scripted.Status, Status: status, Times: times}
}

func says() scripted.Step { return scripted.Step{Do: scripted.Text, Text: "an answer"} }

// TestTotalsAreThoseOfRunningIt runs a script under one policy, simulates
// another on what that left, and really runs the other on the same script.
func TestTotalsAreThoseOfRunningIt(t *testing.T) {
	call := scripted.Step{Do: scripted.Tool, Name: "nothing", Arguments: "{}"}
	scripts := [][]scripted.Step{
		{fails(429, 3), says()},
		{fails(500, -1)},
		{fails(401, -1)},
		{fails(503, 2), call, fails(429, 1), {Do: scripted.Empty}, says()},
		{{Do: scripted.Reset}, call, fails(500, -1)},
		{says()},
	}
	all := []dsh.Code{dsh.CodeRateLimit, dsh.CodeServer, dsh.CodeTransport, dsh.CodeEmptyResponse}
	for _, c := range []struct {
		about         string
		was, is       dsh.Policy
		limits        loop.Limits
		others        []dsh.Policy
		lost, changed int
	}{
		{"the same", counted("retry", 3, 1, all...), counted("retry", 3, 1, all...), loop.Limits{}, nil, 0, 0},
		{"other delays", counted("retry", 3, 1, all...), counted("retry", 3, 2.5, all...), loop.Limits{}, nil, 0, -1},
		{"gives up sooner", counted("retry", 3, 1, all...), counted("retry", 2, 1, all...), loop.Limits{}, nil, 1, -1},
		{"gives up at once", counted("retry", 3, 1, all...), counted("retry", 0, 1, all...), loop.Limits{}, nil, 2, -1},
		{"goes on longer", counted("retry", 3, 1, all...), counted("retry", 7, 1, all...), loop.Limits{}, nil, 0, -1},
		{"knows fewer codes", counted("retry", 3, 1, all...), counted("retry", 3, 1, dsh.CodeRateLimit), loop.Limits{}, nil, 1, -1},
		{"retries what no other does", counted("retry", 3, 1, all...), counted("retry", 4, 1, append(all, dsh.CodeAuth)...), loop.Limits{}, nil, 0, -1},
		{"up to the ceiling of attempts", counted("retry", 3, 1, all...), counted("retry", 1000, 0, all...), loop.Limits{MaxAttemptsPerStep: 9}, nil, 0, -1},
		{"up to the ceiling of waits", counted("retry", 3, 1, all...), counted("retry", 1000, 3, all...), loop.Limits{MaxWaitPerTurn: 60 * time.Millisecond}, nil, 0, -1},
		{"before another", counted("retry", 3, 1, all...), counted("first", 1, 4, dsh.CodeRateLimit), loop.Limits{}, []dsh.Policy{counted("retry", 3, 1, all...)}, 0, -1},
	} {
		t.Run(c.about, func(t *testing.T) {
			recorded, real := memory.New(), memory.New()
			play(t, recorded, c.limits, scripts, c.was)
			play(t, real, c.limits, scripts, append([]dsh.Policy{c.is}, c.others...)...)
			got, rows := simulate(t, recorded, c.is, c.is.Info().Name)
			want, _ := simulate(t, real, c.is, c.is.Info().Name)
			if c.others != nil {
				// What the other one answers is taken from the log, where it had counted
				// the retries that are the candidate's now: only who comes first is compared.
				if rows[0].Candidate.Policy != "first" || rows[1].Candidate.Policy != "retry" {
					t.Errorf("who retries is %v and %v", rows[0].Candidate, rows[1].Candidate)
				}
				return
			}
			got.Total.Candidate.WaitMs = math.Round(got.Total.Candidate.WaitMs*1e6) / 1e6
			want.Total.Recorded.WaitMs = math.Round(want.Total.Recorded.WaitMs*1e6) / 1e6
			if got.Total.Candidate != want.Total.Recorded {
				t.Errorf("simulated %+v\nreally    %+v\nbeyond    %+v", got.Total.Candidate, want.Total.Recorded, got.Beyond)
			}
			for k, l := range want.Codes {
				if g := got.Codes[k]; g == nil || math.Abs(g.Candidate.WaitMs-l.Recorded.WaitMs) > 1e-6 || g.Candidate.Retried != l.Recorded.Retried || g.Candidate.Requests != l.Recorded.Requests {
					t.Errorf("%s: simulated %+v\nreally %+v", k, g, l.Recorded)
				}
			}
			if got.Lost != c.lost || c.changed >= 0 && got.Changed != c.changed || c.changed < 0 && got.Changed == 0 {
				t.Errorf("lost %d, changed %d", got.Lost, got.Changed)
			}
		})
	}
}

// TestReadsOfTheLog: what the log cannot answer is refused and counted.
func TestHostCallsOfASimulation(t *testing.T) {
	log := memory.New()
	play(t, log, loop.Limits{}, [][]scripted.Step{{fails(429, 1), says()}}, counted("retry", 3, 1, dsh.CodeRateLimit))
	asks := asking{function: "state_get", argument: `{"scope":"shared","key":"k"}`}
	r, _ := simulate(t, log, &asks, "asks")
	if r.Unavailable != 1 || asks.refused != 1 {
		t.Errorf("%d refused, %d seen", r.Unavailable, asks.refused)
	}
	asks = asking{function: "log_read", argument: `{}`}
	var tail uint64
	_, err := workshop.Simulation{Log: log, Policy: &asks, Name: "asks",
		Reread: func(_ context.Context, id dsh.SessionID, _, _ string, _ json.RawMessage, at uint64) (json.RawMessage, error) {
			tail = at
			return json.RawMessage(`{"events":[],"tail":1}`), nil
		}}.Run(t.Context())
	if err != nil || asks.refused != 0 || tail == 0 {
		t.Errorf("%v: %d refused, tail %d", err, asks.refused, tail)
	}
}

// asking is a policy that calls one host function and delegates.
type asking struct {
	function, argument string
	refused            int
}

func (a *asking) Info() dsh.PolicyInfo { return dsh.PolicyInfo{Name: "asks"} }

func (a *asking) Decide(ctx context.Context, q dsh.Question) (dsh.Verdict, error) {
	if _, err := q.Host.Call(ctx, a.function, json.RawMessage(a.argument)); err != nil {
		a.refused++
	}
	d := dsh.Decision{Kind: dsh.KindDelegate}
	raw, err := dsh.JSON(d)
	return dsh.Verdict{Decision: d, Raw: raw}, err
}

// TestFaultsDelegate: a candidate that fails is counted, and ends the turn where
// nobody else was asked.
func TestFaultsDelegate(t *testing.T) {
	log := memory.New()
	play(t, log, loop.Limits{}, [][]scripted.Step{{fails(429, 1), says()}}, counted("retry", 3, 1, dsh.CodeRateLimit))
	bad := dsh.NativePolicy("retry", func(dsh.RecoverInput) dsh.Decision { return dsh.Decision{Kind: "nonsense"} })
	r, rows := simulate(t, log, bad, "retry")
	if r.Faults != 1 || r.Lost != 1 || rows[0].Candidate.Fault == "" || rows[0].Candidate.Answer != workshop.AnswerFinal {
		t.Errorf("%+v %+v", r, rows)
	}
}
