package loop

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// maxScanned is how many events one log_read looks at. It ends a page even if
// nothing was found, so that a long log does not hold up a decision.
const maxScanned = 10_000

// readLog answers log_read, from the events that are in the log now.
func (h *host) readLog(ctx context.Context, r hostabi.LogRead) (any, error) {
	tail := h.session.state.tail.Seq
	a := hostabi.LogAnswer{Events: []hostabi.LogEvent{}, Tail: tail}
	if uint64(r.After) >= tail {
		return a, nil
	}
	room, scanned, last := answerRoom, 0, uint64(r.After)
	for e, err := range h.session.log.Read(ctx, h.session.start.ID, uint64(r.After)) {
		if err != nil {
			return nil, err
		}
		if e.Seq > tail {
			break
		}
		if scanned++; scanned > maxScanned || len(a.Events) == page(r.Limit) {
			a.Next = last
			break
		}
		if wanted(e, r) {
			event, size, err := h.view(e, r.Content)
			if err != nil {
				return nil, err
			}
			if room -= size + 1; room < 0 {
				a.Next = last
				break
			}
			a.Events = append(a.Events, event)
		}
		last = e.Seq
	}
	return a, nil
}

// wanted reports whether a log_read asks for an event.
func wanted(e dsh.Event, r hostabi.LogRead) bool {
	if r.Types != nil && !slices.Contains(r.Types, e.Type) {
		return false
	}
	if r.Turn == 0 && r.Step == 0 {
		return true
	}
	var at struct {
		Turn hostabi.Whole `json:"turn"`
		Step hostabi.Whole `json:"step"`
	}
	if json.Unmarshal(e.Data, &at) != nil {
		return false
	}
	return (r.Turn == 0 || r.Turn == at.Turn) && (r.Step == 0 || r.Step == at.Step)
}

// view is an event as the policy may see it, and its size as JSON. An event
// that is too large for any answer is there without its data.
func (h *host) view(e dsh.Event, content bool) (hostabi.LogEvent, int, error) {
	v := hostabi.LogEvent{Seq: e.Seq, At: e.At, Type: e.Type, Data: e.Data}
	if hidden, all := h.withheld(e, content); all {
		v.Data = json.RawMessage("{}")
	} else if len(hidden) > 0 {
		var fields map[string]json.RawMessage
		if err := e.Decode(&fields); err != nil {
			return v, 0, err
		}
		for _, name := range hidden {
			delete(fields, name)
		}
		data, err := dsh.JSON(fields)
		if err != nil {
			return v, 0, err
		}
		v.Data = data
	}
	raw, err := dsh.JSON(v)
	if err == nil && len(raw) > answerRoom {
		v.Data = nil
		raw, err = dsh.JSON(v)
	}
	return v, len(raw), err
}

// withheld names the fields of an event that hold text of the conversation, or
// what is another policy's own; all: nothing is known of the event's fields.
func (h *host) withheld(e dsh.Event, content bool) (fields []string, all bool) {
	switch e.Type {
	case dsh.TypePolicyState:
		var d dsh.PolicyState
		if e.Decode(&d) != nil || d.Policy != h.policy.Name {
			return []string{"value"}, false
		}
		return nil, false
	case dsh.TypePolicyDecision, dsh.TypePolicyFault:
		return []string{"input", "hostCalls"}, false // what others were told, by their own grants
	}
	if content {
		return nil, false
	}
	switch e.Type {
	case dsh.TypeTurnStart, dsh.TypeStepStart, dsh.TypeStepEnd, dsh.TypeTurnEnd, dsh.TypeAttemptStart, dsh.TypeAttemptEnd,
		dsh.TypePolicyRefused, dsh.TypePoliciesChanged, dsh.TypeRetry, dsh.TypeRetryStarted, dsh.TypeRetryCancelled, dsh.TypeCompactionEnd:
		return nil, false
	case dsh.TypeSessionStart:
		return []string{"cwd", "title"}, false
	case dsh.TypeUserMessage, dsh.TypeAssistantMessage, dsh.TypeToolResult:
		return []string{"content"}, false
	case dsh.TypeRequestHeader:
		return []string{"system", "tools"}, false
	case dsh.TypeAssistantChunk:
		return []string{"chunk"}, false
	case dsh.TypeToolCall:
		return []string{"arguments"}, false
	case dsh.TypeCompactionStart:
		return []string{"instructions"}, false
	case dsh.TypeCompactionSummary:
		return []string{"summary"}, false
	}
	return nil, !isEmitted(e.Type)
}

// isEmitted reports whether an event is one that a policy made with emit.
func isEmitted(t dsh.EventType) bool {
	rest, ok := strings.CutPrefix(string(t), "policy/")
	return ok && strings.Contains(rest, "/")
}
