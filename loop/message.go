package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// makeMessage makes the assistant's message of an attempt that ended well, of
// its chunks in the log and of nothing else.
func (s *Session) makeMessage(ctx context.Context) error {
	a := s.state.openStep().attempt
	content, seqs, err := assemble(a.chunks)
	if err != nil {
		return err
	}
	if a.end.Finish.Kind == dsh.FinishLength {
		// The last call may be cut anywhere, and be valid all the same.
		content = slices.DeleteFunc(content, func(b dsh.Block) bool { return b.Type == dsh.BlockToolCall })
	}
	nameCalls(content, a.Turn, a.Step)
	m := dsh.AssistantMessage{
		Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, ID: newID(), Content: content, Usage: a.end.Usage,
		Provider: a.Provider, Model: a.Model, SourceSeqs: seqs,
	}
	return s.append(ctx, dsh.Draft{Type: dsh.TypeAssistantMessage, Data: m, Surface: onSurface()})
}

// part is a block in the making.
type part struct {
	index int
	block dsh.Block
	text  strings.Builder
}

// assemble puts the chunks of one attempt together into blocks, ordered by
// index. A block that stayed empty is left out.
func assemble(chunks []dsh.Event) ([]dsh.Block, []uint64, error) {
	var parts []*part
	seqs := make([]uint64, 0, len(chunks))
	for _, e := range chunks {
		var d dsh.AssistantChunk
		if err := e.Decode(&d); err != nil {
			return nil, nil, err
		}
		seqs = append(seqs, e.Seq)
		kind := blockType(d.Chunk.Type)
		i := slices.IndexFunc(parts, func(p *part) bool { return p.index == d.Chunk.Index && p.block.Type == kind })
		if i < 0 {
			i = len(parts)
			parts = append(parts, &part{index: d.Chunk.Index, block: dsh.Block{Type: kind}})
		}
		parts[i].add(d.Chunk)
	}
	slices.SortStableFunc(parts, func(a, b *part) int { return a.index - b.index })
	content := []dsh.Block{}
	for _, p := range parts {
		if b := p.done(); b.Text != "" || b.Opaque != nil || b.Type == dsh.BlockToolCall {
			content = append(content, b)
		}
	}
	return content, seqs, nil
}

func blockType(t dsh.ChunkType) dsh.BlockType {
	switch t {
	case dsh.ChunkReasoning:
		return dsh.BlockReasoning
	case dsh.ChunkToolCall:
		return dsh.BlockToolCall
	}
	return dsh.BlockText
}

func (p *part) add(c dsh.Chunk) {
	p.text.WriteString(c.Text)
	p.text.WriteString(c.Arguments)
	if c.ID != "" {
		p.block.ID = c.ID
	}
	if c.Name != "" {
		p.block.Name = c.Name
	}
	if c.Opaque != nil {
		p.block.Opaque = c.Opaque
	}
}

func (p *part) done() dsh.Block {
	if p.block.Type == dsh.BlockToolCall {
		p.block.Arguments = p.text.String()
	} else {
		p.block.Text = p.text.String()
	}
	return p.block
}

// nameCalls gives an id to calls that have none, or that of another: each
// result must find its call.
func nameCalls(content []dsh.Block, turn, step int) {
	seen := map[string]bool{}
	for i := range content {
		b := &content[i]
		if b.Type != dsh.BlockToolCall {
			continue
		}
		for n := i; b.ID == "" || seen[b.ID]; n++ {
			b.ID = fmt.Sprintf("call_%d_%d_%d", turn, step, n)
		}
		seen[b.ID] = true
	}
}

// arguments are a call's arguments as a tool gets them: an object. Nothing
// at all is an empty one.
func arguments(raw string) (json.RawMessage, error) {
	if strings.TrimSpace(raw) == "" {
		return json.RawMessage("{}"), nil
	}
	var value any
	if err := json.Unmarshal([]byte(raw), &value); err != nil {
		return nil, fmt.Errorf("the arguments are no valid JSON: %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("the arguments must be one JSON object, and are another kind of value")
	}
	return json.RawMessage(raw), nil
}
