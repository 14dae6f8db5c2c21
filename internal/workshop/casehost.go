package workshop

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// A scriptedCall is the answer to a host function in a case. Without an argument
// it answers every call of the function.
type scriptedCall struct {
	Function string          `json:"function"`
	Argument json.RawMessage `json:"argument,omitempty"`
	Answer   json.RawMessage `json:"answer"`
}

// A caseHost answers the host functions of a case: what is scripted first, the
// policy's memory from the case's state, and log_read from its log. A case is
// run once.
type caseHost struct {
	script  []scriptedCall
	log     []hostabi.LogEvent
	state   map[string]map[string]stored // by scope and key
	emitted []any
}

type stored struct {
	value   json.RawMessage
	version uint64
}

func newCaseHost(x extrasJSON) *caseHost {
	h := &caseHost{script: x.HostCalls, log: x.Log, state: map[string]map[string]stored{dsh.ScopeSession: {}, dsh.ScopeShared: {}}}
	for scope, values := range x.State {
		for key, v := range values {
			h.state[scope][key] = stored{v, 1}
		}
	}
	return h
}

// again is the host as it was before the case was run.
func (h *caseHost) again() *caseHost {
	c := &caseHost{script: h.script, log: h.log, state: map[string]map[string]stored{}}
	for scope, values := range h.state {
		c.state[scope] = map[string]stored{}
		for k, v := range values {
			c.state[scope][k] = v
		}
	}
	return c
}

// Call answers one host function.
func (h *caseHost) Call(_ context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	for _, s := range h.script {
		if s.Function == function && (len(s.Argument) == 0 || sameJSON(s.Argument, argument)) {
			return s.Answer, nil
		}
	}
	switch function {
	case hostabi.FuncStateGet:
		return answer(h.get, argument)
	case hostabi.FuncStatePut:
		return answer(h.put, argument)
	case hostabi.FuncLogRead:
		return answer(h.read, argument)
	case hostabi.FuncEmit:
		return answer(h.emit, argument)
	}
	return nil, &dsh.HostError{Code: hostabi.CodeUnavailable, Message: "the case has no answer: name one in its hostCalls"}
}

// answer reads an argument, calls f and writes its answer.
func answer[Q, A any](f func(Q) (A, error), argument json.RawMessage) (json.RawMessage, error) {
	var q Q
	if err := json.Unmarshal(argument, &q); err != nil {
		return nil, &dsh.HostError{Code: hostabi.CodeInvalid, Message: err.Error()}
	}
	a, err := f(q)
	if err != nil {
		return nil, err
	}
	return dsh.JSON(a)
}

func (h *caseHost) get(q hostabi.StateGet) (hostabi.StateAnswer, error) {
	s := h.state[q.Scope][q.Key]
	if s.value == nil {
		s.value = json.RawMessage("null")
	}
	return hostabi.StateAnswer{Value: s.value, Version: s.version}, nil
}

func (h *caseHost) put(q hostabi.StatePut) (hostabi.PutAnswer, error) {
	old := h.state[q.Scope][q.Key]
	switch {
	case len(q.Value) > hostabi.MaxValueBytes:
		return hostabi.PutAnswer{}, &dsh.HostError{Code: hostabi.CodeTooLarge, Message: "the value is too large"}
	case q.Version != nil && uint64(*q.Version) != old.version:
		return hostabi.PutAnswer{}, &dsh.HostError{Code: hostabi.CodeConflict, Message: "the value has another version"}
	}
	h.state[q.Scope][q.Key] = stored{bytes.Clone(q.Value), old.version + 1}
	return hostabi.PutAnswer{Version: old.version + 1}, nil
}

func (h *caseHost) read(q hostabi.LogRead) (hostabi.LogAnswer, error) {
	a := hostabi.LogAnswer{Events: []hostabi.LogEvent{}}
	limit := int(q.Limit)
	if limit == 0 || limit > hostabi.MaxPage {
		limit = hostabi.MaxPage
	}
	for _, e := range h.log {
		a.Tail = max(a.Tail, e.Seq)
		var at struct{ Turn, Step hostabi.Whole }
		_ = json.Unmarshal(e.Data, &at) // what has no place is of none
		switch {
		case e.Seq <= uint64(q.After), q.Turn != 0 && at.Turn != q.Turn, q.Step != 0 && at.Step != q.Step:
		case q.Types != nil && !slices.Contains(q.Types, e.Type):
		case len(a.Events) == limit:
			a.Next = a.Events[limit-1].Seq
		default:
			a.Events = append(a.Events, e)
		}
	}
	return a, nil
}

func (h *caseHost) emit(q hostabi.Emit) (hostabi.EmitAnswer, error) {
	var data any
	if err := json.Unmarshal(q.Data, &data); err != nil {
		return hostabi.EmitAnswer{}, &dsh.HostError{Code: hostabi.CodeInvalid, Message: err.Error()}
	}
	h.emitted = append(h.emitted, map[string]any{"type": q.Type, "data": data})
	return hostabi.EmitAnswer{Seq: uint64(len(h.log) + len(h.emitted))}, nil
}

// memory is what the policy remembers now, as JSON has it.
func (h *caseHost) memory() map[string]any {
	all := map[string]any{}
	for scope, values := range h.state {
		m := map[string]any{}
		for key, s := range values {
			var v any
			if json.Unmarshal(s.value, &v) == nil && v != nil {
				m[key] = v
			}
		}
		if len(m) > 0 {
			all[scope] = m
		}
	}
	return all
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
