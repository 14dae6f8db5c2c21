package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools"
)

// TestMain lets the test binary be a supervisor of commands.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(tools.Supervise(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// shell is how the tests run commands.
func shell() tools.Shell {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return tools.Shell{Supervisor: []string{exe, "supervise"}, Env: os.Environ()}
}

// A box is a working folder under test.
type box struct {
	t     testing.TB
	dir   string
	tools map[string]dsh.Tool
}

func newBox(t testing.TB, files map[string]string) *box {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return openBox(t, dir)
}

func openBox(t testing.TB, dir string) *box {
	t.Helper()
	f, err := tools.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	b := &box{t: t, dir: dir, tools: map[string]dsh.Tool{}}
	for _, tool := range append(append(f.ReadOnly(), f.Changing()...), f.Shell(shell())) {
		b.tools[tool.Spec().Name] = tool
	}
	return b
}

func (b *box) link(target, name string) {
	b.t.Helper()
	if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
		b.t.Skipf("no symbolic links here: %v", err)
	}
}

// call runs a tool and holds its result to what all results promise.
func (b *box) call(name, arguments string) dsh.ToolResult {
	b.t.Helper()
	r, err := b.tools[name].Run(b.t.Context(), json.RawMessage(arguments))
	if err != nil {
		b.t.Fatalf("%s %.100s: %v", name, arguments, err)
	}
	total := 0
	for _, c := range r.Content {
		if c.Type != dsh.BlockText || !utf8.ValidString(c.Text) || strings.ContainsRune(c.Text, 0) || c.Text == "" && len(r.Content) > 1 {
			b.t.Fatalf("%s %.100s: a bad block %.100q", name, arguments, c.Text)
		}
		total += len(c.Text)
	}
	if len(r.Content) == 0 || total > tools.MaxResult {
		b.t.Fatalf("%s %.100s: %d blocks, %d bytes", name, arguments, len(r.Content), total)
	}
	return r
}

func (b *box) good(name, arguments string) string {
	b.t.Helper()
	r := b.call(name, arguments)
	if r.IsError {
		b.t.Fatalf("%s %.100s: %s", name, arguments, dsh.Text(r.Content))
	}
	return dsh.Text(r.Content)
}

func (b *box) bad(name, arguments string, want ...string) {
	b.t.Helper()
	r := b.call(name, arguments)
	text := dsh.Text(r.Content)
	for _, w := range want {
		if !r.IsError || !strings.Contains(text, w) {
			b.t.Errorf("%s %.200s:\n got %v %q\nwant an error with %q", name, arguments, r.IsError, text, w)
		}
	}
	if strings.Contains(text, b.dir) && !strings.Contains(arguments, b.dir) {
		b.t.Errorf("%s %.200s: the folder's own path is told: %q", name, arguments, text)
	}
}

