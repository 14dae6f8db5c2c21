package openaichat

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
	"github.com/dsh-agent/dsh/adapters/internal/repeat"
	"github.com/dsh-agent/dsh/adapters/internal/wire"
)

// A decoder reads one answer. It keeps no text, only where it is.
type decoder struct {
	window int64

	chunks []dsh.Chunk // reused
	next   int         // the index of the next block
	open   dsh.ChunkType
	at     int // the index of the open text or reasoning block
	blocks int

	calls   []*call
	details details

	reason string // the last finish reason; "" for none yet
	done   bool   // [DONE]
	usage  *dsh.Usage
	alien  alien
	plain  repeat.Frame
}

// A call is a tool call under way.
type call struct {
	index    *int // the provider's
	id, name string
	chunk    int // the block
	anything bool
}

func newDecoder(window int64) *decoder { return &decoder{window: window} }

// Event takes one event: see wire.Decoder.
func (d *decoder) Event(name, data []byte) ([]dsh.Chunk, error) {
	d.chunks = d.chunks[:0]
	if d.done {
		return d.after(data)
	}
	if string(name) == "error" && data[0] != '{' && data[0] != '[' {
		return nil, &wire.Reported{Body: data}
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		d.done = true
		d.finishDetails()
		return d.chunks, nil
	}
	if text, ok := d.plain.Match(data); ok {
		d.chunks = append(d.chunks, dsh.Chunk{Type: dsh.ChunkText, Index: d.at, Text: text})
		return d.chunks, nil
	}
	return d.value(name, data, false)
}

// after takes an event that comes after [DONE]: a usage is harmless.
func (d *decoder) after(data []byte) ([]dsh.Chunk, error) {
	var f frame
	if json.Unmarshal(data, &f) != nil {
		return nil, nil
	}
	for _, c := range f.Choices {
		if m := c.message(); m != nil && (m.Content.text != "" || len(m.ToolCalls) > 0) {
			return nil, &wire.Failed{Code: dsh.CodeProtocol, Message: "there is content after the end of the answer", Rule: "content after the end"}
		}
	}
	return nil, nil
}

// Document takes an answer that is no stream: see wire.Decoder.
func (d *decoder) Document(data []byte) ([]dsh.Chunk, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	var all []dsh.Chunk
	for {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF):
			if d.State() == wire.Open {
				return nil, d.alien.verdict(data)
			}
			return all, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, &wire.Broken{What: "its JSON ends in the middle"}
		case err != nil:
			return nil, &wire.Failed{Code: dsh.CodeProtocol, Message: "the answer is no JSON: " + err.Error(), Rule: "a broken document"}
		}
		d.chunks = d.chunks[:0]
		chunks, err := d.value(nil, raw, true)
		if err != nil {
			return nil, err
		}
		all = append(all, chunks...)
	}
}

// value takes one JSON value, of a stream or whole.
func (d *decoder) value(name, data []byte, whole bool) ([]dsh.Chunk, error) {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		var kind *json.UnmarshalTypeError
		if !errors.As(err, &kind) {
			return nil, &wire.Broken{What: err.Error()}
		}
		if f.Choices == nil { // no completion: an array around an error, or somebody else's form
			return d.foreign(name, data, whole)
		}
		return nil, &wire.Broken{What: err.Error()}
	}
	if f.Object == "error" {
		return nil, &wire.Reported{Body: data}
	}
	for _, e := range []json.RawMessage{f.Error, f.XGroq.Error} {
		if present(e) {
			return nil, &wire.Reported{Body: data}
		}
	}
	if f.BaseResp != nil && f.BaseResp.StatusCode != 0 {
		return nil, &wire.Reported{Body: data}
	}
	for _, u := range []json.RawMessage{f.XGroq.Usage, f.Usage} {
		d.count(u)
	}
	if f.Choices == nil && f.Object == "" && (whole && !bytes.Contains(data, []byte(`"choices"`)) || !whole && !present(f.Usage)) {
		return d.foreign(name, data, whole)
	}
	if whole && len(f.Choices) == 0 {
		d.reason = "stop" // complete, and empty
	}
	for i := range f.Choices {
		c := &f.Choices[i]
		if c.Index != 0 && len(f.Choices) > 1 {
			continue // one answer is asked for
		}
		if present(c.Error) {
			return nil, &wire.Reported{Body: c.Error}
		}
		if err := d.choice(c, whole); err != nil {
			return nil, err
		}
	}
	d.plain.Forget()
	if text, ok := f.plain(); ok {
		d.plain.Learn(data, `"content":"`, text)
	}
	return d.chunks, nil
}

