package loop

import (
	"fmt"

	"github.com/dsh-agent/dsh"
)

// An action is the next thing to do in a session. Which one follows from the
// folded log alone, so that a resumed session takes the path of a live one.
//
// An attempt or a tool call that is open when next is asked was left by a
// process that died: a live one closes what it opens within one action.
type action int

const (
	actNothing   action = iota // no turn is open
	actStep                    // open the next step
	actSend                    // send the next attempt
	actInterrupt               // close an attempt that nobody saw the end of
	actAsk                     // put the failure to the policies
	actWait                    // wait out a retry, then send
	actMessage                 // make the message of a good attempt
	actTools                   // answer the calls of the message
	actEndStep                 // close the step
	actEndTurn                 // close the turn, for the reason given
	actRepair                  // go on with the repairs of a decision
	actSummary                 // put the summary of a good attempt in its place
	actCompact                 // begin the compaction of a manual turn
)

// next says what to do. The reason is set for actEndTurn.
func next(s *state, maxSteps int) (action, dsh.EndReason) {
	if !s.open() {
		return actNothing, dsh.EndReason{}
	}
	if st := s.openStep(); st != nil {
		return nextInStep(s.turn, st)
	}
	t := s.turn
	switch {
	case t.manual && t.step != nil:
		return actEndTurn, dsh.EndReason{Kind: dsh.EndCompleted}
	case t.step == nil && t.continues > 0 && t.before != nil && t.before.Kind == dsh.EndError && s.answered():
		// The turn before had its answer and could not show it.
		return actEndTurn, dsh.EndReason{Kind: dsh.EndCompleted}
	case t.step == nil:
		return actStep, dsh.EndReason{}
	case t.step.cut():
		return actEndTurn, dsh.EndReason{Kind: dsh.EndLength, Message: "the output limit cut the answer"}
	case len(t.step.calls) == 0:
		return actEndTurn, dsh.EndReason{Kind: dsh.EndCompleted}
	case t.step.n >= maxSteps:
		return actEndTurn, dsh.EndReason{Kind: dsh.EndMaxSteps, Message: fmt.Sprintf("the turn took %d steps, as many as max_steps allows", t.step.n)}
	}
	return actStep, dsh.EndReason{}
}

// cut reports whether the output limit cut the step's answer.
func (st *step) cut() bool {
	return st.reply != nil && st.reply.end != nil && st.reply.end.Finish.Kind == dsh.FinishLength
}

func nextInStep(t *turn, st *step) (action, dsh.EndReason) {
	a := st.current()
	switch {
	case st.pending != nil:
		return actWait, dsh.EndReason{}
	case st.repairing != nil && st.compaction == nil:
		return actRepair, dsh.EndReason{}
	case t.manual && st.compaction == nil:
		return nextManual(st)
	case a == nil:
		return actSend, dsh.EndReason{}
	case a.end == nil:
		return actInterrupt, dsh.EndReason{}
	}
	switch kind := a.end.Finish.Kind; {
	case kind == dsh.FinishInterrupted:
		return actSend, dsh.EndReason{}
	case kind == dsh.FinishAborted, st.aborted:
		return actEndTurn, dsh.EndReason{Kind: dsh.EndAborted}
	case !kind.Good():
		return actAsk, dsh.EndReason{}
	case st.compaction != nil:
		return actSummary, dsh.EndReason{}
	case st.message == nil:
		return actMessage, dsh.EndReason{}
	case len(st.unanswered()) > 0:
		return actTools, dsh.EndReason{}
	}
	return actEndStep, dsh.EndReason{}
}

// nextManual is next in a turn that is one compaction and no more.
func nextManual(st *step) (action, dsh.EndReason) {
	switch done := st.compacted; {
	case done == nil:
		return actCompact, dsh.EndReason{}
	case done.failure != nil:
		return actEndTurn, dsh.EndReason{Kind: dsh.EndFailed, Failure: done.failure, Message: done.problem}
	case done.problem != "":
		return actEndTurn, dsh.EndReason{Kind: dsh.EndError, Message: done.problem}
	}
	return actEndStep, dsh.EndReason{}
}
