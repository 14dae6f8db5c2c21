package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/mcp"
	"github.com/dsh-agent/dsh/internal/redact"
	"github.com/dsh-agent/dsh/internal/tools"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/runtime"
)

// setup resolves the configuration and opens all that a turn runs with: the
// log and the policies at the same time, since neither needs the other.
func (p program) setup(ctx context.Context, c cli.Common, o cli.RunOptions) (*cli.Setup, error) {
	var flags []config.Flag
	if o.MaxSteps > 0 {
		flags = append(flags, config.Flag{Name: "--max-steps", Key: "agent.max_steps", Value: o.MaxSteps})
	}
	if o.Tools != nil {
		flags = append(flags, config.Flag{Name: "--tools", Key: "tools.offer", Value: *o.Tools})
	}
	cfg, err := p.load(c, o.Cwd, flags...)
	if err != nil {
		return nil, err
	}
	if err := cfg.Ready(); err != nil {
		return nil, usage(err)
	}
	r, err := p.open(ctx, cfg, c)
	if err != nil {
		return nil, err
	}
	r.options = o
	if o.Cwd != "" {
		r.cwd = o.Cwd
	}
	if _, err := r.provider(cfg.Agent.Provider); err != nil { // before anything is in the log
		return nil, errors.Join(err, r.close())
	}
	r.reloading.Go(func() {
		r.reloads(context.WithoutCancel(ctx), c, func() (*config.Config, error) { return p.load(c, o.Cwd, flags...) })
	})
	configure := func(cwd string) (loop.Config, error) { return r.configure(ctx, cwd) }
	return &cli.Setup{Log: r.log, Cwd: r.cwd, Configure: configure, Describe: r.describe, Close: r.close}, nil
}

// rooms are what a turn holds open.
type rooms struct {
	program  program
	cfg      *config.Config
	options  cli.RunOptions
	cwd      string // of a new session, absolute
	log      dsh.Log
	policies *runtime.Set
	folder   *tools.Folder // nil until a session is configured
	servers  []*mcp.Client // of tools, as they are asked for
	plugins  []io.Closer   // of tools, as well
	warn     func(string)

	stop      chan struct{} // ends reloading
	reloading sync.WaitGroup

	mu       sync.Mutex
	adapters map[string]loop.Provider // by the provider's name
}

func (p program) open(ctx context.Context, cfg *config.Config, c cli.Common) (*rooms, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, cli.Usagef("the working folder cannot be told: %v", err)
	}
	r := &rooms{program: p, cfg: cfg, cwd: cwd, warn: c.Warn, stop: make(chan struct{}), adapters: map[string]loop.Provider{}}
	var opening sync.WaitGroup
	var policyErr, logErr error
	opening.Go(func() { r.policies, policyErr = p.openPolicies(ctx, cfg, c) })
	opening.Go(func() {
		if r.log, logErr = openStore(ctx, cfg, c); logErr == nil && p.wrap != nil {
			r.log = p.wrap(r.log)
		}
	})
	opening.Wait()
	if err := policyErr; err != nil || logErr != nil {
		if err == nil {
			err = logErr
		}
		if closed := r.close(); closed != nil {
			c.Warn(closed.Error())
		}
		return nil, err
	}
	return r, nil
}

// configure makes what the loop runs a session of a folder with.
func (r *rooms) configure(ctx context.Context, cwd string) (loop.Config, error) {
	allowed, err := r.tools(ctx, cwd)
	if err != nil {
		return loop.Config{}, err
	}
	clean, cleanText, err := redaction(r.cfg)
	if err != nil {
		return loop.Config{}, err
	}
	limits := r.cfg.Recovery.Limits
	if w := r.options.MaxWait; w > 0 && (limits.MaxWaitPerTurn == 0 || w < limits.MaxWaitPerTurn) {
		limits.MaxWaitPerTurn = w
	}
	return loop.Config{
		Provider: r.cfg.Agent.Provider,
		Model:    r.cfg.Agent.Model,
		System:   systemPrompt(r.cfg, cwd),
		Params:   dsh.Params{MaxOutputTokens: r.cfg.Agent.MaxOutputTokens},
		Tools:    allowed,
		MaxSteps: r.cfg.Agent.MaxSteps,

		SummaryMaxTokens: r.cfg.Compaction.SummaryMaxTokens,

		Limits:     loop.Limits(limits),
		Redact:     clean,
		RedactText: cleanText,
		Providers:  r.provider,
		Policies:   r.policies,
	}, nil
}

// redaction takes out of an event, and of a text that comes in pieces, what is
// not to be logged; nil where all is.
func redaction(cfg *config.Config) (func([]byte) []byte, func() loop.TextRedactor, error) {
	if len(cfg.Store.Redact) == 0 {
		return nil, nil, nil
	}
	patterns, err := redact.Compile(cfg.Store.Redact)
	if err != nil {
		return nil, nil, cli.Usagef("store.redact: %v", err)
	}
	return patterns.JSON, func() loop.TextRedactor { return patterns.Stream() }, nil
}

// provider makes the adapter of a provider at its first use.
func (r *rooms) provider(name string) (loop.Provider, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.adapters[name]; ok {
		return p, nil
	}
	settings, err := r.cfg.Provider(name)
	if err != nil {
		return loop.Provider{}, usage(err)
	}
	adapter, err := newAdapter(settings)
	if err != nil {
		return loop.Provider{}, err
	}
	p := loop.Provider{Adapter: adapter, Retry: settings.RetryPolicy, Window: settings.ContextWindow}
	r.adapters[name] = p
	return p, nil
}

func (r *rooms) describe(provider string) cli.ProviderFacts {
	p, err := r.cfg.Provider(provider)
	if err != nil {
		return cli.ProviderFacts{}
	}
	return cli.ProviderFacts{BaseURL: p.BaseURL, KeyVariable: p.APIKey.Variable}
}

// close lets go of everything that was opened, the log last.
func (r *rooms) close() error {
	close(r.stop)
	r.reloading.Wait()
	var errs []error
	if r.policies != nil {
		errs = append(errs, r.policies.Close())
	}
	if r.folder != nil {
		errs = append(errs, r.folder.Close())
	}
	errs = append(errs, r.closeServers())
	for _, p := range r.plugins {
		errs = append(errs, p.Close())
	}
	for _, p := range r.adapters {
		if c, ok := p.Adapter.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	if r.log != nil {
		if err := r.log.Close(); err != nil {
			errs = append(errs, &cli.LogError{Err: err})
		}
	}
	return errors.Join(errs...)
}
