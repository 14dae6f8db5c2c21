package openaichat_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/corpus"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

// result is what a call came to.
type result struct {
	text, reasoning string
	calls           map[int]*dsh.Block
	order           []int
	finish          *dsh.Finish
	err             error
	ends            int
}

// failure is the failure of either delivery.
func (r result) failure() *dsh.Failure {
	if r.finish != nil {
		return r.finish.Failure
	}
	return dsh.AsFailure(r.err)
}

func send(t *testing.T, a dsh.Adapter, ctx context.Context, body string) result {
	t.Helper()
	r := result{calls: map[int]*dsh.Block{}}
	types := map[int]dsh.ChunkType{}
	for c, err := range a.Send(ctx, []byte(body)) {
		if r.ends > 0 {
			t.Fatal("something came after the end")
		}
		if err != nil {
			r.err = err
			r.ends++
			continue
		}
		if was, ok := types[c.Index]; ok && was != c.Type && c.Type != dsh.ChunkFinish {
			t.Fatalf("block %d was %s and is %s", c.Index, was, c.Type)
		}
		switch c.Type {
		case dsh.ChunkText:
			r.text += c.Text
		case dsh.ChunkReasoning:
			r.reasoning += c.Text
		case dsh.ChunkToolCall:
			b := r.calls[c.Index]
			if b == nil {
				b = &dsh.Block{}
				r.calls[c.Index] = b
				r.order = append(r.order, c.Index)
			}
			b.ID += c.ID
			b.Name += c.Name
			b.Arguments += c.Arguments
		case dsh.ChunkFinish:
			r.finish = c.Finish
			r.ends++
			continue
		}
		types[c.Index] = c.Type
	}
	if r.ends != 1 {
		t.Fatalf("%d ends", r.ends)
	}
	return r
}

func adapter(t *testing.T, s openaichat.Settings) *openaichat.Adapter {
	t.Helper()
	a, err := openaichat.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// TestFailuresOverHTTP plays the corpus over real connections.
func TestFailuresOverHTTP(t *testing.T) {
	for _, file := range []string{"failures.jsonl", "benign-streams.jsonl"} {
		cases, err := corpus.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			if c.Wire == "anthropic-messages" || c.Phase == "connect" || c.TransportError == "context canceled" || strings.HasPrefix(c.TransportError, "context deadline") {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				now := c.At(time.Now())
				requests := 0
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					requests++
					for k, v := range now.Headers {
						w.Header().Set(k, v)
					}
					w.WriteHeader(now.Status)
					_, _ = io.WriteString(w, now.Body)
					if c.TransportError != "" {
						_ = http.NewResponseController(w).Flush()
						panic(http.ErrAbortHandler)
					}
				}))
				defer srv.Close()
				a := adapter(t, openaichat.Settings{BaseURL: srv.URL, Key: "sk-canary-000111"})
				r := send(t, a, t.Context(), `{"model":"m"}`)
				f := r.failure()
				for _, wrong := range c.Check(f, c.Dated()) {
					t.Errorf("%s\n%+v\n%s", wrong, f, now.Body)
				}
				if f == nil && c.Expect.Code == nil {
					if r.text != c.Expect.Text {
						t.Errorf("text %q, want %q", r.text, c.Expect.Text)
					}
					if len(r.calls) != c.Expect.ToolCalls {
						t.Errorf("%d tool calls, want %d", len(r.calls), c.Expect.ToolCalls)
					}
				}
				if requests != 1 {
					t.Errorf("%d requests", requests)
				}
			})
		}
	}
}

func TestStopBeatsEverything(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	why := errors.New("the user said so")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for c, err := range adapter(t, openaichat.Settings{BaseURL: srv.URL}).Send(ctx, []byte(`{}`)) {
		if err == nil && c.Text == "a" {
			cancel(why)
			continue
		}
		if !errors.Is(err, dsh.CodeAborted) || !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
}
