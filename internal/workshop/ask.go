package workshop

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// ask walks down the waterfall for a failure, with the candidate in its place.
// n counts the times that the failure was met again behind the end of the log.
func (w *walk) ask(ctx context.Context, a *attempt, n int) (Outcome, error) {
	final := Outcome{Answer: AnswerFinal}
	var fallback *dsh.Decision
	var whose string
	for _, name := range w.order(a) {
		var o Outcome
		var d dsh.Decision
		var err error
		if name == w.sim.Name {
			o, d, err = w.askCandidate(ctx, a, n)
			if err != nil {
				return o, err
			}
			final.Reason, final.Refused, final.Fault = o.Reason, o.Refused, o.Fault
		} else {
			o, d = w.recordedAnswer(a, name)
		}
		if o.Answer == AnswerRetry {
			return o, nil
		}
		if d.Fallback != nil {
			fallback, whose = d.Fallback, name
		}
	}
	if fallback == nil {
		return final, nil
	}
	o := retryOf(whose, *fallback)
	switch {
	case whose != w.sim.Name:
	case o.repairs:
		w.report.Refused++
		o = refused(o, dsh.RuleRepairFailed) // a fallback cannot ask for any
	default:
		o = w.refuse(a, o, *fallback, n)
	}
	return o, nil
}

// order is who would be asked, in turn: as it was, with the candidate in the
// place of the policy of its name, or before all others where there is none, as
// a file of the policies folder stands.
func (w *walk) order(a *attempt) []string {
	switch {
	case w.sim.Alone:
		return []string{w.sim.Name}
	case slices.Contains(a.order, w.sim.Name):
		return a.order
	}
	return append([]string{w.sim.Name}, a.order...)
}

func retryOf(policy string, d dsh.Decision) Outcome {
	o := Outcome{Answer: AnswerRetry, Policy: policy, DelayMs: d.DelayMs, Reason: d.Reason, key: d.PolicyKey, repairs: len(d.Repairs) > 0}
	if o.key == "" {
		o.key = policy
	}
	return o
}

func refused(o Outcome, rule dsh.Rule) Outcome {
	return Outcome{Answer: AnswerFinal, Reason: o.Reason, Refused: string(rule)}
}

// recordedAnswer is what another policy answered to this failure. One that was
// not asked then is taken to delegate.
func (w *walk) recordedAnswer(a *attempt, name string) (Outcome, dsh.Decision) {
	none := Outcome{Answer: AnswerFinal}
	i := slices.IndexFunc(a.decisions, func(d dsh.PolicyDecision) bool { return d.Policy == name })
	switch {
	case a.faulted[name]:
		return none, dsh.Decision{}
	case i < 0:
		w.report.Unasked++
		return none, dsh.Decision{}
	case a.refused[name]:
		return none, dsh.Decision{}
	}
	d, err := dsh.ParseDecision(a.decisions[i].Decision)
	if err != nil || d.Kind != dsh.KindRetry {
		return none, d
	}
	o := retryOf(name, d)
	if a.retry != nil && a.retry.Policy == name {
		o.DelayMs = a.retry.DelayMs // which min_delay_ms may have raised
	}
	return o, d
}

// askCandidate puts the failure to the candidate.
func (w *walk) askCandidate(ctx context.Context, a *attempt, n int) (Outcome, dsh.Decision, error) {
	in, rebuilt, err := w.input(a, n)
	if err != nil {
		return Outcome{}, dsh.Decision{}, err
	}
	if rebuilt {
		w.report.Rebuilt++
	}
	raw, err := dsh.JSON(in)
	if err != nil {
		return Outcome{}, dsh.Decision{}, err
	}
	host := &recordedHost{walk: w, attempt: a}
	if i := slices.IndexFunc(a.decisions, func(d dsh.PolicyDecision) bool { return d.Policy == w.sim.Name }); i >= 0 && n == 0 {
		host.calls = a.decisions[i].HostCalls
	}
	v, err := w.sim.Policy.Decide(ctx, dsh.Question{Hook: dsh.HookRecover, Input: raw, Host: host})
	if ctx.Err() != nil {
		return Outcome{}, dsh.Decision{}, context.Cause(ctx)
	}
	w.report.Asked++
	w.report.Unavailable += host.unavailable
	if err != nil {
		w.report.Faults++
		return Outcome{Answer: AnswerFinal, Fault: asFault(err).Error()}, dsh.Decision{}, nil
	}
	if v.Decision.Kind != dsh.KindRetry {
		return Outcome{Answer: AnswerFinal, Reason: v.Decision.Reason}, v.Decision, nil
	}
	o := w.refuse(a, retryOf(w.sim.Name, v.Decision), v.Decision, n)
	return o, v.Decision, nil
}

// refuse holds a retry of the candidate to what the host would, as far as the
// log tells: the ceilings in the recorded input are those that were in force.
func (w *walk) refuse(a *attempt, o Outcome, d dsh.Decision, n int) Outcome {
	left := w.limits(a, n)
	retry := 1
	for _, c := range w.counts {
		if c.PolicyKey == o.key && c.Purpose == a.Purpose {
			retry += c.Count
		}
	}
	switch {
	case d.MaxRetries != nil && d.Mode != dsh.ModeAlways && int64(retry) > *d.MaxRetries:
		o = refused(o, dsh.RuleMaxRetries)
	case left.AttemptsLeft != nil && *left.AttemptsLeft <= 0:
		o = refused(o, dsh.RuleMaxAttempts)
	case left.WaitLeftMs != nil && o.DelayMs > float64(*left.WaitLeftMs):
		o = refused(o, dsh.RuleMaxWait)
	case o.repairs && a.Purpose == dsh.PurposeCompaction:
		o = refused(o, dsh.RuleNestedRepair)
	case o.repairs && !w.granted(d):
		o = refused(o, dsh.RuleRepairFailed)
	case !o.repairs && a.failure.Code == dsh.CodeContextWindow:
		o = refused(o, dsh.RuleNoProgress)
	}
	if o.Refused != "" {
		w.report.Refused++
	}
	return o
}

