// Package tools is what a model may call to do its work in a folder.
//
// The tools of [Folder.ReadOnly] read, list and search; those of
// [Folder.Changing] write and edit. They reach what is inside the folder and
// nothing else: not by "..", not by an absolute path, not by a symbolic link,
// nor by one that is swapped in while they look. They open regular files and
// folders only, so that no device, pipe or socket can block them, and no file
// of the kernel's own (/proc, /sys) tells what the process knows. What a file
// or a folder holds cannot make a result larger than [MaxResult], nor a call
// take memory or time without a bound.
//
// The tool of [Folder.Shell] runs a command, which may do what the user may
// do: the folder is only where it starts. What it cannot do is outlive its
// call, or dsh: see [Supervise].
//
// What changes something runs only as a [Permission] allows, and what is
// denied is a result that says why.
//
// What goes wrong in the work (a wrong argument, a missing file, a command
// that fails) is a result with IsError and a text that says what to do. Run's
// error is for a closed folder and for a context that ended: it is the
// context's cause.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
)

// MaxResult is the size in bytes of the largest result, its notes included.
const MaxResult = 64 << 10

// noteSpace is what a tool leaves of a result for its notes.
const noteSpace = 2 << 10

// ReadOnly returns the tools that change nothing: read, list and search. None
// is declared idempotent: what a tool saw before a crash may be another thing
// now, and "outcome unknown" lets the model decide. They may be used by several
// goroutines until the folder is closed.
func (f *Folder) ReadOnly() []dsh.Tool {
	return []dsh.Tool{readTool(f), listTool(f), searchTool(f)}
}

// Changing returns the tools that change files: write and edit.
func (f *Folder) Changing() []dsh.Tool {
	return []dsh.Tool{asks(writeTool(f), f.askWrite), asks(editTool(f), askEdit)}
}

// A tool is a dsh.Tool made of a table of parameters and a function.
type tool struct {
	spec   dsh.ToolSpec
	params []param
	run    func(context.Context, arguments) (answer, error)
	ask    func(arguments) string // the words of a question; nil: the arguments
}

// newTool makes a tool that only reads.
func newTool(name, description string, params []param, run func(context.Context, arguments) (answer, error)) dsh.Tool {
	return tool{
		spec:   dsh.ToolSpec{Name: name, Description: description, Schema: schema(params), ReadOnly: true},
		params: params, run: run,
	}
}

// newChange is newTool for a tool that changes something.
func newChange(name, description string, params []param, run func(context.Context, arguments) (answer, error)) dsh.Tool {
	return tool{
		spec:   dsh.ToolSpec{Name: name, Description: description, Schema: schema(params)},
		params: params, run: run,
	}
}

func (t tool) Spec() dsh.ToolSpec { return t.spec }

func (t tool) Run(ctx context.Context, raw json.RawMessage) (dsh.ToolResult, error) {
	if ctx.Err() != nil {
		return dsh.ToolResult{}, context.Cause(ctx)
	}
	args, err := parseArguments(t.spec.Name, t.params, raw)
	if err != nil {
		return refuse(err), nil
	}
	a, err := t.run(ctx, args)
	var m *mistake
	switch {
	case err != nil && ctx.Err() != nil:
		return dsh.ToolResult{}, context.Cause(ctx)
	case errors.As(err, &m):
		return refuse(err), nil
	case err != nil:
		return dsh.ToolResult{}, fmt.Errorf("tool %s: %w", t.spec.Name, err)
	}
	return a.result(), nil
}

// A mistake is an error for the model to read.
type mistake struct{ text string }

func (m *mistake) Error() string { return m.text }

func mistakef(format string, a ...any) error { return &mistake{fmt.Sprintf(format, a...)} }

func refuse(err error) dsh.ToolResult {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(cutText(err.Error(), noteSpace))}, IsError: true}
}

// An answer is what a tool found, and notes on what it left out. Notes follow
// the text in a block of their own, in brackets, a line each.
type answer struct {
	text   string
	notes  []string
	failed bool // the result is an error
}

func (a *answer) notef(format string, v ...any) {
	a.notes = append(a.notes, "["+fmt.Sprintf(format, v...)+"]")
}

func (a answer) result() dsh.ToolResult {
	r := dsh.ToolResult{IsError: a.failed}
	if len(a.notes) == 0 {
		r.Content = []dsh.Block{dsh.TextBlock(a.text)}
		return r
	}
	notes := cutText(strings.Join(a.notes, "\n"), noteSpace-1)
	if a.text == "" {
		r.Content = []dsh.Block{dsh.TextBlock(notes)}
		return r
	}
	if !strings.HasSuffix(a.text, "\n") {
		notes = "\n" + notes
	}
	r.Content = []dsh.Block{dsh.TextBlock(a.text), dsh.TextBlock(notes)}
	return r
}

// cutText is s, or its first bytes without half a rune at their end.
func cutText(s string, size int) string {
	if len(s) <= size {
		return s
	}
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return s[:size]
}
