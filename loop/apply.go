package loop

import (
	"fmt"

	"github.com/dsh-agent/dsh"
)

// apply folds the next event in. It holds the log to its invariants: its error
// is an *InvariantError, a *dsh.SchemaError, or an event that cannot be read.
// Types that it does not know change nothing.
func (s *state) apply(e dsh.Event) error {
	if e.Seq != s.tail.Seq+1 {
		return &InvariantError{e.Seq, fmt.Sprintf("it follows event %d", s.tail.Seq)}
	}
	if (e.Seq == 1) != (e.Type == dsh.TypeSessionStart) {
		return &InvariantError{e.Seq, "a session begins with session/start, once"}
	}
	if err := s.applyType(e); err != nil {
		return err
	}
	s.tail = e.Tail()
	return nil
}

func (s *state) applyType(e dsh.Event) error {
	switch e.Type {
	case dsh.TypeSessionStart:
		return s.applySession(e)
	case dsh.TypeTurnStart, dsh.TypeTurnEnd, dsh.TypeUserMessage:
		return s.applyTurn(e)
	case dsh.TypeStepStart, dsh.TypeStepEnd, dsh.TypeRequestHeader:
		return s.applyStep(e)
	case dsh.TypeAttemptStart, dsh.TypeAssistantChunk, dsh.TypeAttemptEnd:
		return s.applyAttempt(e)
	case dsh.TypeRetry, dsh.TypeRetryStarted, dsh.TypeRetryCancelled:
		return s.applyRetry(e)
	case dsh.TypePoliciesChanged, dsh.TypePolicyDecision, dsh.TypePolicyRefused, dsh.TypePolicyFault:
		return s.applyPolicy(e)
	case dsh.TypePolicyState:
		return s.applyMemory(e)
	case dsh.TypeCompactionStart, dsh.TypeCompactionSummary, dsh.TypeCompactionEnd:
		return s.applyCompaction(e)
	case dsh.TypeAssistantMessage:
		return s.applyMessage(e)
	case dsh.TypeToolCall, dsh.TypeToolResult:
		return s.applyTool(e)
	}
	return nil
}

func (s *state) applySession(e dsh.Event) error {
	if err := e.Decode(&s.start); err != nil {
		return err
	}
	if s.start.Schema > dsh.Schema {
		return &dsh.SchemaError{Have: s.start.Schema, Max: dsh.Schema}
	}
	return nil
}

func (s *state) applyTurn(e dsh.Event) error {
	switch e.Type {
	case dsh.TypeTurnStart:
		var d dsh.TurnStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		n, before := 1, (*dsh.EndReason)(nil)
		if s.turn != nil {
			n = s.turn.n + 1
		}
		if s.work != nil && d.Continues == s.work.turn {
			before = &s.work.end
		}
		if s.open() || d.Turn != n {
			return &InvariantError{e.Seq, fmt.Sprintf("turn %d starts where turn %d is due", d.Turn, n)}
		}
		s.turn = &turn{n: d.Turn, continues: d.Continues, manual: d.Manual, before: before}
	case dsh.TypeUserMessage:
		var d dsh.UserMessage
		if err := e.Decode(&d); err != nil {
			return err
		}
		if !s.open() {
			return &InvariantError{e.Seq, "a message outside a turn"}
		}
		return s.change(e, entry{message: dsh.Message{Role: dsh.RoleUser, Content: d.Content}})
	case dsh.TypeTurnEnd:
		var d dsh.TurnEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		if !s.open() || d.Turn != s.turn.n {
			return &InvariantError{e.Seq, fmt.Sprintf("turn %d ends and is not open", d.Turn)}
		}
		if s.openStep() != nil {
			return &InvariantError{e.Seq, "a turn ends with its step open"}
		}
		s.turn.end = &d.Reason
		if !s.turn.manual {
			s.work = &work{s.turn.n, d.Reason}
		}
	}
	return nil
}

func (s *state) applyStep(e dsh.Event) error {
	switch e.Type {
	case dsh.TypeStepStart:
		var d dsh.StepStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		if !s.open() || s.openStep() != nil {
			return &InvariantError{e.Seq, "a step starts outside a turn, or inside another step"}
		}
		n := 1
		if s.turn.step != nil {
			n = s.turn.step.n + 1
		}
		if d.Step != n || d.Turn != s.turn.n {
			return &InvariantError{e.Seq, fmt.Sprintf("step %d of turn %d starts where step %d of turn %d is due", d.Step, d.Turn, n, s.turn.n)}
		}
		s.turn.step = &step{n: d.Step}
	case dsh.TypeRequestHeader:
		var d dsh.RequestHeader
		if err := e.Decode(&d); err != nil {
			return err
		}
		s.header = &d
	case dsh.TypeStepEnd:
		var d dsh.StepEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		st := s.openStep()
		switch {
		case st == nil || d.Step != st.n:
			return &InvariantError{e.Seq, fmt.Sprintf("step %d ends and is not open", d.Step)}
		case s.openAttempt() != nil || st.pending != nil || st.compaction != nil:
			return &InvariantError{e.Seq, "a step ends with an attempt, a wait or a compaction open"}
		case len(st.unanswered()) > 0:
			return &InvariantError{e.Seq, "a step ends with tool calls unanswered"}
		}
		st.ended = true
	}
	return nil
}

