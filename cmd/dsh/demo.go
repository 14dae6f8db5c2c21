package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/loop"
)

// demoAnswer is what the demo's provider says in the end. Its first words are
// those of the attempt that is cut.
const demoAnswer = `It makes one structured failure of it, asks its policies in turn, and the first that says "retry" gets another attempt. The decision and the wait are in the log before the wait begins, so that a killed dsh goes on where it was.`

// demoWindow is how many bytes of a request the demo's provider takes.
const demoWindow = 24 << 10

// demoSteps are what the demo's provider does: a rate limit that asks for a
// second, a call of a tool whose result is too long for it, an answer that is
// cut in the middle, and a whole one.
func demoSteps() []scripted.Step {
	cut := scripted.Step{Do: scripted.Drop, Text: demoAnswer, AfterChunks: 7, DelayMs: 30}
	return []scripted.Step{
		{Do: scripted.Status, Status: 429, Headers: map[string]string{"Retry-After": "1"}, Code: "rate_limit_exceeded", Message: "Rate limit reached: too many requests for now"},
		{Do: scripted.Tool, Name: demoTool{}.Spec().Name, Arguments: `{}`},
		{Do: scripted.Overflow, IfBodyOver: demoWindow, Else: &cut},
		cut,
		{Do: scripted.Text, Text: demoAnswer, DelayMs: 20},
	}
}

// demoTool is the one tool of the demo. It tells more than the demo's provider
// takes, so that its result has to be shortened.
type demoTool struct{}

func (demoTool) Spec() dsh.ToolSpec {
	return dsh.ToolSpec{
		Name: "failures", Description: "Lists what dsh calls the failures of a model request, at length.",
		Schema: json.RawMessage(`{"type":"object","properties":{}}`), Idempotent: true,
	}
}

func (demoTool) Run(context.Context, json.RawMessage) (dsh.ToolResult, error) {
	var b strings.Builder
	for n := 1; b.Len() < 2*demoWindow; n++ {
		for _, c := range dsh.Codes() {
			fmt.Fprintf(&b, "example %d of %s, which is transient: %t\n", n, c, c.Transient())
		}
	}
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(b.String())}}, nil
}

// demo is the setup of `dsh demo`: a provider on a loopback port, the real
// adapter, the built-in policies and the user's log. No dsh.toml is read, and
// of the variables only those count that say where the data is.
func (p program) demo(ctx context.Context, c cli.Common) (*cli.Setup, error) {
	src := p.sources(cli.Common{DataDir: c.DataDir}, "")
	src.NoFile, src.Support.Instructions = true, false
	src.Env = func(name string) (string, bool) {
		if name == "DSH_CONFIG" || name == "DSH_PROVIDER" || name == "DSH_MODEL" || strings.HasSuffix(name, "_API_KEY") {
			return "", false
		}
		return p.env(name)
	}
	cfg, _, err := config.Load(src)
	if err != nil {
		return nil, usage(err)
	}
	server, err := scripted.Serve(demoSteps()...)
	if err != nil {
		return nil, err
	}
	adapter, err := openaichat.New(openaichat.Settings{BaseURL: server.URL, StreamIdle: 10 * time.Second})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	own := *cfg
	own.Recovery.Dir = "" // what the user has installed is for the user's own sessions
	r, err := p.open(ctx, &own, c)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &cli.Setup{
		Log: r.log, Cwd: r.cwd,
		Configure: func(string) (loop.Config, error) {
			return loop.Config{
				Provider: "demo", Model: "scripted", System: builtinSystem, Policies: r.policies, MaxSteps: 2,
				Tools:  []dsh.Tool{demoTool{}},
				Limits: loop.Limits(cfg.Recovery.Limits),
				Providers: func(string) (loop.Provider, error) {
					return loop.Provider{Adapter: adapter, Retry: dsh.DefaultRetryPolicy()}, nil
				},
			}, nil
		},
		Describe: func(string) cli.ProviderFacts { return cli.ProviderFacts{BaseURL: server.URL} },
		Close: func() error {
			adapter.Close()
			return errors.Join(server.Close(), r.close())
		},
	}, nil
}
