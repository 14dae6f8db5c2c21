// Package loop drives a session: it folds the log, decides the next thing to
// do from what the log says alone, does it, and appends what came of it. A
// live session and a resumed one take the same path.
//
// The loop owns every retry, every wait and every ceiling. Adapters send once,
// policies decide, and a store stores.
package loop

import (
	"errors"
	"time"

	"github.com/dsh-agent/dsh"
)

// The causes with which a caller ends the context of a run. A context that
// ends for any other cause is taken as ErrSuspend: nothing is lost by it.
var (
	// ErrAbort stops the turn for good: the wait or the attempt is cancelled
	// in the log and the turn closed as aborted.
	ErrAbort = errors.New("aborted")
	// ErrSuspend leaves the turn as a crash would, but synced, to be resumed.
	ErrSuspend = errors.New("suspended")
	// ErrNothingOpen is what Resume answers when the last turn has completed.
	ErrNothingOpen = errors.New("the last turn is completed: there is nothing to resume")
)

// A Provider is what the loop needs of one to send to it.
type Provider struct {
	Adapter dsh.Adapter
	Retry   dsh.RetryPolicy
	Window  int64 // tokens of the model's context; 0: unknown
}

// Limits are ceilings that no policy gets past. A zero value is no ceiling.
type Limits struct {
	MaxAttemptsPerStep     int
	MaxWaitPerTurn         time.Duration // over the delays of started waits
	MaxResentTokensPerTurn int64         // over the requests of retries, estimated
	MinDelay               time.Duration // raises a decision's delay
}

// Config is what a session runs with. Steps that were opened before keep the
// provider, model, tools and parameters that their request/header names.
type Config struct {
	Provider string
	Model    string
	System   string
	Params   dsh.Params
	Tools    []dsh.Tool
	MaxSteps int // of a turn; 0: 100

	// SummaryMaxTokens is how long a summary may be where no policy says. 0: 8192.
	SummaryMaxTokens int64

	Limits Limits

	// Providers finds a provider by its name in the configuration; it is also
	// asked for the one that an open step names. Its error leaves the turn
	// open, so that it can be resumed once the provider is there.
	Providers func(name string) (Provider, error)

	// Policies decide on failures. nil: none, every failure is final.
	Policies dsh.Waterfall

	// Redact takes out of an event's data what is not to be logged, before the
	// event is made. It gives a JSON object that every reader of the event
	// understands as before. nil: all is logged.
	Redact func(data []byte) []byte

	// RedactText does the same for the text of one block of an answer, which
	// comes in pieces. What it keeps back is logged later, and shown at once.
	// nil: nothing is kept back.
	RedactText func() TextRedactor

	// Front watches. The zero value does not.
	Front Front
}

// A TextRedactor takes out of one text what is not to be logged.
type TextRedactor interface {
	// Next takes the next piece, and gives as much of the text as can be logged
	// by now.
	Next(piece string) string

	// End gives the rest. cut says that the text was broken off, so that it may
	// end in the middle of what would have been taken out.
	End(cut bool) string
}

// A Front is where a session shows itself. All its functions are called from
// the goroutine that runs the session, and each may be nil. An error of one of
// them ends the turn with reason error; it is never put to a policy.
type Front struct {
	// Event is told every event right after its append: durable, except those
	// of a relaxed type.
	Event func(dsh.Event) error

	// Chunk is told every piece of an answer as it arrives, before pieces are
	// joined for the log. A later attempt of the same step takes back what an
	// earlier one told.
	Chunk func(turn, step, attempt int, c dsh.Chunk) error

	// Answer is told the last message of a turn that completed or was cut by
	// its length, before the turn/end. After a kill between the two it is told
	// again by the resumed session.
	Answer func(dsh.AssistantMessage) error
}

// An Outcome is how a turn ended, as the log tells it.
type Outcome struct {
	Session  dsh.SessionID `json:"session"`
	Turn     int           `json:"turn"`
	Status   dsh.EndKind   `json:"status"`
	Text     string        `json:"text"` // of the last message of the turn
	Attempts int           `json:"attempts"`
	Retries  int           `json:"retries"` // started ones
	WaitedMs int64         `json:"waitedMs"`
	Usage    dsh.Usage     `json:"usage"` // summed over the attempts
	Failure  *dsh.Failure  `json:"failure,omitempty"`
	RetryAt  int64         `json:"retryAt,omitempty"` // Unix ms; 0: the provider did not say
	Message  string        `json:"message,omitempty"` // of an end by max-steps, length or error
}