func object(kv ...any) string {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	raw, err := dsh.JSON(m)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func TestSpecs(t *testing.T) {
	b := newBox(t, nil)
	if len(b.tools) != 6 {
		t.Fatalf("%d tools", len(b.tools))
	}
	for _, name := range []string{"read", "list", "search", "write", "edit", "shell"} {
		if got, want := b.tools[name].Spec().ReadOnly, strings.Contains("read list search", name); got != want {
			t.Errorf("%s: ReadOnly is %v", name, got)
		}
	}
	for name, tool := range b.tools {
		spec := tool.Spec()
		var schema struct {
			Type                 string
			Properties           map[string]struct{ Type, Description string }
			Required             []string
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(spec.Schema, &schema); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if spec.Idempotent || len(spec.Description) < 100 || schema.Type != "object" || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("%s: %+v", name, spec)
		}
		for p, s := range schema.Properties {
			if s.Type == "" || s.Description == "" {
				t.Errorf("%s: property %s: %+v", name, p, s)
			}
		}
	}
}

func TestArguments(t *testing.T) {
	b := newBox(t, map[string]string{"a": "x\n"})
	for _, c := range []struct{ arguments, want string }{
		{`[]`, "one JSON object"},
		{`null`, "one JSON object"},
		{`{`, "one JSON object"},
		{``, "one JSON object"},
		{`{}`, `"path" of read is missing`},
		{`{"path":null}`, `"path" of read is missing`},
		{`{"path":7}`, `"path" must be a string, and is 7`},
		{`{"path":"a","offset":0}`, "from 1 to 2147483647, and is 0"},
		{`{"path":"a","offset":1.5}`, "whole number"},
		{`{"path":"a","offset":"2"}`, `and is "2"`},
		{`{"path":"a","offset":1e400}`, "whole number"},
		{`{"path":"a","limit":-1}`, "from 1 to"},
		{`{"path":"a","limit":99999}`, "from 1 to 10000"},
		{`{"path":"a","file":1,"abc":2}`, `no argument "abc": its arguments are path (string, required), offset (integer), limit (integer)`},
		{`{"path":"a\u0000b"}`, "NUL"},
		{object("path", strings.Repeat("a/", 5<<20)), "at most 4096"},
		{`{"path":"a","x":"` + strings.Repeat("y", 10<<20) + `"}`, `no argument "x"`},
		{`{"path":"` + strings.Repeat("é", 2000) + `"}`, "cannot be read: file name too long"},
	} {
		b.bad("read", c.arguments, c.want)
	}
	b.bad("list", `{"depth":true}`, "whole number from 1 to 100, and is true")
	b.bad("search", `{"pattern":"a","ignored":"yes"}`, "must be true or false")
	for _, ok := range []string{`{"path":"a","offset":1.0,"limit":1e1}`, `{"path":"a","offset":null}`, `{"path":"a","path":"a"}`} {
		if got := b.good("read", ok); got != "x\n" {
			t.Errorf("%s: %q", ok, got)
		}
	}
}

func TestContext(t *testing.T) {
	b := newBox(t, map[string]string{"a": "x\n"})
	cause := errors.New("the caller's own cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, tool := range b.tools {
		if _, err := tool.Run(ctx, json.RawMessage(`{"path":"a","pattern":"x"}`)); !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosed(t *testing.T) {
	f, err := tools.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, tool := range f.ReadOnly() {
		_, err := tool.Run(t.Context(), json.RawMessage(map[string]string{
			"read": `{"path":"a"}`, "list": `{}`, "search": `{"pattern":"x"}`,
		}[tool.Spec().Name]))
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", tool.Spec().Name, err)
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, filepath.Join(dir, "none")} {
		if _, err := tools.Open(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzArguments holds that no arguments are a fault of the machinery, and that
// nothing outside the folder is told.
func FuzzArguments(f *testing.F) {
	b := newBox(f, map[string]string{
		"in/a.txt": "alpha\nbeta\n", "in/d/b.go": "package b\n", "in/.gitignore": "x\n", "secret": "outside-secret\n",
	})
	b.link("../secret", "in/out")
	b.link("d", "in/link")
	in := openBox(f, filepath.Join(b.dir, "in"))
	for _, seed := range []string{
		`{"path":"a.txt","offset":2,"limit":1}`, `{"path":"../secret"}`, `{"path":"out"}`, `{"path":"link/../out"}`,
		`{"depth":3}`, `{"pattern":"a|(b","glob":"*.{go"}`, `{"pattern":"secret","ignored":true}`, `{"glob":"!**/[a-"}`,
		`{"path":"\"d\\x2fb.go\""}`, `{"path":"/proc/self/environ"}`, `{"pattern":".","path":"d","limit":1}`,
	} {
		for _, name := range []string{"read", "list", "search"} {
			f.Add(name, seed)
		}
	}
	f.Fuzz(func(t *testing.T, name, arguments string) {
		tool, ok := in.tools[name]
		if !ok {
			return
		}
		r, err := tool.Run(t.Context(), json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		text := dsh.Text(r.Content)
		if strings.Contains(text, "outside-secret") || !utf8.ValidString(text) || len(text) > tools.MaxResult || text == "" {
			t.Errorf("%q", text)
		}
		again, err := tool.Run(t.Context(), json.RawMessage(arguments))
		if err != nil || dsh.Text(again.Content) != text {
			t.Errorf("a second run: %v %q, and the first %q", err, dsh.Text(again.Content), text)
		}
	})
}
