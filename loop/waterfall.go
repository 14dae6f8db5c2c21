package loop

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// abi is the contract that the inputs of this loop follow; see hostabi.
const abi = "dsh:policy/v1"

// asking is one walk down the waterfall for one failure.
type asking struct {
	s        *Session
	provider Provider
	failed   *attempt
	drafts   []dsh.Draft // decided, and not in the log yet
	fallback *candidate
	reasons  []string // why nobody retried, for people
}

// candidate is a retry that a policy wants.
type candidate struct {
	policy   dsh.PolicyInfo
	decision dsh.Decision
	fallback bool
	repaired bool   // its repairs were carried out,
	failed   string // or why one of them could not be
}

// asking begins a walk for a failed attempt.
func (s *Session) asking(failed *attempt) (*asking, error) {
	p, err := s.provider()
	return &asking{s: s, provider: p, failed: failed}, err
}

// provider is the one that the open step names.
func (s *Session) provider() (Provider, error) {
	name := s.state.header.Provider
	p, err := s.cfg.Providers(name)
	if err != nil {
		return p, fmt.Errorf("provider %q of the open step: %w", name, err)
	}
	return p, nil
}

// ask puts the last attempt's failure to the policies in turn, until one of
// them gets a retry. The decisions and the retry that they lead to are one
// append; where nobody retries, the decisions and the end of the turn are.
func (s *Session) ask(ctx context.Context) error {
	w, err := s.asking(s.state.openStep().current())
	if err != nil {
		return err
	}
	policies, _ := s.cfg.Policies.Policies()
	w.drafts = append(w.drafts, s.refusals()...)
	if d := s.changed(policies); d != nil {
		w.drafts = append(w.drafts, *d)
	}
	for _, p := range policies {
		done, err := w.one(ctx, p)
		if done || err != nil {
			return err
		}
	}
	if w.fallback != nil {
		done, err := w.carryOut(ctx, *w.fallback)
		if done || err != nil {
			return err
		}
	}
	return w.final(ctx)
}

// one asks one policy. It reports whether the waterfall is at its end.
func (w *asking) one(ctx context.Context, p dsh.Policy) (bool, error) {
	info := p.Info()
	if why, ok := w.failed.refused[info.Name]; ok {
		w.say(info.Name, why) // what it asked for was tried, and this failure is still there
		return false, nil
	}
	a := w.failed
	h := &host{session: w.s, policy: info, decision: newID(), attempt: a.Attempt}
	input, err := w.input(info, h.decision)
	if err != nil {
		return false, err
	}
	verdict, err := p.Decide(ctx, dsh.Question{Hook: dsh.HookRecover, Input: input, Host: h})
	if h.failed != nil {
		return true, h.failed
	}
	if ctx.Err() != nil {
		return true, w.stopped(ctx, info, verdict)
	}
	if err != nil {
		return w.fault(ctx, info, verdict, err)
	}
	w.drafts = append(w.drafts, dsh.Draft{Type: dsh.TypePolicyDecision, Data: dsh.PolicyDecision{
		Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Hook: dsh.HookRecover,
		Policy: info.Name, Digest: info.Digest, Engine: info.Engine,
		Input: input, HostCalls: emptyNotNull(verdict.HostCalls), Decision: verdict.Raw, Fuel: verdict.Fuel,
	}})
	d := verdict.Decision
	if d.Kind == dsh.KindRetry {
		return w.carryOut(ctx, candidate{policy: info, decision: d})
	}
	if d.Fallback != nil {
		w.fallback = &candidate{policy: info, decision: *d.Fallback, fallback: true}
		return false, nil
	}
	w.say(info.Name, d.Reason)
	return false, nil
}

// stopped ends a walk whose context ended while a policy was asked: what was
// decided is kept, and nothing is carried out. What the policy did with host
// functions is said, since it stays.
func (w *asking) stopped(ctx context.Context, info dsh.PolicyInfo, v dsh.Verdict) error {
	if a := w.failed; len(v.HostCalls) > 0 {
		w.drafts = append(w.drafts, dsh.Draft{Type: dsh.TypePolicyFault, Data: dsh.PolicyFault{
			Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Hook: dsh.HookRecover, Policy: info.Name, Digest: info.Digest,
			Kind: dsh.FaultDeadline, Message: "the turn was stopped while it decided", HostCalls: v.HostCalls,
		}})
	}
	if err := w.s.append(ctx, w.take()...); err != nil {
		return err
	}
	return errStopped
}

