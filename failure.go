package dsh

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// A Code says what kind of failure a model request met. It is what policies
// route on. A Code is an error, so that errors.Is(err, dsh.CodeRateLimit)
// reads as it should.
type Code string

// The codes. There are no others: a new one needs fixtures for each adapter
// and a decision on the default retry policy.
const (
	CodeRateLimit      Code = "RATE_LIMIT"              // too many requests or tokens for now
	CodeServer         Code = "SERVER"                  // the provider, or something before it, failed or is overloaded
	CodeTimeout        Code = "TIMEOUT"                 // a watchdog of ours, or the provider's own word for it
	CodeTransport      Code = "TRANSPORT"               // the connection: refused, reset, TLS, DNS, a stream cut before its terminal
	CodeEmptyResponse  Code = "EMPTY_RESPONSE"          // completed, without one content block
	CodeContextWindow  Code = "CONTEXT_WINDOW_EXCEEDED" // the request is too long for the model
	CodeAuth           Code = "AUTH"                    // 401, 403, a bad key
	CodeQuota          Code = "QUOTA"                   // out of credit, plan or hard limit
	CodeInvalidRequest Code = "INVALID_REQUEST"         // cannot succeed as it is
	CodeContentFilter  Code = "CONTENT_FILTER"          // refused by a filter
	CodeProtocol       Code = "PROTOCOL"                // a complete frame that breaks the wire format
	CodeAborted        Code = "ABORTED"                 // the caller stopped it
	CodeUnknown        Code = "UNKNOWN"                 // nothing of the above
)

// Error makes a Code an error; it is the code's name.
func (c Code) Error() string { return string(c) }

// Transient reports whether failures of this code usually pass by themselves.
// It is the default of retry policies and decides between the exit codes 75
// and 3; it is no decision of its own.
func (c Code) Transient() bool {
	switch c {
	case CodeRateLimit, CodeServer, CodeTimeout, CodeTransport, CodeEmptyResponse:
		return true
	}
	return false
}

// Codes returns all codes, the transient ones first.
func Codes() []Code {
	return []Code{
		CodeRateLimit, CodeServer, CodeTimeout, CodeTransport, CodeEmptyResponse,
		CodeContextWindow, CodeAuth, CodeQuota, CodeInvalidRequest, CodeContentFilter,
		CodeProtocol, CodeAborted, CodeUnknown,
	}
}

// RequestID is the provider's own id of a request. It is opaque.
type RequestID string

// A Failure is the one form in which a failed model request reaches the rest
// of a program. It holds facts only: whether to try again is for the policies
// to say. Adapters make them; nothing else does. A Failure is not to be
// changed once it was returned, and may then be read by several goroutines.
type Failure struct {
	Message    string        // for people; no code may branch on it
	Code       Code          // what policies route on
	Status     int           // HTTP status, 100 to 599; 0: there was none
	RetryAfter time.Duration // the wait that the provider asked for; 0: it asked for none
	RequestID  RequestID     // "" when the provider gave none
	Cause      error         // what it was made of; not in the JSON
}

// Error gives the code and the message.
func (f *Failure) Error() string {
	if f.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d): %s", f.Code, f.Status, f.Message)
	}
	return fmt.Sprintf("%s: %s", f.Code, f.Message)
}

// Is reports whether target is the failure's code.
func (f *Failure) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == f.Code
}

// Unwrap returns the cause, so that an original error keeps its identity.
func (f *Failure) Unwrap() error { return f.Cause }

// AsFailure returns the Failure that err carries, or one of code UNKNOWN
// around an error that carries none: an adapter that yields a foreign error is
// not trusted to have meant anything by it. AsFailure(nil) is nil.
func AsFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	const silent = "the model request failed without saying how"
	var f *Failure
	if errors.As(err, &f) {
		if f == nil { // a nil pointer in an error, whose methods cannot be called
			return &Failure{Code: CodeUnknown, Message: silent}
		}
		return f
	}
	msg := err.Error()
	if msg == "" {
		msg = silent
	}
	return &Failure{Code: CodeUnknown, Message: msg, Cause: err}
}

type failureJSON struct {
	Message    string    `json:"message"`
	Code       Code      `json:"code"`
	Status     int       `json:"status,omitempty"`
	RetryAfter float64   `json:"providerRetryAfterMs,omitempty"`
	RequestID  RequestID `json:"requestId,omitempty"`
}

// MarshalJSON writes the form of the log and of the guest ABI.
func (f Failure) MarshalJSON() ([]byte, error) {
	return JSON(failureJSON{f.Message, f.Code, f.Status, Millis(max(f.RetryAfter, 0)), f.RequestID})
}

// UnmarshalJSON reads what MarshalJSON writes. A wait that is not positive and
// finite is read as absent.
func (f *Failure) UnmarshalJSON(b []byte) error {
	var j failureJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*f = Failure{Message: j.Message, Code: j.Code, Status: j.Status, RetryAfter: FromMillis(j.RetryAfter), RequestID: j.RequestID}
	return nil
}

// Millis is d in milliseconds, with fractions.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// FromMillis is the inverse of Millis, rounded to the nanosecond. What is not
// positive (NaN too) is 0, and what no Duration can hold is the longest one.
func FromMillis(ms float64) time.Duration {
	ns := math.Round(ms * float64(time.Millisecond))
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(ns)
}
