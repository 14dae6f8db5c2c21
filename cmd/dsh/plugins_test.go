package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
)

// tool is a step of a script that calls a tool.
func tool(name string, kv ...any) scripted.Step {
	args := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		args[kv[i].(string)] = kv[i+1]
	}
	raw, err := dsh.JSON(args)
	if err != nil {
		panic(err)
	}
	return scripted.Step{Do: scripted.Tool, Name: name, Arguments: string(raw)}
}

// TestPluginTools holds that a plugin of dsh.toml is called, without a question
// where it can only read, and not otherwise.
func TestPluginTools(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../runtime/runtimetest/testdata/echo.wasm")
	if err != nil {
		t.Fatal(err)
	}
	call := func(name string) []any { return []any{"input", `{"said":"` + name + `"}`} }
	w := prepare(t, tool("reads", call("reads")...), tool("writes", call("writes")...), tool("gone", call("gone")...), answer("done"))
	text, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	for name, grants := range map[string]string{"reads": "", "writes": "write = [\".\"]\n", "gone": "function = \"nothing\"\n"} {
		text = fmt.Appendf(text, "[[tools.wasm]]\nname = %q\nmodule = %q\nfunction = \"recover\"\n%s", name, module, grants)
	}
	text = []byte(strings.Replace(string(text), "function = \"recover\"\nfunction", "function", 1))
	if err := os.WriteFile(w.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "run", "q")
	if r.code != 0 || !strings.Contains(r.err, `the tool gone is left out: `+module+`: it exports no function "nothing"`) {
		t.Fatalf("%d %s", r.code, r.err)
	}
	var got []string
	for _, e := range ofType(w.events(t), dsh.TypeToolResult) {
		var d dsh.ToolResultEvent
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(d.IsError, " ", dsh.Text(d.Content)))
	}
	for i, want := range []string{`false {"said":"reads"}`, "true DENIED: writes was not run", `true There is no tool "gone"`} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("result %d of %q, want %q", i+1, got, want)
		}
	}
}
