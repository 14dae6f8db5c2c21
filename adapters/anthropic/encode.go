package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/dsh-agent/dsh"
)

// defaultMaxTokens is sent where no limit is set, since the protocol wants
// one: the most that every current model takes (Opus 4's limit; the others
// have more). An older model needs max_output_tokens to be set.
const defaultMaxTokens = 32000

// The wire forms of a request.
type (
	requestJSON struct {
		Model        string        `json:"model"`
		MaxTokens    int64         `json:"max_tokens"`
		System       string        `json:"system,omitempty"`
		Messages     []messageJSON `json:"messages"`
		Tools        []toolJSON    `json:"tools,omitempty"`
		Temperature  *float64      `json:"temperature,omitempty"`
		CacheControl *cacheJSON    `json:"cache_control,omitempty"`
		Stream       bool          `json:"stream"`
	}
	cacheJSON struct {
		Type string `json:"type"`
	}
	toolJSON struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	messageJSON struct {
		Role    string `json:"role"`
		Content []any  `json:"content"`
	}
	textJSON struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	imageJSON struct {
		Type   string     `json:"type"`
		Source sourceJSON `json:"source"`
	}
	sourceJSON struct {
		Type      string `json:"type"`
		MediaType string `json:"media_type"`
		Data      []byte `json:"data"` // base64, as encoding/json writes it
	}
	thinkingJSON struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	redactedJSON struct {
		Type string `json:"type"`
		Data string `json:"data"`
	}
	toolUseJSON struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	toolResultJSON struct {
		Type      string `json:"type"`
		ToolUseID string `json:"tool_use_id"`
		Content   []any  `json:"content,omitempty"`
		IsError   bool   `json:"is_error,omitempty"`
	}
)

// opaque is what a reasoning block keeps beside its text: the signature, or
// the whole of a block that was redacted.
type opaque struct {
	Signature string `json:"signature,omitempty"`
	Redacted  string `json:"redacted,omitempty"`
}

// Encode makes the wire body: see dsh.Adapter.
func (a *Adapter) Encode(r dsh.Request) ([]byte, error) {
	body, err := a.encode(r)
	if err != nil {
		return nil, &dsh.Failure{Code: dsh.CodeInvalidRequest, Message: "the request cannot be written: " + err.Error(), Cause: err}
	}
	return body, nil
}

func (a *Adapter) encode(r dsh.Request) ([]byte, error) {
	if r.Model == "" {
		return nil, fmt.Errorf("no model is named")
	}
	if t := r.Params.Temperature; t != nil && (math.IsNaN(*t) || math.IsInf(*t, 0)) {
		return nil, fmt.Errorf("the temperature is %v", *t)
	}
	out := requestJSON{Model: r.Model, MaxTokens: r.Params.MaxOutputTokens, System: r.System, Temperature: r.Params.Temperature, Stream: true}
	if out.MaxTokens == 0 {
		out.MaxTokens = defaultMaxTokens
	}
	if a.own {
		// A turn sends its history again with each step; the provider reads
		// what it has seen from its cache.
		out.CacheControl = &cacheJSON{"ephemeral"}
	}
	for _, t := range r.Tools {
		schema := t.Schema
		if len(bytes.TrimSpace(schema)) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if !json.Valid(schema) {
			return nil, fmt.Errorf("the schema of the tool %s is no JSON", t.Name)
		}
		out.Tools = append(out.Tools, toolJSON{t.Name, t.Description, schema})
	}
	out.Messages = []messageJSON{}
	for _, m := range r.Messages {
		role, content, err := message(m)
		if err != nil {
			return nil, err
		}
		if len(content) == 0 {
			continue // the protocol has no empty messages
		}
		// The results of one answer's calls belong into one message, and roles
		// take turns.
		if n := len(out.Messages); n > 0 && out.Messages[n-1].Role == role {
			out.Messages[n-1].Content = append(out.Messages[n-1].Content, content...)
			continue
		}
		out.Messages = append(out.Messages, messageJSON{role, content})
	}
	return dsh.JSON(out)
}

func message(m dsh.Message) (role string, content []any, err error) {
	switch m.Role {
	case dsh.RoleUser:
		content, err = shown(m.Content)
		return "user", content, err
	case dsh.RoleTool:
		for _, b := range m.Content {
			if b.Type != dsh.BlockToolResult {
				return "", nil, fmt.Errorf("a block of type %q in a tool's message", b.Type)
			}
			inner, err := shown(b.Content)
			if err != nil {
				return "", nil, err
			}
			content = append(content, toolResultJSON{"tool_result", b.CallID, inner, b.IsError})
		}
		return "user", content, nil
	case dsh.RoleAssistant:
		content, err = assistant(m.Content)
		return "assistant", content, err
	}
	return "", nil, fmt.Errorf("a message of the role %q", m.Role)
}

// shown writes text and images. Empty text is refused by the provider.
func shown(blocks []dsh.Block) ([]any, error) {
	var out []any
	for _, b := range blocks {
		switch b.Type {
		case dsh.BlockText:
			if strings.TrimSpace(b.Text) != "" {
				out = append(out, textJSON{"text", b.Text})
			}
		case dsh.BlockImage:
			out = append(out, imageJSON{"image", sourceJSON{"base64", b.MediaType, b.Data}})
		default:
			return nil, fmt.Errorf("a block of type %q where text or an image belongs", b.Type)
		}
	}
	return out, nil
}

func assistant(blocks []dsh.Block) ([]any, error) {
	var out []any
	for _, b := range blocks {
		switch b.Type {
		case dsh.BlockText:
			if strings.TrimSpace(b.Text) != "" {
				out = append(out, textJSON{"text", b.Text})
			}
		case dsh.BlockReasoning:
			// Reasoning that is not signed is refused; it was another's.
			var o opaque
			switch _ = json.Unmarshal(b.Opaque, &o); {
			case o.Redacted != "":
				out = append(out, redactedJSON{"redacted_thinking", o.Redacted})
			case o.Signature != "":
				out = append(out, thinkingJSON{"thinking", b.Text, o.Signature})
			}
		case dsh.BlockToolCall:
			out = append(out, toolUseJSON{"tool_use", b.ID, b.Name, input(b.Arguments)})
		default:
			return nil, fmt.Errorf("a block of type %q in an assistant's message", b.Type)
		}
	}
	return out, nil
}

// input makes what an earlier call was given fit to be sent: it must be an
// object.
func input(arguments string) json.RawMessage {
	if strings.TrimSpace(arguments) == "" {
		return json.RawMessage("{}")
	}
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &o) == nil && o != nil {
		return json.RawMessage(arguments)
	}
	wrapped, err := dsh.JSON(map[string]string{"invalid_json": arguments})
	if err != nil {
		return json.RawMessage("{}")
	}
	return wrapped
}
