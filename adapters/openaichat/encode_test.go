package openaichat_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

func user(s string) dsh.Message {
	return dsh.Message{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock(s)}}
}

func assistant(blocks ...dsh.Block) dsh.Message {
	return dsh.Message{Role: dsh.RoleAssistant, Content: blocks}
}

func toolResult(id string, blocks ...dsh.Block) dsh.Message {
	return dsh.Message{Role: dsh.RoleTool, Content: []dsh.Block{{Type: dsh.BlockToolResult, CallID: id, Content: blocks}}}
}

func call(id, name, arguments string) dsh.Block {
	return dsh.Block{Type: dsh.BlockToolCall, ID: id, Name: name, Arguments: arguments}
}

func reasoning(s string, opaque string) dsh.Block {
	b := dsh.Block{Type: dsh.BlockReasoning, Text: s}
	if opaque != "" {
		b.Opaque = json.RawMessage(opaque)
	}
	return b
}

// TestEncode holds bodies to the byte: a body that changes with a version of
// dsh breaks the sessions of an earlier one.
func TestEncode(t *testing.T) {
	zero := 0.0
	image := dsh.Block{Type: dsh.BlockImage, MediaType: "image/png", Data: []byte("png")}
	for _, c := range []struct {
		name, quirks string
		r            dsh.Request
		want         string
	}{
		{"the least", "plain", dsh.Request{Model: "m"},
			`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}`},
		{"no usage", "plain-without-usage", dsh.Request{Model: "m"},
			`{"model":"m","messages":[],"stream":true}`},
		{"system, parameters, characters", "plain", dsh.Request{Model: "m", System: "<b> & \u2028", Messages: []dsh.Message{user("é")}, Params: dsh.Params{MaxOutputTokens: 7, Temperature: &zero}},
			`{"model":"m","messages":[{"role":"system","content":"<b> & \u2028"},{"role":"user","content":"é"}],"max_tokens":7,"temperature":0,"stream":true,"stream_options":{"include_usage":true}}`},
		{"OpenAI's name of the limit", "openai", dsh.Request{Model: "gpt-5", Params: dsh.Params{MaxOutputTokens: 7}},
			`{"model":"gpt-5","messages":[],"max_completion_tokens":7,"stream":true,"stream_options":{"include_usage":true}}`},
		{"tools", "plain", dsh.Request{Model: "m", Tools: []dsh.ToolSpec{{Name: "a", Description: "d", Schema: json.RawMessage(`{ "type": "object" }`)}, {Name: "b"}}},
			`{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"a","description":"d","parameters":{"type":"object"}}},{"type":"function","function":{"name":"b","parameters":{"type":"object","properties":{}}}}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"calls and results", "plain", dsh.Request{Model: "m", Messages: []dsh.Message{
			user("x"), assistant(dsh.TextBlock("so"), call("1", "f", ""), call("2", "f", `{"a": `)), toolResult("1"), toolResult("2", dsh.TextBlock("bad"))}},
			`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"so","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{\"a\": "}}]},{"role":"tool","content":"","tool_call_id":"1"},{"role":"tool","content":"bad","tool_call_id":"2"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"calls that are read", "ollama", dsh.Request{Model: "m", Messages: []dsh.Message{
			assistant(call("1", "f", " "), call("2", "f", `{"a": `), call("3", "f", `[1]`), call("4", "f", `{"a":1}`))}},
			`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{\"invalid_json\":\"{\\\"a\\\": \"}"}},{"id":"3","type":"function","function":{"name":"f","arguments":"{\"invalid_json\":\"[1]\"}"}},{"id":"4","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"images", "plain", dsh.Request{Model: "m", Messages: []dsh.Message{
			{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock("see"), image}}, assistant(call("1", "f", "{}"), call("2", "f", "{}")),
			toolResult("1", image), toolResult("2", dsh.TextBlock("ok")), user("and?")}},
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"","tool_call_id":"1"},{"role":"tool","content":"ok","tool_call_id":"2"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,cG5n"}}]},{"role":"user","content":"and?"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"two texts", "plain", dsh.Request{Model: "m", Messages: []dsh.Message{{Role: dsh.RoleUser, Content: []dsh.Block{dsh.TextBlock("a"), dsh.TextBlock("b")}}, assistant(dsh.TextBlock("c"), dsh.TextBlock("d")), assistant()}},
			`{"model":"m","messages":[{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"cd"},{"role":"assistant","content":""}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"reasoning stays here", "plain", dsh.Request{Model: "m", Messages: []dsh.Message{user("x"), assistant(reasoning("hm", `{"a":1}`), dsh.TextBlock("y"))}},
			`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"DeepSeek's reasoning, of this turn", "deepseek", dsh.Request{Model: "m", Messages: []dsh.Message{
			user("x"), assistant(reasoning("old", ""), dsh.TextBlock("y")), user("z"), assistant(reasoning("new", ""), call("1", "f", "{}")), toolResult("1")}},
			`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":"z"},{"role":"assistant","content":null,"reasoning_content":"new","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"","tool_call_id":"1"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"Moonshot's reasoning, of all", "moonshot", dsh.Request{Model: "m", Messages: []dsh.Message{user("x"), assistant(reasoning("old", ""), dsh.TextBlock("y")), user("z")}},
			`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","reasoning_content":"old"},{"role":"user","content":"z"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"OpenRouter's reasoning, opaque", "openrouter", dsh.Request{Model: "m", Messages: []dsh.Message{assistant(reasoning("old", `[{"type":"reasoning.text","text":"old"}]`), dsh.TextBlock("y")), assistant(reasoning("plain", ""), dsh.TextBlock("z"))}},
			`{"model":"m","messages":[{"role":"assistant","content":"y","reasoning_details":[{"type":"reasoning.text","text":"old"}]},{"role":"assistant","content":"z","reasoning":"plain"}],"stream":true,"stream_options":{"include_usage":true}}`},
		{"an opaque part of another protocol", "openrouter", dsh.Request{Model: "m", Messages: []dsh.Message{assistant(reasoning("old", `{"signature":"s"}`), dsh.TextBlock("y"))}},
			`{"model":"m","messages":[{"role":"assistant","content":"y","reasoning":"old"}],"stream":true,"stream_options":{"include_usage":true}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := adapter(t, openaichat.Settings{BaseURL: "http://127.0.0.1:1", Quirks: c.quirks}).Encode(c.r)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestHosts tells the quirks from the host.
func TestHosts(t *testing.T) {
	r := dsh.Request{Model: "m", Params: dsh.Params{MaxOutputTokens: 1}}
	for url, completion := range map[string]bool{
		"https://api.openai.com/v1":            true,
		"https://x.openai.azure.com/openai/v1": true,
		"https://api.groq.com/openai/v1":       true,
		"https://api.deepseek.com":             false,
		"https://openrouter.ai/api/v1":         false,
		"http://localhost:8000/v1":             false,
		"https://notapi.openai.com.evil.test":  false,
	} {
		body, err := adapter(t, openaichat.Settings{BaseURL: url}).Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(body, []byte("max_completion_tokens")); got != completion {
			t.Errorf("%s: %s", url, body)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name string
		s    openaichat.Settings
		want string
	}{
		{"nothing", openaichat.Settings{}, "base URL"},
		{"no URL", openaichat.Settings{BaseURL: "://"}, "base URL"},
		{"unknown quirks", openaichat.Settings{BaseURL: "https://x.test", Quirks: "odd"}, "there are azure, "},
		{"a negative window", openaichat.Settings{BaseURL: "https://x.test", Window: -1}, "window"},
		{"a key over plain http", openaichat.Settings{BaseURL: "http://x.test", Key: "k"}, "plain http"},
	} {
		if _, err := openaichat.New(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for _, s := range []openaichat.Settings{
		{BaseURL: "http://x.test"}, {BaseURL: "http://x.test", Key: "k", AllowInsecureHTTP: true}, {BaseURL: "http://127.0.0.2:9/v1/", Key: "k"},
	} {
		if _, err := openaichat.New(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
