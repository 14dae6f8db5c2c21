package anthropic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/anthropic"
	"github.com/dsh-agent/dsh/adapters/internal/corpus"
)

// TestFailures plays the corpus, recorded and over real connections.
func TestFailures(t *testing.T) {
	for _, file := range []string{"failures.jsonl", "benign-streams.jsonl"} {
		cases, err := corpus.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			if c.Wire != "anthropic-messages" || c.Phase == "connect" {
				continue
			}
			t.Run(c.ID, func(t *testing.T) {
				t.Parallel()
				now := c.At(time.Now())
				if c.TransportError == "" {
					f, rule := anthropic.Classify(now.Status, now.Header(), []byte(now.Body))
					for _, wrong := range c.Check(f, c.Dated()) {
						t.Errorf("recorded: %s (by %s)\n%s", wrong, rule, now.Body)
					}
				}
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
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
				a, err := anthropic.New(anthropic.Settings{BaseURL: srv.URL})
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				var f *dsh.Failure
				text, calls := "", 0
				for ch, err := range a.Send(t.Context(), []byte(`{}`)) {
					switch {
					case err != nil:
						f = dsh.AsFailure(err)
					case ch.Finish != nil:
						f = ch.Finish.Failure
					case ch.Type == dsh.ChunkText:
						text += ch.Text
					case ch.ID != "":
						calls++
					}
				}
				for _, wrong := range c.Check(f, c.Dated()) {
					t.Errorf("%s\n%+v\n%s", wrong, f, now.Body)
				}
				if c.Expect.Code == nil && (text != c.Expect.Text || calls != c.Expect.ToolCalls) {
					t.Errorf("text %q and %d calls, want %q and %d", text, calls, c.Expect.Text, c.Expect.ToolCalls)
				}
			})
		}
	}
}
