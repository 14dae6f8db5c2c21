// Package scripted is a provider that answers, and fails, by a script. It is a
// real HTTP server on a loopback port that speaks chat completions, so that
// what reads it is the real adapter: nothing is mocked. The demonstration, the
// tests of the loop and the examples stand on it.
package scripted

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The kinds of a step: what the server does with one request.
const (
	Text         = "text"          // a normal answer: text, reasoning, chunks, delayMs, finish, tools
	Tool         = "tool"          // an answer that calls a tool: name, arguments, callId, or tools; text first if set
	Empty        = "empty"         // a clean answer with no content: finish
	Status       = "status"        // an HTTP error, or any status: status, headers, body; or code, message
	HTML         = "html"          // a page where JSON belongs: status, body
	Overflow     = "overflow"      // the provider's own error for a request that is too long: message, inStream
	Reset        = "reset"         // the connection is reset before any byte of the answer: delayMs
	Close        = "close"         // the connection is closed before any byte of the answer: delayMs
	Hang         = "hang"          // no byte for ms (0: for ever), and then as text
	Drop         = "drop"          // the answer is cut after afterChunks: rst; clean: the body ends well, without its end being told
	Stall        = "stall"         // the answer goes quiet after afterChunks for ms (0: for ever), and then goes on: pingMs
	StreamError  = "stream-error"  // an error inside the answer, after afterChunks: code, message
	TruncateJSON = "truncate-json" // one event cut short after afterChunks, and the body ends well
)

func kinds() []string {
	return []string{Text, Tool, Empty, Status, HTML, Overflow, Reset, Close, Hang, Drop, Stall, StreamError, TruncateJSON}
}

// A Step says what the server does with one request. The zero value of every
// field but Do is useful.
type Step struct {
	Do      string            `json:"do"`                // one of the kinds
	Times   int               `json:"times,omitempty"`   // how many requests it serves; 0: one; -1: all that follow
	Headers map[string]string `json:"headers,omitempty"` // added to any answer

	Status  int    `json:"status,omitempty"`  // status: 0 is 500; html: 0 is 502
	Body    string `json:"body,omitempty"`    // status, html: as it is
	Code    string `json:"code,omitempty"`    // of an error
	Message string `json:"message,omitempty"` // of an error

	Text      string `json:"text,omitempty"`
	Reasoning string `json:"reasoning,omitempty"` // comes before the text
	Chunks    int    `json:"chunks,omitempty"`    // pieces that the text is cut into; 0: of about 8 bytes
	DelayMs   int    `json:"delayMs,omitempty"`   // before each piece, or before the fault
	Finish    string `json:"finish,omitempty"`    // the finish reason; "": stop, or tool_calls

	Name      string `json:"name,omitempty"` // of a tool
	Arguments string `json:"arguments,omitempty"`
	CallID    string `json:"callId,omitempty"` // "": made up
	Tools     []Call `json:"tools,omitempty"`

	AfterChunks int  `json:"afterChunks,omitempty"` // pieces before the fault
	Ms          int  `json:"ms,omitempty"`
	PingMs      int  `json:"pingMs,omitempty"` // a comment this often while it stalls; 0: silence
	RST         bool `json:"rst,omitempty"`
	Clean       bool `json:"clean,omitempty"`
	InStream    bool `json:"inStream,omitempty"`

	// IfBodyOver makes the step count only for a body of more bytes; for
	// others Else does, or a short text.
	IfBodyOver int   `json:"ifBodyOver,omitempty"`
	Else       *Step `json:"else,omitempty"`

	InputTokens  int64 `json:"inputTokens,omitempty"`  // of the usage; 0: a quarter of the body's bytes
	OutputTokens int64 `json:"outputTokens,omitempty"` // 0: a quarter of the answer's bytes
}

// A Call is one tool call of an answer.
type Call struct {
	ID        string `json:"id,omitempty"` // "": made up
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // as it is, valid JSON or not
}

// A Rule answers requests of one kind without using up a step: a request for a
// summary, say. All the conditions that are set must hold.
type Rule struct {
	BodyContains string `json:"bodyContains,omitempty"`
	HasTools     *bool  `json:"hasTools,omitempty"`
	Step         Step   `json:"step"`
}

// A Script is what a server does: request n takes step n. When all steps are
// used up, the server answers with a 400 that says so: a script that is too
// short is a mistake, and none that a retry would mend.
type Script struct {
	Rules []Rule `json:"rules,omitempty"`
	Steps []Step `json:"steps"`
}

// Parse reads a script: a list of steps, or an object of rules and steps. It
// is strict: an unknown field or kind is an error that names the step.
func Parse(r io.Reader) (Script, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return Script{}, err
	}
	var parts struct {
		Rules []json.RawMessage `json:"rules"`
		Steps []json.RawMessage `json:"steps"`
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		err = strict(raw, &parts.Steps)
	} else {
		err = strict(raw, &parts)
	}
	if err != nil {
		return Script{}, fmt.Errorf("script: %w", err)
	}
	var s Script
	for i, p := range parts.Steps {
		var step Step
		if err := strict(p, &step); err != nil {
			return Script{}, fmt.Errorf("script: step %d: %w", i+1, err)
		}
		s.Steps = append(s.Steps, step)
	}
	for i, p := range parts.Rules {
		var rule Rule
		if err := strict(p, &rule); err != nil {
			return Script{}, fmt.Errorf("script: rule %d: %w", i+1, err)
		}
		s.Rules = append(s.Rules, rule)
	}
	return s, s.check()
}

// ParseFile reads a script from a file.
func ParseFile(path string) (Script, error) {
	f, err := os.Open(path)
	if err != nil {
		return Script{}, err
	}
	defer f.Close()
	s, err := Parse(f)
	if err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end of the JSON")
	}
	return nil
}

func (s Script) check() error {
	if len(s.Steps) == 0 && len(s.Rules) == 0 {
		return errors.New("script: it has no steps")
	}
	for i, step := range s.Steps {
		if err := step.check(); err != nil {
			return fmt.Errorf("script: step %d: %w", i+1, err)
		}
		if step.Times < 0 && i < len(s.Steps)-1 {
			return fmt.Errorf("script: step %d: it serves all requests that follow, so that step %d is never reached", i+1, i+2)
		}
	}
	for i, rule := range s.Rules {
		if err := rule.Step.check(); err != nil {
			return fmt.Errorf("script: rule %d: %w", i+1, err)
		}
	}
	return nil
}

func (s Step) check() error {
	if !slices.Contains(kinds(), s.Do) {
		return fmt.Errorf("do is %q; it is one of %s", s.Do, strings.Join(kinds(), ", "))
	}
	if s.Do == Tool && s.Name == "" && len(s.Tools) == 0 {
		return errors.New("a tool needs a name")
	}
	if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
		return fmt.Errorf("status is %d; it is 200 to 599", s.Status)
	}
	if s.Times < -1 {
		return fmt.Errorf("times is %d; it is a number of requests, or -1 for all that follow", s.Times)
	}
	for name, n := range map[string]int{"delayMs": s.DelayMs, "ms": s.Ms, "pingMs": s.PingMs, "afterChunks": s.AfterChunks, "chunks": s.Chunks, "ifBodyOver": s.IfBodyOver} {
		if n < 0 {
			return fmt.Errorf("%s is %d; it must not be negative", name, n)
		}
	}
	if s.Else != nil {
		return s.Else.check()
	}
	return nil
}
