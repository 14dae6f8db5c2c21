package workshop_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/workshop"
	"github.com/dsh-agent/dsh/store/memory"
)

// written is a log with one session of one failed attempt and what else is
// given.
func written(t *testing.T, more ...dsh.Draft) dsh.Log {
	t.Helper()
	log := memory.New()
	w, err := log.Acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	drafts := []dsh.Draft{
		{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: "s"}},
		{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: 1}},
		{Type: dsh.TypeStepStart, Data: dsh.StepStart{Turn: 1, Step: 1}},
		{Type: dsh.TypePoliciesChanged, Data: dsh.PoliciesChanged{To: []dsh.PolicyRef{{Name: "retry"}}}},
		{Type: dsh.TypeAttemptStart, Data: dsh.AttemptStart{Turn: 1, Step: 1, Attempt: 1, Purpose: dsh.PurposeReply, Provider: "p", RequestBytes: 400}},
		{Type: dsh.TypeAttemptEnd, Data: dsh.AttemptEnd{Turn: 1, Step: 1, Attempt: 1,
			Finish: dsh.Finish{Kind: dsh.FinishError, Failure: &dsh.Failure{Code: dsh.CodeServer, Message: "no", RetryAfter: 1500 * time.Microsecond}}}},
	}
	events, err := w.Tail().SealAll(time.UnixMilli(1767225600000), append(drafts, more...)...)
	if err == nil {
		err = w.Append(t.Context(), events...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func asked(delay float64) []dsh.Draft {
	in, err := dsh.JSON(dsh.RecoverInput{Provider: "p", RetryPolicy: dsh.DefaultRetryPolicy(), RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{}, Config: json.RawMessage("{}")})
	if err != nil {
		panic(err) // a constant
	}
	d := dsh.Decision{Kind: dsh.KindRetry, DelayMs: delay}
	raw, _ := dsh.JSON(d)
	return []dsh.Draft{
		{Type: dsh.TypePolicyDecision, Data: dsh.PolicyDecision{Turn: 1, Step: 1, Attempt: 1, Hook: dsh.HookRecover, Policy: "retry", Input: in, HostCalls: []json.RawMessage{}, Decision: raw}},
		{Type: dsh.TypeRetry, Data: dsh.Retry{RetryID: "r", Turn: 1, Step: 1, Attempt: 1, Purpose: dsh.PurposeReply, Provider: "p", Retry: 1, DelayMs: delay, Policy: "retry"}},
	}
}

// TestWhereTheLogEnds: what nobody knows the end of is neither waited for nor
// sent, on either side.
func TestWhereTheLogEnds(t *testing.T) {
	again := func(delay float64) dsh.Policy {
		return dsh.NativePolicy("retry", func(dsh.RecoverInput) dsh.Decision {
			return dsh.Decision{Kind: dsh.KindRetry, DelayMs: delay, MaxRetries: new(int64)}
		})
	}
	unlimited := dsh.NativePolicy("retry", func(dsh.RecoverInput) dsh.Decision { return dsh.Decision{Kind: dsh.KindRetry, DelayMs: 5} })
	never := dsh.NativePolicy("retry", func(dsh.RecoverInput) dsh.Decision { return dsh.Decision{Kind: dsh.KindDelegate} })
	cancelled := func(reason string) dsh.Draft {
		return dsh.Draft{Type: dsh.TypeRetryCancelled, Data: dsh.RetryCancelled{RetryID: "r", Turn: 1, Step: 1, Retry: 1, Reason: reason}}
	}
	ended := func(kind dsh.EndKind) dsh.Draft {
		return dsh.Draft{Type: dsh.TypeTurnEnd, Data: dsh.TurnEnd{Turn: 1, Reason: dsh.EndReason{Kind: kind}}}
	}
	for _, c := range []struct {
		about           string
		more            []dsh.Draft
		policy          dsh.Policy
		recorded, is    string
		changed, beyond int
		rebuilt         int
	}{
		{"in a wait, the same", asked(5), unlimited, workshop.AnswerOpen, workshop.AnswerRetry, 0, 0, 0},
		{"in a wait, another delay", asked(6), unlimited, workshop.AnswerOpen, workshop.AnswerRetry, 1, 0, 0},
		{"in a wait, given up", asked(5), never, workshop.AnswerOpen, workshop.AnswerFinal, 1, 0, 0},
		{"before anybody is asked", nil, unlimited, workshop.AnswerOpen, workshop.AnswerRetry, 0, 0, 1},
		{"aborted in the wait", append(asked(5), cancelled(dsh.CancelAborted), ended(dsh.EndAborted)), unlimited, workshop.AnswerOpen, workshop.AnswerRetry, 0, 0, 0},
		{"decided anew", append(append(asked(7), cancelled(dsh.CancelPoliciesChanged)), asked(5)...), unlimited, workshop.AnswerOpen, workshop.AnswerRetry, 0, 0, 0},
		{"final, and the candidate too", []dsh.Draft{ended(dsh.EndFailed)}, never, workshop.AnswerFinal, workshop.AnswerFinal, 0, 0, 1},
		{"final, and the candidate never ends", []dsh.Draft{ended(dsh.EndFailed)}, unlimited, workshop.AnswerFinal, workshop.AnswerRetry, 1, 50, 50},
		{"its own limit is held", []dsh.Draft{ended(dsh.EndFailed)}, again(5), workshop.AnswerFinal, workshop.AnswerFinal, 0, 0, 1},
	} {
		r, rows := simulate(t, written(t, c.more...), c.policy, "retry")
		if len(rows) != 1 || rows[0].Recorded.Answer != c.recorded || rows[0].Candidate.Answer != c.is {
			t.Errorf("%s: %+v", c.about, rows)
			continue
		}
		if r.Changed != c.changed || rows[0].Beyond != c.beyond || r.Beyond.Requests != c.beyond || r.Rebuilt != c.rebuilt || r.Lost != 0 {
			t.Errorf("%s: %+v, %+v", c.about, r, rows)
		}
		if want := 1 + c.beyond; r.Total.Recorded.Requests != 1 || r.Total.Candidate.Requests != want || r.Total.Candidate.WaitMs != float64(5*c.beyond) {
			t.Errorf("%s: %+v", c.about, r.Total)
		}
	}
}
