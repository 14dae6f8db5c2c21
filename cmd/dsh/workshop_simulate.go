package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/workshop"
	"github.com/dsh-agent/dsh/loop"
)

// simulate asks a policy about the failures of a log.
func (p program) simulate(ctx context.Context, c cli.Common, log dsh.Log, s cli.Simulation) (r cli.Simulated, err error) {
	wasm, err := moduleBytes(s.File)
	if err != nil {
		return r, cli.Usagef("%v", err)
	}
	name := s.Name
	if name == "" {
		name = nameOf(s.File, wasm)
	}
	config, err := p.configFor(c, name, s.Config)
	if err != nil {
		return r, err
	}
	load, err := p.loader(c, name, s.File, wasm)
	if err != nil {
		return r, err
	}
	l, err := load(ctx, config)
	switch {
	case err != nil:
		return r, err
	case len(l.Problems) > 0:
		u := &cli.UsageError{}
		for _, text := range l.Problems {
			u.Problems = append(u.Problems, "the policy does not take its config: "+text)
		}
		return r, u
	}
	defer func() { err = errors.Join(err, l.Free()) }()
	report, err := workshop.Simulation{
		Log: log, Sessions: s.Sessions, Policy: l.Policy, Name: name, Config: config, Alone: s.Alone,
		Reread: func(ctx context.Context, id dsh.SessionID, policy, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error) {
			return loop.Reread(ctx, log, id, policy, function, argument, tail)
		},
		Failure: func(row workshop.Row) error { return s.Failure(simulatedFailure(row)) },
	}.Run(ctx)
	if err != nil {
		return r, err
	}
	return simulated(report, name, l.Policy.Info().Digest), nil
}

// configFor is the config of a candidate: the given one, or that of the listed
// policy of its name.
func (p program) configFor(c cli.Common, name string, given json.RawMessage) (json.RawMessage, error) {
	if given != nil {
		return given, nil
	}
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	for _, q := range cfg.Recovery.Policies {
		if q.Name == name && len(q.Config) > 0 {
			return q.Config, nil
		}
	}
	return json.RawMessage("{}"), nil
}

func simulatedFailure(r workshop.Row) cli.SimulatedFailure {
	return cli.SimulatedFailure{
		Type: "failure", Session: r.Session, Turn: r.Turn, Step: r.Step, Attempt: r.Attempt, Purpose: r.Purpose, Provider: r.Provider, Code: r.Code,
		Recorded: simulatedOutcome(r.Recorded), Candidate: simulatedOutcome(r.Candidate), Beyond: r.Beyond, Differs: r.Differs(),
	}
}

func simulatedOutcome(o workshop.Outcome) cli.SimulatedOutcome {
	return cli.SimulatedOutcome{Answer: o.Answer, Policy: o.Policy, DelayMs: o.DelayMs, Reason: o.Reason, Refused: o.Refused, Fault: o.Fault}
}

func simulated(r *workshop.Report, name, digest string) cli.Simulated {
	s := cli.Simulated{
		Type: "total", Policy: name, Digest: digest, Sessions: r.Sessions,
		Recorded: cli.SimulatedSide(r.Total.Recorded), Candidate: cli.SimulatedSide(r.Total.Candidate), Beyond: cli.SimulatedSide(r.Beyond),
		Changed: r.Changed, Lost: r.Lost, Skipped: r.Skipped, Faults: r.Faults, Refused: r.Refused, Unbounded: r.Unbounded, Unknown: r.Unknown,
		Rebuilt: r.Rebuilt, Unasked: r.Unasked, Unavailable: r.Unavailable,
	}
	for _, l := range workshop.Sorted(r.Codes) {
		s.Codes = append(s.Codes, cli.SimulatedLine{Type: "code", Key: l.Key, Recorded: cli.SimulatedSide(l.Recorded), Candidate: cli.SimulatedSide(l.Candidate)})
	}
	for _, l := range workshop.Sorted(r.Providers) {
		s.Providers = append(s.Providers, cli.SimulatedLine{Type: "provider", Key: l.Key, Recorded: cli.SimulatedSide(l.Recorded), Candidate: cli.SimulatedSide(l.Candidate)})
	}
	return s
}
