package anthropic

import (
	"bytes"
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

// The wire forms of an answer, as far as they are read.
type (
	event struct {
		Type         string          `json:"type"`
		Index        int             `json:"index"`
		Message      *answer         `json:"message"`
		ContentBlock *block          `json:"content_block"`
		Delta        delta           `json:"delta"`
		Usage        *usage          `json:"usage"`
		Error        json.RawMessage `json:"error"`
	}
	answer struct {
		Type       string  `json:"type"`
		Content    []block `json:"content"`
		StopReason string  `json:"stop_reason"`
		Usage      *usage  `json:"usage"`
	}
	block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		Signature string          `json:"signature"`
		Data      string          `json:"data"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
	}
	delta struct {
		Type        string `json:"type"`
		Text        string `json:"text"`
		Thinking    string `json:"thinking"`
		Signature   string `json:"signature"`
		PartialJSON string `json:"partial_json"`
		StopReason  string `json:"stop_reason"`
		StopDetails *struct {
			Category    string `json:"category"`
			Explanation string `json:"explanation"`
		} `json:"stop_details"`
	}
	usage struct {
		Input      *int64 `json:"input_tokens"`
		Output     *int64 `json:"output_tokens"`
		CacheRead  *int64 `json:"cache_read_input_tokens"`
		CacheWrite *int64 `json:"cache_creation_input_tokens"`
		Details    struct {
			Thinking *int64 `json:"thinking_tokens"`
		} `json:"output_tokens_details"`
	}
)

// A decoder reads one answer. It keeps no text, only where it is.
type decoder struct {
	window int64
	chunks []dsh.Chunk // reused
	plain  repeat.Frame
	at     int // the block of the plain frame

	open   map[int]*part // the blocks that have begun and not stopped, by the provider's index
	next   int           // the index of our next block
	blocks int           // with something in them

	calls    int
	nameless bool // a call came without a name

	reason string
	why    string // the provider's words for the reason
	done   bool
	counts counts
}

// A part is a block under way.
type part struct {
	kind      string
	chunk     int // our index
	signature string
	input     json.RawMessage // what a tool's call began with
	said      bool            // something was told of it
}

// counts are the last values of each count of a usage.
type counts struct {
	any                                bool
	in, out, cached, written, thinking int64
}

func newDecoder(window int64) *decoder { return &decoder{window: window, open: map[int]*part{}} }

// Event takes one event: see wire.Decoder.
func (d *decoder) Event(name, data []byte) ([]dsh.Chunk, error) {
	d.chunks = d.chunks[:0]
	if text, ok := d.plain.Match(data); ok && !d.done {
		d.chunks = append(d.chunks, dsh.Chunk{Type: dsh.ChunkText, Index: d.at, Text: text})
		return d.chunks, nil
	}
	if string(bytes.TrimSpace(data)) == "[DONE]" { // some gateways end with OpenAI's terminal
		return nil, nil
	}
	var e event
	if err := json.Unmarshal(data, &e); err != nil {
		if string(name) == "error" {
			return nil, &wire.Reported{Body: data}
		}
		return nil, &wire.Broken{What: err.Error()}
	}
	d.plain.Forget()
	if e.Type == "error" || string(name) == "error" || len(e.Error) > 0 && string(e.Error) != "null" {
		return nil, &wire.Reported{Body: data}
	}
	if err := d.event(&e); err != nil {
		return nil, err
	}
	if e.Type == "content_block_delta" && e.Delta.Type == "text_delta" && len(d.chunks) == 1 {
		d.at = d.chunks[0].Index
		d.plain.Learn(data, `"text":"`, e.Delta.Text)
	}
	return d.chunks, nil
}

func (d *decoder) event(e *event) error {
	switch e.Type {
	case "message_start":
		if e.Message != nil {
			d.counts.add(e.Message.Usage)
		}
	case "content_block_start":
		if e.ContentBlock == nil {
			return broken("a block begins without one")
		}
		p := &part{kind: e.ContentBlock.Type, chunk: d.next}
		d.next++
		d.open[e.Index] = p
		d.begin(p, e.ContentBlock)
	case "content_block_delta":
		p := d.open[e.Index]
		if p == nil {
			return broken(fmt.Sprintf("a piece of block %d, which has not begun", e.Index))
		}
		d.delta(p, &e.Delta)
	case "content_block_stop":
		if p := d.open[e.Index]; p != nil {
			d.stop(p)
			delete(d.open, e.Index)
		}
	case "message_delta":
		if e.Delta.StopReason != "" {
			d.reason = e.Delta.StopReason
			if x := e.Delta.StopDetails; x != nil {
				d.why = strings.TrimSpace(x.Category + " " + x.Explanation)
			}
		}
		d.counts.add(e.Usage)
	case "message_stop":
		if d.reason == "" && d.blocks == 0 && !d.counts.any {
			return broken("the end of an answer that has not begun")
		}
		d.done = true
	}
	return nil // ping, and what the protocol may have one day
}

func broken(what string) error {
	return &wire.Failed{Code: dsh.CodeProtocol, Message: "the answer is broken: " + what, Rule: "an event out of order"}
}

// begin takes the beginning of a block, which holds all of it where a gateway
// does not stream.
func (d *decoder) begin(p *part, b *block) {
	switch b.Type {
	case "text":
		d.add(p, dsh.Chunk{Type: dsh.ChunkText, Text: b.Text}, b.Text != "")
	case "thinking":
		p.signature = b.Signature
		d.add(p, dsh.Chunk{Type: dsh.ChunkReasoning, Text: b.Thinking}, b.Thinking != "")
	case "redacted_thinking":
		if raw, err := dsh.JSON(opaque{Redacted: b.Data}); err == nil {
			d.add(p, dsh.Chunk{Type: dsh.ChunkReasoning, Opaque: raw}, true)
		}
	case "tool_use":
		if s := string(bytes.TrimSpace(b.Input)); s != "" && s != "{}" && s != "null" {
			p.input = bytes.Clone(b.Input)
		}
		d.calls++
		d.nameless = d.nameless || b.Name == ""
		d.add(p, dsh.Chunk{Type: dsh.ChunkToolCall, ID: b.ID, Name: b.Name}, true)
	default:
		d.blocks++ // a block of a kind that nobody here asked for is content nevertheless
	}
}

