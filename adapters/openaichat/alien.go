package openaichat

import (
	"encoding/json"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
	"github.com/dsh-agent/dsh/adapters/internal/wire"
)

// alien follows answers in another protocol's form, which come from a wrong
// base URL or a gateway that forgot to translate: OpenAI's responses, Gemini,
// Bedrock, Ollama's own, Anthropic's. They are never answers of ours, but an
// error, a filter or emptiness in them is what it is.
type alien struct {
	known   bool   // of a form that is known
	content bool   // something of an answer was there
	reason  string // why it ended
}

// foreign takes a value that is no completion.
func (d *decoder) foreign(name, data []byte, whole bool) ([]dsh.Chunk, error) {
	var o map[string]json.RawMessage
	if json.Unmarshal(data, &o) != nil {
		if whole || data[0] == '[' {
			return nil, &wire.Reported{Body: data} // an array around an error
		}
		return nil, nil
	}
	if string(name) == "error" || says(o, "type") == "error" || d.alien.look(o) || complains(o) {
		return nil, &wire.Reported{Body: data}
	}
	if d.alien.reason != "" && !whole {
		return nil, d.alien.verdict(data)
	}
	return nil, nil
}

// complains reports whether an object is a home-made envelope around an error.
func complains(o map[string]json.RawMessage) bool {
	words := says(o, "message") + says(o, "msg") + says(o, "detail") + says(o, "error_msg")
	return words != "" && (o["code"] != nil || o["status_code"] != nil || o["error_code"] != nil || string(o["success"]) == "false")
}

// look takes one object, and reports whether it tells of an error.
func (a *alien) look(o map[string]json.RawMessage) bool {
	kind := says(o, "type")
	if strings.HasPrefix(kind, "response.") { // OpenAI's responses
		a.known = true
		if strings.Contains(kind, ".delta") {
			a.content = true
		}
		inner := object(o["response"])
		switch kind {
		case "response.failed", "response.cancelled", "response.error":
			return true
		case "response.completed":
			a.reason = "stop"
			a.content = a.content || strings.Contains(string(inner["output"]), `"output_text"`) || strings.Contains(string(inner["output"]), `"function_call"`)
		case "response.incomplete":
			a.reason = says(object(inner["incomplete_details"]), "reason")
			a.content = true
		}
		return false
	}
	if f := object(o["promptFeedback"]); says(f, "blockReason") != "" { // Gemini
		a.known, a.reason = true, "blocked" // whatever for
	}
	if c := list(o["candidates"]); len(c) > 0 {
		a.known, a.reason = true, says(c[0], "finishReason")
		a.content = a.content || len(list(object(c[0]["content"])["parts"])) > 0
	}
	if r := says(o, "stopReason"); r != "" { // Bedrock
		a.known, a.reason = true, r
		a.content = a.content || len(list(object(object(o["output"])["message"])["content"])) > 0
	}
	if r := says(o, "stop_reason"); r != "" && says(o, "type") == "message" { // Anthropic
		a.known, a.reason = true, r
		a.content = a.content || len(list(o["content"])) > 0
	}
	if m := object(o["message"]); m != nil && o["done"] != nil { // Ollama
		a.known = true
		a.content = a.content || says(m, "content") != "" || says(m, "thinking") != "" || len(list(m["tool_calls"])) > 0
		if string(o["done"]) == "true" {
			if a.reason = says(o, "done_reason"); a.reason == "" {
				a.reason = "stop"
			}
		}
	}
	return false
}

// verdict makes a failure of what was seen. data is all of it, or the last of
// it.
func (a *alien) verdict(data []byte) error {
	if !a.known {
		return &wire.Reported{Body: data} // a home-made envelope; its words may tell
	}
	if a.reason == "" {
		return &wire.Failed{Code: dsh.CodeTransport, Message: "the answer ended before its end was told", Rule: "an end without its terminal"}
	}
	kind, code := fault.FinishReason(a.reason)
	switch {
	case code != "" && code != dsh.CodeUnknown:
		return &wire.Failed{Code: code, Message: "the model ended with the finish reason " + fault.Clean(a.reason), Rule: "finish reason " + a.reason}
	case !a.content && kind != dsh.FinishLength:
		return &wire.Failed{Code: dsh.CodeEmptyResponse, Message: "the model ended without any content", Rule: "no content block"}
	}
	return &wire.Failed{Code: dsh.CodeProtocol, Message: "the answer is in another protocol's form; is the base URL right?", Rule: "another protocol"}
}

func says(o map[string]json.RawMessage, member string) string {
	var s string
	_ = json.Unmarshal(o[member], &s) // no string is no word
	return s
}

func object(raw json.RawMessage) map[string]json.RawMessage {
	var o map[string]json.RawMessage
	_ = json.Unmarshal(raw, &o)
	return o
}

func list(raw json.RawMessage) []map[string]json.RawMessage {
	var l []map[string]json.RawMessage
	_ = json.Unmarshal(raw, &l)
	return l
}
