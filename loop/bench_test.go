package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// longSession is a log of so many messages: prompts and answers in turn.
func longSession(b *testing.B, messages int) dsh.Log {
	b.Helper()
	log := memory.New()
	w, err := log.Acquire(b.Context(), storyID)
	if err != nil {
		b.Fatal(err)
	}
	tail := dsh.Tail{}
	write := func(drafts ...dsh.Draft) {
		events, err := tail.SealAll(time.UnixMilli(1767225600000), drafts...)
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Append(b.Context(), events...); err != nil {
			b.Fatal(err)
		}
		tail = events[len(events)-1].Tail()
	}
	onSurface := &dsh.SurfaceOp{Op: dsh.SurfaceAppend}
	write(dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: storyID, Cwd: "/w"}})
	for n := 1; n <= messages/2; n++ {
		text := fmt.Sprintf("message %d of the conversation, as long as a sentence usually is", n)
		write(
			dsh.Draft{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: n}},
			dsh.Draft{Type: dsh.TypeUserMessage, Data: dsh.UserMessage{ID: "u", Content: []dsh.Block{dsh.TextBlock(text)}}, Surface: onSurface},
			dsh.Draft{Type: dsh.TypeStepStart, Data: dsh.StepStart{Turn: n, Step: 1}},
			dsh.Draft{Type: dsh.TypeRequestHeader, Data: dsh.RequestHeader{Turn: n, Step: 1, Provider: "mock", Model: "m-1"}},
			dsh.Draft{Type: dsh.TypeAttemptStart, Data: dsh.AttemptStart{Turn: n, Step: 1, Attempt: 1, Purpose: dsh.PurposeReply, Provider: "mock", Model: "m-1"}},
			dsh.Draft{Type: dsh.TypeAttemptEnd, Data: dsh.AttemptEnd{Turn: n, Step: 1, Attempt: 1, Finish: dsh.Finish{Kind: dsh.FinishStop}}},
			dsh.Draft{Type: dsh.TypeAssistantMessage, Data: dsh.AssistantMessage{Turn: n, Step: 1, Attempt: 1, ID: "a", Content: []dsh.Block{dsh.TextBlock(text)}, Provider: "mock", Model: "m-1"}, Surface: onSurface},
			dsh.Draft{Type: dsh.TypeStepEnd, Data: dsh.StepEnd{Turn: n, Step: 1}},
			dsh.Draft{Type: dsh.TypeTurnEnd, Data: dsh.TurnEnd{Turn: n, Reason: dsh.EndReason{Kind: dsh.EndCompleted}}},
		)
	}
	if err := w.Release(b.Context()); err != nil {
		b.Fatal(err)
	}
	return log
}

// BenchmarkFold opens a session of so many messages: from its log alone, and
// from a snapshot with what came after it.
func BenchmarkFold(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		log := longSession(b, n)
		p := (&story{}).play(log)
		b.Run(fmt.Sprintf("log/messages=%d", n), func(b *testing.B) { benchmarkOpen(b, log, p, n) })
		s, err := loop.Open(context.Background(), log, storyID, p.config(loop.Front{}))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Prompt(b.Context(), []dsh.Block{dsh.TextBlock("go on")}); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		if kept, err := log.Snapshot(b.Context(), storyID); err != nil || n >= 10000 && kept.Tail.Seq == 0 {
			b.Fatal("no snapshot", err)
		}
		b.Run(fmt.Sprintf("snapshot/messages=%d", n), func(b *testing.B) { benchmarkOpen(b, log, p, n) })
	}
}

func benchmarkOpen(b *testing.B, log dsh.Log, p *play, n int) {
	for b.Loop() {
		s, err := loop.Open(context.Background(), log, storyID, p.config(loop.Front{}))
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/message")
}
