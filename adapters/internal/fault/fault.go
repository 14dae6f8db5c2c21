// Package fault makes one dsh.Failure of whatever a provider says when a
// request fails: an HTTP error, a 200 with an error for a body, or an error in
// the middle of a stream. One function classifies all three, by facts first:
//
//  1. unwrap: the error is looked for in every wrapping that is known;
//  2. the codes and types that mean one thing only (codes.go);
//  3. wording, in order of veto (wording.go);
//  4. the codes and types that others may contradict (codes.go);
//  5. the HTTP status, or the one that the body states (status.go).
//
// Each of these is a table. A newcomer adds a line to one, and a case to
// testdata. What a model wrote is never looked at.
package fault

import (
	"net/http"
	"time"

	"github.com/dsh-agent/dsh"
)

// MaxBody is how much of an error body is read and looked at, in bytes.
const MaxBody = 64 << 10

// Evidence is what there is of a failed request.
type Evidence struct {
	Status int         // of the HTTP response
	Header http.Header // of the HTTP response; may be nil
	Body   []byte      // of the response, or one frame of its stream; no more than MaxBody of it counts
	Now    time.Time   // when the response came: what a date is compared with
}

// A Verdict is what was made of it, and why.
type Verdict struct {
	Failure *dsh.Failure
	Rule    string // the rule that gave the code, for people
}

// Classify makes a failure of the evidence. It always finds one: what says
// nothing is UNKNOWN. Secrets are not taken out of the message yet: see
// [Redactor].
func Classify(e Evidence) Verdict {
	if len(e.Body) > MaxBody {
		e.Body = e.Body[:MaxBody]
	}
	r := unwrap(e)
	code, rule := decide(e.Status, r)
	f := &dsh.Failure{
		Message:    r.message(e.Status, code),
		Code:       code,
		Status:     valid(e.Status),
		RetryAfter: wait(e, r, code),
		RequestID:  requestID(e.Header, r),
	}
	return Verdict{Failure: f, Rule: rule}
}

// decide goes through the tables.
func decide(status int, r *report) (dsh.Code, string) {
	if code, rule, ok := specific(r); ok {
		return code, rule
	}
	if code, rule, ok := worded(status, r); ok {
		return code, rule
	}
	if code, rule, ok := general(r); ok {
		return code, rule
	}
	return byStatus(status, r)
}

// New makes a failure of a fact of our own, with what the response's headers
// tell.
func New(code dsh.Code, message string, status int, header http.Header) *dsh.Failure {
	return &dsh.Failure{
		Message: message, Code: code, Status: valid(status),
		RequestID: requestID(header, &report{}),
	}
}

func valid(status int) int {
	if status < 100 || status > 599 {
		return 0
	}
	return status
}
