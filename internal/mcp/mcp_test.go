package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/mcp"
)

// TestMain lets the test binary be a server on stdio.
func TestMain(m *testing.M) {
	if kind := os.Getenv("DSH_TEST_MCP_SERVER"); kind != "" {
		os.Exit(serve(kind))
	}
	os.Exit(m.Run())
}

// serve is a server on stdio, good or bad.
func serve(kind string) int {
	switch kind {
	case "good":
		if err := newServer().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	case "dies":
		fmt.Fprintln(os.Stderr, "no such\x1b[2J database")
		return 1
	case "silent":
		time.Sleep(time.Hour)
	case "noise":
		for {
			if _, err := fmt.Println("this is no JSON"); err != nil {
				return 0
			}
		}
	case "flood":
		for {
			if _, err := fmt.Print(strings.Repeat("[", 1<<20)); err != nil {
				return 0
			}
		}
	}
	return 0
}

var object = json.RawMessage(`{"type":"object"}`)

// newServer has a tool for all that a tool may do.
func newServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(t *sdk.Tool, run func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error)) {
		if t.InputSchema == nil {
			t.InputSchema = object
		}
		s.AddTool(t, run)
	}
	said := func(c ...sdk.Content) (*sdk.CallToolResult, error) { return &sdk.CallToolResult{Content: c}, nil }
	add(&sdk.Tool{Name: "echo", Description: "Says it again", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return said(&sdk.TextContent{Text: string(r.Params.Arguments)})
		})
	add(&sdk.Tool{Name: "fail"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r, _ := said(&sdk.TextContent{Text: "it went wrong"})
		r.IsError = true
		return r, nil
	})
	add(&sdk.Tool{Name: "rich"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return said(&sdk.TextContent{Text: "a\x00b"}, &sdk.ImageContent{MIMEType: "image/png", Data: []byte{1, 2}}, &sdk.ImageContent{MIMEType: "image/tiff", Data: []byte{1}},
			&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte{1, 2, 3}}, &sdk.ResourceLink{URI: "file:///x", Name: "x\x1b[2J"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "file:///y", Text: "why"}})
	})
	add(&sdk.Tool{Name: "huge"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return said(&sdk.TextContent{Text: strings.Repeat("é", 1<<17)}, &sdk.TextContent{Text: "more"}, &sdk.ImageContent{MIMEType: "image/png", Data: make([]byte, 4<<20+1)})
	})
	add(&sdk.Tool{Name: "many"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var c []sdk.Content
		for i := range 5000 {
			c = append(c, &sdk.TextContent{Text: strconv.Itoa(i)})
		}
		return said(c...)
	})
	add(&sdk.Tool{Name: "structured"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: map[string]any{"n": 1}}, nil
	})
	add(&sdk.Tool{Name: "slow"}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		mark(r, "began")
		select {
		case <-ctx.Done():
			mark(r, "cancelled")
		case <-time.After(time.Minute):
		}
		return nil, errors.New("stopped")
	})
	add(&sdk.Tool{Name: "die"}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	add(&sdk.Tool{Name: "environment"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return said(&sdk.TextContent{Text: strings.Join(os.Environ(), "\n") + "\npid=" + strconv.Itoa(os.Getpid())})
	})
	add(&sdk.Tool{Name: "a.b/c"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return said() })
	add(&sdk.Tool{Name: "a_b.c"}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return said() })
	add(&sdk.Tool{Name: strings.Repeat("x", 70)}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return said() })
	return s
}

// mark leaves a file, by which a test sees what a server did.
func mark(r *sdk.CallToolRequest, what string) {
	var a struct{ Dir string }
	if json.Unmarshal(r.Params.Arguments, &a) == nil && a.Dir != "" {
		os.WriteFile(filepath.Join(a.Dir, what), nil, 0o600)
	}
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func there(path string) func() bool {
	return func() bool { _, err := os.Stat(path); return err == nil }
}

// A peer is a client under test, with what it warned of.
type peer struct {
	*mcp.Client
	t     *testing.T
	tools map[string]dsh.Tool

	mu     sync.Mutex
	warned []string
}

func (p *peer) warnings() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.warned, "\n")
}

func stdio(kind string) mcp.Server {
	return mcp.Server{
		Name: "srv", Command: os.Args[0], StartTimeout: 40 * time.Second, CallTimeout: 40 * time.Second,
		Env: []string{"DSH_TEST_MCP_SERVER=" + kind, "PATH=" + os.Getenv("PATH"), "SystemRoot=" + os.Getenv("SystemRoot")},
	}
}

func dial(t *testing.T, s mcp.Server) *peer {
	t.Helper()
	p := &peer{t: t, tools: map[string]dsh.Tool{}}
	p.Client = mcp.New(s, mcp.Options{Version: "test", Warn: func(w string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.warned = append(p.warned, w)
	}})
	t.Cleanup(func() { p.Close() })
	for _, tool := range p.Tools(t.Context()) {
		p.tools[tool.Spec().Name] = tool
	}
	return p
}