// plain returns the text of a frame that has nothing else in it.
func (f *frame) plain() (string, bool) {
	if len(f.Choices) != 1 || present(f.Usage) || present(f.XGroq.Usage) || f.Choices[0].Delta == nil {
		return "", false
	}
	c := &f.Choices[0]
	m := c.Delta
	if c.FinishReason != "" || present(c.Usage) || m.Content.thinking != "" || m.Refusal != "" || m.ReasoningContent.text != "" ||
		m.Reasoning.text != "" || present(m.ReasoningDetails) || len(m.ToolCalls) > 0 || m.FunctionCall != nil {
		return "", false
	}
	return m.Content.text, m.Content.text != ""
}

func (c *choice) message() *message {
	if c.Delta != nil {
		return c.Delta
	}
	return c.Message
}

func (d *decoder) choice(c *choice, whole bool) error {
	d.count(c.Usage)
	m := c.Delta
	if m == nil && (whole || d.blocks == 0) { // beside deltas, a message repeats them
		m = c.Message
	}
	if m == nil && c.Text != "" {
		m = &message{Content: content{text: c.Text}}
	}
	if m != nil {
		if d.reason != "" && !whole && m.says() {
			return &wire.Failed{Code: dsh.CodeProtocol, Message: "there is content after the answer was finished", Rule: "content after the end"}
		}
		d.message(m)
	}
	if r := strings.TrimSpace(string(c.FinishReason)); r != "" && r != "null" {
		d.reason = r
		d.finishDetails()
	} else if whole && d.reason == "" {
		d.reason = "stop"
	}
	return nil
}

// says reports whether a message has something of an answer in it.
func (m *message) says() bool {
	return m.Content.text != "" || m.ReasoningContent.text != "" || m.Reasoning.text != "" || len(m.ToolCalls) > 0
}

func (d *decoder) message(m *message) {
	thought := m.ReasoningContent.text
	if thought == "" { // some send both fields, with the same words
		thought = m.Reasoning.text
	}
	d.details.add(m.ReasoningDetails)
	if thought == "" && d.details.last != "" {
		thought = d.details.last
	}
	d.text(dsh.ChunkReasoning, thought+m.Content.thinking)
	d.text(dsh.ChunkText, m.Content.text)
	d.text(dsh.ChunkText, string(m.Refusal))
	if f := m.FunctionCall; f != nil { // the form before tool calls
		zero := 0
		d.tool(&toolCall{Index: &zero, Function: *f})
	}
	for i := range m.ToolCalls {
		d.tool(&m.ToolCalls[i])
	}
}

// text adds to the open block if it is of the type, and opens one if not.
func (d *decoder) text(t dsh.ChunkType, s string) {
	if s == "" {
		return
	}
	if d.open != t {
		d.open, d.at = t, d.block()
	}
	d.chunks = append(d.chunks, dsh.Chunk{Type: t, Index: d.at, Text: s})
}

func (d *decoder) block() int {
	d.blocks++
	d.next++
	return d.next - 1
}

// tool adds to a call. Which one a piece belongs to is told by its index, by
// its id, or by coming after it: providers leave out either, or give one index
// to all.
func (d *decoder) tool(t *toolCall) {
	c := d.callOf(t)
	if c == nil {
		c = &call{index: t.Index, chunk: d.block()}
		d.calls = append(d.calls, c)
		d.open = ""
	}
	out := dsh.Chunk{Type: dsh.ChunkToolCall, Index: c.chunk, Arguments: string(t.Function.Arguments)}
	if t.ID != "" && c.id == "" {
		c.id = string(t.ID)
		out.ID = c.id
	}
	if t.Function.Name != "" && c.name == "" {
		c.name = string(t.Function.Name)
		out.Name = c.name
	}
	if c.name != "" && c.id == "" {
		c.id = "call_" + strings.ToLower(rand.Text()[:12])
		out.ID = c.id
	}
	if out.ID != "" || out.Name != "" || out.Arguments != "" || !c.anything {
		c.anything = true
		d.chunks = append(d.chunks, out)
	}
}

