package loop

import (
	"context"
	"errors"
	"fmt"

	"github.com/dsh-agent/dsh"
)

// Prompt closes a turn that is still open as aborted, opens the next one with
// a user's message and runs it to its end.
//
// Its error is nil for every end that a policy, a provider or the user caused,
// a failed one too: the Outcome tells. When ctx ends by ErrSuspend the error
// is ErrSuspend and the turn stays open. Any other error is of the store, of a
// front, of a tool's machinery or of the loop itself, and keeps its identity
// under errors.Is and errors.As; where it ended the turn the Outcome says so.
func (s *Session) Prompt(ctx context.Context, content []dsh.Block) (Outcome, error) {
	if err := s.begin(ctx, content); err != nil {
		return Outcome{}, err
	}
	return s.drive(ctx)
}

// begin opens the next turn with a user's message.
func (s *Session) begin(ctx context.Context, content []dsh.Block) error {
	if s.state.open() {
		if err := s.append(ctx, s.closing(dsh.EndReason{Kind: dsh.EndAborted, Message: "a new prompt took its place"})...); err != nil {
			return err
		}
	}
	var drafts []dsh.Draft
	if s.state.tail.Seq == 0 {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeSessionStart, Data: s.start})
	}
	drafts = append(drafts,
		dsh.Draft{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: s.nextTurn()}},
		dsh.Draft{Type: dsh.TypeUserMessage, Data: dsh.UserMessage{ID: newID(), Content: content}, Surface: onSurface()})
	return s.append(ctx, drafts...)
}

// Resume runs the open turn to its end. Where none is open it takes up the
// last one if that did not complete, without a new message; if it did
// complete, the error is ErrNothingOpen. A turn that only compacted is passed
// over. Otherwise it is as Prompt.
func (s *Session) Resume(ctx context.Context) (Outcome, error) {
	if !s.state.open() {
		w := s.state.work
		if w == nil || w.end.Kind == dsh.EndCompleted {
			return Outcome{}, ErrNothingOpen
		}
		start := dsh.TurnStart{Turn: s.nextTurn(), Continues: w.turn}
		if err := s.append(ctx, dsh.Draft{Type: dsh.TypeTurnStart, Data: start}); err != nil {
			return Outcome{}, err
		}
	}
	return s.drive(ctx)
}

func (s *Session) nextTurn() int {
	if s.state.turn == nil {
		return 1
	}
	return s.state.turn.n + 1
}

func onSurface() *dsh.SurfaceOp { return &dsh.SurfaceOp{Op: dsh.SurfaceAppend} }

// drive takes one action after the other until the turn is closed.
func (s *Session) drive(ctx context.Context) (Outcome, error) {
	for {
		if s.frontErr != nil {
			return s.endByError(ctx, s.frontErr)
		}
		if ctx.Err() != nil && s.state.open() {
			return s.stop(ctx)
		}
		act, reason := next(&s.state, s.cfg.MaxSteps)
		if act == actNothing {
			s.keep(ctx)
			return s.outcome(), nil
		}
		err := s.do(ctx, act, reason)
		var internal *turnError
		switch {
		case err == nil, errors.Is(err, errStopped):
		case errors.As(err, &internal):
			return s.endByError(ctx, internal.cause)
		default:
			return Outcome{}, err
		}
	}
}

// errStopped says that an action was left because the context ended; what that
// means for the turn is stop's to say.
var errStopped = errors.New("stopped")

// A turnError is a failure of a front or of a tool's machinery: it ends the
// turn as what it is, and no policy is asked.
type turnError struct{ cause error }

func (e *turnError) Error() string { return e.cause.Error() }
func (e *turnError) Unwrap() error { return e.cause }

func (s *Session) do(ctx context.Context, act action, reason dsh.EndReason) error {
	switch act {
	case actStep:
		return s.openStep(ctx)
	case actSend:
		return s.send(ctx)
	case actInterrupt:
		return s.append(ctx, s.endAttempt(dsh.Finish{Kind: dsh.FinishInterrupted}, 0))
	case actAsk:
		return s.ask(ctx)
	case actWait:
		return s.wait(ctx)
	case actMessage:
		return s.makeMessage(ctx)
	case actTools:
		return s.runTools(ctx)
	case actEndStep:
		return s.append(ctx, dsh.Draft{Type: dsh.TypeStepEnd, Data: dsh.StepEnd{Turn: s.state.turn.n, Step: s.state.turn.step.n}})
	case actEndTurn:
		return s.endTurn(ctx, reason)
	case actRepair:
		return s.repair(ctx)
	case actSummary:
		return s.summarise(ctx)
	case actCompact:
		return s.openCompaction(ctx, 0, dsh.CompactionStart{Trigger: dsh.TriggerManual})
	}
	return fmt.Errorf("loop: no such action %d", act)
}

// stop does what the end of the context asks for.
func (s *Session) stop(ctx context.Context) (Outcome, error) {
	if errors.Is(context.Cause(ctx), ErrAbort) {
		if err := s.append(ctx, s.closing(dsh.EndReason{Kind: dsh.EndAborted})...); err != nil {
			return Outcome{}, err
		}
		return s.outcome(), nil
	}
	if err := s.writer.Sync(context.WithoutCancel(ctx)); err != nil {
		return Outcome{}, err
	}
	return s.outcome(), ErrSuspend
}