func (p *peer) call(name, arguments string) dsh.ToolResult {
	p.t.Helper()
	tool, ok := p.tools["srv__"+name]
	if !ok {
		p.t.Fatalf("no tool %s; warnings: %s", name, p.warnings())
	}
	r, err := tool.Run(p.t.Context(), json.RawMessage(arguments))
	if err != nil {
		p.t.Fatalf("%s: %v", name, err)
	}
	if len(r.Content) == 0 {
		p.t.Fatalf("%s: an empty result", name)
	}
	return r
}

// both runs a test against a server on stdio, and against one by HTTP.
func both(t *testing.T, f func(t *testing.T, s mcp.Server)) {
	t.Run("stdio", func(t *testing.T) { f(t, stdio("good")) })
	t.Run("http", func(t *testing.T) {
		server := newServer()
		h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
		hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer canary" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		}))
		t.Cleanup(hs.Close)
		f(t, mcp.Server{Name: "srv", URL: hs.URL, Headers: map[string]string{"Authorization": "Bearer canary"}, StartTimeout: 20 * time.Second, CallTimeout: 20 * time.Second})
	})
}

func TestTools(t *testing.T) {
	both(t, func(t *testing.T, s mcp.Server) {
		p := dial(t, s)
		var names []string
		for _, tool := range p.Tools(t.Context()) {
			names = append(names, tool.Spec().Name)
		}
		want := []string{"srv__a_b_c", "srv__die", "srv__echo", "srv__environment", "srv__fail", "srv__huge", "srv__many", "srv__rich", "srv__slow", "srv__structured"}
		if !slices.Equal(names, want) {
			t.Errorf("%q", names)
		}
		spec := p.tools["srv__echo"].Spec()
		if spec.Description != "Says it again" || !spec.ReadOnly || p.tools["srv__fail"].Spec().ReadOnly || !strings.Contains(string(spec.Schema), `"properties":{"text"`) {
			t.Errorf("%+v", spec)
		}
		for _, w := range []string{"is left out: another one is called srv__a_b_c too", "its name is empty or too long"} {
			if !strings.Contains(p.warnings(), w) {
				t.Errorf("no %q in %s", w, p.warnings())
			}
		}
		if r := p.call("echo", `{"text":"hello"}`); r.IsError || dsh.Text(r.Content) != `{"text":"hello"}` {
			t.Errorf("%+v", r)
		}
		if r := p.call("fail", `{}`); !r.IsError || dsh.Text(r.Content) != "it went wrong" {
			t.Errorf("%+v", r)
		}
		if r := p.call("structured", `{}`); dsh.Text(r.Content) != `{"n":1}` {
			t.Errorf("%+v", r)
		}
		if r := p.call("a_b_c", `{}`); dsh.Text(r.Content) != "[the result is empty]" {
			t.Errorf("%+v", r)
		}
	})
}

