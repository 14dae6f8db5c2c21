package openaichat

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"

	"github.com/sashabaranov/go-openai"

	"github.com/dsh-agent/dsh"
)

// The wire forms of a request. They are ours and not the library's, which
// leaves out what is empty or zero.
type (
	requestJSON struct {
		Model         string         `json:"model"`
		Messages      []messageJSON  `json:"messages"`
		Tools         []toolJSON     `json:"tools,omitempty"`
		MaxTokens     int64          `json:"max_tokens,omitempty"`
		MaxCompletion int64          `json:"max_completion_tokens,omitempty"`
		Temperature   *float64       `json:"temperature,omitempty"`
		Stream        bool           `json:"stream"`
		StreamOptions *streamOptions `json:"stream_options,omitempty"`
	}
	streamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	toolJSON struct {
		Type     string       `json:"type"`
		Function functionJSON `json:"function"`
	}
	functionJSON struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	messageJSON struct {
		Role             string          `json:"role"`
		Content          any             `json:"content"` // a string, parts, or null
		ReasoningContent *string         `json:"reasoning_content,omitempty"`
		Reasoning        *string         `json:"reasoning,omitempty"`
		ReasoningDetails json.RawMessage `json:"reasoning_details,omitempty"`
		ToolCalls        []callJSON      `json:"tool_calls,omitempty"`
		ToolCallID       string          `json:"tool_call_id,omitempty"`
	}
	callJSON struct {
		ID       string           `json:"id"`
		Type     string           `json:"type"`
		Function callFunctionJSON `json:"function"`
	}
	callFunctionJSON struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	partJSON struct {
		Type     string     `json:"type"`
		Text     *string    `json:"text,omitempty"`
		ImageURL *imageJSON `json:"image_url,omitempty"`
	}
	imageJSON struct {
		URL string `json:"url"`
	}
)

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
	out := requestJSON{Model: r.Model, Stream: true, Temperature: r.Params.Temperature}
	if t := r.Params.Temperature; t != nil && (math.IsNaN(*t) || math.IsInf(*t, 0)) {
		return nil, fmt.Errorf("the temperature is %v", *t)
	}
	if !a.quirk.noUsage {
		out.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if a.quirk.outputCap == "max_completion_tokens" {
		out.MaxCompletion = r.Params.MaxOutputTokens
	} else {
		out.MaxTokens = r.Params.MaxOutputTokens
	}
	for _, t := range r.Tools {
		schema := t.Schema
		if len(bytes.TrimSpace(schema)) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		if !json.Valid(schema) {
			return nil, fmt.Errorf("the schema of the tool %s is no JSON", t.Name)
		}
		out.Tools = append(out.Tools, toolJSON{"function", functionJSON{t.Name, t.Description, schema}})
	}
	var err error
	if out.Messages, err = a.messages(r); err != nil {
		return nil, err
	}
	return dsh.JSON(out)
}

func (a *Adapter) messages(r dsh.Request) ([]messageJSON, error) {
	out := make([]messageJSON, 0, len(r.Messages)+1)
	if r.System != "" {
		out = append(out, messageJSON{Role: openai.ChatMessageRoleSystem, Content: r.System})
	}
	lastUser := 0
	for i, m := range r.Messages {
		if m.Role == dsh.RoleUser {
			lastUser = i
		}
	}
	var shown []partJSON // the images of tool results, which a tool message cannot hold
	for i, m := range r.Messages {
		if m.Role != dsh.RoleTool && len(shown) > 0 {
			out, shown = append(out, messageJSON{Role: openai.ChatMessageRoleUser, Content: shown}), nil
		}
		switch m.Role {
		case dsh.RoleUser:
			content, err := userContent(m.Content)
			if err != nil {
				return nil, err
			}
			out = append(out, messageJSON{Role: openai.ChatMessageRoleUser, Content: content})
		case dsh.RoleAssistant:
			w, err := a.assistant(m, i > lastUser)
			if err != nil {
				return nil, err
			}
			out = append(out, w)
		case dsh.RoleTool:
			for _, b := range m.Content {
				if b.Type != dsh.BlockToolResult {
					return nil, fmt.Errorf("a block of type %q in a tool's message", b.Type)
				}
				out = append(out, messageJSON{Role: openai.ChatMessageRoleTool, ToolCallID: b.CallID, Content: dsh.Text(b.Content)})
				shown = append(shown, images(b.Content)...)
			}
		default:
			return nil, fmt.Errorf("a message of the role %q", m.Role)
		}
	}
	if len(shown) > 0 {
		out = append(out, messageJSON{Role: openai.ChatMessageRoleUser, Content: shown})
	}
	return out, nil
}

