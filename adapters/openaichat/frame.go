package openaichat

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/sashabaranov/go-openai"
)

// The wire forms of an answer, as far as they are read. They are wider than
// the library's: arguments may be an object, content may be parts, and what a
// provider left null or made a number of does no harm.
type (
	frame struct {
		Object  string          `json:"object"`
		Error   json.RawMessage `json:"error"`
		Choices []choice        `json:"choices"`
		Usage   json.RawMessage `json:"usage"`
		XGroq   struct {
			Usage json.RawMessage `json:"usage"`
			Error json.RawMessage `json:"error"`
		} `json:"x_groq"`
		BaseResp *struct {
			StatusCode int `json:"status_code"`
		} `json:"base_resp"`
	}
	choice struct {
		Index        int             `json:"index"`
		Delta        *message        `json:"delta"`
		Message      *message        `json:"message"`
		Text         string          `json:"text"`
		FinishReason flexible        `json:"finish_reason"`
		Usage        json.RawMessage `json:"usage"`
		Error        json.RawMessage `json:"error"`
	}
	message struct {
		Content          content         `json:"content"`
		Refusal          flexible        `json:"refusal"`
		ReasoningContent content         `json:"reasoning_content"`
		Reasoning        content         `json:"reasoning"`
		ReasoningDetails json.RawMessage `json:"reasoning_details"`
		ToolCalls        []toolCall      `json:"tool_calls"`
		FunctionCall     *functionCall   `json:"function_call"`
	}
	toolCall struct {
		Index    *int         `json:"index"`
		ID       flexible     `json:"id"`
		Function functionCall `json:"function"`
	}
	functionCall struct {
		Name      flexible  `json:"name"`
		Arguments arguments `json:"arguments"`
	}
)

// flexible is a string that may be null; anything else is taken as its JSON.
type flexible string

func (f *flexible) UnmarshalJSON(b []byte) error {
	switch {
	case string(b) == "null":
		return nil
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*f = flexible(s)
		return err
	}
	*f = flexible(b)
	return nil
}

// arguments is a piece of a call's arguments: a string, or the object that a
// few servers send in its place.
type arguments string

func (a *arguments) UnmarshalJSON(b []byte) error {
	switch {
	case string(b) == "null":
		return nil
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*a = arguments(s)
		return err
	}
	var c bytes.Buffer
	if err := json.Compact(&c, b); err != nil {
		return err
	}
	*a = arguments(c.String())
	return nil
}

// content is text: a string, or parts, of which those that think are kept
// apart (Mistral).
type content struct{ text, thinking string }

func (c *content) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, &c.text)
	case '[':
		var parts []struct {
			Type     string  `json:"type"`
			Text     content `json:"text"`
			Thinking content `json:"thinking"`
		}
		if err := json.Unmarshal(b, &parts); err != nil {
			return err
		}
		for _, p := range parts {
			c.text += p.Text.text
			c.thinking += p.Thinking.text
		}
	case '{':
		var part struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(b, &part); err != nil {
			return err
		}
		c.text = part.Text
	}
	return nil
}

// present reports whether a member was there and says something.
func present(raw json.RawMessage) bool {
	switch s := strings.TrimSpace(string(raw)); s {
	case "", "null", `""`, "{}", "[]", "false":
		return false
	}
	return true
}

// usage is the library's, and what DeepSeek has beside it.
type usage struct {
	openai.Usage
	CacheHit int `json:"prompt_cache_hit_tokens"`
}
