package adaptertest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
)

// theBody is a body that no library would write: it is to arrive as it is.
const theBody = `{"model":"o1-mini","temperature":0,"max_tokens":1,"messages":[{"role":"tool","content":"","arguments":""}],  "x":"<&>\u00e9"}`

func testEncode(t *testing.T, s Suite) {
	a := s.New(t, Target{BaseURL: "http://127.0.0.1:1"})
	zero := 0.0
	full := dsh.Request{
		Model:  "gpt-5",
		System: "Be brief.",
		Messages: []dsh.Message{
			{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock("<look> & see"), {Type: dsh.BlockImage, MediaType: "image/png", Data: []byte{1, 2, 3}}}},
			{Role: dsh.RoleAssistant, Content: []dsh.Block{
				{Type: dsh.BlockReasoning, Text: "hm"}, dsh.TextBlock("so"),
				{Type: dsh.BlockToolCall, ID: "c1", Name: "read", Arguments: ""},
				{Type: dsh.BlockToolCall, ID: "c2", Name: "read", Arguments: `{"path": "x`},
			}},
			{Role: dsh.RoleTool, Content: []dsh.Block{{Type: dsh.BlockToolResult, CallID: "c1"}}},
			{Role: dsh.RoleTool, Content: []dsh.Block{{Type: dsh.BlockToolResult, CallID: "c2", Content: []dsh.Block{dsh.TextBlock("no"), {Type: dsh.BlockImage, MediaType: "image/png", Data: []byte{4}}}, IsError: true}}},
			{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock("and?")}},
		},
		Tools:  []dsh.ToolSpec{{Name: "read", Description: "reads", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}}}`)}, {Name: "bare"}},
		Params: dsh.Params{MaxOutputTokens: 100, Temperature: &zero},
	}
	t.Run("stable", func(t *testing.T) {
		first, err := a.Encode(full)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(first) {
			t.Fatalf("no JSON: %s", first)
		}
		for range 20 {
			if again, err := a.Encode(full); err != nil || string(again) != string(first) {
				t.Fatalf("the same request gave\n%s\nand\n%s, %v", first, again, err)
			}
		}
		for _, want := range []string{`"gpt-5"`, `Be brief.`, `<look> & see`, `AQID`, `"temperature":0`, `"c1"`, `"read"`, `and?`} {
			if !strings.Contains(string(first), want) {
				t.Errorf("%s is not in %s", want, first)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		broken := func(change func(*dsh.Request)) dsh.Request {
			r := full
			change(&r)
			return r
		}
		for name, r := range map[string]dsh.Request{
			"no model":        broken(func(r *dsh.Request) { r.Model = "" }),
			"a broken schema": broken(func(r *dsh.Request) { r.Tools = []dsh.ToolSpec{{Name: "x", Schema: json.RawMessage(`{`)}} }),
			"an unknown role": broken(func(r *dsh.Request) { r.Messages = []dsh.Message{{Role: "x"}} }),
			"an unknown block": broken(func(r *dsh.Request) {
				r.Messages = []dsh.Message{{Role: dsh.RoleUser, Content: []dsh.Block{{Type: "x"}}}}
			}),
		} {
			var f *dsh.Failure
			if _, err := a.Encode(r); !errors.As(err, &f) || f.Code != dsh.CodeInvalidRequest {
				t.Errorf("%s: %v, want a *dsh.Failure of INVALID_REQUEST", name, err)
			}
		}
	})
}

func testAnswers(t *testing.T, s Suite) {
	w := s.Wire()
	usage := dsh.Usage{InputTokens: 11, OutputTokens: 7}
	for _, c := range []struct {
		name   string
		pieces []string
		want   result
		kind   dsh.FinishKind
	}{
		{"text", hello(w, "Grüß Gott, 世界 \"quoted\" \\ \n"), result{text: "Grüß Gott, 世界 \"quoted\" \\ \n"}, dsh.FinishStop},
		{"length", []string{w.Begin(), w.Text("cut"), w.End(dsh.FinishLength, usage)}, result{text: "cut"}, dsh.FinishLength},
		{"a tool", []string{w.Begin(), w.ToolCall("c1", "read", `{"path":"a b"}`), w.End(dsh.FinishToolCalls, usage)},
			result{calls: []dsh.Block{{ID: "c1", Name: "read", Arguments: `{"path":"a b"}`}}}, dsh.FinishToolCalls},
		{"text and two tools", []string{w.Begin(), w.Text("so "), w.Text("be it"), w.ToolCall("c1", "read", `{"n":1}`), w.ToolCall("c2", "list", `{"n":2}`), w.End(dsh.FinishToolCalls, usage)},
			result{text: "so be it", calls: []dsh.Block{{ID: "c1", Name: "read", Arguments: `{"n":1}`}, {ID: "c2", Name: "list", Arguments: `{"n":2}`}}}, dsh.FinishToolCalls},
		{"broken arguments", []string{w.Begin(), w.ToolCall("c1", "read", `{"path": "a`), w.End(dsh.FinishToolCalls, usage)},
			result{calls: []dsh.Block{{ID: "c1", Name: "read", Arguments: `{"path": "a`}}}, dsh.FinishToolCalls},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, h2 bool) {
				srv := serve(t, h2, stream(c.pieces...))
				got := send(t.Context(), t, s.New(t, srv.target()), theBody)
				good(t, got, c.want.text)
				sameCalls(t, got.calls, c.want.calls)
				if got.finish == nil || got.finish.Kind != c.kind || got.finish.Usage == nil || *got.finish.Usage != usage {
					t.Errorf("finish %+v, want %s and usage %+v", got.finish, c.kind, usage)
				}
				srv.one(theBody)
			})
		})
	}
	if w.Reasoning("x") != "" {
		t.Run("reasoning", func(t *testing.T) {
			srv := serve(t, false, stream(w.Begin(), w.Reasoning("let me "), w.Reasoning("see"), w.Text("yes"), w.End(dsh.FinishStop, usage)))
			got := send(t.Context(), t, s.New(t, srv.target()), theBody)
			good(t, got, "yes")
			if got.reasoning != "let me see" {
				t.Errorf("reasoning %q", got.reasoning)
			}
		})
		t.Run("reasoning alone is content", func(t *testing.T) {
			srv := serve(t, false, stream(w.Begin(), w.Reasoning("hm"), w.End(dsh.FinishStop, usage)))
			good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), "")
		})
	}
}

