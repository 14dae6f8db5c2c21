package loop_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// benchTool takes a while, as a read of a disk does, and changes something or
// does not.
type benchTool struct {
	takes    time.Duration
	readOnly bool
}

func (t benchTool) Spec() dsh.ToolSpec {
	return dsh.ToolSpec{Name: "t", Description: "t", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`), ReadOnly: t.readOnly}
}

func (t benchTool) Run(context.Context, json.RawMessage) (dsh.ToolResult, error) {
	if t.takes > 0 {
		time.Sleep(t.takes)
	}
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock("a line")}}, nil
}

// BenchmarkTools is an answer that calls a tool ten times: what the loop takes
// for a call of a tool that takes no time, on a log in memory, and ten reads of
// 2 ms side by side against ten that run one after the other.
func BenchmarkTools(b *testing.B) {
	for _, c := range []struct {
		name string
		tool benchTool
	}{
		{"dispatch", benchTool{0, false}},
		{"in-turn", benchTool{2 * time.Millisecond, false}},
		{"side-by-side", benchTool{2 * time.Millisecond, true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			const calls = 10
			call := reply{Finish: dsh.FinishToolCalls}
			for i := range calls {
				call.Chunks = append(call.Chunks, dsh.Chunk{Type: dsh.ChunkToolCall, Index: i, ID: fmt.Sprint("c", i), Name: "t", Arguments: fmt.Sprintf(`{"path":"%d"}`, i)})
			}
			var spent time.Duration
			for b.Loop() {
				p := (&story{steps: []reply{call, {Text: []string{"done"}}}}).play(memory.New())
				var began time.Time
				first := true
				cfg := p.config(loop.Front{Event: func(e dsh.Event) error {
					switch e.Type {
					case dsh.TypeAssistantMessage:
						began = time.Now()
					case dsh.TypeStepEnd:
						if first { // the one with the calls
							spent += time.Since(began)
						}
						first = false
					}
					return nil
				}})
				cfg.Tools = []dsh.Tool{c.tool}
				s, err := loop.Create(b.Context(), p.log, dsh.SessionStart{ID: storyID, Cwd: "/w"}, cfg)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Prompt(b.Context(), []dsh.Block{dsh.TextBlock("go")}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(spent.Microseconds())/float64(b.N)/calls, "µs/call")
		})
	}
}
