package workshop

import (
	"encoding/json"
	"slices"

	"github.com/dsh-agent/dsh"
)

// session is what a log tells of one session's attempts, in order.
type session struct {
	id    dsh.SessionID
	turns []*turn
	known map[string]knownProvider // by name
	tail  uint64                   // of what was read
}

type turn struct {
	n     int
	steps []*step
	end   dsh.EndKind // "": open
}

type step struct {
	n        int
	attempts []*attempt
}

// attempt is one request and what became of it.
type attempt struct {
	dsh.AttemptStart
	failure   *dsh.Failure // nil: it did not fail
	failedAt  int64        // Unix ms
	seq       uint64       // of its end
	order     []string     // the waterfall that was asked, by name
	decisions []dsh.PolicyDecision
	inputs    []dsh.RecoverInput // of the decisions
	faulted   map[string]bool
	refused   map[string]bool
	retry     *dsh.Retry // that was decided, and not cancelled for another waterfall
	started   bool       // and whose wait came to its end
}

// knownProvider is what a recorded input told last of a provider.
type knownProvider struct {
	retry   dsh.RetryPolicy
	surface dsh.SurfaceInfo
}

// apply folds the next event in. What is not of a turn, or breaks the log's
// rules, is passed over: `dsh log verify` is for that.
func (s *session) apply(e dsh.Event, order *[]string) error {
	s.tail = e.Seq
	switch e.Type {
	case dsh.TypePoliciesChanged:
		var d dsh.PoliciesChanged
		if err := e.Decode(&d); err != nil {
			return err
		}
		*order = nil
		for _, p := range d.To {
			*order = append(*order, p.Name)
		}
	case dsh.TypeTurnStart:
		var d dsh.TurnStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		s.turns = append(s.turns, &turn{n: d.Turn})
	case dsh.TypeTurnEnd:
		var d dsh.TurnEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		if t := s.turn(); t != nil {
			t.end = d.Reason.Kind
		}
	case dsh.TypeStepStart:
		var d dsh.StepStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		if t := s.turn(); t != nil {
			t.steps = append(t.steps, &step{n: d.Step})
		}
	default:
		return s.applyAttempt(e, *order)
	}
	return nil
}

func (s *session) applyAttempt(e dsh.Event, order []string) error {
	switch e.Type {
	case dsh.TypeAttemptStart:
		a := &attempt{faulted: map[string]bool{}, refused: map[string]bool{}}
		if err := e.Decode(&a.AttemptStart); err != nil {
			return err
		}
		if t := s.turn(); t != nil && len(t.steps) > 0 {
			st := t.steps[len(t.steps)-1]
			st.attempts = append(st.attempts, a)
		}
	case dsh.TypeAttemptEnd:
		var d dsh.AttemptEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		if a := s.last(d.Attempt); a != nil {
			a.seq, a.failedAt = e.Seq, e.At
			if d.Finish.Kind == dsh.FinishError {
				a.failure = d.Finish.Failure
			}
		}
	case dsh.TypePolicyDecision:
		return s.applyDecision(e, order)
	case dsh.TypePolicyFault, dsh.TypePolicyRefused:
		var d dsh.PolicyFault // has the fields that both have
		if err := e.Decode(&d); err != nil {
			return err
		}
		if a := s.last(d.Attempt); a != nil && e.Type == dsh.TypePolicyRefused {
			a.refused[d.Policy] = true
		} else if a != nil && d.Hook != dsh.HookCheckConfig {
			a.faulted[d.Policy], a.order = true, order
		}
	case dsh.TypeRetry, dsh.TypeRetryStarted, dsh.TypeRetryCancelled:
		return s.applyRetry(e)
	}
	return nil
}

func (s *session) applyDecision(e dsh.Event, order []string) error {
	var d dsh.PolicyDecision
	if err := e.Decode(&d); err != nil {
		return err
	}
	a := s.last(d.Attempt)
	if a == nil || d.Hook != dsh.HookRecover {
		return nil
	}
	var in dsh.RecoverInput
	if err := json.Unmarshal(d.Input, &in); err != nil {
		return nil // replay says so
	}
	s.known[in.Provider] = knownProvider{in.RetryPolicy, in.Surface}
	a.order, a.decisions, a.inputs = order, append(a.decisions, d), append(a.inputs, in)
	return nil
}

func (s *session) applyRetry(e dsh.Event) error {
	var d dsh.Retry // has all the fields that are looked at
	if err := e.Decode(&d); err != nil {
		return err
	}
	t := s.turn()
	if t == nil || len(t.steps) == 0 {
		return nil
	}
	for _, a := range t.steps[len(t.steps)-1].attempts {
		switch {
		case e.Type == dsh.TypeRetry && a.Attempt == d.Attempt:
			a.retry = &d
		case a.retry == nil || a.retry.RetryID != d.RetryID:
		case e.Type == dsh.TypeRetryStarted:
			a.started = true
		default:
			var why dsh.RetryCancelled
			if err := e.Decode(&why); err != nil {
				return err
			}
			a.retry = nil
			if why.Reason == dsh.CancelPoliciesChanged { // it is asked about anew
				a.decisions, a.inputs, a.faulted, a.refused = nil, nil, map[string]bool{}, map[string]bool{}
			}
		}
	}
	return nil
}

func (s *session) turn() *turn {
	if len(s.turns) == 0 {
		return nil
	}
	return s.turns[len(s.turns)-1]
}

// last is an attempt of the last step.
func (s *session) last(n int) *attempt {
	t := s.turn()
	if t == nil || len(t.steps) == 0 {
		return nil
	}
	all := t.steps[len(t.steps)-1].attempts
	i := slices.IndexFunc(all, func(a *attempt) bool { return a.Attempt == n })
	if i < 0 {
		return nil
	}
	return all[i]
}

// fold reads a session's events.
func fold(id dsh.SessionID, events []dsh.Event) (*session, error) {
	s := &session{id: id, known: map[string]knownProvider{}}
	var order []string
	for _, e := range events {
		if err := s.apply(e, &order); err != nil {
			return nil, err
		}
	}
	return s, nil
}