func TestResults(t *testing.T) {
	p := dial(t, stdio("good"))
	r := p.call("rich", `{}`)
	var got []string
	for _, b := range r.Content {
		got = append(got, fmt.Sprintf("%s %s%s%v", b.Type, b.Text, b.MediaType, b.Data))
	}
	want := []string{
		"text a\ufffdb[]", "image image/png[1 2]", "text [an image of a kind that is not taken: image/tiff, 1 bytes][]", "text [audio of 3 bytes (audio/wav), which cannot be shown][]",
		"text [a link to a resource: file:///x x [2J][]", "text [the resource file:///y:][]", "text why[]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	r = p.call("huge", `{}`)
	text := dsh.Text(r.Content)
	if len(text) > 66<<10 || !strings.Contains(text, "[a text of the result is cut: 65536 bytes of 262144 are shown]") || !strings.Contains(text, "0 bytes of 4 are shown") || strings.ContainsRune(text, '\ufffd') {
		t.Errorf("%d %q", len(text), text[max(0, len(text)-400):])
	}
	for _, b := range r.Content {
		if b.Type == dsh.BlockImage {
			t.Error("an image of 5 MiB is taken")
		}
	}
	if r = p.call("many", `{}`); len(r.Content) != 101 || !strings.Contains(dsh.Text(r.Content), "4900 more pieces") {
		t.Errorf("%d", len(r.Content))
	}
}

func TestCancel(t *testing.T) {
	both(t, func(t *testing.T, s mcp.Server) {
		p, dir, why := dial(t, s), t.TempDir(), errors.New("stopped by a test")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			waitFor(t, "the call", there(filepath.Join(dir, "began")))
			cancel(why)
		}()
		args, _ := json.Marshal(map[string]string{"dir": dir})
		if r, err := p.tools["srv__slow"].Run(ctx, args); !errors.Is(err, why) {
			t.Errorf("%v %v", r, err)
		}
		waitFor(t, "the server's cancellation", there(filepath.Join(dir, "cancelled")))
		if r := p.call("echo", `{}`); r.IsError {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

func TestSlowCall(t *testing.T) {
	s := stdio("good")
	s.CallTimeout = 300 * time.Millisecond
	p := dial(t, s)
	if r := p.call("slow", `{}`); !r.IsError || !strings.Contains(dsh.Text(r.Content), "it did not answer in time (call_timeout_ms); what the call did until then is not known") {
		t.Errorf("%+v", r)
	}
	if r := p.call("echo", `{}`); r.IsError {
		t.Errorf("afterwards: %+v", r)
	}
}

func (p *peer) pid() int {
	p.t.Helper()
	_, after, _ := strings.Cut(dsh.Text(p.call("environment", `{}`).Content), "\npid=")
	pid, err := strconv.Atoi(after)
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}

// TestDeath holds that a server which dies in a call is started again for the
// next one, and that the call is not made again.
func TestDeath(t *testing.T) {
	p := dial(t, stdio("good"))
	before := p.pid()
	if r := p.call("die", `{}`); !r.IsError || !strings.Contains(dsh.Text(r.Content), "ended during the call: what it did until then is not known, and it was not called again") {
		t.Errorf("%+v", r)
	}
	after := p.pid()
	if after == before {
		t.Error("the server is the same")
	}
	proc, err := os.FindProcess(after)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	go func() {
		waitFor(t, "the call", there(filepath.Join(dir, "began")))
		proc.Kill()
	}()
	args, _ := json.Marshal(map[string]string{"dir": dir})
	if r := p.call("slow", string(args)); !r.IsError || !strings.Contains(dsh.Text(r.Content), "ended during the call") {
		t.Errorf("killed: %+v", r)
	}
	if p.pid() == after {
		t.Error("the killed server is the same")
	}
	for range 5 {
		p.call("die", `{}`)
	}
	if r := p.call("echo", `{}`); !r.IsError || !strings.Contains(dsh.Text(r.Content), "is left alone for a while; the call was not made") {
		t.Errorf("after many deaths: %+v", r)
	}
}

// TestHTTPDeath holds that a server by HTTP that has forgotten its sessions is
// spoken to anew.
func TestHTTPDeath(t *testing.T) {
	server := newServer()
	var mu sync.Mutex
	fresh := func() http.Handler {
		return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	}
	h := fresh()
	hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now := h
		mu.Unlock()
		now.ServeHTTP(w, r)
	}))
	defer hs.Close()
	p := dial(t, mcp.Server{Name: "srv", URL: hs.URL, StartTimeout: 10 * time.Second, CallTimeout: 10 * time.Second})
	p.call("echo", `{}`)
	mu.Lock()
	h = fresh()
	mu.Unlock()
	p.call("echo", `{}`) // it may fail: the session is gone
	if r := p.call("echo", `{}`); r.IsError {
		t.Errorf("%+v", r)
	}
}

func TestBadServers(t *testing.T) {
	slow := stdio("silent")
	slow.StartTimeout = 300 * time.Millisecond
	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	prose := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") }))
	defer prose.Close()
	flood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for chunk := []byte(strings.Repeat(" ", 1<<20)); r.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer flood.Close()
	byHTTP := func(url string) mcp.Server {
		return mcp.Server{Name: "srv", URL: url, StartTimeout: 5 * time.Second}
	}
	for _, c := range []struct {
		name   string
		server mcp.Server
		want   string
	}{
		{"dies", stdio("dies"), "it says: no such [2J database"},
		{"silent", slow, "it was not ready in time"},
		{"noise", stdio("noise"), "gives no tools"},
		{"flood", stdio("flood"), "gives no tools"},
		{"no program", mcp.Server{Name: "srv", Command: "/nonexistent/program"}, "gives no tools"},
		{"nobody", byHTTP(nobody.URL), "refused"},
		{"prose", byHTTP(prose.URL), "gives no tools"},
		{"a flood by HTTP", byHTTP(flood.URL), "gives no tools"},
	} {
		began := time.Now()
		p := dial(t, c.server)
		if len(p.tools) > 0 || !strings.Contains(p.warnings(), "the tool server srv gives no tools: ") || !strings.Contains(p.warnings(), c.want) || strings.Contains(p.warnings(), "\x1b") {
			t.Errorf("%s: %d tools, %q", c.name, len(p.tools), p.warnings())
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("%s took %v", c.name, d)
		}
	}
}

// TestRedirect holds that the headers of a server go to no other.
func TestRedirect(t *testing.T) {
	var mu sync.Mutex
	var got []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	hs := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer hs.Close()
	p := dial(t, mcp.Server{Name: "srv", URL: hs.URL, Headers: map[string]string{"Authorization": "Bearer canary"}, StartTimeout: 5 * time.Second})
	if len(got) > 0 || !strings.Contains(p.warnings(), "which is another") {
		t.Errorf("%q %s", got, p.warnings())
	}
}

// TestEnvironment holds that a server has the variables that it is given.
func TestEnvironment(t *testing.T) {
	t.Setenv("DSH_TEST_CANARY", "canary")
	s := stdio("good")
	s.Env = append(s.Env, "GIVEN=yes")
	text := dsh.Text(dial(t, s).call("environment", `{}`).Content)
	if strings.Contains(text, "canary") || !strings.Contains(text, "GIVEN=yes\n") {
		t.Errorf("%s", text)
	}
}
