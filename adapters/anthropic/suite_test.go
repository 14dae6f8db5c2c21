package anthropic_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/adaptertest"
	"github.com/dsh-agent/dsh/adapters/anthropic"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Suite{
		Wire: func() adaptertest.Wire { return &protocol{} },
		New: func(t testing.TB, to adaptertest.Target) dsh.Adapter {
			t.Helper()
			a, err := anthropic.New(anthropic.Settings{
				BaseURL: to.BaseURL, Key: to.Key, Header: to.Header, TLS: to.TLS, Dial: to.Dial,
				StreamIdle: to.StreamIdle, Keepalive: to.Keepalive, Window: to.Window,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(a.Close)
			return a
		},
	})
}

// protocol writes messages.
type protocol struct {
	blocks int
	kind   string // of the open block
}

func quote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func event(name, data string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + data + "}\n\n"
}

func (p *protocol) Begin() string {
	*p = protocol{blocks: -1}
	return event("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}`)
}

// in makes the open block one of a kind.
func (p *protocol) in(kind, first string) string {
	if p.kind == kind {
		return ""
	}
	out := p.shut()
	p.kind = kind
	p.blocks++
	return out + event("content_block_start", fmt.Sprintf(`,"index":%d,"content_block":%s`, p.blocks, first))
}

func (p *protocol) shut() string {
	if p.kind == "" {
		return ""
	}
	p.kind = ""
	return event("content_block_stop", fmt.Sprintf(`,"index":%d`, p.blocks))
}

func (p *protocol) delta(d string) string {
	return event("content_block_delta", fmt.Sprintf(`,"index":%d,"delta":%s`, p.blocks, d))
}

func (p *protocol) Text(s string) string {
	return p.in("text", `{"type":"text","text":""}`) + p.delta(`{"type":"text_delta","text":`+quote(s)+`}`)
}

func (p *protocol) Reasoning(s string) string {
	return p.in("thinking", `{"type":"thinking","thinking":"","signature":""}`) + p.delta(`{"type":"thinking_delta","thinking":`+quote(s)+`}`)
}

func (p *protocol) ToolCall(id, name, arguments string) string {
	out := p.shut() + p.in("tool_use", `{"type":"tool_use","id":`+quote(id)+`,"name":`+quote(name)+`,"input":{}}`)
	for len(arguments) > 0 {
		n := min(3, len(arguments))
		out += p.delta(`{"type":"input_json_delta","partial_json":` + quote(arguments[:n]) + `}`)
		arguments = arguments[n:]
	}
	return out
}

func (p *protocol) End(kind dsh.FinishKind, u dsh.Usage) string {
	reason := map[dsh.FinishKind]string{dsh.FinishStop: "end_turn", dsh.FinishToolCalls: "tool_use", dsh.FinishLength: "max_tokens"}[kind]
	return p.shut() +
		event("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%s,"stop_sequence":null},"usage":{"input_tokens":%d,"output_tokens":%d}`, quote(reason), u.InputTokens, u.OutputTokens)) +
		event("message_stop", "")
}

func (*protocol) KeepAlive() string { return event("ping", "") }

func (*protocol) Error(code dsh.Code, message string) (int, string, bool) {
	e, ok := map[dsh.Code]struct {
		status int
		kind   string
	}{
		dsh.CodeRateLimit:      {429, "rate_limit_error"},
		dsh.CodeServer:         {529, "overloaded_error"},
		dsh.CodeTimeout:        {504, "timeout_error"},
		dsh.CodeContextWindow:  {400, "invalid_request_error"},
		dsh.CodeAuth:           {401, "authentication_error"},
		dsh.CodeQuota:          {402, "billing_error"},
		dsh.CodeInvalidRequest: {404, "not_found_error"},
		dsh.CodeContentFilter:  {400, "invalid_request_error"},
	}[code]
	switch code {
	case dsh.CodeContextWindow:
		message += ": prompt is too long: 200001 tokens > 200000 maximum"
	case dsh.CodeContentFilter:
		message += ": Output blocked by content filtering policy"
	}
	return e.status, fmt.Sprintf(`{"type":"error","error":{"type":%s,"message":%s}}`, quote(e.kind), quote(message)), ok
}

func (p *protocol) StreamError(code dsh.Code, message string) (string, bool) {
	_, body, ok := p.Error(code, message)
	return "event: error\ndata: " + body + "\n\n", ok
}