func (d *decoder) delta(p *part, t *delta) {
	switch t.Type {
	case "text_delta":
		d.add(p, dsh.Chunk{Type: dsh.ChunkText, Text: t.Text}, t.Text != "" && p.kind == "text")
	case "thinking_delta":
		d.add(p, dsh.Chunk{Type: dsh.ChunkReasoning, Text: t.Thinking}, t.Thinking != "" && p.kind == "thinking")
	case "signature_delta":
		p.signature += t.Signature
	case "input_json_delta":
		if t.PartialJSON != "" && p.kind == "tool_use" {
			p.input = nil
			d.add(p, dsh.Chunk{Type: dsh.ChunkToolCall, Arguments: t.PartialJSON}, true)
		}
	}
}

// stop takes the end of a block: what is known only then is told.
func (d *decoder) stop(p *part) {
	if p.signature != "" {
		if raw, err := dsh.JSON(opaque{Signature: p.signature}); err == nil {
			d.add(p, dsh.Chunk{Type: dsh.ChunkReasoning, Opaque: raw}, true)
		}
	}
	if p.input != nil {
		var c bytes.Buffer
		if json.Compact(&c, p.input) == nil {
			d.add(p, dsh.Chunk{Type: dsh.ChunkToolCall, Arguments: c.String()}, true)
		}
	}
}

// add tells a chunk of a block, if it says something.
func (d *decoder) add(p *part, c dsh.Chunk, something bool) {
	if !something {
		return
	}
	if !p.said {
		p.said = true
		d.blocks++
	}
	c.Index = p.chunk
	d.chunks = append(d.chunks, c)
}

// Document takes an answer that is no stream: see wire.Decoder.
func (d *decoder) Document(data []byte) ([]dsh.Chunk, error) {
	var a answer
	dec := json.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&a); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &wire.Broken{What: "its JSON ends in the middle"}
	case err != nil && !isType(err):
		return nil, &wire.Failed{Code: dsh.CodeProtocol, Message: "the answer is no JSON: " + err.Error(), Rule: "a broken document"}
	case err != nil || a.Type != "message":
		return nil, &wire.Reported{Body: data}
	}
	d.counts.add(a.Usage)
	for i := range a.Content {
		p := &part{kind: a.Content[i].Type, chunk: d.next}
		d.next++
		d.begin(p, &a.Content[i])
		d.stop(p)
	}
	d.reason, d.done = a.StopReason, true
	return d.chunks, nil
}

func isType(err error) bool {
	var t *json.UnmarshalTypeError
	return errors.As(err, &t)
}

// add takes a usage: counts that it does not have stay.
func (c *counts) add(u *usage) {
	if u == nil {
		return
	}
	c.any = true
	for _, f := range []struct {
		from *int64
		to   *int64
	}{{u.Input, &c.in}, {u.Output, &c.out}, {u.CacheRead, &c.cached}, {u.CacheWrite, &c.written}, {u.Details.Thinking, &c.thinking}} {
		if f.from != nil {
			*f.to = max(*f.from, 0)
		}
	}
}

// usage is the whole: Anthropic's input_tokens are those that no cache had.
func (c *counts) usage() *dsh.Usage {
	if !c.any {
		return nil
	}
	return &dsh.Usage{InputTokens: c.in + c.cached + c.written, OutputTokens: c.out, CachedInputTokens: c.cached, ReasoningTokens: c.thinking}
}

// State says how far the answer is: see wire.Decoder. A stop reason is not
// enough: the protocol has a terminal, and every stream that is whole has it.
func (d *decoder) State() wire.State {
	if d.done {
		return wire.Closed
	}
	return wire.Open
}

// End says how it ended: see wire.Decoder.
func (d *decoder) End() wire.End {
	end := wire.End{Usage: d.counts.usage()}
	kind, code := fault.FinishReason(d.reason)
	switch {
	case code != "":
		end.Code, end.Rule = code, "stop reason "+d.reason
		end.Message = "the model ended with the stop reason " + d.reason
		if d.why != "" {
			end.Message += ": " + d.why
		}
	case d.overflowed(kind, end.Usage):
		end.Code, end.Rule = dsh.CodeContextWindow, "a silent overflow"
		end.Message = fmt.Sprintf("the request has %d tokens and the model a window of %d: the provider cut it without saying so", end.Usage.InputTokens, d.window)
	case kind != dsh.FinishLength && d.blocks == 0:
		end.Code, end.Rule = dsh.CodeEmptyResponse, "no content block"
		end.Message = "the model ended without any content"
	case kind != dsh.FinishLength && d.nameless:
		end.Code, end.Rule = dsh.CodeProtocol, "a tool call without a name"
		end.Message = "the model called a tool without naming it"
	case kind == dsh.FinishLength:
		end.Kind = kind
	case d.calls > 0:
		end.Kind = dsh.FinishToolCalls
	default:
		end.Kind = dsh.FinishStop
	}
	return end
}

func (d *decoder) overflowed(kind dsh.FinishKind, u *dsh.Usage) bool {
	if d.window == 0 || u == nil {
		return false
	}
	return u.InputTokens > d.window || kind == dsh.FinishLength && d.blocks == 0 && u.InputTokens*100 >= d.window*99
}
