package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/runtime"
)

// replayer makes what runs logged decisions again. It knows the modules that are
// kept, those that ship with dsh, and those that are configured or installed.
func (p program) replayer(_ context.Context, c cli.Common) (cli.Replayer, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	c.Tell = func(string) {} // what guests log was said when they decided
	opts, err := p.policyOptions(cfg, c)
	if err != nil {
		return nil, err
	}
	r := &replayer{runtime.NewReplayer(opts)}
	for _, name := range guests.Names() {
		if wasm, ok := guests.Builtin(name); ok {
			r.Add(wasm)
		}
	}
	for _, q := range cfg.Recovery.Policies {
		if wasm, err := runtime.ReadFile(q.Path); q.Path != "" && err == nil {
			r.Add(wasm)
		}
		if now, before, err := folderOf(cfg).Previous(q.Name); err == nil {
			r.Add(now)
			r.Add(before)
		}
	}
	return r, nil
}

type replayer struct{ *runtime.Replayer }

// Replay runs a decision again, and says in which way it differs.
func (r *replayer) Replay(ctx context.Context, log dsh.Log, id dsh.SessionID, d dsh.PolicyDecision) (string, error) {
	r.Reread = func(ctx context.Context, d dsh.PolicyDecision, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error) {
		return loop.Reread(ctx, log, id, d.Policy, function, argument, tail)
	}
	now, err := r.Replayer.Replay(ctx, d)
	var (
		fault    *dsh.Fault
		diverged *runtime.DivergedError
	)
	switch {
	case errors.As(err, &diverged):
		return err.Error(), nil
	case errors.As(err, &fault) && fault.Kind != dsh.FaultUnavailable:
		return "it gives no decision now: " + fault.Error(), nil
	case err != nil:
		return "", err
	case !bytes.Equal(now, compact(d.Decision)):
		return fmt.Sprintf("it decides %s now, and the log has %s", now, d.Decision), nil
	}
	return "", nil
}

// compact is a decision without white space that does not count.
func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
