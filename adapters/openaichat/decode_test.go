package openaichat_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

func stop(reason string) string { return chunk("{}", quote(reason)) + "data: [DONE]\n\n" }

// serve answers every request with a body.
func serve(t *testing.T, kind, body string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// render tells an answer in one line: the blocks in their order, and the end.
func render(r result, chunks []dsh.Chunk) string {
	var out strings.Builder
	at := -1
	for _, c := range chunks {
		if c.Type == dsh.ChunkFinish {
			continue
		}
		if c.Index != at {
			fmt.Fprintf(&out, " %s%d:", c.Type, c.Index)
			at = c.Index
		}
		switch {
		case c.ID != "" && strings.HasPrefix(c.ID, "call_") && len(c.ID) == 17:
			out.WriteString("<made>" + c.Name)
		case c.ID != "" || c.Name != "":
			out.WriteString("<" + c.ID + ">" + c.Name)
		}
		out.WriteString(c.Text + c.Arguments + string(c.Opaque))
	}
	end := ""
	if r.finish != nil {
		end = string(r.finish.Kind)
	}
	if f := r.failure(); f != nil {
		end = string(f.Code)
	}
	return strings.TrimSpace(out.String() + " | " + end)
}

func TestStreams(t *testing.T) {
	tool := func(s string) string { return chunk(`{"tool_calls":[`+s+`]}`, "null") }
	for _, c := range []struct{ name, body, want string }{
		{"plain", chunk(`{"role":"assistant","content":""}`, "null") + chunk(`{"content":"a"}`, "null") + chunk(`{"content":"b"}`, "null") + stop("stop"), "text0:ab | stop"},
		{"escapes and the short way", chunk(`{"content":"a"}`, "null") + chunk(`{"content":"\"q\"\n"}`, "null") + chunk(`{"content":"ü"}`, "null") + chunk(`{"content":"\ud83d\ude00"}`, "null") + chunk(`{"content":"b"}`, "null") + stop("stop"), "text0:a\"q\"\nü😀b | stop"},
		{"reasoning before and after", chunk(`{"reasoning_content":"r1"}`, "null") + chunk(`{"content":"a"}`, "null") + chunk(`{"reasoning":"r2"}`, "null") + chunk(`{"content":"b"}`, "null") + stop("stop"), "reasoning0:r1 text1:a reasoning2:r2 text3:b | stop"},
		{"both names of the reasoning", chunk(`{"reasoning_content":"r","reasoning":"r"}`, "null") + chunk(`{"content":"a"}`, "null") + stop("stop"), "reasoning0:r text1:a | stop"},
		{"an empty piece of reasoning", chunk(`{"reasoning_content":"","content":"a"}`, "null") + stop("stop"), "text0:a | stop"},
		{"text and reasoning in one", chunk(`{"reasoning_content":"r","content":"a"}`, "null") + stop("stop"), "reasoning0:r text1:a | stop"},
		{"null deltas", chunk(`null`, "null") + chunk(`{"content":null,"tool_calls":null,"function_call":null,"refusal":null}`, "null") + chunk(`{"content":"a"}`, "null") + stop("stop"), "text0:a | stop"},
		{"empty choices, null choices", `data: {"id":"x","object":"chat.completion.chunk","choices":[]}` + "\n\n" + `data: {"id":"x","object":"chat.completion.chunk","choices":null}` + "\n\n" + chunk(`{"content":"a"}`, "null") + stop("stop"), "text0:a | stop"},
		{"no object, no id", `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\n", "text0:a | stop"},
		{"no terminal but the reason", chunk(`{"content":"a"}`, "null") + chunk("{}", `"stop"`), "text0:a | stop"},
		{"no reason but the terminal", chunk(`{"content":"a"}`, "null") + "data: [DONE]\n\n", "text0:a | stop"},
		{"the reason with the last piece", chunk(`{"content":"a"}`, `"stop"`), "text0:a | stop"},
		{"a reason that is the word null", chunk(`{"content":"a"}`, `"null"`) + chunk(`{"content":"b"}`, `"null"`) + stop("stop"), "text0:ab | stop"},
		{"an empty reason", chunk(`{"content":"a"}`, `""`) + chunk(`{"content":"b"}`, `""`) + stop("stop"), "text0:ab | stop"},
		{"two reasons", chunk(`{"content":"a"}`, `"stop"`) + chunk("{}", `"stop"`) + stop("stop"), "text0:a | stop"},
		{"other words for the end", chunk(`{"content":"a"}`, `"eos"`) + "data: [DONE]\n\n", "text0:a | stop"},
		{"MAX_TOKENS", chunk(`{"content":"a"}`, `"MAX_TOKENS"`), "text0:a | length"},
		{"length with nothing", stop("length"), "| length"},
		{"a word that is not known", chunk(`{"content":"a"}`, "null") + stop("quantum"), "text0:a | UNKNOWN"},
		{"a filter after text", chunk(`{"content":"a"}`, "null") + stop("content_filter"), "text0:a | CONTENT_FILTER"},
		{"an error as the reason", chunk(`{"content":"a"}`, "null") + stop("error"), "text0:a | SERVER"},
		{"DeepSeek is out of machines", chunk(`{"content":"a"}`, "null") + stop("insufficient_system_resource"), "text0:a | SERVER"},
		{"content after the reason", chunk(`{"content":"a"}`, `"stop"`) + chunk(`{"content":"b"}`, "null") + "data: [DONE]\n\n", "text0:a | PROTOCOL"},
		{"content after the terminal", chunk(`{"content":"a"}`, `"stop"`) + "data: [DONE]\n\n" + chunk(`{"content":"b"}`, "null"), "text0:a | PROTOCOL"},
		{"a usage after the terminal", chunk(`{"content":"a"}`, `"stop"`) + "data: [DONE]\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":1}}` + "\n\n", "text0:a | stop"},
		{"two terminals", chunk(`{"content":"a"}`, `"stop"`) + "data: [DONE]\n\ndata: [DONE]\n\n", "text0:a | stop"},
		{"content in parts", chunk(`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, "null") + stop("stop"), "text0:ab | stop"},
		{"thinking in parts", chunk(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`, "null") + chunk(`{"content":"a"}`, "null") + stop("stop"), "reasoning0:hm text1:a | stop"},
		{"a refusal", chunk(`{"refusal":"I cannot"}`, "null") + stop("stop"), "text0:I cannot | stop"},
		{"cumulative messages beside deltas", `data: {"choices":[{"index":0,"delta":{"content":"a"},"message":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"index":0,"delta":{"content":"b"},"message":{"content":"ab"},"finish_reason":"stop"}]}` + "\n\n", "text0:ab | stop"},
		{"a message in the place of deltas", `data: {"choices":[{"index":0,"message":{"content":"ab"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n", "text0:ab | stop"},

		{"a tool", tool(`{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}`) + tool(`{"index":0,"function":{"arguments":"{\"a\""}}`) + tool(`{"index":0,"function":{"arguments":":1}"}}`) + stop("tool_calls"), `tool-call0:<1>f{"a":1} | tool-calls`},
		{"no index", tool(`{"id":"1","function":{"name":"f","arguments":"{}"}}`) + tool(`{"id":"2","function":{"name":"g","arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<1>f{} tool-call1:<2>g{} | tool-calls`},
		{"no index, in pieces", tool(`{"id":"1","function":{"name":"f","arguments":""}}`) + tool(`{"function":{"arguments":"{}"}}`) + tool(`{"id":"2","function":{"name":"g","arguments":""}}`) + tool(`{"function":{"arguments":"[]"}}`) + stop("tool_calls"), `tool-call0:<1>f{} tool-call1:<2>g[] | tool-calls`},
		{"no id", tool(`{"index":0,"function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":1,"function":{"name":"g","arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<made>f{} tool-call1:<made>g{} | tool-calls`},
		{"neither", tool(`{"function":{"name":"f","arguments":"{}"}}`) + tool(`{"function":{"name":"g","arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<made>f{} tool-call1:<made>g{} | tool-calls`},
		{"an empty id", tool(`{"index":0,"id":"","function":{"name":"f","arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<made>f{} | tool-calls`},
		{"the id in every piece", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}`) + tool(`{"index":0,"id":"1","function":{"name":"","arguments":"}"}}`) + stop("tool_calls"), `tool-call0:<1>f{} | tool-calls`},
		{"id and name in every piece", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}`) + tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"}"}}`) + stop("tool_calls"), `tool-call0:<1>f{} | tool-calls`},
		{"one index for all", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":0,"id":"2","function":{"name":"g","arguments":"[]"}}`) + stop("tool_calls"), `tool-call0:<1>f{} tool-call1:<2>g[] | tool-calls`},
		{"one index for all, without ids", tool(`{"index":0,"function":{"name":"f","arguments":"{}"}}`) + tool(`{"index":0,"function":{"name":"g","arguments":"[]"}}`) + stop("tool_calls"), `tool-call0:<made>f{} tool-call1:<made>g[] | tool-calls`},
		{"interleaved", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}`) + tool(`{"index":1,"id":"2","function":{"name":"g","arguments":"["}}`) + tool(`{"index":0,"function":{"arguments":"}"}}`) + tool(`{"index":1,"function":{"arguments":"]"}}`) + stop("tool_calls"), `tool-call0:<1>f{ tool-call1:<2>g[ tool-call0:} tool-call1:] | tool-calls`},
		{"two in one delta", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"2","function":{"name":"g","arguments":"[]"}}`) + stop("tool_calls"), `tool-call0:<1>f{} tool-call1:<2>g[] | tool-calls`},
		{"an object for arguments", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":{"a": 1}}}`) + stop("tool_calls"), `tool-call0:<1>f{"a":1} | tool-calls`},
		{"null for arguments", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":null}}`) + stop("tool_calls"), `tool-call0:<1>f | tool-calls`},
		{"a number for an id", tool(`{"index":0,"id":17,"function":{"name":"f","arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<17>f{} | tool-calls`},
		{"the old form", chunk(`{"function_call":{"name":"f","arguments":"{"}}`, "null") + chunk(`{"function_call":{"arguments":"}"}}`, "null") + stop("function_call"), `tool-call0:<made>f{} | tool-calls`},
		{"tools that end in stop", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + stop("stop"), `tool-call0:<1>f{} | tool-calls`},
		{"tool_calls without one", chunk(`{"content":"a"}`, "null") + stop("tool_calls"), "text0:a | stop"},
		{"text after a tool", chunk(`{"content":"a"}`, "null") + tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`) + chunk(`{"content":"b"}`, "null") + stop("tool_calls"), `text0:a tool-call1:<1>f{} text2:b | tool-calls`},
		{"no name ever", tool(`{"index":0,"id":"1","function":{"arguments":"{}"}}`) + stop("tool_calls"), `tool-call0:<1>{} | PROTOCOL`},
		{"a tool that length cut", tool(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\"a"}}`) + stop("length"), `tool-call0:<1>f{"a | length`},

		{"details of the reasoning", chunk(`{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}`, "null") + chunk(`{"reasoning":"b","reasoning_details":[{"type":"reasoning.text","text":"b","index":0,"signature":"s"}]}`, "null") + chunk(`{"content":"x"}`, "null") + stop("stop"),
			`reasoning0:ab text1:x reasoning2:[{"index":0,"signature":"s","text":"ab","type":"reasoning.text"}] | stop`},
		{"details alone", chunk(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"zz"}]}`, "null") + chunk(`{"content":"x"}`, "null") + stop("stop"), `text0:x reasoning1:[{"data":"zz","type":"reasoning.encrypted"}] | stop`},

		{"an error beside a choice", chunk(`{"content":"a"}`, "null") + `data: {"id":"x","error":{"code":429,"message":"slow down"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}` + "\n\n", "text0:a | RATE_LIMIT"},
		{"an error inside a choice", chunk(`{"content":"a"}`, "null") + `data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502,"message":"Provider disconnected"}}]}` + "\n\n", "text0:a | SERVER"},
		{"an error that is a word", chunk(`{"content":"a"}`, "null") + `data: {"error":"rate limit exceeded"}` + "\n\n", "text0:a | RATE_LIMIT"},
		{"an error in the old form", chunk(`{"content":"a"}`, "null") + `data: {"object":"error","message":"Internal Server Error","code":500}` + "\n\n", "text0:a | SERVER"},
		{"an error outside of the format", chunk(`{"content":"a"}`, "null") + `{"error":{"message":"The server had an error","type":"server_error"}}` + "\n", "text0:a | SERVER"},
		{"an error in many lines outside of the format", chunk(`{"content":"a"}`, "null") + "{\n  \"error\": {\n    \"code\": 429,\n    \"message\": \"x\"\n  }\n}\n", "text0:a | RATE_LIMIT"},
		{"a home-made error", chunk(`{"content":"a"}`, "null") + `data: {"code":500,"msg":"backend exploded"}` + "\n\n", "text0:a | SERVER"},
		{"an error after the reason", chunk(`{"content":"a"}`, `"stop"`) + `data: {"error":{"message":"Overloaded","code":"server_error"}}` + "\n\n", "text0:a | SERVER"},
		{"words about errors in an answer", chunk(`{"content":"rate limit exceeded; context_length_exceeded; error"}`, "null") + stop("stop"), "text0:rate limit exceeded; context_length_exceeded; error | stop"},
		{"a ping", "event: ping\ndata: {\"type\":\"ping\"}\n\n" + chunk(`{"content":"a"}`, "null") + stop("stop"), "text0:a | stop"},
		{"lines without blank ones", strings.ReplaceAll(chunk(`{"content":"a"}`, "null")+chunk(`{"content":"b"}`, "null")+stop("stop"), "\n\n", "\n"), "text0:ab | stop"},
		{"a frame that is no JSON, at the end", chunk(`{"content":"a"}`, "null") + "data: {\"id\n\n", "text0:a | TRANSPORT"},
		{"a frame that is no JSON, and on", chunk(`{"content":"a"}`, "null") + "data: {\"id\n\n" + stop("stop"), "text0:a | PROTOCOL"},
		{"a frame that is no JSON, and a comment", chunk(`{"content":"a"}`, "null") + "data: {\"id\n\n: x\n\n", "text0:a | TRANSPORT"},
		{"a frame with wrong types", `data: {"choices":[{"index":0,"delta":{"content":"a","tool_calls":7}}]}` + "\n\n" + stop("stop"), "| PROTOCOL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := serve(t, "text/event-stream", c.body)
			r, chunks := collect(t, adapter(t, openaichat.Settings{BaseURL: srv.URL}))
			if got := render(r, chunks); got != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got, c.want, c.body)
			}
		})
	}
}

// collect keeps the chunks too.
func collect(t *testing.T, a dsh.Adapter) (result, []dsh.Chunk) {
	t.Helper()
	r := send(t, a, t.Context(), "{}")
	var chunks []dsh.Chunk
	for c, err := range a.Send(t.Context(), []byte("{}")) {
		if err == nil {
			chunks = append(chunks, c)
		}
	}
	return r, chunks
}

func TestDocuments(t *testing.T) {
	for _, c := range []struct{ name, body, want string }{
		{"an answer", `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":"r"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3}}`, "reasoning0:r text1:a | stop"},
		{"a call", `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`, `tool-call0:<1>f{} | tool-calls`},
		{"no reason", `{"choices":[{"message":{"content":"a"}}]}`, "text0:a | stop"},
		{"nothing in it", `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, "| EMPTY_RESPONSE"},
		{"no message", `{"choices":[{"message":null,"finish_reason":"stop"}]}`, "| EMPTY_RESPONSE"},
		{"a filter", `{"choices":[{"message":{"content":"a"},"finish_reason":"content_filter"}]}`, "text0:a | CONTENT_FILTER"},
		{"an error", `{"error":{"message":"x","code":"insufficient_quota"}}`, "| QUOTA"},
		{"an error in a list", `[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]`, "| RATE_LIMIT"},
		{"a string", `"Internal Server Error"`, "| SERVER"},
		{"an empty object", `{}`, "| UNKNOWN"},
		{"two values", "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"rate limit\"}\n", "| RATE_LIMIT"},
		{"cut", `{"choices":[{"message":{"content":"a`, "| TRANSPORT"},
		{"broken", `{"choices":[{"message":{"content":NaN}}]}`, "| PROTOCOL"},
		{"Gemini's own, blocked", `{"promptFeedback":{"blockReason":"OTHER"}}`, "| CONTENT_FILTER"},
		{"Gemini's own, good", `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`, "| PROTOCOL"},
		{"Anthropic's, empty", `{"type":"message","content":[],"stop_reason":"end_turn"}`, "| EMPTY_RESPONSE"},
		{"Ollama's own, good", `{"message":{"content":"a"},"done":true,"done_reason":"stop"}`, "| PROTOCOL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := serve(t, "application/json", c.body)
			r, chunks := collect(t, adapter(t, openaichat.Settings{BaseURL: srv.URL}))
			if got := render(r, chunks); got != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got, c.want, c.body)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	for usage, want := range map[string]string{
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}`:                                                                              "&{10 5 0 0}",
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":3}}`: "&{10 5 4 3}",
		`"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}`:                                       "&{10 5 8 0}",
		`"usage":{"prompt_tokens":-1,"completion_tokens":5}`:                                                                                                "&{0 5 0 0}",
		`"usage":null`: "<nil>",
		`"usage":{}`:   "<nil>",
		`"usage":{"prompt_tokens":0,"completion_tokens":0}`:             "<nil>",
		`"usage":{"prompt_tokens":"7","completion_tokens":5}`:           "&{0 5 0 0}",
		`"x_groq":{"usage":{"prompt_tokens":10,"completion_tokens":5}}`: "&{10 5 0 0}",
	} {
		body := chunk(`{"content":"a"}`, "null") + chunk("{}", `"stop"`) + `data: {"object":"chat.completion.chunk","choices":[],` + usage + "}\n\ndata: [DONE]\n\n"
		srv := serve(t, "text/event-stream", body)
		r := send(t, adapter(t, openaichat.Settings{BaseURL: srv.URL}), t.Context(), "{}")
		if r.finish == nil || fmt.Sprint(r.finish.Usage) != want {
			t.Errorf("%s: %+v, want %s", usage, r.finish, want)
		}
	}
}

// TestRequests looks at where requests go, and with which headers.
func TestRequests(t *testing.T) {
	var got *http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got = r
		_, _ = io.WriteString(w, chunk(`{"content":"a"}`, "null")+stop("stop"))
	}))
	defer srv.Close()
	for _, c := range []struct {
		name string
		s    openaichat.Settings
		path string
		head map[string]string
	}{
		{"plain", openaichat.Settings{BaseURL: srv.URL + "/v1", Key: "k1"}, "/v1/chat/completions", map[string]string{"Authorization": "Bearer k1", "Content-Type": "application/json", "Accept": "text/event-stream", "User-Agent": "dsh"}},
		{"a slash at the end", openaichat.Settings{BaseURL: srv.URL + "/v1/"}, "/v1/chat/completions", map[string]string{"Authorization": ""}},
		{"the whole path", openaichat.Settings{BaseURL: srv.URL + "/v1/chat/completions"}, "/v1/chat/completions", nil},
		{"Azure", openaichat.Settings{BaseURL: srv.URL + "/openai/deployments/d?api-version=1", Quirks: "azure", Key: "k2"}, "/openai/deployments/d/chat/completions?api-version=1", map[string]string{"Api-Key": "k2", "Authorization": ""}},
		{"own headers", openaichat.Settings{BaseURL: srv.URL, Key: "k3", Header: http.Header{"Authorization": {"Basic x"}, "X-Title": {"t"}}}, "/chat/completions", map[string]string{"Authorization": "Basic x", "X-Title": "t"}},
	} {
		good := send(t, adapter(t, c.s), t.Context(), "{}")
		if good.failure() != nil || got.URL.RequestURI() != c.path {
			t.Errorf("%s: %v, to %s, want %s", c.name, good.failure(), got.URL.RequestURI(), c.path)
		}
		for k, v := range c.head {
			if got.Header.Get(k) != v {
				t.Errorf("%s: %s is %q, want %q", c.name, k, got.Header.Get(k), v)
			}
		}
	}
}
