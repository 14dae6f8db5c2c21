package shared

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-agent/dsh"
)

// A failure is an error of the log on its way to another process: the types
// that a caller looks for stay what they are.
type failure struct {
	Kind     string             `json:"kind"`
	Text     string             `json:"text"`
	Held     *dsh.HeldError     `json:"held,omitempty"`
	Conflict *dsh.ConflictError `json:"conflict,omitempty"`
	Damage   *dsh.DamageError   `json:"damage,omitempty"`
	Schema   *dsh.SchemaError   `json:"schema,omitempty"`
	Space    *dsh.SpaceError    `json:"space,omitempty"`
}

// The kinds of failures without facts of their own.
const (
	kindNoSession = "no-session"
	kindStale     = "stale"
	kindOther     = "other"
)

func failureOf(err error) failure {
	f := failure{Kind: kindOther, Text: err.Error()}
	switch {
	case errors.As(err, &f.Held):
	case errors.As(err, &f.Conflict):
	case errors.As(err, &f.Damage):
	case errors.As(err, &f.Schema):
	case errors.As(err, &f.Space):
	case errors.Is(err, dsh.ErrNoSession):
		f.Kind = kindNoSession
	case errors.Is(err, dsh.ErrStale):
		f.Kind = kindStale
	}
	return f
}

func (f failure) error() error {
	switch {
	case f.Held != nil:
		return f.Held
	case f.Conflict != nil:
		return f.Conflict
	case f.Damage != nil:
		return f.Damage
	case f.Schema != nil:
		return f.Schema
	case f.Space != nil:
		return f.Space
	case f.Kind == kindNoSession:
		return dsh.ErrNoSession
	case f.Kind == kindStale:
		return dsh.ErrStale
	}
	return errors.New(f.Text)
}

func parseFailure(b []byte) error {
	var f failure
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("the log's answer cannot be read: %w", err)
	}
	return f.error()
}

// A VersionError says that the process that keeps the log speaks another
// version of the socket's protocol.
type VersionError struct {
	PID        int
	Have, Want int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("process %d has the data folder open and is another version of dsh (it speaks protocol %d, and this one %d): wait for it to end, or use the same version", e.PID, e.Have, e.Want)
}

// A SilentError says that the process that keeps the log does not answer: it
// was stopped, or its disk hangs.
type SilentError struct {
	PID int // 0: not known
}

func (e *SilentError) Error() string {
	return fmt.Sprintf("process %d keeps the log and does not answer: let it go on (fg, or kill -CONT %d) or end it", e.PID, e.PID)
}

// lost marks the end of a connection, after which the log is looked for anew.
type lost struct{ err error }

func (e *lost) Error() string {
	return "the connection to the process that keeps the log was lost: " + e.err.Error()
}
func (e *lost) Unwrap() error { return e.err }

func isLost(err error) bool {
	var l *lost
	return errors.As(err, &l)
}
