package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

const (
	// hostCallDeadline is how long one host function may take, apart from an
	// append that has begun.
	hostCallDeadline = 500 * time.Millisecond

	// hostBudget is how long all host functions of one decision may take. It
	// does not count against the decision's own deadline.
	hostBudget = 2 * time.Second
)

// An answerer answers the host functions of one decision and keeps what it has
// answered, in the form of hostabi.HostCall. It is called from one goroutine.
type answerer interface {
	answer(ctx context.Context, function string, argument []byte) []byte
	calls() []json.RawMessage
}

// Refuse is the answer of a host function that does nothing.
func Refuse(code, format string, args ...any) []byte {
	raw, err := dsh.JSON(hostabi.Refusal{Err: dsh.HostError{Code: code, Message: Printable(fmt.Sprintf(format, args...), maxRefusal)}})
	if err != nil { // two strings
		return []byte(`{"err":{"code":"unavailable","message":""}}`)
	}
	return raw
}

// maxRefusal bounds the words of a refusal, in bytes.
const maxRefusal = 512

// noHost answers exports that decide nothing.
func noHost(context.Context, string, []byte) []byte {
	return Refuse(hostabi.CodeUnavailable, "host functions are there for decisions only")
}

// noCalls is the answerer of such an export.
type noCalls struct{}

func (noCalls) answer(ctx context.Context, function string, argument []byte) []byte {
	return noHost(ctx, function, argument)
}

func (noCalls) calls() []json.RawMessage { return nil }

// liveCalls puts the host functions of a decision to its host, as far as they
// are granted.
type liveCalls struct {
	host    dsh.Host
	granted []string
	spent   time.Duration
	made    []json.RawMessage
}

func (l *liveCalls) calls() []json.RawMessage { return l.made }

func (l *liveCalls) answer(ctx context.Context, function string, argument []byte) []byte {
	began := time.Now()
	answer := l.ask(ctx, function, argument)
	l.spent += time.Since(began)
	l.made = append(l.made, record(function, argument, answer))
	return answer
}

func (l *liveCalls) ask(ctx context.Context, function string, argument []byte) []byte {
	if refused := l.judge(function, argument); refused != nil {
		return Refuse(refused.Code, "%s", refused.Message)
	}
	left := hostBudget - l.spent
	switch {
	case l.host == nil:
		return Refuse(hostabi.CodeUnavailable, "no session answers here")
	case left <= 0:
		return Refuse(hostabi.CodeUnavailable, "the host functions of this decision took %v, which is all they may", hostBudget)
	}
	ctx, cancel := context.WithTimeout(ctx, min(hostCallDeadline, left))
	defer cancel()
	answer, err := l.host.Call(ctx, function, argument)
	var refused *dsh.HostError
	switch {
	case errors.As(err, &refused):
		return Refuse(refused.Code, "%s", refused.Message)
	case errors.Is(err, context.DeadlineExceeded):
		return Refuse(hostabi.CodeUnavailable, "%s took too long", function)
	case err != nil:
		return Refuse(hostabi.CodeUnavailable, "%v", err)
	case !utf8.Valid(answer) || !json.Valid(answer):
		return Refuse(hostabi.CodeUnavailable, "%s answered in what is not JSON", function)
	case len(answer) > hostabi.MaxAnswerBytes:
		return Refuse(hostabi.CodeTooLarge, "an answer of %d bytes, and at most %d are allowed: ask for less", len(answer), hostabi.MaxAnswerBytes)
	}
	compact, _ := compacted(answer) // as it is logged, so that a replay gives the same bytes
	return compact
}

