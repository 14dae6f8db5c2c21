package workshop

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/dsh-agent/dsh"
)

// A Simulation asks a policy about the failures that a log holds.
type Simulation struct {
	Log      dsh.Log
	Sessions []dsh.SessionID // nil: all that met a failure

	Policy dsh.Policy      // the candidate
	Name   string          // under which it would be asked: a policy of this name is asked no more
	Config json.RawMessage // the candidate's
	Alone  bool            // nobody else is asked

	// Reread makes an answer of log_read or surface_read as it was when a
	// session's log ended at event tail. nil: those are refused.
	Reread func(ctx context.Context, id dsh.SessionID, policy, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error)

	// Failure is told what became of each failure, in the order of the sessions'
	// ids. nil: nobody is.
	Failure func(Row) error
}

// The answers to a failure.
const (
	AnswerRetry = "retry" // the request is sent again
	AnswerFinal = "final" // nobody wants that
	AnswerOpen  = "open"  // the log ends before there is one, or the user stopped it
	AnswerNone  = "none"  // of the candidate: it had ended the turn before
)

// An Outcome is what became of a failure on one side.
type Outcome struct {
	Answer  string  `json:"answer"`
	Policy  string  `json:"policy,omitempty"` // that retries
	DelayMs float64 `json:"delayMs,omitempty"`
	Reason  string  `json:"reason,omitempty"` // the candidate's own
	Refused string  `json:"refused,omitempty"`
	Fault   string  `json:"fault,omitempty"` // the candidate's, kind and message

	key     string // what the retry is counted under
	repairs bool   // it asks for some
}

// A Row is one failure of the log, on both sides.
type Row struct {
	Session   dsh.SessionID `json:"session"`
	Turn      int           `json:"turn"`
	Step      int           `json:"step"`
	Attempt   int           `json:"attempt"`
	Purpose   dsh.Purpose   `json:"purpose"`
	Provider  string        `json:"provider"`
	Code      dsh.Code      `json:"code"`
	Recorded  Outcome       `json:"recorded"`
	Candidate Outcome       `json:"candidate"`
	Beyond    int           `json:"beyond,omitempty"` // requests that the candidate would send on, which the log knows nothing of
}

// Differs reports whether the candidate answers otherwise, or after another
// delay. Where the log has no answer, nothing does.
func (r Row) Differs() bool {
	if r.Recorded.Answer == AnswerOpen {
		return r.Recorded.Policy != "" && (r.Candidate.Answer != AnswerRetry || r.Candidate.DelayMs != r.Recorded.DelayMs)
	}
	return r.Candidate.Answer != r.Recorded.Answer || r.Candidate.DelayMs != r.Recorded.DelayMs
}

