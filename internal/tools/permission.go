package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dsh-agent/dsh"
)

// A Question is put to a person before a tool that changes things runs.
type Question struct {
	Tool string
	Text string // what it would do, in lines; foreign text, to be cleaned before it is shown
}

// A Reply is a person's answer.
type Reply int

// The replies. The zero value denies.
const (
	ReplyNo     Reply = iota
	ReplyYes          // this call
	ReplyAlways       // this and every later call of this tool, while the Permission is there
)

// A Permission says which tools that change things may run. It is remembered
// nowhere. It may be used by several goroutines, and must not be copied; its
// fields are set before.
type Permission struct {
	// Yes lets every tool run.
	Yes bool

	// Granted are the names of tools that run without a question, or of the
	// servers that they come from: "shell", "github__search", "github".
	Granted []string

	// Ask puts a question to a person, one at a time. nil: there is nobody.
	// Its error is that of the context, which ended.
	Ask func(context.Context, Question) (Reply, error)

	mu     sync.Mutex
	always map[string]bool
	asking sync.Mutex
}

// Guard puts a permission before a tool. server is where the tool comes from,
// "" if it has no server.
func (p *Permission) Guard(t dsh.Tool, server string) dsh.Tool {
	return guarded{t, p, server}
}

type guarded struct {
	dsh.Tool
	permission *Permission
	server     string
}

// Run runs the tool if it may. A denial is a result.
func (g guarded) Run(ctx context.Context, arguments json.RawMessage) (dsh.ToolResult, error) {
	name := g.Spec().Name
	reply, err := g.permission.allows(ctx, name, g.server, func() string { return question(g.Tool, arguments) })
	switch {
	case err != nil:
		return dsh.ToolResult{}, err
	case reply != ReplyNo:
		return g.Tool.Run(ctx, arguments)
	case g.permission.Ask == nil:
		return refuse(mistakef("DENIED: %s was not run. It can change things, which was not allowed, and there is nobody to ask here. Do not try it again: tell the user what you would have done. The user can allow it with the flag --yes, or by naming it in tools.allow of dsh.toml.", name)), nil
	}
	return refuse(mistakef("DENIED: the user did not allow this call of %s. Do not repeat it: go on without it, or ask what to do instead.", name)), nil
}

func (p *Permission) allows(ctx context.Context, name, server string, text func() string) (Reply, error) {
	if p.free(name, server) {
		return ReplyYes, nil
	}
	if p.Ask == nil {
		return ReplyNo, nil
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	if p.free(name, server) { // the one before was answered with always
		return ReplyYes, nil
	}
	if ctx.Err() != nil {
		return ReplyNo, context.Cause(ctx)
	}
	reply, err := p.Ask(ctx, Question{name, text()})
	if err == nil && reply == ReplyAlways {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.always == nil {
			p.always = map[string]bool{}
		}
		p.always[name] = true
	}
	return reply, err
}

// free reports whether a tool runs without a question.
func (p *Permission) free(name, server string) bool {
	if p.Yes || slices.Contains(p.Granted, name) || server != "" && slices.Contains(p.Granted, server) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.always[name]
}

// maxQuestion is how much of foreign text a question shows, in bytes. What is
// cut is said: nobody says yes to what does not show.
const maxQuestion = 4000

// question is what a call would do, for a person.
func question(t dsh.Tool, raw json.RawMessage) string {
	if own, ok := t.(tool); ok && own.ask != nil {
		if args, err := parseArguments(own.spec.Name, own.params, raw); err == nil {
			return clip(own.ask(args))
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return clip(string(raw))
	}
	return clip(compact.String())
}

func clip(s string) string {
	if len(s) <= maxQuestion {
		return s
	}
	return fmt.Sprintf("%s\n[and %d more bytes that do not show]", cutText(s, maxQuestion), len(s)-maxQuestion)
}

// asks gives a tool the words of its question.
func asks(t dsh.Tool, ask func(arguments) string) dsh.Tool {
	own := t.(tool) //nolint:errcheck // the constructors return no other
	own.ask = ask
	return own
}

func (f *Folder) askWrite(args arguments) string {
	content := args.text("content")
	text := fmt.Sprintf("%s: %s, %s", show(args.text("path")), count(countLines(content), "line"), size(int64(len(content))))
	if name, err := f.resolve(args.text("path")); err == nil {
		if info, err := f.root.Lstat(name); err == nil {
			return text + fmt.Sprintf(", in the place of the file of %s that is there", size(info.Size()))
		}
	}
	return text + ", a new file"
}

func askEdit(args arguments) string {
	where := ""
	if args.flag("replace_all") {
		where = ", wherever they stand"
	}
	return fmt.Sprintf("%s: -%d +%d lines%s\n%s", show(args.text("path")), countLines(args.text("old")), countLines(args.text("new")), where,
		marked("- ", args.text("old"))+marked("+ ", args.text("new")))
}

// marked puts a mark before each line.
func marked(mark, text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		b.WriteString(mark + strings.TrimRight(l, "\r\n") + "\n")
	}
	return b.String()
}

func askShell(args arguments) string { return args.text("command") }
