package loop

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// wait waits out the pending retry and sends. It was logged before; a resumed
// session waits what is left of it. A change of the waterfall decides it anew.
func (s *Session) wait(ctx context.Context) error {
	changed, goOn, err := s.settleWait(ctx)
	if !goOn || err != nil {
		return err
	}
	if goOn, err := s.pause(ctx, changed); !goOn || err != nil {
		return err
	}
	return s.send(ctx)
}

// settleWait logs what has changed for the pending retry since it was decided.
// It reports whether it is still to be waited for, and what is closed when the
// waterfall changes.
func (s *Session) settleWait(ctx context.Context) (changed <-chan struct{}, goOn bool, err error) {
	p := s.state.openStep().pending
	policies, changed := s.cfg.Policies.Policies()
	if drafts := s.refusals(); len(drafts) > 0 {
		return nil, false, s.append(ctx, drafts...)
	}
	if d := s.changed(policies); d != nil {
		return nil, false, s.append(ctx, cancelled(p, dsh.CancelPoliciesChanged), *d)
	}
	return changed, true, nil
}

// pause waits, and reports whether the wait is over. A process may have many
// thousand sessions that are here: what they hold while they are is kept small,
// the frames on their stacks too.
func (s *Session) pause(ctx context.Context, changed <-chan struct{}) (over bool, err error) {
	timer := time.NewTimer(left(s.state.openStep().pending.Retry, time.Now()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-changed:
		return false, nil // to be looked at again: the same policies may be back
	case <-ctx.Done():
		return false, errStopped
	}
}

// left is what is left of a wait. A clock that was set back stretches nothing.
func left(r dsh.Retry, now time.Time) time.Duration {
	// A notBefore is rounded up to the next ms, and may be that much later.
	whole := time.Duration(math.Ceil(r.DelayMs)+1) * time.Millisecond
	return min(time.UnixMilli(r.NotBefore).Sub(now), whole)
}

// changed is the event that tells of another waterfall than the one that
// decided last, or nil.
func (s *Session) changed(policies []dsh.Policy) *dsh.Draft {
	to := make([]dsh.PolicyRef, 0, len(policies))
	for _, p := range policies {
		to = append(to, p.Info().Ref())
	}
	if slices.Equal(s.state.refs, to) {
		return nil
	}
	from := s.state.refs
	if from == nil {
		from = []dsh.PolicyRef{}
	}
	return &dsh.Draft{Type: dsh.TypePoliciesChanged, Data: dsh.PoliciesChanged{From: from, To: to}}
}

// refusals are the events of the policies that the waterfall did not take in,
// those that the log does not have yet.
func (s *Session) refusals() []dsh.Draft {
	w, ok := s.cfg.Policies.(dsh.Refuser)
	if !ok {
		return nil
	}
	var drafts []dsh.Draft
	for _, f := range w.Refusals() {
		if slices.Contains(s.state.said, refusal(f)) {
			continue
		}
		if st := s.state.openStep(); st != nil {
			f.Turn, f.Step, f.Attempt = s.state.turn.n, st.n, st.attempts
		}
		drafts = append(drafts, dsh.Draft{Type: dsh.TypePolicyFault, Data: f})
	}
	return drafts
}

// refusal is what tells one refusal from another, wherever it was said.
func refusal(f dsh.PolicyFault) string {
	return strings.Join([]string{f.Policy, f.Digest, f.Message}, "\x00")
}