// Run asks the candidate about every failure.
func (s Simulation) Run(ctx context.Context) (*Report, error) {
	ids, err := s.ids(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type done struct {
		rows   []Row
		report *Report
		err    error
	}
	results := make([]chan done, len(ids))
	for i := range results {
		results[i] = make(chan done, 1)
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range min(len(ids), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range work {
				rows, report, err := s.session(ctx, ids[i])
				results[i] <- done{rows, report, err}
			}
		})
	}
	workers.Go(func() {
		defer close(work)
		for i := range ids {
			select {
			case work <- i:
			case <-ctx.Done():
				return
			}
		}
	})
	defer workers.Wait()
	defer cancel()
	report := newReport()
	for _, r := range results {
		select {
		case d := <-r:
			if d.err != nil {
				return nil, d.err
			}
			report.add(d.report)
			if err := s.tell(d.rows); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return report, nil
}

func (s Simulation) tell(rows []Row) error {
	if s.Failure == nil {
		return nil
	}
	for _, r := range rows {
		if err := s.Failure(r); err != nil {
			return err
		}
	}
	return nil
}

// ids are the sessions to look at, the oldest first.
func (s Simulation) ids(ctx context.Context) ([]dsh.SessionID, error) {
	if s.Sessions != nil {
		return s.Sessions, nil
	}
	var ids []dsh.SessionID
	for h, err := range s.Log.Heads(ctx) {
		if err != nil {
			return nil, err
		}
		if h.LastFailure != "" && !h.ID.Reserved() {
			ids = append(ids, h.ID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// session asks the candidate about one session's failures.
func (s Simulation) session(ctx context.Context, id dsh.SessionID) ([]Row, *Report, error) {
	var events []dsh.Event
	for e, err := range s.Log.Read(ctx, id, 0) {
		if err != nil {
			return nil, nil, err
		}
		if e.Type != dsh.TypeAssistantChunk {
			events = append(events, e)
		}
	}
	folded, err := fold(id, events)
	if err != nil {
		return nil, nil, err
	}
	w := &walk{sim: s, session: folded, report: newReport()}
	w.report.Sessions = 1
	for _, t := range folded.turns {
		if err := w.turn(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	return w.rows, w.report, nil
}

// walk is one session's simulation.
type walk struct {
	sim     Simulation
	session *session
	report  *Report
	rows    []Row

	// Of the present turn.
	recorded float64 // ms that were waited in the log,
	waited   float64 // and with the candidate
	cut      bool    // the candidate has ended it

	// Of the present step.
	counts []dsh.RetryCount // the candidate's own
}

func (w *walk) turn(ctx context.Context, t *turn) error {
	w.recorded, w.waited, w.cut = 0, 0, false
	for _, st := range t.steps {
		w.counts = nil
		cutCompaction := false
		for _, a := range st.attempts {
			w.report.sent(a)
			if a.Purpose != dsh.PurposeCompaction {
				cutCompaction = false
			}
			skipped := w.cut || cutCompaction
			if !skipped {
				w.report.resent(a)
			}
			if a.failure == nil {
				continue
			}
			ended, err := w.failure(ctx, t, a, skipped)
			if err != nil {
				return err
			}
			if ended && a.Purpose == dsh.PurposeCompaction {
				cutCompaction = true
			} else if ended && !w.cut {
				w.cut = true
				if t.end == dsh.EndCompleted || t.end == dsh.EndLength || t.end == dsh.EndMaxSteps {
					w.report.Lost++
				}
			}
		}
	}
	return nil
}

// failure looks at one failure, and reports whether the candidate ends here what
// went on in the log.
func (w *walk) failure(ctx context.Context, t *turn, a *attempt, skipped bool) (bool, error) {
	row := Row{
		Session: w.session.id, Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Purpose: a.Purpose,
		Provider: a.Provider, Code: a.failure.Code, Recorded: w.recordedOutcome(t, a), Candidate: Outcome{Answer: AnswerNone},
	}
	defer func() { w.rows = append(w.rows, row) }()
	w.report.recorded(a, row.Recorded)
	if a.started {
		w.recorded += row.Recorded.DelayMs
	}
	if skipped {
		w.report.Skipped++
		return false, nil
	}
	o, err := w.ask(ctx, a, 0)
	if err != nil {
		return false, err
	}
	row.Candidate = o
	if row.Differs() {
		w.report.Changed++
	}
	w.report.candidate(a, o, row.Recorded.Answer != AnswerOpen)
	switch {
	case o.Answer != AnswerRetry:
		return a.started, nil
	case a.started:
		w.started(a, o)
	case row.Recorded.Answer == AnswerFinal:
		w.started(a, o)
		row.Beyond, err = w.beyond(ctx, a, o)
	}
	return false, err
}

// recordedOutcome is what the log tells of a failure.
func (w *walk) recordedOutcome(t *turn, a *attempt) Outcome {
	switch {
	case a.retry != nil && !a.started:
		return Outcome{Answer: AnswerOpen, Policy: a.retry.Policy, DelayMs: a.retry.DelayMs}
	case a.retry != nil:
		return Outcome{Answer: AnswerRetry, Policy: a.retry.Policy, DelayMs: a.retry.DelayMs}
	case a.Purpose == dsh.PurposeCompaction, t.end == dsh.EndFailed:
		return Outcome{Answer: AnswerFinal}
	}
	return Outcome{Answer: AnswerOpen}
}

// started counts a retry of the candidate's side in.
func (w *walk) started(a *attempt, o Outcome) {
	w.waited += o.DelayMs
	if o.Policy != w.sim.Name {
		return
	}
	i := slices.IndexFunc(w.counts, func(c dsh.RetryCount) bool { return c.PolicyKey == o.key && c.Purpose == a.Purpose })
	if i < 0 {
		w.counts = append(w.counts, dsh.RetryCount{Policy: w.sim.Name, PolicyKey: o.key, Purpose: a.Purpose, Count: 1})
		return
	}
	w.counts[i].Count++
}

// maxBeyond bounds how far a candidate is followed behind the end of the log
// where no ceiling was in force.
const maxBeyond = 50

// beyond follows the candidate where it goes on and the log has ended: the same
// failure is met again, until it gives up or meets a ceiling.
func (w *walk) beyond(ctx context.Context, a *attempt, o Outcome) (int, error) {
	for n := 1; ; n++ {
		w.report.beyond(a, o)
		switch {
		case o.repairs:
			w.report.Unknown++ // what comes after a repair, nobody can say
			return n, nil
		case n == maxBeyond:
			w.report.Unbounded++
			return n, nil
		}
		var err error
		if o, err = w.ask(ctx, a, n); err != nil {
			return n, err
		}
		w.report.candidate(a, o, true)
		if o.Answer != AnswerRetry {
			return n, nil
		}
		w.started(a, o)
	}
}

func asFault(err error) *dsh.Fault {
	var f *dsh.Fault
	if errors.As(err, &f) {
		return f
	}
	return &dsh.Fault{Kind: dsh.FaultUnavailable, Message: err.Error()}
}
