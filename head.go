package dsh

// A State is what a session is doing, as far as its log tells.
type State string

// The states of a session.
const (
	StateOpen    State = "open"    // a turn is open
	StateWaiting State = "waiting" // a turn is open and in a backoff
	StateDone    State = "done"    // the last turn ended, other than as below
	StateFailed  State = "failed"  // the last turn ended as failed or error
)

// A Head is what a list of sessions shows of one, kept by the log beside its
// events. It is a fold of them: see Apply.
type Head struct {
	ID          SessionID `json:"id"`
	Title       string    `json:"title"`
	Cwd         string    `json:"cwd"`
	State       State     `json:"state"`
	StartedAt   int64     `json:"startedAt"` // Unix ms
	UpdatedAt   int64     `json:"updatedAt"` // Unix ms, of the last event
	Turns       int       `json:"turns"`
	Attempts    int       `json:"attempts"`
	Retries     int       `json:"retries"` // started ones
	LastFailure Code      `json:"lastFailure,omitempty"`
	Seq         uint64    `json:"seq"`
	Hash        string    `json:"hash"`
}

// Tail is the end of the session's chain.
func (h Head) Tail() Tail { return Tail{h.Seq, h.Hash} }

// Apply folds the next event in. It fails only where an event's data cannot be
// read, or with a *SchemaError.
func (h *Head) Apply(e Event) error {
	h.Seq, h.Hash, h.UpdatedAt = e.Seq, e.Hash, e.At
	switch e.Type {
	case TypeSessionStart:
		var d SessionStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		if d.Schema > Schema {
			return &SchemaError{Have: d.Schema, Max: Schema}
		}
		h.ID, h.Title, h.Cwd, h.StartedAt, h.State = d.ID, d.Title, d.Cwd, e.At, StateDone
	case TypeTurnStart:
		h.Turns++
		h.State = StateOpen
	case TypeAttemptStart:
		h.Attempts++
	case TypeAttemptEnd:
		var d AttemptEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		if d.Finish.Kind == FinishError && d.Finish.Failure != nil {
			h.LastFailure = d.Finish.Failure.Code
		}
	case TypeRetry:
		h.State = StateWaiting
	case TypeRetryStarted:
		h.Retries++
		h.State = StateOpen
	case TypeRetryCancelled:
		h.State = StateOpen
	case TypeTurnEnd:
		var d TurnEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		h.State = StateDone
		if d.Reason.Kind == EndFailed || d.Reason.Kind == EndError {
			h.State = StateFailed
		}
	}
	return nil
}
