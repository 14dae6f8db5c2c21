package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-agent/dsh"
)

// A dialect is one wire: how a model that speaks it answers, and the rules that
// its messages have to keep.
type dialect struct {
	provider string // of the configuration
	path     string
	calls    func(w io.Writer, n int, used int) // one call or two of read, by the number of the step
	says     func(w io.Writer, text string, used int)
	check    func(body []byte) error
}

const (
	longSteps  = 60
	longWindow = 8000 // tokens
)

// TestLongTurn is a turn of sixty steps with a tool result of 3 KB or two in
// each, in a window of a seventh of that: under pressure all along. Every
// request keeps the rules of the wire, and stays under the window.
func TestLongTurn(t *testing.T) {
	for name, d := range map[string]dialect{"openai": openaiDialect(), "anthropic": anthropicDialect()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := newWorld(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			keep(t, w.dir)
			if err := os.WriteFile(filepath.Join(w.dir, "note.txt"), []byte(strings.Repeat("a line of the note\n", 160)), 0o600); err != nil {
				t.Fatal(err)
			}
			p := &longProvider{t: t, dialect: d}
			s := httptest.NewServer(p)
			defer s.Close()
			config := fmt.Sprintf(d.provider, s.URL, longWindow)
			if err := os.WriteFile(w.config, []byte("[agent]\nprovider = \"test\"\nmodel = \"test-model\"\nmax_output_tokens = 1000\n[providers.test]\napi_key_env = \"PROVIDER_KEY\"\n"+config), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := w.run(t, "run", "read the note sixty times"); r.code != 0 || r.out != "done\n" {
				t.Fatalf("exit %d, stdout %q, %s", r.code, r.out, r.err)
			}
			p.judge()
			if n := len(ofType(w.events(t), dsh.TypeStepEnd)); n != longSteps+1 {
				t.Errorf("%d steps, want %d", n, longSteps+1)
			}
		})
	}
}

// longProvider answers with a call until the steps are done, and looks at all
// that it is sent.
type longProvider struct {
	t       *testing.T
	dialect dialect

	mu        sync.Mutex
	steps     int
	summaries int
	largest   int
	problems  []string
}

func (p *longProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && r.URL.Path != p.dialect.path {
		err = fmt.Errorf("a request to %s", r.URL.Path)
	}
	if err == nil {
		err = p.dialect.check(body)
	}
	if err != nil {
		p.problems = append(p.problems, fmt.Sprintf("step %d: %v", p.steps, err))
	}
	p.largest = max(p.largest, len(body))
	used := len(body) / 4 // so a tokenizer does, about
	w.Header().Set("Content-Type", "text/event-stream")
	switch {
	case strings.Contains(string(body), "You write the memory"):
		p.summaries++
		p.dialect.says(w, "The note was read, again and again.", used)
	case p.steps == longSteps:
		p.dialect.says(w, "done", used)
	default:
		p.steps++
		p.dialect.calls(w, p.steps, used)
	}
}

func (p *longProvider) judge() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range p.problems {
		p.t.Error(problem)
	}
	if p.largest > 4*longWindow {
		p.t.Errorf("a request of %d bytes, over a window of %d tokens", p.largest, longWindow)
	}
	if p.summaries < 3 || p.summaries > longSteps/2 {
		p.t.Errorf("%d summaries", p.summaries)
	}
}

