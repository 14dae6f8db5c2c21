package scripted_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
	"github.com/dsh-agent/dsh/adapters/scripted"
)

// play sends one request to a server and tells what came: the text, and the
// failure's code or the finish kind.
func play(t *testing.T, a dsh.Adapter, body string) (text, end string) {
	t.Helper()
	for c, err := range a.Send(t.Context(), []byte(body)) {
		switch {
		case err != nil:
			end = string(dsh.AsFailure(err).Code)
		case c.Finish != nil && c.Finish.Failure != nil:
			end = string(c.Finish.Failure.Code)
		case c.Finish != nil:
			end = string(c.Finish.Kind)
		default:
			text += c.Text + c.Name + c.Arguments
		}
	}
	return text, end
}

func adapter(t *testing.T, url string) dsh.Adapter {
	t.Helper()
	a, err := openaichat.New(openaichat.Settings{BaseURL: url, StreamIdle: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

// TestKinds plays every kind through the real adapter.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name      string
		step      scripted.Step
		text, end string
		early     bool
	}{
		{"text", scripted.Step{Do: scripted.Text, Text: "Grüß Gott, alle miteinander", Chunks: 5}, "Grüß Gott, alle miteinander", "stop", false},
		{"text by default", scripted.Step{Do: scripted.Text}, "This is the scripted provider's answer.", "stop", false},
		{"reasoning", scripted.Step{Do: scripted.Text, Reasoning: "hm", Text: "a"}, "hma", "stop", false},
		{"length", scripted.Step{Do: scripted.Text, Text: "a", Finish: "length"}, "a", "length", false},
		{"tool", scripted.Step{Do: scripted.Tool, Name: "read", Arguments: `{"path":"x"}`}, `read{"path":"x"}`, "tool-calls", false},
		{"two tools", scripted.Step{Do: scripted.Tool, Tools: []scripted.Call{{Name: "a", Arguments: "{}"}, {Name: "b"}}}, `a{}b`, "tool-calls", false},
		{"empty", scripted.Step{Do: scripted.Empty}, "", "EMPTY_RESPONSE", false},
		{"status", scripted.Step{Do: scripted.Status, Status: 429}, "", "RATE_LIMIT", false},
		{"status by default", scripted.Step{Do: scripted.Status}, "", "SERVER", false},
		{"quota", scripted.Step{Do: scripted.Status, Status: 429, Code: "insufficient_quota"}, "", "QUOTA", false},
		{"html", scripted.Step{Do: scripted.HTML}, "", "SERVER", false},
		{"html 200", scripted.Step{Do: scripted.HTML, Status: 200}, "", "SERVER", false},
		{"overflow", scripted.Step{Do: scripted.Overflow}, "", "CONTEXT_WINDOW_EXCEEDED", false},
		{"overflow in the stream", scripted.Step{Do: scripted.Overflow, InStream: true}, "", "CONTEXT_WINDOW_EXCEEDED", false},
		{"reset", scripted.Step{Do: scripted.Reset}, "", "TRANSPORT", false},
		{"close", scripted.Step{Do: scripted.Close}, "", "TRANSPORT", false},
		{"hang", scripted.Step{Do: scripted.Hang}, "", "TIMEOUT", true},
		{"short hang", scripted.Step{Do: scripted.Hang, Ms: 20, Text: "late"}, "late", "stop", false},
		{"drop", scripted.Step{Do: scripted.Drop, Text: "a b", Chunks: 3, AfterChunks: 2}, "a ", "TRANSPORT", false},
		{"drop by reset", scripted.Step{Do: scripted.Drop, Text: "a b", Chunks: 3, AfterChunks: 2, RST: true}, "a ", "TRANSPORT", false},
		{"clean drop", scripted.Step{Do: scripted.Drop, Text: "a b", Chunks: 3, AfterChunks: 2, Clean: true}, "a ", "TRANSPORT", false},
		{"drop at the end", scripted.Step{Do: scripted.Drop, Text: "a b", Clean: true, AfterChunks: 99}, "a b", "TRANSPORT", false},
		{"drop in arguments", scripted.Step{Do: scripted.Drop, Name: "read", Arguments: `{"path":"some/long/path"}`, AfterChunks: 2}, `read{"path`, "TRANSPORT", false},
		{"stall", scripted.Step{Do: scripted.Stall, Text: "a b", Chunks: 3, AfterChunks: 2}, "a ", "TIMEOUT", true},
		{"short stall", scripted.Step{Do: scripted.Stall, Text: "a b", Chunks: 3, AfterChunks: 2, Ms: 500, PingMs: 20}, "a b", "stop", false},
		{"stream error", scripted.Step{Do: scripted.StreamError, Text: "a b", Chunks: 3, AfterChunks: 2}, "a ", "SERVER", false},
		{"cut JSON", scripted.Step{Do: scripted.TruncateJSON, Text: "a b", Chunks: 3, AfterChunks: 2}, "a ", "TRANSPORT", false},
		{"too small", scripted.Step{Do: scripted.Overflow, IfBodyOver: 1000, Else: &scripted.Step{Do: scripted.Text, Text: "fits"}}, "fits", "stop", false},
		{"too small, by default", scripted.Step{Do: scripted.Overflow, IfBodyOver: 1000}, "ok", "stop", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := scripted.Serve(c.step)
			if err != nil {
				t.Fatal(err)
			}
			text, end := play(t, adapter(t, s.URL), `{"n":1}`)
			if text != c.text || end != c.end {
				t.Errorf("got %q, %s; want %q, %s", text, end, c.text, c.end)
			}
			if err := s.Await(t.Context(), func(r []scripted.Request) bool { return len(r) == 1 && !r[0].Done.IsZero() }); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			r := s.Requests()[0]
			if string(r.Body) != `{"n":1}` || r.ClosedEarly != c.early || r.At.IsZero() || r.N != 1 {
				t.Errorf("the request: %+v", r)
			}
		})
	}
}

