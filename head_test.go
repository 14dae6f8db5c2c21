package dsh_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// TestHead folds one session step by step.
func TestHead(t *testing.T) {
	failed := func(code dsh.Code) dsh.AttemptEnd {
		return dsh.AttemptEnd{Finish: dsh.Finish{Kind: dsh.FinishError, Failure: &dsh.Failure{Code: code}}}
	}
	end := func(k dsh.EndKind) dsh.TurnEnd { return dsh.TurnEnd{Turn: 1, Reason: dsh.EndReason{Kind: k}} }
	steps := []struct {
		typ  dsh.EventType
		data any
		want dsh.Head // state, turns, attempts, retries, last failure
	}{
		{dsh.TypeSessionStart, dsh.SessionStart{Schema: 1, ID: "s1", Cwd: "/w", Title: "t"}, dsh.Head{State: dsh.StateDone}},
		{dsh.TypeTurnStart, dsh.TurnStart{Turn: 1}, dsh.Head{State: dsh.StateOpen, Turns: 1}},
		{dsh.TypeStepStart, dsh.StepStart{}, dsh.Head{State: dsh.StateOpen, Turns: 1}},
		{dsh.TypeAttemptStart, dsh.AttemptStart{Attempt: 1}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 1}},
		{dsh.TypeAttemptEnd, failed(dsh.CodeRateLimit), dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeRetry, dsh.Retry{}, dsh.Head{State: dsh.StateWaiting, Turns: 1, Attempts: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeRetryCancelled, dsh.RetryCancelled{Reason: dsh.CancelPoliciesChanged}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeRetry, dsh.Retry{}, dsh.Head{State: dsh.StateWaiting, Turns: 1, Attempts: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeRetryStarted, dsh.RetryStarted{}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 1, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeAttemptStart, dsh.AttemptStart{Attempt: 2}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeAttemptEnd, dsh.AttemptEnd{Finish: dsh.Finish{Kind: dsh.FinishAborted, Failure: &dsh.Failure{Code: dsh.CodeAborted}}}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{"of/tomorrow", struct{}{}, dsh.Head{State: dsh.StateOpen, Turns: 1, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndAborted), dsh.Head{State: dsh.StateDone, Turns: 1, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnStart, dsh.TurnStart{Turn: 2}, dsh.Head{State: dsh.StateOpen, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndFailed), dsh.Head{State: dsh.StateFailed, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndError), dsh.Head{State: dsh.StateFailed, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndCompleted), dsh.Head{State: dsh.StateDone, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndMaxSteps), dsh.Head{State: dsh.StateDone, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
		{dsh.TypeTurnEnd, end(dsh.EndLength), dsh.Head{State: dsh.StateDone, Turns: 2, Attempts: 2, Retries: 1, LastFailure: dsh.CodeRateLimit}},
	}
	var h dsh.Head
	at := noon
	for i, s := range steps {
		e, err := h.Tail().Seal(at, dsh.Draft{Type: s.typ, Data: s.data})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Apply(e); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		want := s.want
		want.ID, want.Title, want.Cwd, want.StartedAt = "s1", "t", "/w", noon.UnixMilli()
		want.UpdatedAt, want.Seq, want.Hash = at.UnixMilli(), uint64(i+1), e.Hash
		if h != want {
			t.Errorf("step %d (%s):\n got %+v\nwant %+v", i, s.typ, h, want)
		}
		at = at.Add(time.Second)
	}
}

func TestHeadFails(t *testing.T) {
	var h dsh.Head
	e, err := dsh.Tail{}.Seal(noon, dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema + 1}})
	if err != nil {
		t.Fatal(err)
	}
	var schema *dsh.SchemaError
	if err := h.Apply(e); !errors.As(err, &schema) || schema.Have != dsh.Schema+1 || schema.Max != dsh.Schema || !strings.Contains(err.Error(), "schema 2 and this version reads up to 1") {
		t.Errorf("%v", err)
	}
	for _, typ := range []dsh.EventType{dsh.TypeSessionStart, dsh.TypeAttemptEnd, dsh.TypeTurnEnd} {
		e, err := dsh.Tail{}.Seal(noon, dsh.Draft{Type: typ, Data: map[string]any{"schema": "x", "finish": 1, "reason": 1}})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Apply(e); err == nil || !strings.Contains(err.Error(), string(typ)) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestLogErrors(t *testing.T) {
	for want, err := range map[string]error{
		"session s is held by process 7":                                           &dsh.HeldError{Session: "s", PID: 7},
		"the data folder /d is in use by process 7":                                &dsh.LockedError{Dir: "/d", PID: 7},
		"the data folder /d is in use by another process":                          &dsh.LockedError{Dir: "/d"},
		"session s ends at event 4: event 9 cannot be appended":                    &dsh.ConflictError{Session: "s", At: 9, Tail: dsh.Tail{Seq: 4}},
		"session s is damaged at event 3: why":                                     &dsh.DamageError{Session: "s", Seq: 3, Reason: "why"},
		"damaged at event 3: why":                                                  &dsh.DamageError{Seq: 3, Reason: "why"},
		"the log has schema 2 and this version reads up to 1: use a newer version": &dsh.SchemaError{Have: 2, Max: 1},
		"the disk of /d has 3 MiB free and 64 are needed":                          &dsh.SpaceError{Dir: "/d", Free: 3<<20 + 5, Need: 64 << 20},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