func (s *state) applyAttempt(e dsh.Event) error {
	switch e.Type {
	case dsh.TypeAttemptStart:
		var d dsh.AttemptStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		st := s.openStep()
		if st == nil || s.openAttempt() != nil || st.pending != nil || s.header == nil {
			return &InvariantError{e.Seq, "an attempt starts outside a step, beside another, in a wait, or before a request/header"}
		}
		if d.Attempt != st.attempts+1 {
			return &InvariantError{e.Seq, fmt.Sprintf("attempt %d starts where %d is due", d.Attempt, st.attempts+1)}
		}
		return s.startAttempt(e, st, d)
	case dsh.TypeAssistantChunk:
		a := s.openAttempt()
		if a == nil {
			return &InvariantError{e.Seq, "a chunk outside an attempt"}
		}
		a.chunks = append(a.chunks, e)
	case dsh.TypeAttemptEnd:
		var d dsh.AttemptEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		a := s.openAttempt()
		if a == nil || d.Attempt != a.Attempt {
			return &InvariantError{e.Seq, fmt.Sprintf("attempt %d ends and is not open", d.Attempt)}
		}
		s.endAttempt(a, d, e.At)
	}
	return nil
}

func (s *state) startAttempt(e dsh.Event, st *step, d dsh.AttemptStart) error {
	a := &attempt{AttemptStart: d}
	switch {
	case (d.Purpose == dsh.PurposeCompaction) != (st.compaction != nil):
		return &InvariantError{e.Seq, fmt.Sprintf("an attempt of purpose %q inside a compaction, or one of a compaction outside", d.Purpose)}
	case st.compaction != nil:
		st.compaction.attempt = a
	default:
		st.reply, st.repairing = a, nil
	}
	st.attempts++
	s.turn.attempts++
	st.attempt = a
	return nil
}

func (s *state) endAttempt(a *attempt, d dsh.AttemptEnd, at int64) {
	a.end, a.endAt = &d, at
	if d.Usage != nil {
		s.turn.usage = s.turn.usage.Add(*d.Usage)
	}
	if d.Finish.Kind == dsh.FinishError {
		s.failAttempt(a, d.Finish.Failure, at)
	}
	if d.Usage != nil && d.Finish.Kind.Good() && a.Purpose == dsh.PurposeReply {
		s.anchorAt(*d.Usage)
	}
	if !d.Finish.Kind.Good() {
		a.chunks = nil
	}
}

func (s *state) failAttempt(a *attempt, f *dsh.Failure, at int64) {
	st := s.turn.step
	if st.compaction == nil || s.turn.manual {
		st.failure, s.turn.failedAt = f, at
	}
	if st.compaction != nil && f != nil && f.Code == dsh.CodeContextWindow {
		st.compaction.tooLong++
	}
}

func (s *state) applyRetry(e dsh.Event) error {
	st := s.openStep()
	if st == nil {
		return &InvariantError{e.Seq, "a retry outside a step"}
	}
	if e.Type == dsh.TypeRetry {
		return s.applyDecided(e, st)
	}
	var d dsh.RetryCancelled // has all the fields of a RetryStarted
	if err := e.Decode(&d); err != nil {
		return err
	}
	if st.pending == nil || st.pending.RetryID != d.RetryID {
		return &InvariantError{e.Seq, "a retry is started or cancelled that is not pending"}
	}
	if e.Type == dsh.TypeRetryCancelled {
		st.aborted = d.Reason == dsh.CancelAborted
		st.cancel()
		return nil
	}
	s.turn.retries++
	s.turn.waited += max(0, e.At-st.pending.at)
	s.turn.delays += st.pending.DelayMs
	s.turn.resent += tokens(st.attempt.RequestBytes)
	st.pending = nil
	return nil
}

