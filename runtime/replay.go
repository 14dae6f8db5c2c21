package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// replayMemoryMB is the memory of a replayed decision. The log does not keep
// the limit that held then; what decided under a lower one decides the same
// under this, unless it lives on a growth that was refused.
const replayMemoryMB = 64

// A Replayer runs logged decisions again. It is for one goroutine.
type Replayer struct {
	// Reread makes the answer of log_read or surface_read again, as it was when
	// the session's log ended at event tail. It is asked where the log holds an
	// answer by its hash alone. nil: such a decision cannot be replayed.
	Reread func(ctx context.Context, d dsh.PolicyDecision, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error)

	opts     Options
	known    map[string][]byte  // modules by digest
	policies map[string]*policy // by digest and config
}

// NewReplayer makes a Replayer that finds modules in opts.Modules. It keeps no
// modules itself. The caller closes it.
func NewReplayer(opts Options) *Replayer {
	return &Replayer{opts: opts, known: map[string][]byte{}, policies: map[string]*policy{}}
}

// Add makes a module known that may not be among the kept ones: one that comes
// with the program, or that a configuration names.
func (r *Replayer) Add(wasm []byte) { r.known[digest(wasm)] = wasm }

// Replay runs a decision again, on the module with the logged digest, the logged
// input and the logged answers of host functions. The same module answers in
// the same bytes. Its error is a *dsh.Fault where the policy gives none, a
// *DivergedError where it calls other host functions than the logged ones, and
// another one where the module or an answer is not there.
func (r *Replayer) Replay(ctx context.Context, d dsh.PolicyDecision) (json.RawMessage, error) {
	var in struct {
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(d.Input, &in); err != nil {
		return nil, fmt.Errorf("the logged input is damaged: %w", err)
	}
	p, err := r.policy(d, in.Config)
	if err != nil {
		return nil, err
	}
	calls := &loggedCalls{decision: d, reread: r.Reread}
	v, err := p.decide(ctx, dsh.Question{Hook: d.Hook, Input: d.Input}, calls)
	if problem := calls.problem(); problem != nil {
		return nil, problem
	}
	return v.Raw, err
}

// A DivergedError says that a decision that was run again called other host
// functions than the log has.
type DivergedError struct {
	Call int    // of the decision, from 1
	Have string // what it called now; "": nothing
	Want string // what the log has; "": nothing
}

func (e *DivergedError) Error() string {
	name := func(s string) string {
		if s == "" {
			return "nothing"
		}
		return s
	}
	return fmt.Sprintf("host call %d: it calls %s, and the log has %s", e.Call, name(e.Have), name(e.Want))
}

// loggedCalls gives the logged answers of a decision, in order, to the calls
// that they were given to.
type loggedCalls struct {
	decision dsh.PolicyDecision
	reread   func(context.Context, dsh.PolicyDecision, string, json.RawMessage, uint64) (json.RawMessage, error)
	next     int
	err      error // the first problem
}

func (l *loggedCalls) calls() []json.RawMessage { return l.decision.HostCalls }

// problem is why the answers were not those of the log.
func (l *loggedCalls) problem() error {
	if l.err == nil && l.next < len(l.decision.HostCalls) {
		var c hostabi.HostCall
		_ = json.Unmarshal(l.decision.HostCalls[l.next], &c) // its name is for people
		return &DivergedError{Call: l.next + 1, Want: c.Function}
	}
	return l.err
}

func (l *loggedCalls) answer(ctx context.Context, function string, argument []byte) []byte {
	answer, err := l.find(ctx, function, argument)
	if err != nil {
		if l.err == nil {
			l.err = err
		}
		return Refuse(hostabi.CodeUnavailable, "%v", err)
	}
	return answer
}

func (l *loggedCalls) find(ctx context.Context, function string, argument []byte) ([]byte, error) {
	n := l.next + 1
	if l.next >= len(l.decision.HostCalls) {
		return nil, &DivergedError{Call: n, Have: function}
	}
	l.next++
	var c hostabi.HostCall
	if err := json.Unmarshal(l.decision.HostCalls[n-1], &c); err != nil {
		return nil, fmt.Errorf("the logged host call %d is damaged: %w", n, err)
	}
	var now hostabi.HostCall
	if err := json.Unmarshal(record(function, argument, nil), &now); err != nil {
		return nil, err
	}
	switch {
	case now.Function != c.Function:
		return nil, &DivergedError{Call: n, Have: function, Want: c.Function}
	case now.ArgumentSHA256 != c.ArgumentSHA256, string(now.Argument) != string(c.Argument):
		return nil, &DivergedError{Call: n, Have: function + " with another argument", Want: c.Function}
	case c.AnswerSHA256 == "" && len(c.Answer) == 0:
		return nil, fmt.Errorf("the logged host call %d has no answer", n)
	case c.AnswerSHA256 == "":
		return c.Answer, nil
	case l.reread == nil:
		return nil, fmt.Errorf("host call %d: the log has the answer of %s by its hash alone (%d bytes), and nobody makes it again", n, function, c.AnswerBytes)
	}
	answer, err := l.reread(ctx, l.decision, function, argument, c.Tail)
	if err != nil {
		return nil, fmt.Errorf("host call %d: the answer of %s cannot be made again: %w", n, function, err)
	}
	if sha256Hex(answer) != c.AnswerSHA256 {
		return nil, fmt.Errorf("host call %d: the answer of %s is another now than the one that was logged", n, function)
	}
	return answer, nil
}

func (r *Replayer) policy(d dsh.PolicyDecision, config json.RawMessage) (*policy, error) {
	key := d.Digest + " " + string(config)
	if p, ok := r.policies[key]; ok {
		return p, nil
	}
	wasm, ok := r.known[d.Digest]
	if !ok {
		var err error
		if wasm, err = r.opts.Modules.Load(d.Digest); err != nil {
			return nil, fmt.Errorf("the module of policy %q, %s, is not kept: %w", d.Policy, d.Digest, err)
		}
		r.Add(wasm)
	}
	spec := Spec{Name: d.Policy, Module: d.Digest + ".wasm", Wasm: wasm, Config: config, MemoryMB: replayMemoryMB}
	if info, err := Inspect(wasm); err == nil {
		spec.Capabilities = info.Capabilities
	}
	c, problems := spec.check(nil)
	if len(problems) > 0 {
		return nil, &LoadError{Problems: problems}
	}
	opts := r.opts
	opts.Modules = ""
	p := newPolicy(c, opts)
	r.policies[key] = p
	return p, nil
}

// Close frees all policies.
func (r *Replayer) Close() error {
	var errs []error
	for _, p := range r.policies {
		errs = append(errs, p.close())
	}
	clear(r.policies)
	return errors.Join(errs...)
}
