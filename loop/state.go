package loop

import (
	"fmt"
	"slices"

	"github.com/dsh-agent/dsh"
)

// state is the fold of a session's log: everything that the loop knows of it.
// It changes by apply alone, in a live session as on resume.
type state struct {
	start   dsh.SessionStart
	tail    dsh.Tail
	header  *dsh.RequestHeader
	refs    []dsh.PolicyRef // the waterfall that decided last
	said    []string        // refusals that the log has: see refusal
	surface []entry
	gen     int   // counts replacements on the surface
	turn    *turn // the open one, or the last
	work    *work // the last turn that ended, those that only compacted aside
	anchor  anchor

	memories map[string]memory // what policies keep in this session, by policy
}

// entry is one message that the model sees.
type entry struct {
	seq             uint64
	message         dsh.Message
	provider, model string // of an assistant's message
	size            int    // of its text, in bytes
}

type turn struct {
	n         int
	continues int
	manual    bool           // a compaction at rest
	before    *dsh.EndReason // how the turn ended that this one takes up
	end       *dsh.EndReason // nil: open
	step      *step          // the open one, or the last
	message   *dsh.AssistantMessage
	called    string // the last call, by name and arguments,
	row       int    // and how often it was made in a row

	attempts, retries int
	waited            int64   // ms, of started waits as they were
	delays            float64 // ms, of started waits as they were decided
	resent            int64   // tokens of retried requests, estimated
	usage             dsh.Usage
	failedAt          int64 // of the last attempt that failed
}

// work is a turn that ended, as one that takes it up has to know it.
type work struct {
	turn int
	end  dsh.EndReason
}

type step struct {
	n        int
	ended    bool
	attempts int
	attempt  *attempt     // the open one, or the last, for whatever purpose
	reply    *attempt     // the same, of those for a reply
	pending  *pending     // a retry that is neither started nor cancelled
	aborted  bool         // a retry was cancelled as aborted
	failure  *dsh.Failure // of the last attempt that failed
	retries  []dsh.Retry
	message  *dsh.AssistantMessage
	calls    []call // of message, in its order

	repairing  *repairing  // a decision whose repairs are under way
	compaction *compaction // the open one
	compacted  *compacted  // how the last one ended
	repairs    []dsh.RepairOutcome
	rounds     int // of repairs before the first request
}

// pending is a decided retry and when it was logged.
type pending struct {
	dsh.Retry
	at int64
}

type attempt struct {
	dsh.AttemptStart
	end     *dsh.AttemptEnd // nil: open
	endAt   int64
	chunks  []dsh.Event
	refused map[string]string // policies that were refused a retry for this failure, and why
}

// count counts a call that is made, and returns how often it was made in a row.
func (t *turn) count(b dsh.Block) int {
	if is := b.Name + "\x00" + b.Arguments; is != t.called {
		t.called, t.row = is, 0
	}
	t.row++
	return t.row
}

// call is a tool call of the step's message and how far it is.
type call struct {
	block             dsh.Block
	started, answered bool
	row               int // when it was started: how often it was made in a row
}

// An InvariantError says which rule of the log an event breaks.
type InvariantError struct {
	Seq  uint64
	Rule string
}

func (e *InvariantError) Error() string {
	return fmt.Sprintf("event %d breaks a rule of the log: %s", e.Seq, e.Rule)
}

func (s *state) open() bool { return s.turn != nil && s.turn.end == nil }

// openStep is the step that is open, or nil.
func (s *state) openStep() *step {
	if !s.open() || s.turn.step == nil || s.turn.step.ended {
		return nil
	}
	return s.turn.step
}

// current is the attempt that the step's next action is about: of the open
// compaction, or else of the reply. It is nil before the first.
func (st *step) current() *attempt {
	if st.compaction != nil {
		return st.compaction.attempt
	}
	return st.reply
}

// openAttempt is the attempt that is open, or nil.
func (s *state) openAttempt() *attempt {
	if st := s.openStep(); st != nil && st.attempt != nil && st.attempt.end == nil {
		return st.attempt
	}
	return nil
}

// unanswered are the calls of the open step that have no result.
func (st *step) unanswered() []call {
	return slices.DeleteFunc(slices.Clone(st.calls), func(c call) bool { return c.answered })
}

// retried counts the retries of the step with the same key, started or
// pending; cancelled ones are not in it.
func (st *step) retried(purpose dsh.Purpose, provider, policy, key string) int {
	n := 0
	for _, r := range st.retries {
		if r.Purpose == purpose && r.Provider == provider && r.Policy == policy && r.PolicyKey == key {
			n++
		}
	}
	return n
}

// counts are the step's retries as a policy is told them.
func (st *step) counts() []dsh.RetryCount {
	counts := []dsh.RetryCount{}
next:
	for _, r := range st.retries {
		for i, c := range counts {
			if c.Policy == r.Policy && c.PolicyKey == r.PolicyKey && c.Purpose == r.Purpose {
				counts[i].Count++
				continue next
			}
		}
		counts = append(counts, dsh.RetryCount{Policy: r.Policy, PolicyKey: r.PolicyKey, Purpose: r.Purpose, Count: 1})
	}
	return counts
}

// cancel takes the pending retry out of the step.
func (st *step) cancel() {
	id := st.pending.RetryID
	st.retries = slices.DeleteFunc(st.retries, func(r dsh.Retry) bool { return r.RetryID == id })
	st.pending = nil
}

// change does to the surface what an event says.
func (s *state) change(e dsh.Event, en entry) error {
	en.seq, en.size = e.Seq, sizeOf(en.message.Content)
	if e.Surface == nil {
		return &InvariantError{e.Seq, string(e.Type) + " without a surface operation"}
	}
	switch e.Surface.Op {
	case dsh.SurfaceAppend:
		s.surface = append(s.surface, en)
		return nil
	case dsh.SurfaceReplace:
		from := s.at(e.Surface.From)
		to := s.at(e.Surface.To)
		if from < 0 || to < from {
			return &InvariantError{e.Seq, fmt.Sprintf("it replaces %d to %d, which are not on the surface", e.Surface.From, e.Surface.To)}
		}
		s.surface = slices.Replace(s.surface, from, to+1, en)
		s.gen++
		return nil
	}
	return &InvariantError{e.Seq, fmt.Sprintf("an unknown surface operation %q", e.Surface.Op)}
}

func (s *state) at(seq uint64) int {
	return slices.IndexFunc(s.surface, func(en entry) bool { return en.seq == seq })
}

// answered reports whether the surface ends in a message that calls no tool.
func (s *state) answered() bool {
	if len(s.surface) == 0 {
		return false
	}
	last := s.surface[len(s.surface)-1].message
	return last.Role == dsh.RoleAssistant && len(last.Content) > 0 && len(dsh.ToolCalls(last.Content)) == 0
}