func (s *state) applyDecided(e dsh.Event, st *step) error {
	var d dsh.Retry
	if err := e.Decode(&d); err != nil {
		return err
	}
	a := st.current()
	due := st.retried(d.Purpose, d.Provider, d.Policy, d.PolicyKey) + 1
	switch {
	case st.pending != nil:
		return &InvariantError{e.Seq, "a retry beside another"}
	case a == nil || a.end == nil || a.end.Finish.Kind != dsh.FinishError:
		return &InvariantError{e.Seq, "a retry without a failed attempt"}
	case d.Turn != s.turn.n || d.Step != st.n || d.Attempt != a.Attempt:
		return &InvariantError{e.Seq, "a retry of another attempt than the one that failed"}
	case d.Retry != due:
		return &InvariantError{e.Seq, fmt.Sprintf("retry %d where %d is due", d.Retry, due)}
	case d.MaxRetries != nil && int64(d.Retry) > *d.MaxRetries:
		return &InvariantError{e.Seq, fmt.Sprintf("retry %d of at most %d", d.Retry, *d.MaxRetries)}
	case d.Mode == dsh.ModeAlways && d.MaxRetries != nil:
		return &InvariantError{e.Seq, "mode always with a number of retries"}
	case d.DelayMs < 0 || d.DelayMs > dsh.MaxDelayMs:
		return &InvariantError{e.Seq, fmt.Sprintf("a delay of %v ms", d.DelayMs)}
	}
	st.retries = append(st.retries, d)
	st.pending = &pending{d, e.At}
	if st.compaction == nil {
		st.repairing = nil
	}
	return nil
}

func (s *state) applyMessage(e dsh.Event) error {
	var d dsh.AssistantMessage
	if err := e.Decode(&d); err != nil {
		return err
	}
	st := s.openStep()
	switch {
	case st == nil || st.message != nil:
		return &InvariantError{e.Seq, "a message outside a step, or a second one"}
	case st.reply == nil || st.reply.end == nil || !st.reply.end.Finish.Kind.Good() || d.Attempt != st.reply.Attempt:
		return &InvariantError{e.Seq, "a message of an attempt that did not end well"}
	}
	st.message, s.turn.message = &d, &d
	st.reply.chunks = nil
	for _, b := range dsh.ToolCalls(d.Content) {
		st.calls = append(st.calls, call{block: b})
	}
	return s.change(e, entry{message: dsh.Message{Role: dsh.RoleAssistant, Content: d.Content}, provider: d.Provider, model: d.Model})
}

func (s *state) applyTool(e dsh.Event) error {
	if e.Type == dsh.TypeToolResult && e.Surface != nil && e.Surface.Op == dsh.SurfaceReplace {
		return s.applyPruned(e)
	}
	var d dsh.ToolResultEvent // a ToolCall has the fields that are looked at
	if err := e.Decode(&d); err != nil {
		return err
	}
	st := s.openStep()
	if st == nil {
		return &InvariantError{e.Seq, "a tool call or result outside a step"}
	}
	for i := range st.calls {
		c := &st.calls[i]
		if c.block.ID != d.CallID {
			continue
		}
		if e.Type == dsh.TypeToolCall {
			if c.started || c.answered {
				return &InvariantError{e.Seq, fmt.Sprintf("call %s is made twice", d.CallID)}
			}
			c.started = true
			c.row = s.turn.count(c.block)
			return nil
		}
		if c.answered {
			return &InvariantError{e.Seq, fmt.Sprintf("call %s is answered twice", d.CallID)}
		}
		c.answered = true
		return s.change(e, toolEntry(d))
	}
	return &InvariantError{e.Seq, fmt.Sprintf("call %s is not in the step's message", d.CallID)}
}

// applyPruned puts a shortened result in the place of the whole one.
func (s *state) applyPruned(e dsh.Event) error {
	var d dsh.ToolResultEvent
	if err := e.Decode(&d); err != nil {
		return err
	}
	before := s.tokens()
	if err := s.change(e, toolEntry(d)); err != nil {
		return err
	}
	st := s.openStep()
	if st == nil || st.repairing == nil {
		return nil
	}
	rp := st.repairing
	if rp.pruned == 0 {
		st.repairs = append(st.repairs, dsh.RepairOutcome{Kind: dsh.RepairPrune, Policy: rp.policy, OK: true, TokensBefore: before})
		rp.pruned = len(st.repairs)
	}
	st.repairs[rp.pruned-1].TokensAfter = s.tokens()
	return nil
}

func toolEntry(d dsh.ToolResultEvent) entry {
	block := dsh.Block{Type: dsh.BlockToolResult, CallID: d.CallID, Content: d.Content, IsError: d.IsError}
	return entry{message: dsh.Message{Role: dsh.RoleTool, Content: []dsh.Block{block}}}
}
