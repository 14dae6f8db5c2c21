package dsh

import (
	"context"
	"encoding/json"
	"iter"
)

// A Request is what a model is asked: everything that its wire body is made
// of, and nothing that is not in the log.
type Request struct {
	Model    string
	System   string // "" for none
	Messages []Message
	Tools    []ToolSpec
	Params   Params
}

// Params are the settings of a request. A zero value leaves the choice to the
// provider.
type Params struct {
	MaxOutputTokens int64    `json:"maxOutputTokens,omitempty"`
	Temperature     *float64 `json:"temperature,omitempty"`
}

// An Adapter speaks one wire protocol to one provider. It may be used by
// several goroutines.
type Adapter interface {
	// Encode makes the wire body of a request. The same request gives the
	// same bytes. It fails with a *Failure of code INVALID_REQUEST.
	Encode(Request) ([]byte, error)

	// Send makes exactly one wire request with a body that Encode made, and
	// yields its answer: chunks, and then exactly one end, which is either an
	// error (a *Failure) or a chunk of type ChunkFinish, whose kind may be
	// error or aborted. Nothing is sent until the sequence is ranged over, and
	// it can be ranged over once. Leaving the loop ends the request. When ctx
	// ends the failure is ABORTED.
	Send(ctx context.Context, body []byte) iter.Seq2[Chunk, error]
}

// A Tool is something that a model may call. It may be used by several
// goroutines.
type Tool interface {
	Spec() ToolSpec

	// Run does the work. What goes wrong in the work is a Result with IsError
	// for the model to read; an error is a fault of the tool's machinery and
	// ends the turn. Arguments are valid JSON of type object.
	Run(ctx context.Context, arguments json.RawMessage) (ToolResult, error)
}

// A ToolSpec describes a tool to a model.
type ToolSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of the arguments, type object

	// Idempotent tools are run again after a crash that left their outcome
	// unknown. It is no business of the model's.
	Idempotent bool `json:"-"`

	// ReadOnly tools change nothing, so that several may run at a time. Any
	// other one runs alone. It is no business of the model's either.
	ReadOnly bool `json:"-"`
}

// A ToolResult is what the model reads of a tool's work.
type ToolResult struct {
	Content []Block // text and images
	IsError bool
}