func (w *walk) granted(d dsh.Decision) bool {
	return !slices.ContainsFunc(d.Repairs, func(raw json.RawMessage) bool {
		r, err := dsh.ParseRepair(raw)
		return err != nil || !slices.Contains(w.sim.Policy.Info().Granted, r.Capability())
	})
}

// base is the input that the log has of a failure: of the policy of the
// candidate's name, or else of another one. What it points to is not to be
// changed.
func (w *walk) base(a *attempt) (dsh.RecoverInput, bool) {
	i := slices.IndexFunc(a.decisions, func(d dsh.PolicyDecision) bool { return d.Policy == w.sim.Name })
	if i >= 0 {
		return a.inputs[i], true
	} else if len(a.inputs) > 0 {
		return a.inputs[0], true
	}
	known, ok := w.session.known[a.Provider]
	if !ok {
		known.retry = dsh.DefaultRetryPolicy()
	}
	known.surface.RequestBytes = a.RequestBytes
	known.surface.Tokens = tokens(a.RequestBytes)
	in := dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: fmt.Sprintf("%s-%d-%d-%d", w.session.id, a.Turn, a.Step, a.Attempt), Session: w.session.id,
		Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Purpose: a.Purpose, Provider: a.Provider, Model: a.Model,
		Failure: *a.failure, FailedAtMs: a.failedAt, NowMs: a.failedAt, RetryPolicy: known.retry,
		RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{}, Surface: known.surface,
	}
	in.Random = drawn(in.DecisionID, 0)
	if wait := a.failure.RetryAfter; wait > 0 {
		at := a.failedAt + int64(math.Ceil(dsh.Millis(wait)))
		in.ProviderNotBefore = &at
	}
	return in, false
}

// input is what the candidate is told: what was recorded, with its own name,
// config and retries, and the clock moved by how much longer or shorter than in
// the log was waited in this turn.
func (w *walk) input(a *attempt, n int) (in dsh.RecoverInput, rebuilt bool, err error) {
	in, recorded := w.base(a)
	in.Policy, in.Config = w.sim.Name, w.sim.Config
	if len(in.Config) == 0 {
		in.Config = json.RawMessage("{}")
	}
	in.RetryCounts = slices.DeleteFunc(slices.Clone(in.RetryCounts), func(c dsh.RetryCount) bool { return c.Policy == w.sim.Name })
	in.RetryCounts = append(in.RetryCounts, w.counts...)
	in.Limits = w.limits(a, n)
	in.Attempt += n
	shift := int64(w.waited - w.before(a))
	in.NowMs, in.FailedAtMs = in.NowMs+shift, in.FailedAtMs+shift
	if at := in.ProviderNotBefore; at != nil {
		moved := *at + shift
		in.ProviderNotBefore = &moved
	}
	if n > 0 {
		in.Random = drawn(in.DecisionID, n)
		in.DecisionID = fmt.Sprintf("%s-%d", in.DecisionID, n)
	}
	return in, !recorded, nil
}

// before is what was waited in the log before a failure: the wait after it is
// counted in already.
func (w *walk) before(a *attempt) float64 {
	if a.started {
		return w.recorded - a.retry.DelayMs
	}
	return w.recorded
}

// limits are the ceilings that were in force, as they would be used up.
func (w *walk) limits(a *attempt, n int) dsh.LimitsLeft {
	in, _ := w.base(a)
	left := in.Limits
	if left.AttemptsLeft != nil {
		attempts := max(0, *left.AttemptsLeft-n)
		left.AttemptsLeft = &attempts
	}
	if left.WaitLeftMs != nil {
		ms := max(0, *left.WaitLeftMs-int64(w.waited-w.before(a)))
		left.WaitLeftMs = &ms
	}
	return left
}

// drawn are random numbers for an input that the log has none of: the same each
// time.
func drawn(id string, n int) (r [4]float64) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", id, n))
	for i := range r {
		r[i] = float64(binary.LittleEndian.Uint64(sum[8*i:])>>11) / (1 << 53)
	}
	return r
}

// tokens estimates the tokens of a request as the loop does.
func tokens(bytes int) int64 { return (int64(bytes) + 3) / 4 }

// A recordedHost answers host functions as far as the log can: with what was
// answered to the same call of the same policy at this failure, and to log_read
// and surface_read with what the log held then. The rest is refused.
type recordedHost struct {
	walk        *walk
	attempt     *attempt
	calls       []json.RawMessage
	unavailable int
}

// Call answers one function.
func (h *recordedHost) Call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	for i, raw := range h.calls {
		var c hostabi.HostCall
		if json.Unmarshal(raw, &c) == nil && c.Function == function && len(c.Answer) > 0 && sameJSON(c.Argument, argument) {
			h.calls = slices.Delete(slices.Clone(h.calls), i, i+1)
			return c.Answer, nil
		}
	}
	reads := function == hostabi.FuncLogRead || function == hostabi.FuncSurfaceRead
	if sim := h.walk.sim; reads && sim.Reread != nil {
		if answer, err := sim.Reread(ctx, h.walk.session.id, sim.Name, function, argument, h.attempt.seq); err == nil {
			return answer, nil
		}
	}
	h.unavailable++
	return nil, &dsh.HostError{Code: hostabi.CodeUnavailable, Message: "a simulation knows no answer to this call"}
}
