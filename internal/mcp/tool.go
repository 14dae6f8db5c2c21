package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dsh-agent/dsh"
)

// The most that is taken of one result.
const (
	maxText   = 64 << 10 // bytes of all its texts
	maxBlocks = 100
	maxImages = 8
	maxImage  = 4 << 20 // bytes of all its images
)

// A tool is one tool of a server.
type tool struct {
	client *Client
	name   string // as the server calls it
	spec   dsh.ToolSpec
}

func (t *tool) Spec() dsh.ToolSpec { return t.spec }

// Run calls the tool. Its error is the cause of a context that ended; the
// server is then told that nobody waits any more.
func (t *tool) Run(ctx context.Context, arguments json.RawMessage) (dsh.ToolResult, error) {
	if ctx.Err() != nil {
		return dsh.ToolResult{}, context.Cause(ctx)
	}
	r, err := t.call(ctx, arguments)
	switch {
	case ctx.Err() != nil:
		return dsh.ToolResult{}, context.Cause(ctx)
	case err != nil:
		return failed("%v", err), nil
	}
	return r, nil
}

func (t *tool) call(ctx context.Context, arguments json.RawMessage) (dsh.ToolResult, error) {
	server := t.client.server
	starting, cancel := context.WithTimeoutCause(ctx, server.StartTimeout, errSlowStart)
	defer cancel()
	l, err := t.client.connect(starting)
	if err != nil {
		return dsh.ToolResult{}, fmt.Errorf("the tool server %s cannot be reached: %w; the call was not made", server.Name, err)
	}
	timed, cancel := context.WithTimeoutCause(ctx, server.CallTimeout, errSlowCall)
	defer cancel()
	answer, err := l.session.CallTool(timed, &sdk.CallToolParams{Name: t.name, Arguments: arguments})
	var refused *jsonrpc.Error
	switch {
	case err == nil:
		return result(answer), nil
	case timed.Err() != nil:
		return dsh.ToolResult{}, fmt.Errorf("the tool server %s: %w; what the call did until then is not known", server.Name, context.Cause(timed))
	case errors.As(err, &refused):
		return dsh.ToolResult{}, fmt.Errorf("the tool server %s refused the call: %s", server.Name, printable(refused.Message, 1000))
	case l.lost(err):
		return dsh.ToolResult{}, fmt.Errorf("the tool server %s ended during the call: what it did until then is not known, and it was not called again; it is started anew for the next call", server.Name)
	}
	return dsh.ToolResult{}, fmt.Errorf("the tool server %s: %s", server.Name, printable(err.Error(), 1000))
}

// lost reports whether an error means that the connection is gone, and sees to
// it that the next call makes a new one. On stdio every error that is not the
// server's answer is of that kind.
func (l *link) lost(err error) bool {
	if l.process == nil && !errors.Is(err, sdk.ErrConnectionClosed) && !errors.Is(err, sdk.ErrSessionMissing) && l.alive() {
		return false
	}
	l.broken.Store(true)
	_ = l.session.Close() // it is gone
	return true
}

func failed(format string, args ...any) dsh.ToolResult {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(fmt.Sprintf(format, args...))}, IsError: true}
}

// result is a server's answer as the model reads it.
func result(r *sdk.CallToolResult) dsh.ToolResult {
	a := assembly{}
	content := r.Content
	if len(content) > maxBlocks {
		a.notes = append(a.notes, fmt.Sprintf("[%d more pieces of the result are left out]", len(content)-maxBlocks))
		content = content[:maxBlocks]
	}
	for _, c := range content {
		a.add(c)
	}
	if len(content) == 0 && r.StructuredContent != nil {
		if raw, err := dsh.JSON(r.StructuredContent); err == nil {
			a.text(string(raw))
		}
	}
	if r.NeedsInput() {
		r.IsError = true
		a.notes = append(a.notes, "[the server asks for something that only a person could give it: nobody can be asked]")
	}
	if len(a.blocks) == 0 && len(a.notes) == 0 {
		a.notes = append(a.notes, "[the result is empty]")
	}
	if len(a.notes) > 0 {
		a.blocks = append(a.blocks, dsh.TextBlock(strings.Join(a.notes, "\n")))
	}
	return dsh.ToolResult{Content: a.blocks, IsError: r.IsError}
}

// An assembly is a result under way.
type assembly struct {
	blocks        []dsh.Block
	notes         []string
	texts, images int // bytes
	pictures      int
}

func (a *assembly) add(c sdk.Content) {
	switch c := c.(type) {
	case *sdk.TextContent:
		a.text(c.Text)
	case *sdk.ImageContent:
		a.image(c.MIMEType, c.Data)
	case *sdk.AudioContent:
		a.note("audio of %d bytes (%s), which cannot be shown", len(c.Data), c.MIMEType)
	case *sdk.ResourceLink:
		a.note("a link to a resource: %s %s", c.URI, c.Name)
	case *sdk.EmbeddedResource:
		a.resource(c.Resource)
	default:
		a.note("a piece of a kind that is not known")
	}
}

func (a *assembly) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
	case r.Blob == nil:
		a.note("the resource %s:", r.URI)
		a.text(r.Text)
	case strings.HasPrefix(r.MIMEType, "image/"):
		a.image(r.MIMEType, r.Blob)
	default:
		a.note("the resource %s of %d bytes (%s), which cannot be shown", r.URI, len(r.Blob), r.MIMEType)
	}
}

// text adds a text, or as much of it as there is room for.
func (a *assembly) text(s string) {
	room := maxText - a.texts
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > room {
		a.notes = append(a.notes, fmt.Sprintf("[a text of the result is cut: %d bytes of %d are shown]", max(0, room), len(s)))
		s = text(s, room)
	}
	if s == "" {
		return
	}
	a.texts += len(s)
	a.blocks = append(a.blocks, dsh.TextBlock(s))
}

// note says in brackets what is not shown.
func (a *assembly) note(format string, args ...any) {
	a.text("[" + printable(fmt.Sprintf(format, args...), 500) + "]")
}

// image adds an image of a kind that models take.
func (a *assembly) image(mediaType string, data []byte) {
	switch {
	case !slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, mediaType):
		a.note("an image of a kind that is not taken: %s, %d bytes", mediaType, len(data))
	case len(data) == 0:
		a.note("an image without data")
	case a.pictures == maxImages || a.images+len(data) > maxImage:
		a.note("an image of %d bytes is left out: a result holds %d images and %d bytes of them at most", len(data), maxImages, maxImage)
	default:
		a.pictures++
		a.images += len(data)
		a.blocks = append(a.blocks, dsh.Block{Type: dsh.BlockImage, MediaType: mediaType, Data: data})
	}
}

// text is the first bytes of s, without half a rune.
func text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:max(0, most)]
}

// printable is foreign text as one line.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text(s, most), "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}
