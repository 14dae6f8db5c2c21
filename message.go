package dsh

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A Role says who speaks in a message.
type Role string

// The roles. The system prompt is no message: it is a field of the Request.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool" // a tool's result; its one block is of type tool-result
)

// A Message is one entry of what the model sees.
type Message struct {
	Role    Role
	Content []Block
}

// Text joins the message's text blocks, without reasoning.
func (m Message) Text() string { return Text(m.Content) }

// A BlockType says what a Block is.
type BlockType string

// The block types.
const (
	BlockText       BlockType = "text"
	BlockReasoning  BlockType = "reasoning"
	BlockToolCall   BlockType = "tool-call"
	BlockToolResult BlockType = "tool-result"
	BlockImage      BlockType = "image"
)

// A Block is one piece of a message's content. Which fields count depends on
// its type; the JSON holds those and no others.
type Block struct {
	Type BlockType

	Text   string          // text, reasoning
	Opaque json.RawMessage // reasoning: goes back unchanged to the same provider and model only; may be nil

	ID        string // tool-call
	Name      string // tool-call
	Arguments string // tool-call: the raw text as the model wrote it, valid JSON or not

	CallID  string  // tool-result
	Content []Block // tool-result: text and image blocks
	IsError bool    // tool-result

	MediaType string // image
	Data      []byte // image
}

// TextBlock is a block of plain text.
func TextBlock(s string) Block { return Block{Type: BlockText, Text: s} }

// Text joins the text blocks of a content, without reasoning.
func Text(content []Block) string {
	var b strings.Builder
	for _, c := range content {
		if c.Type == BlockText {
			b.WriteString(c.Text)
		}
	}
	return b.String()
}

// ToolCalls returns the tool-call blocks of a content, in order.
func ToolCalls(content []Block) []Block {
	var calls []Block
	for _, c := range content {
		if c.Type == BlockToolCall {
			calls = append(calls, c)
		}
	}
	return calls
}

type (
	textJSON struct {
		Type BlockType `json:"type"`
		Text string    `json:"text"`
	}
	reasoningJSON struct {
		Type   BlockType       `json:"type"`
		Text   string          `json:"text"`
		Opaque json.RawMessage `json:"opaque,omitempty"`
	}
	toolCallJSON struct {
		Type      BlockType `json:"type"`
		ID        string    `json:"id"`
		Name      string    `json:"name"`
		Arguments string    `json:"arguments"`
	}
	toolResultJSON struct {
		Type    BlockType `json:"type"`
		CallID  string    `json:"callId"`
		Content []Block   `json:"content"`
		IsError bool      `json:"isError"`
	}
	imageJSON struct {
		Type      BlockType `json:"type"`
		MediaType string    `json:"mediaType"`
		Data      []byte    `json:"data"`
	}
)

// MarshalJSON writes the fields that the block's type has.
func (b Block) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case BlockText:
		return JSON(textJSON{b.Type, b.Text})
	case BlockReasoning:
		return JSON(reasoningJSON{b.Type, b.Text, b.Opaque})
	case BlockToolCall:
		return JSON(toolCallJSON{b.Type, b.ID, b.Name, b.Arguments})
	case BlockToolResult:
		return JSON(toolResultJSON{b.Type, b.CallID, emptyNotNull(b.Content), b.IsError})
	case BlockImage:
		return JSON(imageJSON{b.Type, b.MediaType, emptyNotNull(b.Data)})
	}
	return nil, fmt.Errorf("a block of unknown type %q", b.Type)
}

// UnmarshalJSON reads what MarshalJSON writes; unknown fields are ignored.
func (b *Block) UnmarshalJSON(raw []byte) error {
	var j struct {
		Type      BlockType       `json:"type"`
		Text      string          `json:"text"`
		Opaque    json.RawMessage `json:"opaque"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
		CallID    string          `json:"callId"`
		Content   []Block         `json:"content"`
		IsError   bool            `json:"isError"`
		MediaType string          `json:"mediaType"`
		Data      []byte          `json:"data"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	*b = Block(j)
	return nil
}

func emptyNotNull[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