func openaiDialect() dialect {
	chunk := func(w io.Writer, delta, finish string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
	}
	end := func(w io.Writer, finish string, used int) {
		chunk(w, "{}", finish)
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":5,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", used, used+5)
	}
	return dialect{
		provider: "base_url = \"%s/v1\"\ncontext_window = %d\n", path: "/v1/chat/completions", check: checkOpenAI,
		says: func(w io.Writer, text string, used int) {
			chunk(w, fmt.Sprintf(`{"content":%q}`, text), "null")
			end(w, `"stop"`, used)
		},
		calls: func(w io.Writer, n, used int) {
			for i := range 1 + n%2 {
				chunk(w, fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":"read","arguments":"{\"path\":\"note.txt\"}"}}]}`, i, n, i), "null")
			}
			end(w, `"tool_calls"`, used)
		},
	}
}

// checkOpenAI holds a body to the rules of the chat completions API: each call
// is answered by the messages right behind it, and nothing else is.
func checkOpenAI(body []byte) error {
	var req struct {
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			CallID    string          `json:"tool_call_id"`
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return err
	}
	open := map[string]bool{}
	for i, m := range req.Messages {
		if m.Role == "tool" {
			if !open[m.CallID] {
				return fmt.Errorf("message %d answers %q, which was not asked right before", i, m.CallID)
			}
			delete(open, m.CallID)
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: %d calls before it have no answer", i, len(open))
		}
		empty := slices.Contains([]string{"", `""`, "null", "[]"}, string(m.Content))
		if empty && len(m.ToolCalls) == 0 {
			return fmt.Errorf("message %d of role %s is empty", i, m.Role)
		}
		for _, c := range m.ToolCalls {
			open[c.ID] = true
		}
		if len(open) != len(m.ToolCalls) {
			return fmt.Errorf("message %d: two calls with one id", i)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("the last %d calls have no answer", len(open))
	}
	return nil
}

func anthropicDialect() dialect {
	event := func(w io.Writer, kind, data string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, data)
	}
	begin := func(w io.Writer, used int) {
		event(w, "message_start", fmt.Sprintf(`"message":{"id":"m","type":"message","role":"assistant","model":"test-model","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"output_tokens":1}}`, used))
	}
	end := func(w io.Writer, reason string) {
		event(w, "message_delta", fmt.Sprintf(`"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":5}`, reason))
		_, _ = io.WriteString(w, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	}
	return dialect{
		provider: "adapter = \"anthropic-messages\"\nbase_url = \"%s\"\ncontext_window = %d\n", path: "/v1/messages", check: checkAnthropic,
		says: func(w io.Writer, text string, used int) {
			begin(w, used)
			event(w, "content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
			event(w, "content_block_delta", fmt.Sprintf(`"index":0,"delta":{"type":"text_delta","text":%q}`, text))
			event(w, "content_block_stop", `"index":0`)
			end(w, "end_turn")
		},
		calls: func(w io.Writer, n, used int) {
			begin(w, used)
			for i := range 1 + n%2 {
				event(w, "content_block_start", fmt.Sprintf(`"index":%d,"content_block":{"type":"tool_use","id":"toolu_%d_%d","name":"read","input":{}}`, i, n, i))
				event(w, "content_block_delta", fmt.Sprintf(`"index":%d,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"note.txt\"}"}`, i))
				event(w, "content_block_stop", fmt.Sprintf(`"index":%d`, i))
			}
			end(w, "tool_use")
		},
	}
}

// checkAnthropic holds a body to the rules of the messages API: the user
// begins, roles alternate, no block is empty, and the message behind a
// tool_use begins with its tool_result, which stands nowhere else.
func checkAnthropic(body []byte) error {
	type block struct {
		Type, Text, ID string
		CallID         string `json:"tool_use_id"`
	}
	var req struct {
		Messages []struct {
			Role    string
			Content []block
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return err
	}
	var open []string
	for i, m := range req.Messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want {
			return fmt.Errorf("message %d is of role %s, want %s", i, m.Role, want)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("message %d is empty", i)
		}
		var next []string
		for j, b := range m.Content {
			switch {
			case b.Type == "text" && b.Text == "":
				return fmt.Errorf("message %d has an empty text", i)
			case b.Type == "tool_use":
				next = append(next, b.ID)
			case b.Type == "tool_result":
				k := slices.Index(open, b.CallID)
				if k < 0 || j > 0 && m.Content[j-1].Type != "tool_result" {
					return fmt.Errorf("message %d answers %q, which was not asked right before, or not at its beginning", i, b.CallID)
				}
				open = slices.Delete(open, k, k+1)
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d does not answer %v", i, open)
		}
		open = next
	}
	if len(open) > 0 {
		return fmt.Errorf("the last calls have no answer: %v", open)
	}
	return nil
}