// endByError closes the turn, if it is open, for a reason that is neither the
// provider's nor the user's.
func (s *Session) endByError(ctx context.Context, cause error) (Outcome, error) {
	if s.state.open() {
		if err := s.append(ctx, s.closing(dsh.EndReason{Kind: dsh.EndError, Message: cause.Error()})...); err != nil {
			return Outcome{}, errors.Join(cause, err)
		}
	}
	return s.outcome(), cause
}

// openStep opens the next step, with the request/header where that changes.
func (s *Session) openStep(ctx context.Context) error {
	n := 1
	if st := s.state.turn.step; st != nil {
		n = st.n + 1
	}
	drafts := []dsh.Draft{{Type: dsh.TypeStepStart, Data: dsh.StepStart{Turn: s.state.turn.n, Step: n}}}
	h := dsh.RequestHeader{
		Turn: s.state.turn.n, Step: n, Provider: s.cfg.Provider, Model: s.cfg.Model,
		System: s.cfg.System, Tools: s.specs(), Params: s.cfg.Params,
	}
	if !sameHeader(s.state.header, h) {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeRequestHeader, Data: h})
	}
	return s.append(ctx, drafts...)
}

// endTurn shows the answer and closes the turn, in this order: a kill between
// the two repeats the answer on resume and never loses it.
func (s *Session) endTurn(ctx context.Context, reason dsh.EndReason) error {
	if m := s.answer(reason.Kind); m != nil && s.cfg.Front.Answer != nil {
		if err := s.cfg.Front.Answer(*m); err != nil {
			return &turnError{err}
		}
	}
	return s.append(ctx, s.closing(reason)...)
}

// answer is the message that a turn with such an end has to show, or nil.
func (s *Session) answer(kind dsh.EndKind) *dsh.AssistantMessage {
	switch kind {
	case dsh.EndCompleted, dsh.EndLength, dsh.EndMaxSteps:
	default:
		return nil
	}
	t := s.state.turn
	if t.message == nil && t.step == nil && s.state.answered() {
		last := s.state.surface[len(s.state.surface)-1]
		return &dsh.AssistantMessage{Turn: t.n, Content: last.message.Content, Provider: last.provider, Model: last.model}
	}
	return t.message
}

// closing closes everything that is open in the turn, innermost first, and the
// turn.
func (s *Session) closing(reason dsh.EndReason) []dsh.Draft {
	t := s.state.turn
	var drafts []dsh.Draft
	if st := s.state.openStep(); st != nil {
		if p := st.pending; p != nil {
			drafts = append(drafts, cancelled(p, dsh.CancelAborted))
		}
		if s.state.openAttempt() != nil {
			drafts = append(drafts, s.endAttempt(abortedFinish(), 0))
		}
		if c := st.compaction; c != nil {
			drafts = append(drafts, endCompaction(c.CompactionID, "the turn ended before the summary was there"))
		}
		for _, c := range st.unanswered() {
			drafts = append(drafts, s.result(c.block.ID, errorResult(unansweredText(c, reason))))
		}
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeStepEnd, Data: dsh.StepEnd{Turn: t.n, Step: st.n}})
	}
	return append(drafts, dsh.Draft{Type: dsh.TypeTurnEnd, Data: dsh.TurnEnd{Turn: t.n, Reason: reason}})
}

// unansweredText is what the model reads in place of a result that a closing
// turn leaves no time for.
func unansweredText(c call, reason dsh.EndReason) string {
	switch {
	case !c.started:
		return "The tool was not started: the turn ended before."
	case reason.Kind == dsh.EndError: // its own machinery broke
		return "The call failed: " + reason.Message
	}
	return unknownOutcome
}

func abortedFinish() dsh.Finish {
	return dsh.Finish{Kind: dsh.FinishAborted, Failure: &dsh.Failure{Code: dsh.CodeAborted, Message: "the request was stopped"}}
}

func cancelled(p *pending, reason string) dsh.Draft {
	return dsh.Draft{Type: dsh.TypeRetryCancelled, Data: dsh.RetryCancelled{RetryID: p.RetryID, Turn: p.Turn, Step: p.Step, Retry: p.Retry.Retry, Reason: reason}}
}

// outcome is how the last turn stands.
func (s *Session) outcome() Outcome {
	o := Outcome{Session: s.start.ID}
	t := s.state.turn
	if t == nil {
		return o
	}
	o.Turn, o.Attempts, o.Retries, o.WaitedMs, o.Usage = t.n, t.attempts, t.retries, t.waited, t.usage
	if t.end == nil {
		return o
	}
	o.Status, o.Failure, o.Message = t.end.Kind, t.end.Failure, t.end.Message
	if m := s.answer(t.end.Kind); m != nil {
		o.Text = dsh.Text(m.Content)
	}
	if f := t.end.Failure; f != nil && f.RetryAfter > 0 {
		o.RetryAt = t.failedAt + f.RetryAfter.Milliseconds()
	}
	return o
}