// userContent is a string where it can be one: local servers read no parts.
func userContent(blocks []dsh.Block) (any, error) {
	var parts []partJSON
	plain := true
	for _, b := range blocks {
		switch b.Type {
		case dsh.BlockText:
			parts = append(parts, partJSON{Type: "text", Text: &b.Text})
		case dsh.BlockImage:
			plain = false
			parts = append(parts, images([]dsh.Block{b})...)
		default:
			return nil, fmt.Errorf("a block of type %q in a user's message", b.Type)
		}
	}
	switch {
	case plain && len(parts) <= 1:
		return dsh.Text(blocks), nil
	case plain:
		text := *parts[0].Text
		for _, p := range parts[1:] {
			text += "\n\n" + *p.Text
		}
		return text, nil
	}
	return parts, nil
}

func images(blocks []dsh.Block) []partJSON {
	var parts []partJSON
	for _, b := range blocks {
		if b.Type == dsh.BlockImage {
			u := "data:" + b.MediaType + ";base64," + base64.StdEncoding.EncodeToString(b.Data)
			parts = append(parts, partJSON{Type: "image_url", ImageURL: &imageJSON{u}})
		}
	}
	return parts
}

// assistant writes a message of the model. current says that it belongs to the
// turn under way.
func (a *Adapter) assistant(m dsh.Message, current bool) (messageJSON, error) {
	w := messageJSON{Role: openai.ChatMessageRoleAssistant}
	var reasoning string
	text := false
	for _, b := range m.Content {
		switch b.Type {
		case dsh.BlockText:
			text = true
		case dsh.BlockReasoning:
			reasoning += b.Text
			if a.quirk.details != "" && bytes.HasPrefix(b.Opaque, []byte("[")) {
				w.ReasoningDetails = b.Opaque
			}
		case dsh.BlockToolCall:
			w.ToolCalls = append(w.ToolCalls, callJSON{b.ID, "function", callFunctionJSON{b.Name, a.arguments(b.Arguments)}})
		default:
			return w, fmt.Errorf("a block of type %q in an assistant's message", b.Type)
		}
	}
	if text || len(w.ToolCalls) == 0 {
		w.Content = dsh.Text(m.Content)
	}
	if reasoning != "" && w.ReasoningDetails == nil && (current || !a.quirk.reasoningTurn) {
		switch a.quirk.reasoning {
		case "reasoning_content":
			w.ReasoningContent = &reasoning
		case "reasoning":
			w.Reasoning = &reasoning
		}
	}
	return w, nil
}

// arguments makes what an earlier call was given fit to be sent.
func (a *Adapter) arguments(s string) string {
	if len(bytes.TrimSpace([]byte(s))) == 0 {
		return "{}"
	}
	if !a.quirk.parsesArguments {
		return s
	}
	var o map[string]json.RawMessage
	if json.Unmarshal([]byte(s), &o) == nil && o != nil {
		return s
	}
	wrapped, err := dsh.JSON(map[string]string{"invalid_json": s})
	if err != nil {
		return "{}"
	}
	return string(wrapped)
}
