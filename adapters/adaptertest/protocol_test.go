package adaptertest_test

import (
	"encoding/json"
	"fmt"

	"github.com/dsh-agent/dsh"
)

// protocol writes chat completions.
type protocol struct{ calls int }

func quote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func chunk(delta, finish string) string {
	return `data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + "}]}\n\n"
}

func (p *protocol) Begin() string {
	p.calls = 0
	return chunk(`{"role":"assistant","content":""}`, "null")
}

func (*protocol) Text(s string) string { return chunk(`{"content":`+quote(s)+`}`, "null") }

func (*protocol) Reasoning(s string) string {
	return chunk(`{"reasoning_content":`+quote(s)+`}`, "null")
}

func (p *protocol) ToolCall(id, name, arguments string) string {
	i := p.calls
	p.calls++
	out := chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":""}}]}`, i, quote(id), quote(name)), "null")
	for len(arguments) > 0 {
		n := min(3, len(arguments))
		out += chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"arguments":%s}}]}`, i, quote(arguments[:n])), "null")
		arguments = arguments[n:]
	}
	return out
}

func (*protocol) End(kind dsh.FinishKind, u dsh.Usage) string {
	reason := map[dsh.FinishKind]string{dsh.FinishStop: "stop", dsh.FinishToolCalls: "tool_calls", dsh.FinishLength: "length"}[kind]
	return chunk("{}", quote(reason)) +
		fmt.Sprintf(`data: {"id":"c1","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, u.InputTokens, u.OutputTokens, u.InputTokens+u.OutputTokens) +
		"\n\ndata: [DONE]\n\n"
}

func (*protocol) KeepAlive() string { return ": keep-alive\n\n" }

// openAIErrors are OpenAI's.
func openAIErrors() map[dsh.Code]struct {
	status     int
	kind, code string
} {
	return map[dsh.Code]struct {
		status     int
		kind, code string
	}{
		dsh.CodeRateLimit:      {429, "tokens", "rate_limit_exceeded"},
		dsh.CodeServer:         {500, "server_error", ""},
		dsh.CodeTimeout:        {504, "timeout_error", "timeout"},
		dsh.CodeContextWindow:  {400, "invalid_request_error", "context_length_exceeded"},
		dsh.CodeAuth:           {401, "invalid_request_error", "invalid_api_key"},
		dsh.CodeQuota:          {429, "insufficient_quota", "insufficient_quota"},
		dsh.CodeInvalidRequest: {404, "invalid_request_error", "model_not_found"},
		dsh.CodeContentFilter:  {400, "invalid_request_error", "content_policy_violation"},
	}
}

func (*protocol) Error(code dsh.Code, message string) (int, string, bool) {
	e, ok := openAIErrors()[code]
	return e.status, fmt.Sprintf(`{"error":{"message":%s,"type":%s,"param":null,"code":%s}}`, quote(message), quote(e.kind), quote(e.code)), ok
}

func (p *protocol) StreamError(code dsh.Code, message string) (string, bool) {
	_, body, ok := p.Error(code, message)
	return "data: " + body + "\n\n", ok
}
