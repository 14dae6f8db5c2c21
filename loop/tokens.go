package loop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// bytesPerToken is what a token is taken to be where no provider has counted.
const bytesPerToken = 4

// tokens estimates the tokens of n bytes of text.
func tokens(n int) int64 { return (int64(n) + bytesPerToken - 1) / bytesPerToken }

// anchor is what a provider counted, and for how many bytes of the surface and
// the header: what was on the surface then is counted at its rate.
type anchor struct {
	seq  uint64  // of the last event that was counted
	rate float64 // tokens a byte; 0: no provider has counted yet
}

// minRate and maxRate bound what a provider can make us believe: no tokenizer
// needs more than two tokens for a byte, or less than one for 20.
const (
	minRate = 0.05
	maxRate = 2
)

// anchorAt takes a provider's count of the request that was just answered,
// and of its answer, which comes onto the surface next.
func (s *state) anchorAt(u dsh.Usage) {
	n := headerSize(s.header)
	for _, en := range s.surface {
		n += en.size
	}
	if n == 0 || u.InputTokens <= 0 {
		return
	}
	s.anchor = anchor{s.tail.Seq, min(maxRate, max(minRate, float64(u.InputTokens)/float64(n)))}
}

// tokens estimates the next request: at the provider's own rate what it has
// counted, and four bytes a token what is new.
func (s *state) tokens() int64 {
	counted, fresh := 0, 0
	if s.header != nil {
		counted = headerSize(s.header)
	}
	for _, en := range s.surface {
		if en.seq <= s.anchor.seq {
			counted += en.size
		} else {
			fresh += en.size
		}
	}
	if s.anchor.rate == 0 {
		return tokens(counted + fresh)
	}
	return int64(float64(counted)*s.anchor.rate) + tokens(fresh)
}

// sizeOf is the size of a content's text in bytes. An image counts as what
// providers take one for, about 1,500 tokens.
func sizeOf(content []dsh.Block) int {
	n := 0
	for _, b := range content {
		n += len(b.Text) + len(b.Arguments) + len(b.Name) + len(b.Opaque) + sizeOf(b.Content)
		if b.Type == dsh.BlockImage {
			n += 1500 * bytesPerToken
		}
	}
	return n
}

func headerSize(h *dsh.RequestHeader) int {
	n := len(h.System)
	for _, t := range h.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	return n
}

// largest names the largest parts of the next request and their sizes.
func (s *state) largest() string {
	type part struct {
		name string
		size int
	}
	tools := headerSize(s.header) - len(s.header.System)
	parts := []part{{"the system prompt", len(s.header.System)}, {"the tools' descriptions", tools}}
	for _, en := range s.surface {
		parts = append(parts, part{fmt.Sprintf("the %s's message of event %d", en.message.Role, en.seq), en.size})
	}
	slices.SortStableFunc(parts, func(a, b part) int { return b.size - a.size })
	var said []string
	for _, p := range parts[:min(3, len(parts))] {
		said = append(said, fmt.Sprintf("%s (%d bytes)", p.name, p.size))
	}
	return "the largest parts of the request are " + strings.Join(said, ", ")
}