// callOf finds the call that a piece belongs to, or nil for a new one.
func (d *decoder) callOf(t *toolCall) *call {
	for i := len(d.calls) - 1; i >= 0; i-- {
		c := d.calls[i]
		byID := t.ID != "" && c.id == string(t.ID)
		byIndex := t.Index != nil && c.index != nil && *c.index == *t.Index
		switch {
		case byID && (t.Index == nil || c.index == nil || byIndex):
			return c
		case byIndex && (t.ID == "" || c.id == "" || byID):
			// A second name under one index is a second call.
			if t.Function.Name != "" && c.name != "" && c.name != string(t.Function.Name) && t.ID == "" {
				return nil
			}
			return c
		}
	}
	if t.Index == nil && t.ID == "" && t.Function.Name == "" && len(d.calls) > 0 {
		return d.calls[len(d.calls)-1]
	}
	return nil
}

// finishDetails tells the opaque part of the reasoning, once it is whole.
func (d *decoder) finishDetails() {
	opaque := d.details.merged()
	if opaque == nil {
		return
	}
	if d.open != dsh.ChunkReasoning {
		d.at = d.block()
		d.open = dsh.ChunkReasoning
	}
	d.chunks = append(d.chunks, dsh.Chunk{Type: dsh.ChunkReasoning, Index: d.at, Opaque: opaque})
}

// count keeps the last usage that came.
func (d *decoder) count(raw json.RawMessage) {
	if !present(raw) {
		return
	}
	var u usage
	_ = json.Unmarshal(raw, &u) // what cannot be read is left at 0
	if u.PromptTokens == 0 && u.CompletionTokens == 0 && u.TotalTokens == 0 {
		return
	}
	v := dsh.Usage{
		InputTokens: max(int64(u.PromptTokens), 0), OutputTokens: max(int64(u.CompletionTokens), 0),
		CachedInputTokens: max(int64(u.CacheHit), 0),
	}
	if p := u.PromptTokensDetails; p != nil && p.CachedTokens > 0 {
		v.CachedInputTokens = int64(p.CachedTokens)
	}
	if c := u.CompletionTokensDetails; c != nil {
		v.ReasoningTokens = max(int64(c.ReasoningTokens), 0)
	}
	d.usage = &v
}

// State says how far the answer is: see wire.Decoder.
func (d *decoder) State() wire.State {
	switch {
	case d.done:
		return wire.Closed
	case d.reason != "":
		return wire.Finished
	}
	return wire.Open
}

// End says how it ended: see wire.Decoder.
func (d *decoder) End() wire.End {
	end := wire.End{Usage: d.usage}
	kind, code := fault.FinishReason(d.reason)
	switch {
	case code != "":
		end.Code, end.Rule = code, "finish reason "+d.reason
		end.Message = "the model ended with the finish reason " + fault.Clean(d.reason)
		return end
	case d.overflowed(kind):
		end.Code, end.Rule = dsh.CodeContextWindow, "a silent overflow"
		end.Message = fmt.Sprintf("the request has %d tokens and the model a window of %d: the provider cut it without saying so", d.usage.InputTokens, d.window)
		return end
	case kind == dsh.FinishLength:
		end.Kind = kind
		return end
	case d.blocks == 0:
		end.Code, end.Rule = dsh.CodeEmptyResponse, "no content block"
		end.Message = "the model ended without any content"
		return end
	}
	for _, c := range d.calls {
		if c.name == "" {
			end.Code, end.Rule = dsh.CodeProtocol, "a tool call without a name"
			end.Message = "the model called a tool without naming it"
			return end
		}
	}
	end.Kind = kind
	if len(d.calls) > 0 {
		end.Kind = dsh.FinishToolCalls
	} else if kind == dsh.FinishToolCalls {
		end.Kind = dsh.FinishStop
	}
	return end
}

// overflowed reports whether the provider took a request that is too long and
// cut it: its usage is over the window, or nothing came out at the window's
// edge.
func (d *decoder) overflowed(kind dsh.FinishKind) bool {
	if d.window == 0 || d.usage == nil {
		return false
	}
	edge := d.usage.InputTokens*100 >= d.window*99
	return d.usage.InputTokens > d.window || kind == dsh.FinishLength && d.blocks == 0 && edge
}
