package main

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// explain prepares the real loop with the configured waterfall and ceilings, a
// log in memory, and a provider that fails as asked: what the log then says is
// what a session would meet.
func (p program) explain(ctx context.Context, c cli.Common, f dsh.Failure) (func(context.Context, func(dsh.Event) error) error, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	c.Tell = func(string) {} // what guests log is of no use here
	opts, err := p.policyOptions(cfg, c)
	if err != nil {
		return nil, err
	}
	opts.Modules = "" // what is only thought of is in no log
	opts.Folder = folderOf(cfg)
	set, err := openSet(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	provider := loop.Provider{Retry: dsh.DefaultRetryPolicy()}
	if name := cfg.Agent.Provider; name != "" {
		settings, err := cfg.ProviderAsWritten(name)
		if err != nil {
			return nil, errors.Join(usage(err), set.Close())
		}
		provider.Retry, provider.Window = settings.RetryPolicy, settings.ContextWindow
	}
	return func(ctx context.Context, event func(dsh.Event) error) error {
		var fixed dsh.FixedWaterfall // nothing is watched
		for _, e := range set.Entries() {
			if e.Policy != nil {
				fixed = append(fixed, e.Policy)
			}
		}
		return errors.Join(playFailure(ctx, cfg, fixed, provider, f, event), set.Close())
	}, nil
}

// playFailure runs some turns that go well, so that there is something to
// repair, and then one that meets the failure.
func playFailure(ctx context.Context, cfg *config.Config, set dsh.Waterfall, provider loop.Provider, f dsh.Failure, event func(dsh.Event) error) error {
	const turns, words = 4, 400
	adapter := &failing{}
	provider.Adapter, provider.Window = adapter, 0 // no pressure: the failure alone is met
	failed := false
	lc := loop.Config{
		Provider: cfg.Agent.Provider, Model: cfg.Agent.Model, Policies: set, Limits: loop.Limits(cfg.Recovery.Limits),
		Providers: func(string) (loop.Provider, error) { return provider, nil },
		Front: loop.Front{Event: func(e dsh.Event) error {
			if !failed {
				return nil
			}
			return event(e)
		}},
	}
	log := memory.New()
	session, err := loop.Create(ctx, log, dsh.SessionStart{ID: "explain"}, lc)
	if err != nil {
		return err
	}
	text := []dsh.Block{dsh.TextBlock(strings.Repeat("word ", words))}
	for range turns {
		if _, err := session.Prompt(ctx, text); err != nil {
			return err
		}
	}
	failed, adapter.failure = true, &f
	_, err = session.Prompt(ctx, text)
	if errors.Is(err, loop.ErrSuspend) {
		err = nil // the verdict is there
	}
	return errors.Join(err, session.Close(context.WithoutCancel(ctx)), log.Close())
}

// failing is a provider that answers until it is given a failure. It answers
// what asks for a summary all the same, which is not what fails.
type failing struct{ failure *dsh.Failure }

func (a *failing) Encode(r dsh.Request) ([]byte, error) { return dsh.JSON(r.Messages) }

func (a *failing) Send(_ context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
	return func(yield func(dsh.Chunk, error) bool) {
		if a.failure != nil {
			f := *a.failure
			a.failure = nil
			yield(dsh.Chunk{}, &f)
			return
		}
		if yield(dsh.Chunk{Type: dsh.ChunkText, Text: "a short answer"}, nil) {
			yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: dsh.FinishStop}}, nil)
		}
	}
}