func TestSequence(t *testing.T) {
	yes := true
	s, err := scripted.Play(scripted.Script{
		Steps: []scripted.Step{
			{Do: scripted.Status, Status: 500, Times: 2},
			{Do: scripted.Status, Status: 429, Headers: map[string]string{"Retry-After": "2"}},
			{Do: scripted.Text, Text: "done"},
		},
		Rules: []scripted.Rule{{BodyContains: "summary", HasTools: &yes, Step: scripted.Step{Do: scripted.Text, Text: "short"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := adapter(t, s.URL)
	for i, want := range []string{"SERVER", "SERVER", "RATE_LIMIT", "stop"} {
		if i == 1 {
			if text, end := play(t, a, `{"tools":[{}],"summary":1}`); text != "short" || end != "stop" {
				t.Errorf("the rule: %q, %s", text, end)
			}
		}
		if _, end := play(t, a, `{"tools":[]}`); end != want {
			t.Errorf("request %d: %s, want %s", i+1, end, want)
		}
	}
	for _, err := range a.Send(t.Context(), []byte(`{}`)) {
		if f := dsh.AsFailure(err); f == nil || f.Code != dsh.CodeInvalidRequest || !strings.Contains(f.Message, "no step for request 6") {
			t.Errorf("a used up script: %v", err)
		}
	}
}

func TestAStepForAllThatFollow(t *testing.T) {
	s, err := scripted.Serve(scripted.Step{Do: scripted.Empty, Times: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := adapter(t, s.URL)
	for range 5 {
		if _, end := play(t, a, "{}"); end != "EMPTY_RESPONSE" {
			t.Fatal(end)
		}
	}
}

func TestCloseCutsWhatIsUnderWay(t *testing.T) {
	s, err := scripted.Serve(scripted.Step{Do: scripted.Hang})
	if err != nil {
		t.Fatal(err)
	}
	a, err := openaichat.New(openaichat.Settings{BaseURL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan string)
	go func() {
		_, e := play(t, a, "{}")
		end <- e
	}()
	if err := s.Await(t.Context(), func(r []scripted.Request) bool { return len(r) == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if e := <-end; e != "TRANSPORT" {
		t.Errorf("got %s", e)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := s.Await(ctx, func([]scripted.Request) bool { return false }); !errors.Is(err, why) {
		t.Errorf("Await: %v", err)
	}
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		`[{"do":"text"}]`: "",
		` {"steps":[{"do":"tool","name":"x"}],"rules":[{"step":{"do":"empty"}}]}`: "",
		`[]`:                                  "script: it has no steps",
		`{}`:                                  "script: it has no steps",
		`[{"do":"text"},{"do":"txet"}]`:       `script: step 2: do is "txet"; it is one of text, tool`,
		`[{"do":"text","delya":1}]`:           `script: step 1: unknown field "delya"`,
		`[{"do":"text","times":"2"}]`:         "script: step 1: cannot unmarshal string",
		`[{"do":"text"}] x`:                   "script: there is something after the end",
		`{"steps":[{"do":"text"}],"rule":[]}`: `script: unknown field "rule"`,
		`{"steps":[{"do":"text"}],"rules":[{"stpe":{}}]}`: `script: rule 1: unknown field "stpe"`,
		`{"steps":[{"do":"text"}],"rules":[{"step":{}}]}`: `script: rule 1: do is ""`,
		`[{"do":"tool"}]`:                          "script: step 1: a tool needs a name",
		`[{"do":"status","status":99}]`:            "script: step 1: status is 99; it is 200 to 599",
		`[{"do":"stall","ms":-1}]`:                 "script: step 1: ms is -1; it must not be negative",
		`[{"do":"text","times":-2}]`:               "script: step 1: times is -2",
		`[{"do":"text","times":-1},{"do":"text"}]`: "script: step 1: it serves all requests that follow, so that step 2 is never reached",
		`[{"do":"text","else":{"do":"x"}}]`:        `script: step 1: do is "x"`,
		`[{"do":"text"`:                            "script: unexpected EOF",
	} {
		_, err := scripted.Parse(strings.NewReader(in))
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestOpen(t *testing.T) {
	file := t.TempDir() + "/script.json"
	if _, err := scripted.Open(file, nil); err == nil {
		t.Error("a file that is not there was opened")
	}
	write(t, file, `[{"do":"text","text":"hello"}]`)
	a, err := scripted.Open(file, func(url string) (dsh.Adapter, error) { return openaichat.New(openaichat.Settings{BaseURL: url}) })
	if err != nil {
		t.Fatal(err)
	}
	if text, end := play(t, a, "{}"); text != "hello" || end != "stop" {
		t.Errorf("%q, %s", text, end)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	no := errors.New("no")
	if _, err := scripted.Open(file, func(string) (dsh.Adapter, error) { return nil, no }); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	write(t, file, `[{"do":"x"}]`)
	if _, err := scripted.Open(file, nil); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, file, s string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
}
