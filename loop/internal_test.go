package loop

import (
	"fmt"
	"testing"

	"github.com/dsh-agent/dsh"
)

// BenchmarkRequest builds the request of a surface of so many messages.
func BenchmarkRequest(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("messages=%d", n), func(b *testing.B) {
			s := state{header: &dsh.RequestHeader{Provider: "mock", Model: "m-1", System: "be brief"}}
			for i := range n {
				role := dsh.RoleUser
				if i%2 == 1 {
					role = dsh.RoleAssistant
				}
				content := []dsh.Block{dsh.TextBlock(fmt.Sprintf("message %d of the conversation", i))}
				s.surface = append(s.surface, entry{seq: uint64(i + 1), message: dsh.Message{Role: role, Content: content}, size: sizeOf(content)})
			}
			b.ResetTimer()
			for range b.N {
				if req := s.request(); len(req.Messages) != n {
					b.Fatal(len(req.Messages))
				}
				if s.tokens() == 0 {
					b.Fatal("no tokens")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/message")
		})
	}
}

// FuzzSnapshot reads damaged snapshots: none makes the fold stop, and none
// takes more memory than it has bytes for.
func FuzzSnapshot(f *testing.F) {
	s := state{turn: &turn{n: 3, end: &dsh.EndReason{Kind: dsh.EndCompleted}}, surface: []entry{
		{seq: 2, message: dsh.Message{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock("hi")}}},
		{seq: 5, provider: "p", model: "m", message: dsh.Message{Role: dsh.RoleTool, Content: []dsh.Block{{Type: dsh.BlockToolResult, CallID: "c", Content: []dsh.Block{dsh.TextBlock("r")}}}}},
	}}
	data, err := s.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(dsh.Snapshot{Tail: dsh.Tail{Seq: 9}, Data: data})
		if err != nil {
			return
		}
		again, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState(dsh.Snapshot{Data: again}); err != nil {
			t.Fatalf("what was read cannot be written and read: %v", err)
		}
	})
}
