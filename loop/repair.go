package loop

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
)

// The sizes of a pruning, in characters, where a policy gives none.
const (
	pruneOver = 8192
	pruneHead = 4096
	pruneTail = 1024
)

// repair goes on with the repairs of a decision. A pruning that was done is
// done again without effect; a compaction says in the log that it is done.
func (s *Session) repair(ctx context.Context) error {
	rp := s.state.openStep().repairing
	for i := rp.next; i < len(rp.repairs) && rp.failed == ""; i++ {
		switch r := rp.repairs[i]; {
		case r.Kind == dsh.RepairPrune:
			if err := s.append(ctx, s.prune(r)...); err != nil {
				return err
			}
		case r.IfOverTokens == nil || s.state.tokens() > *r.IfOverTokens:
			return s.startCompaction(ctx, rp, i)
		}
	}
	if rp.hook == dsh.HookBeforeStep {
		return s.send(ctx) // which asks whether it is enough
	}
	w, err := s.asking(s.state.openStep().reply)
	if err != nil {
		return err
	}
	_, err = w.carryOut(ctx, candidate{policy: dsh.PolicyInfo{Name: rp.policy, Digest: rp.digest}, decision: rp.decision, repaired: true, failed: rp.failed})
	return err
}

// prune shortens tool results that are on the surface: head, marker and tail
// stay. The whole result stays in the log.
func (s *Session) prune(r dsh.Repair) []dsh.Draft {
	over, head, tail := orElse(r.OverChars, pruneOver), orElse(r.HeadChars, pruneHead), orElse(r.TailChars, pruneTail)
	var drafts []dsh.Draft
	for _, en := range s.state.surface {
		if en.message.Role != dsh.RoleTool || len(r.Seqs) > 0 && !slices.Contains(r.Seqs, en.seq) {
			continue
		}
		b := en.message.Content[0]
		content, cut := shorten(b.Content, over, head, tail)
		if !cut {
			continue
		}
		drafts = append(drafts, dsh.Draft{
			Type:    dsh.TypeToolResult,
			Data:    dsh.ToolResultEvent{Turn: s.state.turn.n, Step: s.state.turn.step.n, CallID: b.CallID, Content: content, IsError: b.IsError},
			Surface: &dsh.SurfaceOp{Op: dsh.SurfaceReplace, From: en.seq, To: en.seq},
		})
	}
	return drafts
}

// shorten cuts the text blocks of a content that are over a size, where that
// makes them smaller.
func shorten(content []dsh.Block, over, head, tail int) ([]dsh.Block, bool) {
	out, cut := slices.Clone(content), false
	for i, b := range out {
		if b.Type != dsh.BlockText || len(b.Text) <= over {
			continue
		}
		if n := utf8.RuneCountInString(b.Text); n > over {
			if short := middleOut(b.Text, n, head, tail); len(short) < len(b.Text) {
				out[i].Text, cut = short, true
			}
		}
	}
	return out, cut
}

func orElse(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}
