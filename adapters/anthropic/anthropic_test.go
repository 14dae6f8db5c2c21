package anthropic_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/anthropic"
)

func adapter(t *testing.T, s anthropic.Settings) *anthropic.Adapter {
	t.Helper()
	a, err := anthropic.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// TestEncode holds bodies to the byte: a body that changes with a version of
// dsh breaks the sessions of an earlier one.
func TestEncode(t *testing.T) {
	half := 0.5
	user := func(b ...dsh.Block) dsh.Message { return dsh.Message{Role: dsh.RoleUser, Content: b} }
	assistant := func(b ...dsh.Block) dsh.Message { return dsh.Message{Role: dsh.RoleAssistant, Content: b} }
	result := func(id string, isError bool, b ...dsh.Block) dsh.Message {
		return dsh.Message{Role: dsh.RoleTool, Content: []dsh.Block{{Type: dsh.BlockToolResult, CallID: id, Content: b, IsError: isError}}}
	}
	call := func(id, arguments string) dsh.Block {
		return dsh.Block{Type: dsh.BlockToolCall, ID: id, Name: "f", Arguments: arguments}
	}
	image := dsh.Block{Type: dsh.BlockImage, MediaType: "image/png", Data: []byte("png")}
	text := dsh.TextBlock
	for _, c := range []struct {
		name, url string
		r         dsh.Request
		want      string
	}{
		{"the least", "", dsh.Request{Model: "m"}, `{"model":"m","max_tokens":32000,"messages":[],"stream":true}`},
		{"Anthropic's cache", "https://api.anthropic.com", dsh.Request{Model: "m"}, `{"model":"m","max_tokens":32000,"messages":[],"cache_control":{"type":"ephemeral"},"stream":true}`},
		{"everything", "", dsh.Request{Model: "m", System: "s & s", Messages: []dsh.Message{user(text("x"), image)}, Params: dsh.Params{MaxOutputTokens: 9, Temperature: &half},
			Tools: []dsh.ToolSpec{{Name: "f", Description: "d", Schema: json.RawMessage(`{"type":"object"}`)}, {Name: "g"}}},
			`{"model":"m","max_tokens":9,"system":"s & s","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}]}],"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object","properties":{}}}],"temperature":0.5,"stream":true}`},
		{"results join, and the next words with them", "", dsh.Request{Model: "m", Messages: []dsh.Message{
			user(text("x")), assistant(text("so"), call("1", ""), call("2", `{"a": `), call("3", `{"a":1}`)), result("1", false), result("2", true, text("bad")), result("3", false, image), user(text("and?"))}},
			`{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"text","text":"so"},{"type":"tool_use","id":"1","name":"f","input":{}},{"type":"tool_use","id":"2","name":"f","input":{"invalid_json":"{\"a\": "}},{"type":"tool_use","id":"3","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"bad"}],"is_error":true},{"type":"tool_result","tool_use_id":"3","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"cG5n"}}]},{"type":"text","text":"and?"}]}],"stream":true}`},
		{"reasoning goes back signed, or not", "", dsh.Request{Model: "m", Messages: []dsh.Message{assistant(
			dsh.Block{Type: dsh.BlockReasoning, Text: "hm", Opaque: json.RawMessage(`{"signature":"s"}`)},
			dsh.Block{Type: dsh.BlockReasoning, Opaque: json.RawMessage(`{"redacted":"r"}`)},
			dsh.Block{Type: dsh.BlockReasoning, Text: "unsigned"},
			dsh.Block{Type: dsh.BlockReasoning, Text: "another's", Opaque: json.RawMessage(`[{"type":"reasoning.text"}]`)}, text("y"))}},
			`{"model":"m","max_tokens":32000,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"r"},{"type":"text","text":"y"}]}],"stream":true}`},
		{"nothing to say", "", dsh.Request{Model: "m", Messages: []dsh.Message{user(text("x")), assistant(text(" ")), assistant(), user(text("y"))}},
			`{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}],"stream":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.url == "" {
				c.url = "http://127.0.0.1:1"
			}
			got, err := adapter(t, anthropic.Settings{BaseURL: c.url}).Encode(c.r)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

const (
	start = `data: {"type":"message_start","message":{"usage":{"input_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":1}}}` + "\n\n"
	end   = `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
)

func begin(i int, block string) string {
	return event("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":%s`, i, block))
}

func delta(i int, d string) string {
	return event("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":%s`, i, d))
}

func halt(i int) string { return event("content_block_stop", fmt.Sprintf(`,"index":%d`, i)) }

// read sends one request, and tells the answer in one line.
func read(t *testing.T, kind, body string) (string, *dsh.Usage) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	defer srv.Close()
	var out strings.Builder
	var usage *dsh.Usage
	at, last := -1, ""
	for c, err := range adapter(t, anthropic.Settings{BaseURL: srv.URL}).Send(t.Context(), []byte(`{}`)) {
		switch {
		case err != nil:
			last = string(dsh.AsFailure(err).Code)
			continue
		case c.Finish != nil:
			last, usage = string(c.Finish.Kind), c.Finish.Usage
			if c.Finish.Failure != nil {
				last = string(c.Finish.Failure.Code)
			}
			continue
		}
		if c.Index != at {
			fmt.Fprintf(&out, "%s%d:", c.Type, c.Index)
			at = c.Index
		}
		if c.ID+c.Name != "" {
			out.WriteString("<" + c.ID + ">" + c.Name)
		}
		out.WriteString(c.Text + c.Arguments + string(c.Opaque) + " ")
	}
	return out.String() + "| " + last, usage
}

func TestStreams(t *testing.T) {
	textBlock, textDelta := `{"type":"text","text":""}`, func(s string) string { return `{"type":"text_delta","text":` + quote(s) + `}` }
	for _, c := range []struct{ name, body, want string }{
		{"text", start + begin(0, textBlock) + delta(0, textDelta("a")) + delta(0, textDelta("b")) + delta(0, textDelta("ü\n")) + halt(0) + end, "text0:a b ü\n | stop"},
		{"thinking, signed", start + begin(0, `{"type":"thinking","thinking":"","signature":""}`) + delta(0, `{"type":"thinking_delta","thinking":"hm"}`) + delta(0, `{"type":"signature_delta","signature":"s1"}`) + delta(0, `{"type":"signature_delta","signature":"s2"}`) + halt(0) + begin(1, textBlock) + delta(1, textDelta("a")) + halt(1) + end,
			`reasoning0:hm {"signature":"s1s2"} text1:a | stop`},
		{"thinking, redacted", start + begin(0, `{"type":"redacted_thinking","data":"zz"}`) + halt(0) + begin(1, textBlock) + delta(1, textDelta("a")) + halt(1) + end, `reasoning0:{"redacted":"zz"} text1:a | stop`},
		{"a call without pieces", start + begin(0, `{"type":"tool_use","id":"1","name":"f","input":{"a": 1}}`) + halt(0) + end, `tool-call0:<1>f {"a":1} | tool-calls`},
		{"a call without arguments", start + begin(0, `{"type":"tool_use","id":"1","name":"f","input":{}}`) + delta(0, `{"type":"input_json_delta","partial_json":""}`) + halt(0) + end, `tool-call0:<1>f | tool-calls`},
		{"interleaved", start + begin(0, textBlock) + begin(1, `{"type":"tool_use","id":"1","name":"f","input":{}}`) + delta(0, textDelta("a")) + delta(1, `{"type":"input_json_delta","partial_json":"{}"}`) + delta(0, textDelta("b")) + halt(0) + halt(1) + end,
			`tool-call1:<1>f text0:a tool-call1:{} text0:b | tool-calls`},
		{"a block of tomorrow", start + begin(0, `{"type":"hologram"}`) + delta(0, `{"type":"hologram_delta","x":1}`) + halt(0) + end, `| stop`},
		{"no beginning", begin(0, textBlock) + delta(0, textDelta("a")) + halt(0) + end, `text0:a | stop`},
		{"OpenAI's terminal", start + begin(0, textBlock) + delta(0, textDelta("a")) + halt(0) + end + "data: [DONE]\n\n", `text0:a | stop`},
		{"an empty block", start + begin(0, textBlock) + halt(0) + end, `| EMPTY_RESPONSE`},
		{"no stop reason", start + begin(0, textBlock) + delta(0, textDelta("a")) + halt(0) + `data: {"type":"message_stop"}` + "\n\n", `text0:a | stop`},
		{"no terminal", start + begin(0, textBlock) + delta(0, textDelta("a")) + halt(0) + `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n", `text0:a | TRANSPORT`},
		{"a piece of no block", start + delta(0, textDelta("a")) + end, `| PROTOCOL`},
		{"a piece of a block that has stopped", start + begin(0, textBlock) + delta(0, textDelta("a")) + halt(0) + delta(0, textDelta("b")) + end, `text0:a | PROTOCOL`},
		{"a call without a name", start + begin(0, `{"type":"tool_use","id":"1","input":{}}`) + halt(0) + end, `tool-call0:<1> | PROTOCOL`},
		{"a refusal, and why", start + `data: {"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"no"}},"usage":{"output_tokens":1}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n", "| CONTENT_FILTER"},
		{"words about errors in an answer", start + begin(0, textBlock) + delta(0, textDelta("overloaded_error")) + halt(0) + end, "text0:overloaded_error | stop"},
		{"an error without its event's name", start + `data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n\n", "| SERVER"},
		{"an error without its type", start + "event: error\ndata: {\"error\":{\"message\":\"rate limit exceeded\"}}\n\n", "| RATE_LIMIT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, _ := read(t, "text/event-stream", c.body); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	_, got := read(t, "text/event-stream", start+begin(0, `{"type":"text","text":"a"}`)+halt(0)+end)
	if want := (dsh.Usage{InputTokens: 125, OutputTokens: 9, CachedInputTokens: 100}); got == nil || *got != want {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

func TestDocuments(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"f","input":{"a":1}}],"stop_reason":"tool_use"}`: `reasoning0:hm {"signature":"s"} text1:a tool-call2:<1>f {"a":1} | tool-calls`,
		`{"type":"message","content":[],"stop_reason":"end_turn"}`:                    "| EMPTY_RESPONSE",
		`{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"ref`: "| TRANSPORT",
		`{"type":"message","content":NaN}`:                                            "| PROTOCOL",
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`: "| SERVER",
		`[1,2]`:       "| UNKNOWN",
		`{"error":7}`: "| UNKNOWN",
	} {
		if got, _ := read(t, "application/json", body); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
}

// TestRequests looks at where requests go, and with which headers. What the
// SDK would read from the environment counts for nothing.
func TestRequests(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "of-the-environment")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "of-the-environment")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Env: 1")
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r
		_, _ = io.WriteString(w, start+begin(0, `{"type":"text","text":"a"}`)+halt(0)+end)
	}))
	defer srv.Close()
	for _, c := range []struct {
		name, url, path, key string
		head                 map[string]string
	}{
		{"a key", "", "/v1/messages", "k1", map[string]string{"X-Api-Key": "k1", "Authorization": "Bearer k1", "Anthropic-Version": "2023-06-01", "Content-Type": "application/json"}},
		{"no key", "", "/v1/messages", "", map[string]string{"X-Api-Key": "", "Authorization": ""}},
		{"a login's token", "", "/v1/messages", "sk-ant-oat01-x", map[string]string{"Authorization": "Bearer sk-ant-oat01-x", "Anthropic-Beta": "oauth-2025-04-20"}},
		{"a version in the URL", "/v1", "/v1/messages", "", nil},
		{"a slash", "/v1/", "/v1/messages", "", nil},
		{"the whole path", "/v1/messages", "/v1/messages", "", nil},
		{"another's front", "/anthropic", "/anthropic/v1/messages", "", nil},
		{"a query", "?beta=true", "/v1/messages?beta=true", "", nil},
	} {
		for _, err := range adapter(t, anthropic.Settings{BaseURL: srv.URL + c.url, Key: c.key}).Send(t.Context(), []byte(`{}`)) {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if got.URL.RequestURI() != c.path {
			t.Errorf("%s: to %s, want %s", c.name, got.URL.RequestURI(), c.path)
		}
		for k, v := range c.head {
			if got.Header.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", c.name, k, got.Header.Get(k), v)
			}
		}
		for k := range got.Header {
			if strings.HasPrefix(k, "X-Stainless") || k == "X-Env" {
				t.Errorf("%s: the header %s", c.name, k)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	for _, s := range []anthropic.Settings{
		{}, {BaseURL: "://"}, {BaseURL: "https://x.test", Window: -1}, {BaseURL: "http://x.test", Key: "k"}, {BaseURL: "https://x.test", StreamIdle: -1},
	} {
		if _, err := anthropic.New(s); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}
