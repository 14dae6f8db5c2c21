package loop

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dsh-agent/dsh"
)

// maxRounds bounds how often the policies may repair before one request.
const maxRounds = 3

// pressure is the share of a model's window, in percent, from which on the
// policies are asked before a request: below it nothing needs repair, and a
// session that never fails never has to load a policy.
const pressure = 50

// beforeStep asks the policies that have the hook whether something is to be
// repaired before the first request of a step. It reports whether repairs
// come first.
func (s *Session) beforeStep(ctx context.Context, p Provider) (bool, error) {
	st := s.state.openStep()
	if st.reply != nil || st.compaction != nil || st.rounds >= maxRounds || p.Window <= 0 || s.state.tokens() < p.Window*pressure/100 {
		return false, nil
	}
	policies, _ := s.cfg.Policies.Policies()
	var drafts []dsh.Draft
	if d := s.changed(policies); d != nil {
		drafts = append(drafts, *d)
	}
	for _, policy := range policies {
		if !slices.Contains(policy.Info().Hooks, dsh.HookBeforeStep) {
			continue
		}
		d, repairs, err := s.askBefore(ctx, p, policy)
		if err != nil {
			return false, err
		}
		drafts = append(drafts, d...)
		if ctx.Err() != nil {
			if err := s.append(ctx, drafts...); err != nil {
				return false, err
			}
			return false, errStopped
		}
		if repairs {
			return true, s.append(ctx, drafts...)
		}
	}
	return false, s.append(ctx, drafts...)
}

// askBefore asks one policy. It gives the events of its answer.
func (s *Session) askBefore(ctx context.Context, p Provider, policy dsh.Policy) ([]dsh.Draft, bool, error) {
	info := policy.Info()
	n, step, attempt := s.state.turn.n, s.state.turn.step.n, s.state.openStep().attempts+1
	h := &host{session: s, policy: info, decision: newID(), attempt: attempt}
	input, err := dsh.JSON(s.stepInput(p, info, h.decision))
	if err != nil {
		return nil, false, err
	}
	verdict, err := policy.Decide(ctx, dsh.Question{Hook: dsh.HookBeforeStep, Input: input, Host: h})
	if h.failed != nil {
		return nil, false, h.failed
	}
	if err != nil {
		f := asFault(err)
		return []dsh.Draft{faultDraft(dsh.PolicyFault{
			Turn: n, Step: step, Attempt: attempt, Hook: dsh.HookBeforeStep,
			Policy: info.Name, Digest: info.Digest, Kind: f.Kind, Message: f.Message, HostCalls: verdict.HostCalls,
		}, err)}, false, nil
	}
	drafts := []dsh.Draft{{Type: dsh.TypePolicyDecision, Data: dsh.PolicyDecision{
		Turn: n, Step: step, Attempt: attempt, Hook: dsh.HookBeforeStep,
		Policy: info.Name, Digest: info.Digest, Engine: info.Engine,
		Input: input, HostCalls: emptyNotNull(verdict.HostCalls), Decision: verdict.Raw, Fuel: verdict.Fuel,
	}}}
	if len(verdict.Decision.Repairs) == 0 {
		return drafts, false, nil
	}
	if why := repairProblem(info, verdict.Decision); why != "" {
		return append(drafts, dsh.Draft{Type: dsh.TypePolicyRefused, Data: dsh.PolicyRefused{
			Turn: n, Step: step, Attempt: attempt, Policy: info.Name, Digest: info.Digest, Rule: dsh.RuleRepairFailed, Message: why,
		}}), false, nil
	}
	return drafts, true, nil
}

func (s *Session) stepInput(p Provider, info dsh.PolicyInfo, decision string) dsh.StepInput {
	st := s.state.openStep()
	in := dsh.StepInput{
		ABI: abi, DecisionID: decision, Policy: info.Name, Session: s.start.ID,
		Turn: s.state.turn.n, Step: st.n, Attempt: st.attempts + 1, Purpose: dsh.PurposeReply,
		Provider: s.state.header.Provider, Model: s.state.header.Model, NowMs: time.Now().UnixMilli(), Random: random(),
		RetryPolicy: p.Retry, RetryCounts: st.counts(), Repairs: emptyNotNull(st.repairs),
		Surface: s.surfaceInfo(p, 0), Limits: s.limitsLeft(), Config: info.Config,
	}
	if len(in.Config) == 0 {
		in.Config = []byte("{}")
	}
	return in
}

// faultDraft is the event of a policy that gave no decision: where it was not
// even asked, because it had tripped, that is what the event says.
func faultDraft(f dsh.PolicyFault, err error) dsh.Draft {
	if errors.Is(err, dsh.ErrTripped) {
		return dsh.Draft{Type: dsh.TypePolicyRefused, Data: dsh.PolicyRefused{
			Turn: f.Turn, Step: f.Step, Attempt: f.Attempt, Policy: f.Policy, Digest: f.Digest, Rule: dsh.RuleTripped, Message: f.Message,
		}}
	}
	return dsh.Draft{Type: dsh.TypePolicyFault, Data: f}
}

func asFault(err error) *dsh.Fault {
	f := &dsh.Fault{Kind: dsh.FaultUnavailable, Message: err.Error()}
	errors.As(err, &f)
	return f
}
