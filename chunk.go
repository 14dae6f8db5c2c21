package dsh

import (
	"encoding/json"
	"fmt"
)

// A ChunkType says what a Chunk adds to.
type ChunkType string

// The chunk types. ChunkFinish is the end of a stream and is never logged as
// a chunk.
const (
	ChunkText      ChunkType = "text"
	ChunkReasoning ChunkType = "reasoning"
	ChunkToolCall  ChunkType = "tool-call"
	ChunkFinish    ChunkType = "finish"
)

// A Chunk is one piece of a streamed answer, or its end.
//
// Index tells the blocks of one answer apart and orders them: chunks of one
// index belong to one block, and a block keeps its type. ID and Name of a tool
// call come with its first chunk, or with a later one; Arguments is appended
// as it is.
type Chunk struct {
	Type      ChunkType
	Index     int
	Text      string          // text, reasoning
	Opaque    json.RawMessage // reasoning; replaces what an earlier chunk of the block set
	ID        string          // tool-call
	Name      string          // tool-call
	Arguments string          // tool-call
	Finish    *Finish         // finish
}

// A FinishKind says how an attempt ended.
type FinishKind string

// The kinds. FinishInterrupted is given by a resumed session to an attempt
// that its process did not live to see the end of; no adapter yields it.
const (
	FinishStop        FinishKind = "stop"
	FinishToolCalls   FinishKind = "tool-calls"
	FinishLength      FinishKind = "length"
	FinishError       FinishKind = "error"
	FinishAborted     FinishKind = "aborted"
	FinishInterrupted FinishKind = "interrupted"
)

// Good reports whether an answer came of it.
func (k FinishKind) Good() bool {
	return k == FinishStop || k == FinishToolCalls || k == FinishLength
}

// A Finish is the end of a stream that the provider, or the adapter, told.
type Finish struct {
	Kind    FinishKind `json:"kind"`
	Failure *Failure   `json:"failure,omitempty"` // set for error, and for aborted
	Usage   *Usage     `json:"-"`                 // nil: the provider gave none
}

// Usage is what a request cost, in tokens, as the provider counted.
type Usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens,omitempty"` // of InputTokens
	ReasoningTokens   int64 `json:"reasoningTokens,omitempty"`   // of OutputTokens
}

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		u.InputTokens + v.InputTokens, u.OutputTokens + v.OutputTokens,
		u.CachedInputTokens + v.CachedInputTokens, u.ReasoningTokens + v.ReasoningTokens,
	}
}

type (
	textChunkJSON struct {
		Type   ChunkType       `json:"type"`
		Index  int             `json:"index"`
		Text   string          `json:"text"`
		Opaque json.RawMessage `json:"opaque,omitempty"`
	}
	toolChunkJSON struct {
		Type      ChunkType `json:"type"`
		Index     int       `json:"index"`
		ID        string    `json:"id,omitempty"`
		Name      string    `json:"name,omitempty"`
		Arguments string    `json:"arguments"`
	}
)

// MarshalJSON writes the form of an assistant/chunk event. A finish has none.
func (c Chunk) MarshalJSON() ([]byte, error) {
	switch c.Type {
	case ChunkText, ChunkReasoning:
		return JSON(textChunkJSON{c.Type, c.Index, c.Text, c.Opaque})
	case ChunkToolCall:
		return JSON(toolChunkJSON{c.Type, c.Index, c.ID, c.Name, c.Arguments})
	}
	return nil, fmt.Errorf("a chunk of type %q cannot be logged", c.Type)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Chunk) UnmarshalJSON(raw []byte) error {
	var j struct {
		Type      ChunkType       `json:"type"`
		Index     int             `json:"index"`
		Text      string          `json:"text"`
		Opaque    json.RawMessage `json:"opaque"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Arguments string          `json:"arguments"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	*c = Chunk{Type: j.Type, Index: j.Index, Text: j.Text, Opaque: j.Opaque, ID: j.ID, Name: j.Name, Arguments: j.Arguments}
	return nil
}