func sameCalls(t testing.TB, got, want []dsh.Block) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d tool calls, want %d", len(got), len(want))
		return
	}
	for i := range got {
		if got[i].ID != want[i].ID || got[i].Name != want[i].Name || got[i].Arguments != want[i].Arguments {
			t.Errorf("call %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

// testForms sends one answer in the forms that servers give to a stream.
func testForms(t *testing.T, s Suite) {
	w := s.Wire()
	const text = "one two three"
	whole := strings.Join(hello(w, text), "")
	for name, form := range map[string]string{
		"as it is":              whole,
		"CRLF":                  strings.ReplaceAll(whole, "\n", "\r\n"),
		"byte order mark":       "\ufeff" + whole,
		"no space":              strings.ReplaceAll(strings.ReplaceAll(whole, "data: ", "data:"), "event: ", "event:"),
		"comments":              strings.ReplaceAll(whole, "data: ", ": keep-alive\n:\ndata: "),
		"thousands of comments": strings.Repeat(": keep-alive\n\n", 5000) + whole,
		"keep-alives":           w.Begin() + strings.Repeat(w.KeepAlive(), 500) + strings.TrimPrefix(whole, w.Begin()),
		"no last newline":       strings.TrimRight(whole, "\n"),
		"ids and retries":       "id: 1\nretry: 100\n" + whole,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, false, stream(form))
			good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), text)
		})
	}
	t.Run("byte for byte", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, stream(strings.Split(whole, "")...))
		good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), text)
	})
	t.Run("another content type", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, document(200, "application/json", whole))
		good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), text)
	})
	t.Run("no content type", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, whole)
		})
		good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), text)
	})
	t.Run("connections", func(t *testing.T) { connectionsAfterwards(t, s, whole, text) })
}

// connectionsAfterwards looks at what becomes of a connection after an answer.
func connectionsAfterwards(t *testing.T, s Suite, whole, text string) {
	t.Run("a connection that stays open after the end", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
			stream(whole)(w, r)
			<-r.Context().Done()
		})
		good(t, send(t.Context(), t, s.New(t, srv.target()), theBody), text)
		srv.left()
	})
	t.Run("two answers on one connection", func(t *testing.T) {
		t.Parallel()
		addrs := map[string]bool{}
		srv := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
			addrs[r.RemoteAddr] = true
			stream(whole)(w, r)
		})
		a := s.New(t, srv.target())
		for range 3 {
			good(t, send(t.Context(), t, a, theBody), text)
		}
		if len(addrs) != 1 {
			t.Errorf("3 answers took %d connections", len(addrs))
		}
	})
}
