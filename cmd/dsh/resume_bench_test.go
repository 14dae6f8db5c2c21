//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/store/badger"
)

// BenchmarkResume is a dsh that goes on with a session of 1,000,000 events, as
// a process: with the snapshot that its last turn has left, and without one. It
// stands beside the same in a session of two turns.
func BenchmarkResume(b *testing.B) {
	w, err := newWorld(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	if err := w.play(scripted.Step{Do: scripted.Text, Text: "the answer is 42", Times: -1}); err != nil {
		b.Fatal(err)
	}
	data := filepath.Join(w.dir, "home", "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		b.Fatal(err)
	}
	long, short := dsh.SessionID("long"), dsh.SessionID("short")
	writeSessions(b, data, w.dir, map[dsh.SessionID]int{long: 1_000_000, short: 1_000})
	turn := func(b *testing.B, id dsh.SessionID) time.Duration {
		c := exec.CommandContext(b.Context(), "dsh", "run", "--resume", string(id), "go on")
		c.Dir, c.Env = w.dir, append(os.Environ(), w.env...)
		began := time.Now()
		if out, err := c.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("42")) {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	run := func(id dsh.SessionID, before func()) func(b *testing.B) {
		return func(b *testing.B) {
			var walls []time.Duration
			for b.Loop() {
				before()
				walls = append(walls, turn(b, id))
			}
			slices.Sort(walls)
			b.ReportMetric(float64(walls[len(walls)/2])/float64(time.Millisecond), "ms/run")
		}
	}
	turn(b, short)
	turn(b, long)
	b.Run("short", run(short, func() {}))
	b.Run("long", run(long, func() {}))
	b.Run("without", run(long, func() {
		if err := os.RemoveAll(filepath.Join(data, "snapshots")); err != nil {
			b.Fatal(err)
		}
	}))
}

// writeSessions fills a data folder with sessions of so many events: turns with
// an answer of a thousand chunks each.
func writeSessions(b *testing.B, dir, cwd string, sizes map[dsh.SessionID]int) {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for id, n := range sizes {
		if err := writeSession(b, log, id, cwd, n); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}

func writeSession(b *testing.B, log dsh.Log, id dsh.SessionID, cwd string, n int) error {
	w, err := log.Acquire(b.Context(), id)
	if err != nil {
		return err
	}
	var tail dsh.Tail
	at := time.UnixMilli(1_790_000_000_000)
	write := func(drafts ...dsh.Draft) error {
		events, err := tail.SealAll(at, drafts...)
		if err != nil {
			return err
		}
		tail = events[len(events)-1].Tail()
		return w.Append(b.Context(), events...)
	}
	if err := write(dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: cwd, Title: "a long one"}}); err != nil {
		return err
	}
	for turn := 1; tail.Seq < uint64(n); turn++ {
		if err := write(longTurn(turn)...); err != nil {
			return err
		}
	}
	return w.Release(b.Context())
}

func longTurn(n int) []dsh.Draft {
	on := &dsh.SurfaceOp{Op: dsh.SurfaceAppend}
	text := []dsh.Block{dsh.TextBlock(fmt.Sprintf("sentence %d of a conversation that goes on for long", n))}
	drafts := []dsh.Draft{
		{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: n}},
		{Type: dsh.TypeUserMessage, Data: dsh.UserMessage{ID: "u", Content: text}, Surface: on},
		{Type: dsh.TypeStepStart, Data: dsh.StepStart{Turn: n, Step: 1}},
		{Type: dsh.TypeRequestHeader, Data: dsh.RequestHeader{Turn: n, Step: 1, Provider: "test", Model: "test-model"}},
		{Type: dsh.TypeAttemptStart, Data: dsh.AttemptStart{Turn: n, Step: 1, Attempt: 1, Purpose: dsh.PurposeReply, Provider: "test", Model: "test-model"}},
	}
	for range 1000 {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeAssistantChunk, Data: dsh.AssistantChunk{Turn: n, Step: 1, Attempt: 1, Chunk: dsh.Chunk{Type: dsh.ChunkText, Text: "four"}}})
	}
	return append(drafts,
		dsh.Draft{Type: dsh.TypeAttemptEnd, Data: dsh.AttemptEnd{Turn: n, Step: 1, Attempt: 1, Finish: dsh.Finish{Kind: dsh.FinishStop}}},
		dsh.Draft{Type: dsh.TypeAssistantMessage, Data: dsh.AssistantMessage{Turn: n, Step: 1, Attempt: 1, ID: "a", Content: text, Provider: "test", Model: "test-model"}, Surface: on},
		dsh.Draft{Type: dsh.TypeStepEnd, Data: dsh.StepEnd{Turn: n, Step: 1}},
		dsh.Draft{Type: dsh.TypeTurnEnd, Data: dsh.TurnEnd{Turn: n, Reason: dsh.EndReason{Kind: dsh.EndCompleted}}})
}
