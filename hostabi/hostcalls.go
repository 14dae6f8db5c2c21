package hostabi

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/dsh-agent/dsh"
)

// The host functions of namespace ABI. Each takes the handle of an argument in
// the kernel's memory and gives that of an answer, both JSON objects. An answer
// that has an err is a refusal: see [Refusal].
const (
	FuncLogRead     = "log_read"     // LogRead → LogAnswer
	FuncSurfaceRead = "surface_read" // SurfaceRead → SurfaceAnswer
	FuncStateGet    = "state_get"    // StateGet → StateAnswer
	FuncStatePut    = "state_put"    // StatePut → PutAnswer
	FuncEmit        = "emit"         // Emit → EmitAnswer
)

// The limits of the host functions. An answer that would be longer is cut into
// pages; an argument or a value that is longer is refused.
const (
	MaxArgumentBytes = 16 << 10
	MaxAnswerBytes   = 64 << 10
	MaxValueBytes    = 4 << 10 // of a stored value, and of an emitted event's data
	MaxKeyBytes      = 128
	MaxKeys          = 256  // that hold a value, of one policy in one scope
	MaxPage          = 1000 // events or entries in an answer; also what holds where a limit is 0
)

// The codes of a refusal.
const (
	CodeDenied      = "denied"      // the capability is not granted
	CodeInvalid     = "invalid"     // the argument is not of the contract's form
	CodeConflict    = "conflict"    // the value has another version than the one expected
	CodeTooLarge    = "too-large"   // an argument, a key or a value
	CodeTooMany     = "too-many"    // keys
	CodeUnavailable = "unavailable" // for now
)

// A Refusal is the answer of a host function that did not do what it was asked
// for.
type Refusal struct {
	Err dsh.HostError `json:"err"`
}

// A Whole is an integer that may be written as 5.0: some languages write all
// their numbers so.
type Whole uint64

// UnmarshalJSON reads a whole number from 0 to 2^53-1.
func (w *Whole) UnmarshalJSON(raw []byte) error {
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	if f < 0 || f > 1<<53-1 || f != math.Trunc(f) {
		return fmt.Errorf("%s is no whole number from 0 to 2^53-1", raw)
	}
	*w = Whole(f)
	return nil
}

// LogRead asks for events of the session's log, oldest first.
type LogRead struct {
	Types []dsh.EventType `json:"types,omitempty"` // nil: of all types
	Turn  Whole           `json:"turn,omitempty"`  // 0: of all turns
	Step  Whole           `json:"step,omitempty"`  // 0: of all steps
	After Whole           `json:"after,omitempty"` // a seq
	Limit Whole           `json:"limit,omitempty"` // 0: MaxPage

	// Content asks for the texts too, which takes surface.content. Without it
	// an event has those fields of its data alone that hold no text of the
	// conversation, and the memory of other policies is left out.
	Content bool `json:"content,omitempty"`
}

// LogAnswer is a page of events.
type LogAnswer struct {
	Events []LogEvent `json:"events"`
	Next   uint64     `json:"next,omitempty"` // what After is for the next page; 0: this is the last
	Tail   uint64     `json:"tail"`           // the seq of the session's last event
}

// A LogEvent is an event as a guest sees it.
type LogEvent struct {
	Seq  uint64          `json:"seq"`
	At   int64           `json:"at"` // Unix ms
	Type dsh.EventType   `json:"type"`
	Data json.RawMessage `json:"data,omitempty"` // absent: it is too large for an answer
}

// SurfaceRead asks for what the model sees, in its order.
type SurfaceRead struct {
	From    Whole `json:"from,omitempty"`  // the place of the first entry, from 0
	Limit   Whole `json:"limit,omitempty"` // 0: MaxPage
	Content bool  `json:"content,omitempty"`
}

// SurfaceAnswer is a page of the surface.
type SurfaceAnswer struct {
	Entries    []SurfaceEntry `json:"entries"`
	Next       int            `json:"next,omitempty"` // what From is for the next page; 0: this is the last
	Tail       uint64         `json:"tail"`           // the seq of the session's last event
	Generation int            `json:"generation"`     // counts replacements
	Tokens     int64          `json:"tokens"`         // an estimate of all that the model sees
}

// A SurfaceEntry is one message that the model sees.
type SurfaceEntry struct {
	Seq     uint64          `json:"seq"`
	Role    dsh.Role        `json:"role"`
	Kinds   []dsh.BlockType `json:"kinds"`             // of its blocks, in their order
	Tokens  int64           `json:"tokens"`            // an estimate
	Content []dsh.Block     `json:"content,omitempty"` // where it is asked for, and not too large for an answer
}

// The scopes of a policy's memory.
const (
	ScopeSession = dsh.ScopeSession // in the session's log
	ScopeShared  = dsh.ScopeShared  // for all sessions of the store
)

// StateGet asks for a value of the policy's memory.
type StateGet struct {
	Scope string `json:"scope"`
	Key   string `json:"key"` // 1 to MaxKeyBytes of printable ASCII
}

// StateAnswer is a value. Version counts the times that it was stored: 0, with
// a null, where it never was.
type StateAnswer struct {
	Value   json.RawMessage `json:"value"`
	Version uint64          `json:"version"`
}

// StatePut stores a value, durably before it is answered. A null takes the
// value away; its version goes on.
type StatePut struct {
	Scope   string          `json:"scope"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`             // any JSON, up to MaxValueBytes
	Version *Whole          `json:"version,omitempty"` // that the value has to have; nil: any
}

// PutAnswer is the version of what was stored.
type PutAnswer struct {
	Version uint64 `json:"version"`
}

// Emit appends an event of type policy/NAME/TYPE, where NAME is the policy's,
// durably before it is answered. The model never sees it.
type Emit struct {
	Type string          `json:"type"` // 1 to 64 of a-z, 0-9 and dash
	Data json.RawMessage `json:"data"` // an object, up to MaxValueBytes
}

// EmitAnswer is the seq of the event.
type EmitAnswer struct {
	Seq uint64 `json:"seq"`
}

// A HostCall is how the log keeps a call of a host function: all that is needed
// to give the same answer again. An argument of up to [KeptArgumentBytes] that
// is JSON, and an answer of up to [KeptAnswerBytes], stand there by value, the
// others by their SHA-256.
//
// An answer that stands by hash is one of log_read or surface_read. It is made
// again from the session's own log up to event Tail, and holds if it has the
// hash.
type HostCall struct {
	Function       string          `json:"function"`
	Argument       json.RawMessage `json:"argument,omitempty"`
	ArgumentSHA256 string          `json:"argumentSha256,omitempty"` // hex, of the bytes that the guest gave
	Answer         json.RawMessage `json:"answer,omitempty"`
	AnswerSHA256   string          `json:"answerSha256,omitempty"` // hex
	AnswerBytes    int             `json:"answerBytes,omitempty"`
	Tail           uint64          `json:"tail,omitempty"`
}

// What of a host call the log keeps by value. Every answer of state_get is
// among it.
const (
	KeptArgumentBytes = 1 << 10
	KeptAnswerBytes   = MaxValueBytes + 512
)