// judge says why a call is refused before the host is asked; nil: it is not.
func (l *liveCalls) judge(function string, argument []byte) *dsh.HostError {
	if len(argument) > hostabi.MaxArgumentBytes {
		return &dsh.HostError{Code: hostabi.CodeTooLarge, Message: fmt.Sprintf("an argument of over %d bytes", hostabi.MaxArgumentBytes)}
	}
	var asked struct {
		Content bool   `json:"content"`
		Scope   string `json:"scope"`
	}
	if err := json.Unmarshal(argument, &asked); err != nil || bytes.TrimSpace(argument)[0] != '{' || !utf8.Valid(argument) {
		return &dsh.HostError{Code: hostabi.CodeInvalid, Message: "the argument is not a JSON object of the contract's form"}
	}
	var needs []string
	switch function {
	case hostabi.FuncLogRead:
		needs = []string{hostabi.CapLogRead}
	case hostabi.FuncSurfaceRead:
		needs = []string{hostabi.CapSurfaceRead}
	case hostabi.FuncEmit:
		needs = []string{hostabi.CapLogAppend}
	case hostabi.FuncStateGet, hostabi.FuncStatePut:
		switch asked.Scope {
		case hostabi.ScopeSession:
			needs = []string{hostabi.CapStateSession}
		case hostabi.ScopeShared:
			needs = []string{hostabi.CapStateShared}
		default:
			return &dsh.HostError{Code: hostabi.CodeInvalid, Message: fmt.Sprintf("scope %q is neither %s nor %s", asked.Scope, hostabi.ScopeSession, hostabi.ScopeShared)}
		}
	default:
		return &dsh.HostError{Code: hostabi.CodeDenied, Message: fmt.Sprintf("there is no host function %q", function)}
	}
	if asked.Content && (function == hostabi.FuncLogRead || function == hostabi.FuncSurfaceRead) {
		needs = append(needs, hostabi.CapSurfaceContent)
	}
	for _, need := range needs {
		if !slices.Contains(l.granted, need) {
			return &dsh.HostError{Code: hostabi.CodeDenied, Message: fmt.Sprintf("the capability %s is not granted", need)}
		}
	}
	return nil
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// record is a call as the log keeps it.
func record(function string, argument, answer []byte) json.RawMessage {
	c := hostabi.HostCall{Function: Printable(function, 64)}
	if compact, ok := compacted(argument); ok && len(argument) <= hostabi.KeptArgumentBytes {
		c.Argument = compact
	} else {
		c.ArgumentSHA256 = sha256Hex(argument)
	}
	if again := function == hostabi.FuncLogRead || function == hostabi.FuncSurfaceRead; again && len(answer) > hostabi.KeptAnswerBytes {
		var at struct {
			Tail uint64 `json:"tail"`
		}
		if json.Unmarshal(answer, &at) == nil {
			c.AnswerSHA256, c.AnswerBytes, c.Tail = sha256Hex(answer), len(answer), at.Tail
		}
	}
	if c.AnswerSHA256 == "" {
		c.Answer = answer
	}
	raw, err := dsh.JSON(c)
	if err != nil { // an answer that is not JSON, which ask lets no host give
		c.Answer = Refuse(hostabi.CodeUnavailable, "%v", err)
		raw, _ = dsh.JSON(c)
	}
	return raw
}

// compacted is JSON as dsh.JSON writes it.
func compacted(raw []byte) (json.RawMessage, bool) {
	var b bytes.Buffer
	if !utf8.Valid(raw) || json.Compact(&b, raw) != nil {
		return nil, false
	}
	return b.Bytes(), true
}

// A request is a call of a host function on its way to the goroutine that
// answers it.
type request struct {
	function string
	argument []byte
	answer   chan []byte // has room for one
}

// asker gives the function that an engine calls. It hands requests on until
// the call's context ends, after which it refuses them.
func asker(requests chan<- request) func(ctx context.Context, function string, argument []byte) []byte {
	return func(ctx context.Context, function string, argument []byte) []byte {
		r := request{function, argument, make(chan []byte, 1)}
		select {
		case requests <- r:
			return <-r.answer // whoever takes a request answers it
		case <-ctx.Done():
			return Refuse(hostabi.CodeUnavailable, "the decision is over")
		}
	}
}