// fault logs that a policy gave no decision, before the next one is asked.
func (w *asking) fault(ctx context.Context, info dsh.PolicyInfo, v dsh.Verdict, err error) (bool, error) {
	f, a := asFault(err), w.failed
	w.drafts = append(w.drafts, faultDraft(dsh.PolicyFault{
		Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Hook: dsh.HookRecover,
		Policy: info.Name, Digest: info.Digest, Kind: f.Kind, Message: f.Message, HostCalls: v.HostCalls,
	}, err))
	if errors.Is(err, dsh.ErrTripped) {
		w.say(info.Name, f.Message)
	} else {
		w.say(info.Name, "fault: "+f.Error())
	}
	if info.FailOnFault {
		return true, w.final(ctx)
	}
	return false, w.s.append(ctx, w.take()...)
}

// carryOut logs a retry and so begins it, or refuses it as the ceilings say.
// Where it asks for repairs its decision is logged, and the repairs come next.
func (w *asking) carryOut(ctx context.Context, c candidate) (bool, error) {
	retry := w.retry(c)
	if rule, why := w.refuse(c, retry); rule != "" {
		a := w.failed
		w.drafts = append(w.drafts, dsh.Draft{Type: dsh.TypePolicyRefused, Data: dsh.PolicyRefused{
			Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Policy: c.policy.Name, Digest: c.policy.Digest, Rule: rule, Message: why,
		}})
		w.say(c.policy.Name, why)
		return false, w.s.append(ctx, w.take()...)
	}
	drafts := w.take()
	if c.repaired || len(c.decision.Repairs) == 0 {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeRetry, Data: retry})
	}
	return true, w.s.append(ctx, drafts...)
}

// retry numbers a retry and gives it its place in time.
func (w *asking) retry(c candidate) dsh.Retry {
	a, d := w.failed, c.decision
	r := dsh.Retry{
		RetryID: newID(), Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Purpose: a.Purpose, Provider: a.Provider,
		Mode: d.Mode, PolicyKey: d.PolicyKey, DelayMs: max(d.DelayMs, dsh.Millis(w.s.cfg.Limits.MinDelay)),
		Policy: c.policy.Name, Digest: c.policy.Digest, Failure: *a.end.Finish.Failure,
	}
	if r.Mode == "" {
		r.Mode = dsh.ModeNormal
	}
	if r.PolicyKey == "" {
		r.PolicyKey = c.policy.Name
	}
	if r.Mode == dsh.ModeNormal {
		r.MaxRetries = d.MaxRetries
	}
	r.Retry = w.s.state.openStep().retried(r.Purpose, r.Provider, r.Policy, r.PolicyKey) + 1
	r.NotBefore = notBefore(time.Now(), r.DelayMs)
	return r
}

// notBefore is now plus a delay in ms, as Unix ms, rounded up. It counts in
// whole nanoseconds: a float64 does not hold the present that exactly.
func notBefore(now time.Time, delayMs float64) int64 {
	at := now.Add(time.Duration(math.Ceil(delayMs * float64(time.Millisecond))))
	ms := at.UnixMilli()
	if at.After(time.UnixMilli(ms)) {
		ms++
	}
	return ms
}

// refuse holds a retry to the ceilings, and to what makes sense. The rule is
// "" where nothing speaks against it.
func (w *asking) refuse(c candidate, r dsh.Retry) (dsh.Rule, string) {
	limits, t, st := w.s.cfg.Limits, w.s.state.turn, w.s.state.openStep()
	if rule, why := w.refuseRepairs(c); rule != "" {
		return rule, why
	}
	switch {
	case r.MaxRetries != nil && int64(r.Retry) > *r.MaxRetries:
		return dsh.RuleMaxRetries, fmt.Sprintf("its own limit of %d retries is used up", *r.MaxRetries)
	case limits.MaxAttemptsPerStep > 0 && st.attempts >= limits.MaxAttemptsPerStep:
		return dsh.RuleMaxAttempts, fmt.Sprintf("the ceiling of %d attempts in a step (max_attempts_per_step) is reached", limits.MaxAttemptsPerStep)
	case limits.MaxWaitPerTurn > 0 && t.delays+r.DelayMs > dsh.Millis(limits.MaxWaitPerTurn):
		return dsh.RuleMaxWait, fmt.Sprintf("a wait of %s more would go over the ceiling of %s in a turn", seconds(r.DelayMs), limits.MaxWaitPerTurn)
	case limits.MaxResentTokensPerTurn > 0 && t.resent+tokens(w.failed.RequestBytes) > limits.MaxResentTokensPerTurn:
		return dsh.RuleMaxResent, fmt.Sprintf("the ceiling of %d tokens sent again in a turn is reached", limits.MaxResentTokensPerTurn)
	case w.failed.end.Finish.Failure.Code != dsh.CodeContextWindow && c.failed == "":
	case !c.repaired && len(c.decision.Repairs) > 0: // to be seen when they are done
	case w.smaller():
	case c.failed != "":
		return dsh.RuleRepairFailed, "its repair failed: " + c.failed
	default:
		return dsh.RuleNoProgress, "the request did not get smaller since it was too long: " + w.s.state.largest()
	}
	return "", ""
}

