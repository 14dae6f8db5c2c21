package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/store/memory"
)

// failedSession appends a session of one turn that met so many failures of a
// step and got over each by the built-in retry.
func failedSession(b *testing.B, log dsh.Log, id dsh.SessionID, failures int) {
	b.Helper()
	w, err := log.Acquire(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	at := time.UnixMilli(1767225600000)
	ref := dsh.PolicyRef{Name: "retry", Digest: "d", ConfigSHA256: "c"}
	drafts := []dsh.Draft{
		{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: id}},
		{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: 1}},
		{Type: dsh.TypeStepStart, Data: dsh.StepStart{Turn: 1, Step: 1}},
		{Type: dsh.TypePoliciesChanged, Data: dsh.PoliciesChanged{To: []dsh.PolicyRef{ref}}},
	}
	settings := dsh.DefaultRetryPolicy()
	settings.MaxRetries = 1000
	for n := 1; n <= failures; n++ {
		place := dsh.AttemptStart{Turn: 1, Step: 1, Attempt: n, Purpose: dsh.PurposeReply, Provider: "p", Model: "m", RequestBytes: 40000}
		failure := dsh.Failure{Code: dsh.CodeServer, Status: 503, Message: "overloaded"}
		in, err := dsh.JSON(dsh.RecoverInput{
			ABI: hostabi.ABI, DecisionID: fmt.Sprint(n), Policy: "retry", Session: id, Turn: 1, Step: 1, Attempt: n, Purpose: place.Purpose,
			Provider: "p", Model: "m", Failure: failure, NowMs: at.UnixMilli(), FailedAtMs: at.UnixMilli(), RetryPolicy: settings,
			RetryCounts: []dsh.RetryCount{{Policy: "retry", PolicyKey: settings.Key(), Purpose: place.Purpose, Count: n - 1}},
			Repairs:     []dsh.RepairOutcome{}, Config: json.RawMessage("{}"),
		})
		if err != nil {
			b.Fatal(err)
		}
		retry := dsh.Retry{RetryID: fmt.Sprint(n), Turn: 1, Step: 1, Attempt: n, Purpose: place.Purpose, Provider: "p", Mode: dsh.ModeNormal,
			PolicyKey: settings.Key(), Retry: n, DelayMs: 500, Policy: "retry", Digest: "d", Failure: failure}
		drafts = append(drafts,
			dsh.Draft{Type: dsh.TypeAttemptStart, Data: place},
			dsh.Draft{Type: dsh.TypeAttemptEnd, Data: dsh.AttemptEnd{Turn: 1, Step: 1, Attempt: n, Finish: dsh.Finish{Kind: dsh.FinishError, Failure: &failure}}},
			dsh.Draft{Type: dsh.TypePolicyDecision, Data: dsh.PolicyDecision{Turn: 1, Step: 1, Attempt: n, Hook: dsh.HookRecover, Policy: "retry", Digest: "d",
				Input: in, HostCalls: []json.RawMessage{}, Decision: json.RawMessage(`{"kind":"retry","delayMs":500}`)}},
			dsh.Draft{Type: dsh.TypeRetry, Data: retry},
			dsh.Draft{Type: dsh.TypeRetryStarted, Data: dsh.RetryStarted{RetryID: retry.RetryID, Turn: 1, Step: 1, Retry: n}})
	}
	events, err := w.Tail().SealAll(at, drafts...)
	if err == nil {
		err = w.Append(b.Context(), events...)
	}
	if err == nil {
		err = w.Release(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkSimulate asks a candidate about 10,000 failures of 100 sessions: the
// built-in retry, in Rust, and what `dsh policy new --lang go` makes.
func BenchmarkSimulate(b *testing.B) {
	log := memory.New()
	for n := range 100 {
		failedSession(b, log, dsh.SessionID(fmt.Sprintf("s%03d", n)), 100)
	}
	w, err := newWorld(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range w.env {
		name, value, _ := strings.Cut(v, "=")
		b.Setenv(name, value)
	}
	b.Run("rust", func(b *testing.B) { benchmarkSimulate(b, log, "builtin:retry", 10_000) })
	b.Run("go", func(b *testing.B) {
		c := exec.CommandContext(b.Context(), "sh", "-c", "dsh policy new candidate --lang go && cd candidate && sh build.sh")
		c.Dir = w.dir
		if text, err := c.CombinedOutput(); err != nil {
			b.Skipf("no guest of Go's: %v: %s", err, text)
		}
		benchmarkSimulate(b, log, filepath.Join(w.dir, "candidate", "candidate.wasm"), 0)
	})
}

func benchmarkSimulate(b *testing.B, log dsh.Log, file string, retried int) {
	p := program{env: os.LookupEnv}
	c := cli.Common{Warn: func(text string) { b.Error(text) }, Tell: func(string) {}}
	for b.Loop() {
		r, err := p.simulate(b.Context(), c, log, cli.Simulation{File: file, Failure: func(cli.SimulatedFailure) error { return nil }})
		if err != nil {
			b.Fatal(err)
		}
		if r.Recorded.Failures != 10_000 || r.Faults > 0 || retried > 0 && r.Candidate.Retried != retried {
			b.Fatalf("%+v", r)
		}
	}
}
