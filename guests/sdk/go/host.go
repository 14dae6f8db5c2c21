package sdk

import (
	"encoding/json"
	"fmt"
)

// A HostError is a refusal of a host function. It is a value to decide by, and
// no fault: a policy that can do without an answer does.
type HostError struct {
	Code    string `json:"code"` // denied, invalid, conflict, too-large, too-many or unavailable
	Message string `json:"message"`
}

func (e *HostError) Error() string { return e.Code + ": " + e.Message }

// Conflict reports whether a value had another version than the expected one.
func (e *HostError) Conflict() bool { return e != nil && e.Code == "conflict" }

// The scopes of a policy's memory.
const (
	Session = "session" // this session's; takes the capability state.session
	Shared  = "shared"  // that of all sessions; takes state.shared
)

// A LogRead asks for events of the session's log, oldest first.
type LogRead struct {
	Types   []string `json:"types,omitempty"` // nil: of all types
	Turn    uint64   `json:"turn,omitempty"`  // 0: of all turns
	Step    uint64   `json:"step,omitempty"`  // 0: of all steps
	After   uint64   `json:"after,omitempty"` // a seq
	Limit   uint64   `json:"limit,omitempty"` // 0: as many as fit
	Content bool     `json:"content,omitempty"`
}

// A LogAnswer is a page of events.
type LogAnswer struct {
	Events []LogEvent `json:"events"`
	Next   uint64     `json:"next"` // what After is for the next page; 0: this is the last
	Tail   uint64     `json:"tail"`
}

// A LogEvent is one event. Its data has no text of the conversation, unless
// Content was asked for and surface.content is granted.
type LogEvent struct {
	Seq  uint64          `json:"seq"`
	At   int64           `json:"at"` // Unix ms
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// A SurfaceRead asks for what the model sees.
type SurfaceRead struct {
	From    uint64 `json:"from,omitempty"` // the place of the first entry, from 0
	Limit   uint64 `json:"limit,omitempty"`
	Content bool   `json:"content,omitempty"` // takes surface.content
}

// A SurfaceAnswer is a page of it.
type SurfaceAnswer struct {
	Entries    []SurfaceEntry `json:"entries"`
	Next       uint64         `json:"next"` // 0: this is the last
	Tail       uint64         `json:"tail"`
	Generation int            `json:"generation"`
	Tokens     int64          `json:"tokens"` // of all that the model sees, an estimate
}

// A SurfaceEntry is one message that the model sees.
type SurfaceEntry struct {
	Seq     uint64          `json:"seq"`
	Role    string          `json:"role"`
	Kinds   []string        `json:"kinds"` // of its blocks
	Tokens  int64           `json:"tokens"`
	Content json.RawMessage `json:"content"`
}

type stateGet struct {
	Scope string `json:"scope"`
	Key   string `json:"key"`
}

type statePut struct {
	Scope   string          `json:"scope"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
	Version *uint64         `json:"version,omitempty"`
}

type emitted struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// ReadLog reads events. It takes the capability log.read.
func ReadLog(q LogRead) (a LogAnswer, err *HostError) {
	err = call(logRead, q, &a)
	return a, err
}

// ReadSurface reads what the model sees. It takes surface.read.
func ReadSurface(q SurfaceRead) (a SurfaceAnswer, err *HostError) {
	err = call(surfaceRead, q, &a)
	return a, err
}

// GetState reads a value of the policy's memory into v, and returns its
// version: 0, with v as it was, where it was never stored.
func GetState(scope, key string, v any) (version uint64, err *HostError) {
	var a struct {
		Value   json.RawMessage `json:"value"`
		Version uint64          `json:"version"`
	}
	if err := call(stateGetFunc, stateGet{scope, key}, &a); err != nil {
		return 0, err
	}
	if len(a.Value) > 0 && string(a.Value) != "null" {
		if e := json.Unmarshal(a.Value, v); e != nil {
			return a.Version, &HostError{"invalid", "the stored value is of another form: " + e.Error()}
		}
	}
	return a.Version, nil
}

// PutState stores a value of up to 4 KiB of JSON, if it still has the version.
// A conflict says that somebody else has stored one: get it and decide anew.
func PutState(scope, key string, v any, version uint64) *HostError {
	raw, e := json.Marshal(v)
	if e != nil {
		return &HostError{"invalid", e.Error()}
	}
	var a struct {
		Version uint64 `json:"version"`
	}
	return call(statePutFunc, statePut{scope, key, raw, &version}, &a)
}

// Emit appends an event policy/NAME/TYPE to the session's log, which the model
// never sees. data is an object. It takes log.append.
func Emit(kind string, data any) *HostError {
	raw, e := json.Marshal(data)
	if e != nil {
		return &HostError{"invalid", e.Error()}
	}
	var a struct {
		Seq uint64 `json:"seq"`
	}
	return call(emitFunc, emitted{kind, raw}, &a)
}

// call puts a question to a host function and reads its answer.
func call(function func([]byte) []byte, q, a any) *HostError {
	raw, err := json.Marshal(q)
	if err != nil {
		return &HostError{"invalid", err.Error()}
	}
	answer := function(raw)
	var refusal struct {
		Err *HostError `json:"err"`
	}
	if err := json.Unmarshal(answer, &refusal); err != nil {
		return &HostError{"unavailable", "the host's answer is not JSON: " + err.Error()}
	}
	if refusal.Err != nil {
		return refusal.Err
	}
	if err := json.Unmarshal(answer, a); err != nil {
		return &HostError{"unavailable", "the host's answer is of another form: " + err.Error()}
	}
	return nil
}

// Recover is the body of the export recover.
func Recover(decide func(RecoverInput) Decision) int32 {
	return export(func(in RecoverInput) (any, error) { return decide(in), nil })
}

// BeforeStep is the body of the export before_step.
func BeforeStep(prepare func(StepInput) StepAnswer) int32 {
	return export(func(in StepInput) (any, error) { return prepare(in), nil })
}

// CheckConfig is the body of the export check_config: check gives one sentence
// a problem, and any of them keeps the policy from being loaded.
func CheckConfig(check func(config map[string]json.RawMessage) []string) int32 {
	return export(func(config map[string]json.RawMessage) (any, error) {
		return ConfigAnswer{append([]string{}, check(config)...)}, nil
	})
}

// Warm is the body of the export warm, which is called before there is anything
// to decide: it builds what encoding/json makes of a type once.
func Warm() int32 {
	var in RecoverInput
	if err := json.Unmarshal([]byte(`{"retryPolicy":{},"failure":{"code":"UNKNOWN"},"config":{}}`), &in); err != nil {
		return 1
	}
	if _, err := json.Marshal(Delegate("warm")); err != nil {
		return 1
	}
	return 0
}

func export[T any](f func(T) (any, error)) int32 {
	var in T
	err := json.Unmarshal(input(), &in)
	if err == nil {
		var out any
		if out, err = f(in); err == nil {
			var raw []byte
			if raw, err = json.Marshal(out); err == nil {
				output(raw)
				return 0
			}
		}
	}
	fail(fmt.Sprint(err))
	return 1
}

// Log writes a line for people. It shows with dsh --verbose.
func Log(format string, args ...any) { logInfo(fmt.Sprintf(format, args...)) }
