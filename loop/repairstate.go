package loop

import (
	"fmt"

	"github.com/dsh-agent/dsh"
)

// repairing is a decision that asked for repairs and is not carried out yet.
type repairing struct {
	policy, digest string
	hook           dsh.Hook
	decision       dsh.Decision
	repairs        []dsh.Repair
	next           int    // the first repair that is not known to be done
	failed         string // why one failed; "" none did
	pruned         int    // one more than the place of the pruning among the step's outcomes; 0: none
}

// compaction is one that is open.
type compaction struct {
	dsh.CompactionStart
	attempt  *attempt // the last one for it
	tooLong  int      // attempts that failed because the request was too long
	before   int64
	replaced bool
}

// compacted is how a compaction ended.
type compacted struct {
	problem string       // "": the surface is smaller
	failure *dsh.Failure // of the summary's last attempt, where that is the problem
}

func (s *state) applyPolicy(e dsh.Event) error {
	switch e.Type {
	case dsh.TypePoliciesChanged:
		var d dsh.PoliciesChanged
		if err := e.Decode(&d); err != nil {
			return err
		}
		s.refs = d.To
		if st := s.openStep(); st != nil && st.current() != nil {
			st.current().refused = nil
		}
	case dsh.TypePolicyDecision:
		var d dsh.PolicyDecision
		if err := e.Decode(&d); err != nil {
			return err
		}
		return s.applyDecision(e, d)
	case dsh.TypePolicyFault:
		var d dsh.PolicyFault
		if err := e.Decode(&d); err != nil {
			return err
		}
		if d.Hook == dsh.HookCheckConfig {
			s.said = append(s.said, refusal(d))
		}
	case dsh.TypePolicyRefused:
		var d dsh.PolicyRefused
		if err := e.Decode(&d); err != nil {
			return err
		}
		st := s.openStep()
		if st == nil {
			return &InvariantError{e.Seq, "a policy is refused outside a step"}
		}
		if a := st.current(); a != nil && a.Attempt == d.Attempt {
			if a.refused == nil {
				a.refused = map[string]string{}
			}
			a.refused[d.Policy] = d.Message
		}
		if st.compaction == nil {
			st.repairing = nil
		}
	}
	return nil
}

// applyDecision takes up the repairs that a decision asks for. What else it
// says comes as an event of its own when it is carried out.
func (s *state) applyDecision(e dsh.Event, d dsh.PolicyDecision) error {
	st := s.openStep()
	if st == nil {
		return &InvariantError{e.Seq, "a decision outside a step"}
	}
	if st.compaction != nil {
		return nil // a decision on the summary's failure cannot ask for repairs
	}
	decision, repairs, err := readRepairs(d)
	if err != nil {
		return nil // it is refused in an event of its own
	}
	if len(repairs) == 0 {
		if d.Hook == dsh.HookBeforeStep {
			st.repairing = nil
		}
		return nil
	}
	if d.Hook == dsh.HookBeforeStep {
		st.rounds++
	}
	st.repairing = &repairing{policy: d.Policy, digest: d.Digest, hook: d.Hook, decision: decision, repairs: repairs}
	return nil
}

// readRepairs reads the repairs of a logged decision.
func readRepairs(d dsh.PolicyDecision) (dsh.Decision, []dsh.Repair, error) {
	var decision dsh.Decision
	if err := (dsh.Event{Data: d.Decision}).Decode(&decision); err != nil {
		return decision, nil, err
	}
	repairs := make([]dsh.Repair, 0, len(decision.Repairs))
	for _, raw := range decision.Repairs {
		r, err := dsh.ParseRepair(raw)
		if err != nil {
			return decision, nil, err
		}
		repairs = append(repairs, r)
	}
	return decision, repairs, nil
}

func (s *state) applyCompaction(e dsh.Event) error {
	st := s.openStep()
	if st == nil || (e.Type == dsh.TypeCompactionStart) != (st.compaction == nil) {
		return &InvariantError{e.Seq, "a compaction outside a step, inside another, or ended before it began"}
	}
	switch e.Type {
	case dsh.TypeCompactionStart:
		var d dsh.CompactionStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		if s.openAttempt() != nil || st.pending != nil {
			return &InvariantError{e.Seq, "a compaction begins inside an attempt or a wait"}
		}
		st.compaction = &compaction{CompactionStart: d, before: s.tokens()}
		if st.repairing != nil {
			st.repairing.next = d.Repair
		}
	case dsh.TypeCompactionSummary:
		st.compaction.replaced = true
	case dsh.TypeCompactionEnd:
		var d dsh.CompactionEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		if d.CompactionID != st.compaction.CompactionID || s.openAttempt() != nil || st.pending != nil {
			return &InvariantError{e.Seq, fmt.Sprintf("compaction %s ends and is not the open one, or has an attempt or a wait open", d.CompactionID)}
		}
		s.endCompaction(st, d)
	}
	return nil
}

func (s *state) endCompaction(st *step, d dsh.CompactionEnd) {
	c := st.compaction
	st.compaction = nil
	st.compacted = &compacted{problem: d.Error}
	if a := c.attempt; a != nil && d.Error != "" && a.end != nil && a.end.Finish.Kind == dsh.FinishError {
		st.compacted.failure = a.end.Finish.Failure
	}
	st.repairs = append(st.repairs, dsh.RepairOutcome{
		Kind: dsh.RepairCompact, Policy: c.Policy, OK: d.Error == "", TokensBefore: c.before, TokensAfter: s.tokens(),
	})
	if rp := st.repairing; rp != nil {
		rp.next++
		rp.failed = d.Error
	}
}
