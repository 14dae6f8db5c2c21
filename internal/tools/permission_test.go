package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools"
)

func TestPermission(t *testing.T) {
	never := func(context.Context, tools.Question) (tools.Reply, error) {
		t.Error("a question was asked")
		return tools.ReplyNo, nil
	}
	answer := func(r tools.Reply) func(context.Context, tools.Question) (tools.Reply, error) {
		return func(context.Context, tools.Question) (tools.Reply, error) { return r, nil }
	}
	for _, c := range []struct {
		name   string
		p      *tools.Permission
		server string
		ran    bool
		says   string
	}{
		{"nothing is said", &tools.Permission{}, "", false, "DENIED: write was not run. It can change things, which was not allowed, and there is nobody to ask here."},
		{"--yes", &tools.Permission{Yes: true, Ask: never}, "", true, "created f"},
		{"a grant", &tools.Permission{Granted: []string{"edit", "write"}, Ask: never}, "", true, "created f"},
		{"a grant to its server", &tools.Permission{Granted: []string{"files"}, Ask: never}, "files", true, "created f"},
		{"a grant to another", &tools.Permission{Granted: []string{"files"}}, "", false, "--yes, or by naming it in tools.allow"},
		{"no", &tools.Permission{Ask: answer(tools.ReplyNo)}, "", false, "DENIED: the user did not allow this call of write"},
		{"yes", &tools.Permission{Ask: answer(tools.ReplyYes)}, "", true, "created f"},
	} {
		b := newBox(t, nil)
		r, err := c.p.Guard(b.tools["write"], c.server).Run(t.Context(), json.RawMessage(object("path", "f", "content", "x")))
		if text := dsh.Text(r.Content); err != nil || r.IsError == c.ran || !strings.Contains(text, c.says) {
			t.Errorf("%s: %v %v %q", c.name, err, r.IsError, text)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "f")); (err == nil) != c.ran {
			t.Errorf("%s: the file: %v", c.name, err)
		}
	}
}

// TestPermissionAlways holds that always is for one tool, and that questions
// are asked one at a time.
func TestPermissionAlways(t *testing.T) {
	b := newBox(t, map[string]string{"f": "x\n"})
	var mu sync.Mutex
	var asked []string
	p := &tools.Permission{Ask: func(_ context.Context, q tools.Question) (tools.Reply, error) {
		if !mu.TryLock() {
			t.Error("two questions at a time")
		}
		defer mu.Unlock()
		asked = append(asked, q.Tool)
		return tools.ReplyAlways, nil
	}}
	write, edit := p.Guard(b.tools["write"], ""), p.Guard(b.tools["edit"], "")
	var running sync.WaitGroup
	for range 10 {
		running.Go(func() {
			if r, err := write.Run(t.Context(), json.RawMessage(object("path", "g", "content", "y"))); err != nil {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	running.Wait()
	if _, err := edit.Run(t.Context(), json.RawMessage(object("path", "f", "old", "x", "new", "y"))); err != nil {
		t.Error(err)
	}
	if got := strings.Join(asked, " "); got != "write edit" {
		t.Errorf("asked: %s", got)
	}
}

func TestPermissionQuestions(t *testing.T) {
	b := newBox(t, map[string]string{"f": "one\ntwo\n"})
	why := errors.New("stopped")
	for _, c := range []struct{ tool, arguments, want string }{
		{"write", object("path", "new", "content", "a\nb"), "new: 2 lines, 3 bytes, a new file"},
		{"write", object("path", "f", "content", ""), "f: 0 lines, 0 bytes, in the place of the file of 8 bytes that is there"},
		{"edit", object("path", "f", "old", "one", "new", "1\n2"), "f: -1 +2 lines\n- one\n+ 1\n+ 2\n"},
		{"edit", object("path", "f", "old", "one", "new", "", "replace_all", true), "f: -1 +0 lines, wherever they stand\n- one\n"},
		{"shell", object("command", "rm -rf /"), "rm -rf /"},
		{"shell", `{ "commands": 1 }`, `{"commands":1}`},
		{"shell", object("command", strings.Repeat("x", 5000)), strings.Repeat("x", 4000) + "\n[and 1000 more bytes that do not show]"},
	} {
		got := ""
		p := &tools.Permission{Ask: func(_ context.Context, q tools.Question) (tools.Reply, error) {
			got = q.Text
			return tools.ReplyYes, why
		}}
		if _, err := p.Guard(b.tools[c.tool], "").Run(t.Context(), json.RawMessage(c.arguments)); !errors.Is(err, why) {
			t.Errorf("%s: %v", c.tool, err)
		}
		if got != c.want {
			t.Errorf("%s %.80s: %.200q", c.tool, c.arguments, got)
		}
	}
	if b.content("f") != "one\ntwo\n" {
		t.Error("a tool ran although asking failed")
	}
}
