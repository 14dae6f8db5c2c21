// Package mcp lets a model call the tools of servers that speak the Model
// Context Protocol (modelcontextprotocol.io), on stdio or by streamable HTTP.
//
// A server is somebody else's program: it may be slow, wrong, hostile or dead.
// Whatever it does is a result that the model reads, with IsError, and never
// an error of the turn: it is given up after a time, its answers are cut to a
// size, and when it has died it is started again at the next call. A call that
// it died in is not made again.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/dsh-agent/dsh"
)

// A Server says how a server is reached. Of Command and URL one is set.
type Server struct {
	Name string // its tools are called NAME__TOOL

	Command string // a program that speaks on stdio
	Args    []string
	Env     []string // its whole environment, as NAME=VALUE
	Dir     string   // where it starts; "": here

	URL     string            // by streamable HTTP
	Headers map[string]string // of each request

	StartTimeout time.Duration // till its tools are listed; 0: 30 s
	CallTimeout  time.Duration // of a call; 0: 120 s
}

// Options are what all servers have in common.
type Options struct {
	Version string       // of this program, for the server
	Warn    func(string) // is told what the user should know; nil: nobody
}

// The most that is taken of a server.
const (
	maxTools       = 128
	maxDescription = 4 << 10  // bytes
	maxSchema      = 64 << 10 // bytes
	maxStarts      = 5        // within startsWindow; then it is left alone
	startsWindow   = time.Minute
)

// A Client is one server as tools. It may be used by several goroutines. Who
// made it closes it, when no tool runs any more.
type Client struct {
	server Server
	opts   Options

	mu     sync.Mutex // held while it is started
	link   *link      // nil: not started, or closed
	starts []time.Time
	closed bool
}

// New makes a client. Nothing is started before its tools are asked for.
func New(s Server, o Options) *Client {
	s.StartTimeout = cmp.Or(s.StartTimeout, 30*time.Second)
	s.CallTimeout = cmp.Or(s.CallTimeout, 120*time.Second)
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return &Client{server: s, opts: o}
}

// Tools starts the server and lists its tools, sorted by name. One that cannot
// be started has none, which is said.
func (c *Client) Tools(ctx context.Context) []dsh.Tool {
	ctx, cancel := context.WithTimeoutCause(ctx, c.server.StartTimeout, errSlowStart)
	defer cancel()
	l, err := c.connect(ctx)
	if err == nil {
		var list []*sdk.Tool
		if list, err = listed(ctx, l); err == nil {
			return c.tools(list)
		}
		err = l.explain(ctx, err)
	}
	c.opts.Warn(fmt.Sprintf("the tool server %s gives no tools: %v", c.server.Name, err))
	return nil
}

var (
	errSlowStart = errors.New("it was not ready in time (start_timeout_ms)")
	errSlowCall  = errors.New("it did not answer in time (call_timeout_ms)")
	errClosed    = errors.New("it was closed")
)

// listed reads all pages of the list of tools, or as many as are taken.
func listed(ctx context.Context, l *link) ([]*sdk.Tool, error) {
	var list []*sdk.Tool
	for t, err := range l.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if list = append(list, t); len(list) > maxTools {
			break
		}
	}
	return list, nil
}

// tools makes tools of what a server lists. What no provider would take is
// left out.
func (c *Client) tools(list []*sdk.Tool) []dsh.Tool {
	if len(list) > maxTools {
		c.warn("it has more than %d tools: the others are left out", maxTools)
		list = list[:maxTools]
	}
	var out []dsh.Tool
	taken := map[string]bool{}
	for _, t := range list {
		spec, err := c.spec(t)
		switch {
		case err != nil:
			c.warn("its tool %s is left out: %v", printable(t.Name, 100), err)
		case taken[spec.Name]:
			c.warn("its tool %s is left out: another one is called %s too", printable(t.Name, 100), spec.Name)
		default:
			taken[spec.Name] = true
			out = append(out, &tool{c, t.Name, spec})
		}
	}
	slices.SortFunc(out, func(a, b dsh.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	return out
}

// maxName is the longest name of a tool that all providers take.
const maxName = 64

// spec describes a tool to a model. A hint that it only reads decides on what
// may run beside it, and on nothing else: it is the server's own word.
func (c *Client) spec(t *sdk.Tool) (dsh.ToolSpec, error) {
	name := c.server.Name + "__" + strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-') {
			return r
		}
		return '_'
	}, t.Name)
	if t.Name == "" || len(name) > maxName {
		return dsh.ToolSpec{}, fmt.Errorf("its name is empty or too long (with the server's, up to %d letters)", maxName)
	}
	schema, err := dsh.JSON(t.InputSchema)
	if err != nil {
		return dsh.ToolSpec{}, err
	}
	m, ok := t.InputSchema.(map[string]any)
	switch {
	case !ok || m["type"] != "object":
		return dsh.ToolSpec{}, errors.New("its schema is none of an object")
	case len(schema) > maxSchema:
		return dsh.ToolSpec{}, fmt.Errorf("its schema is larger than %d bytes", maxSchema)
	}
	about := strings.TrimSpace(t.Description)
	if about == "" {
		about = cmp.Or(t.Title, t.Name)
	}
	return dsh.ToolSpec{
		Name: name, Description: text(about, maxDescription), Schema: schema,
		ReadOnly: t.Annotations != nil && t.Annotations.ReadOnlyHint,
	}, nil
}

func (c *Client) warn(format string, args ...any) {
	c.opts.Warn("the tool server " + c.server.Name + ": " + fmt.Sprintf(format, args...))
}

// connect gives the link to the server, and starts it where there is none.
func (c *Client) connect(ctx context.Context) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if c.link != nil && c.link.alive() {
		return c.link, nil
	}
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
	now := time.Now()
	c.starts = slices.DeleteFunc(c.starts, func(t time.Time) bool { return now.Sub(t) > startsWindow })
	if len(c.starts) >= maxStarts {
		return nil, fmt.Errorf("it ended %d times within %v, and is left alone for a while", maxStarts, startsWindow)
	}
	c.starts = append(c.starts, now)
	l, err := open(ctx, c.server, c.opts)
	if err != nil {
		return nil, err
	}
	c.link = l
	return l, nil
}

// Close ends the server: it is asked to end, and after a short time made to.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
	return nil
}