// refuseRepairs holds the repairs of a retry to the contract.
func (w *asking) refuseRepairs(c candidate) (dsh.Rule, string) {
	if c.repaired || len(c.decision.Repairs) == 0 {
		return "", ""
	}
	if w.failed.Purpose == dsh.PurposeCompaction {
		return dsh.RuleNestedRepair, "it asks for repairs inside a repair"
	}
	if c.fallback {
		return dsh.RuleRepairFailed, "a fallback cannot ask for repairs"
	}
	if why := repairProblem(c.policy, c.decision); why != "" {
		return dsh.RuleRepairFailed, why
	}
	return "", ""
}

// repairProblem says why the repairs of a decision cannot be done; "" if they
// can.
func repairProblem(info dsh.PolicyInfo, d dsh.Decision) string {
	for _, raw := range d.Repairs {
		r, err := dsh.ParseRepair(raw)
		if err != nil {
			return err.Error()
		}
		if !slices.Contains(info.Granted, r.Capability()) {
			return fmt.Sprintf("it asks for a %s, and %q is not granted", r.Kind, r.Capability())
		}
	}
	return ""
}

// smaller reports whether the request is smaller than the one that failed.
func (w *asking) smaller() bool {
	body, err := w.provider.Adapter.Encode(w.s.next(w.provider))
	return err == nil && len(body) < w.failed.RequestBytes
}

// final closes the turn with the failure, or the compaction that it was for:
// nobody asked for another attempt.
func (w *asking) final(ctx context.Context) error {
	if c := w.s.state.openStep().compaction; c != nil {
		problem := "the request for the summary failed: " + w.failed.end.Finish.Failure.Error()
		return w.s.append(ctx, append(w.take(), endCompaction(c.CompactionID, problem))...)
	}
	if w.failed.end.Finish.Failure.Code == dsh.CodeContextWindow {
		w.reasons = append(w.reasons, w.s.state.largest())
	}
	reason := dsh.EndReason{Kind: dsh.EndFailed, Failure: w.failed.end.Finish.Failure, Message: strings.Join(w.reasons, "; ")}
	return w.s.append(ctx, append(w.take(), w.s.closing(reason)...)...)
}

func (w *asking) take() []dsh.Draft {
	drafts := w.drafts
	w.drafts = nil
	return drafts
}

func (w *asking) say(policy, why string) {
	if why != "" {
		w.reasons = append(w.reasons, policy+": "+why)
	}
}

// input is what a policy is told, as the bytes that are logged.
func (w *asking) input(info dsh.PolicyInfo, decision string) ([]byte, error) {
	s, a := w.s, w.failed
	f := *a.end.Finish.Failure
	in := dsh.RecoverInput{
		ABI: abi, DecisionID: decision, Policy: info.Name, Session: s.start.ID,
		Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Purpose: a.Purpose, Provider: a.Provider, Model: a.Model,
		Failure: f, FailedAtMs: a.endAt, NowMs: time.Now().UnixMilli(), Random: random(),
		RetryPolicy: w.provider.Retry, RetryCounts: s.state.openStep().counts(), Repairs: emptyNotNull(s.state.openStep().repairs),
		Surface: s.surfaceInfo(w.provider, a.RequestBytes),
		Limits:  s.limitsLeft(), Config: info.Config,
	}
	if len(in.Config) == 0 {
		in.Config = []byte("{}")
	}
	if f.RetryAfter > 0 {
		at := a.endAt + int64(math.Ceil(dsh.Millis(f.RetryAfter)))
		in.ProviderNotBefore = &at
	}
	return dsh.JSON(in)
}

func (s *Session) surfaceInfo(p Provider, requestBytes int) dsh.SurfaceInfo {
	return dsh.SurfaceInfo{
		Generation: s.state.gen, Messages: len(s.state.surface), Tokens: s.state.tokens(),
		Window: p.Window, RequestBytes: requestBytes,
	}
}

func (s *Session) limitsLeft() dsh.LimitsLeft {
	var left dsh.LimitsLeft
	if n := s.cfg.Limits.MaxAttemptsPerStep; n > 0 {
		attempts := max(0, n-s.state.openStep().attempts)
		left.AttemptsLeft = &attempts
	}
	if d := s.cfg.Limits.MaxWaitPerTurn; d > 0 {
		ms := max(0, int64(dsh.Millis(d)-s.state.turn.delays))
		left.WaitLeftMs = &ms
	}
	return left
}

// random draws four numbers in [0, 1), of 53 bits each.
func random() (r [4]float64) {
	for i := range r {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil { // never: see crypto/rand
			panic(err)
		}
		r[i] = float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
	}
	return r
}

func seconds(ms float64) string {
	return (time.Duration(ms) * time.Millisecond).String()
}

func emptyNotNull[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
