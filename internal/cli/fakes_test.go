package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// A reply is what a fake provider does with one request: it tells pieces of an
// answer, and ends as it says.
type reply struct {
	pieces  []string
	tool    string         // calls this tool, with arguments {}
	failure *dsh.Failure   // nil: it ends well
	finish  dsh.FinishKind // of a good end; "": stop
	hang    bool           // after the pieces, until the request is stopped
}

// A provider plays replies; the last one is played again and again.
type provider struct {
	mu      sync.Mutex
	replies []reply
	sent    int
}

func (p *provider) Encode(r dsh.Request) ([]byte, error) {
	var b bytes.Buffer
	for _, m := range r.Messages {
		b.WriteString(string(m.Role) + ":" + m.Text() + "\n")
	}
	return b.Bytes(), nil
}

func (p *provider) Send(ctx context.Context, _ []byte) iter.Seq2[dsh.Chunk, error] {
	return func(yield func(dsh.Chunk, error) bool) {
		p.mu.Lock()
		r := p.replies[min(p.sent, len(p.replies)-1)]
		p.sent++
		p.mu.Unlock()
		for _, text := range r.pieces {
			if !yield(dsh.Chunk{Type: dsh.ChunkText, Text: text}, nil) {
				return
			}
		}
		switch {
		case r.hang:
			<-ctx.Done()
			yield(dsh.Chunk{}, &dsh.Failure{Code: dsh.CodeAborted, Message: "stopped", Cause: ctx.Err()})
			return
		case r.failure != nil:
			yield(dsh.Chunk{}, r.failure)
			return
		case r.tool != "":
			if !yield(dsh.Chunk{Type: dsh.ChunkToolCall, Index: 1, ID: "call", Name: r.tool, Arguments: "{}"}, nil) {
				return
			}
			yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: dsh.FinishToolCalls}}, nil)
			return
		}
		kind := r.finish
		if kind == "" {
			kind = dsh.FinishStop
		}
		yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: kind, Usage: &dsh.Usage{InputTokens: 3, OutputTokens: 4}}}, nil)
	}
}

func (p *provider) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

func answers(text ...string) reply { return reply{pieces: text} }

func fails(code dsh.Code, status int, text ...string) reply {
	return reply{pieces: text, failure: &dsh.Failure{Code: code, Status: status, Message: "the message of " + string(code)}}
}

// A world is a program with a fake provider and a log in memory, which outlives
// its commands.
type world struct {
	t        *testing.T
	provider *provider
	log      dsh.Log
	policies dsh.Waterfall
	limits   loop.Limits
	maxSteps int
	in       io.Reader
	out      io.Writer // nil: collected
	err      io.Writer // nil: collected
	size     func() (int, int)
	setups   int
}

func newWorld(t *testing.T, replies ...reply) *world {
	return &world{t: t, provider: &provider{replies: replies}, log: memory.New(), policies: retries(3, time.Millisecond)}
}

// retries is a waterfall of one policy that retries transient failures.
func retries(most int64, delay time.Duration) dsh.Waterfall {
	return dsh.FixedWaterfall{dsh.NativePolicy("retry", func(in dsh.RecoverInput) dsh.Decision {
		if !in.Failure.Code.Transient() || in.Failure.RetryAfter > 10*time.Second {
			return dsh.Decision{Kind: dsh.KindDelegate, Reason: "not mine"}
		}
		for _, c := range in.RetryCounts {
			if int64(c.Count) >= most {
				return dsh.Decision{Kind: dsh.KindDelegate, Reason: "used up"}
			}
		}
		return dsh.Decision{Kind: dsh.KindRetry, DelayMs: dsh.Millis(delay), MaxRetries: &most, PolicyKey: "key"}
	})}
}

// kept is a log that a command cannot close.
type kept struct{ dsh.Log }

func (kept) Close() error { return nil }

func (w *world) program() cli.Program {
	return cli.Program{
		Build: cli.Build{Version: "v1.2.3", Go: "go1", Platform: "os/arch", ABIs: []string{"abi"}, Engines: []string{"engine"}},
		Log:   func(context.Context, cli.Common) (dsh.Log, error) { return kept{w.log}, nil },
		Setup: func(_ context.Context, _ cli.Common, o cli.RunOptions) (*cli.Setup, error) {
			w.setups++
			return w.setup(o), nil
		},
		Policies: func(context.Context, cli.Common) ([]cli.Policy, error) {
			list, _ := w.policies.Policies()
			var out []cli.Policy
			for _, p := range list {
				out = append(out, cli.Policy{PolicyInfo: p.Info(), State: "ready"})
			}
			return out, nil
		},
		Inspect: func(_ context.Context, _ cli.Common, file string) (cli.Module, error) {
			return cli.Module{File: file, Size: 7, Digest: "d1", Problems: []string{"it is \x1b[31mred"}}, nil
		},
		Adapters: []string{"openai-chat"},
		Classify: func(_ context.Context, _ string, r cli.Response) (*dsh.Failure, string, error) {
			if r.Status == http.StatusOK {
				return nil, "it is good", nil
			}
			return &dsh.Failure{Code: dsh.CodeServer, Status: r.Status, Message: string(r.Body)}, "the status", nil
		},
	}
}

func (w *world) setup(o cli.RunOptions) *cli.Setup {
	return &cli.Setup{
		Log: kept{w.log}, Cwd: w.t.TempDir(), Close: func() error { return nil },
		Configure: func(string) (loop.Config, error) {
			limits := w.limits
			limits.MaxWaitPerTurn = o.MaxWait
			return loop.Config{
				Provider: "fake", Model: "model", MaxSteps: max(w.maxSteps, o.MaxSteps), Limits: limits, Policies: w.policies,
				Providers: func(string) (loop.Provider, error) {
					return loop.Provider{Adapter: w.provider, Retry: dsh.DefaultRetryPolicy()}, nil
				},
				Tools: []dsh.Tool{tool{}},
			}, nil
		},
		Describe: func(string) cli.ProviderFacts {
			return cli.ProviderFacts{BaseURL: "http://fake", KeyVariable: "FAKE_KEY"}
		},
	}
}

// tool is one that answers.
type tool struct{}

func (tool) Spec() dsh.ToolSpec {
	return dsh.ToolSpec{Name: "look", Schema: []byte(`{"type":"object"}`)}
}

func (tool) Run(context.Context, json.RawMessage) (dsh.ToolResult, error) {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock("seen")}}, nil
}

// A result is what a command did.
type result struct {
	code     int
	out, err string
}

func (w *world) run(args ...string) result { return w.runCtx(w.t.Context(), args...) }

func (w *world) runCtx(ctx context.Context, args ...string) result {
	var out, err bytes.Buffer
	s := cli.Streams{In: w.in, InTerminal: w.in == nil, Out: &out, Err: &err}
	if w.in == nil {
		s.In = strings.NewReader("")
	}
	if w.out != nil {
		s.Out = w.out
	}
	if w.err != nil {
		s.Err = w.err
	}
	if w.size != nil {
		s.OutSize, s.ErrSize = w.size, w.size
	}
	code := cli.Run(ctx, args, w.program(), s)
	return result{code, out.String(), err.String()}
}

// heads are the log's sessions, the last written to first.
func (w *world) heads() []dsh.Head {
	var list []dsh.Head
	for h, err := range w.log.Heads(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, h)
	}
	return list
}
