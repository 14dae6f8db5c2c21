package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// grace is how long a decision is waited for after its deadline. An engine
// that cannot stop the guest by then has its call left behind.
const grace = time.Second

// prepareWithin is how long an instance may take to be there, which is not the
// guest's time: a process may have to be started for it.
const prepareWithin = 10 * time.Second

// policy is one version of a policy: a module, its config and its grants. It
// never changes; a swap puts another in its place.
type policy struct {
	info     dsh.PolicyInfo
	checked  checked
	engine   Engine
	store    ModuleStore
	deadline time.Duration
	warn     func(string)
	logged   func(policy string, line LogLine)
	breaker  breaker
	flow     flow
	turns    turns

	tasks sync.WaitGroup // everything that runs for the policy

	mu      sync.Mutex
	kept    time.Time // when the module was kept; zero: not yet
	closed  bool
	stuck   int           // calls that were left behind
	ready   chan struct{} // closed when the program is there, or failed; nil: not begun
	pool    *pool
	failure error
}

func (p *policy) Info() dsh.PolicyInfo { return p.info }

// Decide runs a hook in a fresh instance, unless the policy has tripped.
func (p *policy) Decide(ctx context.Context, q dsh.Question) (dsh.Verdict, error) {
	if err := p.breaker.admit(); err != nil {
		return dsh.Verdict{}, err
	}
	v, err := p.decide(ctx, q, &liveCalls{host: q.Host, granted: p.info.Granted})
	if ctx.Err() != nil {
		return v, err // the caller has stopped it, which is no fault of the policy's
	}
	if why := p.breaker.note(err, time.Now()); why != "" {
		p.warn(fmt.Sprintf("policy %q has tripped: %s", p.info.Name, why))
	}
	return v, err
}

// decide is Decide with host functions that a answers.
func (p *policy) decide(ctx context.Context, q dsh.Question, a answerer) (dsh.Verdict, error) {
	call, err := p.callOf(q.Hook, q.Input)
	if err != nil {
		return dsh.Verdict{}, err
	}
	if err := p.enter(); err != nil {
		return dsh.Verdict{}, err
	}
	defer p.tasks.Done()
	kept := p.keepModule()
	pool, err := p.program(ctx)
	if err != nil {
		return dsh.Verdict{}, err
	}
	result, err := p.run(ctx, pool, call, a)
	if p.starved(ctx, result, err) && len(a.calls()) == 0 && p.idle() {
		result, err = p.run(ctx, pool, call, a)
	}
	<-kept
	for _, line := range p.flow.pass(result.Logs, time.Now()) {
		p.logged(p.info.Name, line)
	}
	v := dsh.Verdict{HostCalls: a.calls()}
	if err == nil {
		err = readOutput(&v, q.Hook, result)
	}
	return v, err
}

// enter counts a decision in, unless the policy is closed or stuck.
func (p *policy) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return unavailable("the policy is closed")
	case p.stuck > 0:
		return unavailable("an earlier decision of this policy cannot be stopped: it is not asked until that has ended")
	}
	p.tasks.Add(1)
	return nil
}

// idle reports whether no call was left behind.
func (p *policy) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck == 0
}

// callOf makes the call of a hook, whose clock and random numbers are those of
// the input.
func (p *policy) callOf(hook dsh.Hook, input json.RawMessage) (Call, error) {
	if hook != dsh.HookRecover && hook != dsh.HookBeforeStep {
		return Call{}, unavailable("%s is not a hook that decides", hook)
	}
	if _, ok := p.checked.module.Export(string(hook)); !ok {
		return Call{}, unavailable("the module has no %s", hook)
	}
	if len(input) > hostabi.MaxInputBytes {
		return Call{}, unavailable("an input of %d bytes, and at most %d are allowed", len(input), hostabi.MaxInputBytes)
	}
	var seed struct {
		NowMs  int64      `json:"nowMs"`
		Random [4]float64 `json:"random"`
	}
	if err := json.Unmarshal(input, &seed); err != nil {
		return Call{}, unavailable("the input is not of the contract's form: %v", err)
	}
	return Call{Export: string(hook), Input: input, NowMs: seed.NowMs, Random: seed.Random}, nil
}

func unavailable(format string, args ...any) *dsh.Fault {
	return &dsh.Fault{Kind: dsh.FaultUnavailable, Message: fmt.Sprintf(format, args...)}
}

// keepModule stores the module beside the first decision, and again from time to
// time, so that nobody collects it while decisions are made. The channel is
// closed when that is done.
func (p *policy) keepModule() <-chan struct{} {
	done := make(chan struct{})
	now := time.Now()
	p.mu.Lock()
	due := p.kept.IsZero() || now.Sub(p.kept) > keepEvery
	if due {
		p.kept = now
	}
	p.mu.Unlock()
	if !due {
		close(done)
		return done
	}
	p.tasks.Go(func() {
		defer close(done)
		if err := p.store.Keep(p.info.Digest, p.checked.wasm); err != nil {
			p.warn(fmt.Sprintf("policy %q: its module cannot be kept, and its decisions not be replayed later: %v", p.info.Name, err))
		}
	})
	return done
}

// program waits for the compiled module, and begins to compile it if nobody
// has.
func (p *policy) program(ctx context.Context) (*pool, error) {
	p.mu.Lock()
	if p.ready == nil {
		p.ready = make(chan struct{})
		// Compilation serves every decision to come, so that it does not end
		// with the first.
		background := context.WithoutCancel(ctx)
		p.tasks.Go(func() { p.compile(background) })
	}
	ready := p.ready
	p.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "its module was not compiled in time", Cause: context.Cause(ctx)}
	}
	if p.failure != nil {
		return nil, &dsh.Fault{Kind: dsh.FaultUnavailable, Message: p.failure.Error(), Cause: p.failure}
	}
	return p.pool, nil
}

func (p *policy) compile(ctx context.Context) {
	defer close(p.ready)
	c := &p.checked
	module, err := prepare(c.code, c.module, c.digest, c.grants())
	c.code = nil // it is read once
	var program Program
	if err == nil {
		program, err = p.engine.Compile(ctx, module)
	}
	if err != nil {
		p.failure = fmt.Errorf("it cannot be compiled: %s", Printable(err.Error(), 512))
		return
	}
	_, warms := c.module.Export(hostabi.ExportWarm)
	p.pool = newPool(program, warms, p.deadline, warmOf(c.module))
}

// run runs a call in an instance of its own, and comes back soon after the
// deadline whatever the guest does. What the guest asks of the host is answered
// by a, here: an answer that is under way is waited for, and its time is not
// the guest's.
func (p *policy) run(ctx context.Context, pool *pool, call Call, a answerer) (Result, error) {
	if err := p.turns.take(ctx); err != nil {
		return Result{}, err
	}
	defer p.turns.give()
	limited, clock := allow(ctx, prepareWithin)
	defer clock.close()
	requests := make(chan request)
	call.Host = asker(requests)
	done, begins := make(chan outcome, 1), make(chan struct{}, 1)
	p.tasks.Go(func() {
		done <- p.callOnce(limited, pool, call, begins)
	})
	for {
		select {
		case o := <-done:
			return o.result, o.err
		case <-begins:
			clock.set(p.deadline)
		case r := <-requests:
			clock.pause()
			r.answer <- p.turns.lend(func() []byte { return a.answer(ctx, r.function, r.argument) })
			clock.resume()
		case <-limited.Done():
			return p.late(done)
		}
	}
}

type outcome struct {
	result Result
	err    error
}

// callOnce makes a call in an instance that is used for nothing else, and says
// when it begins.
func (p *policy) callOnce(ctx context.Context, pool *pool, call Call, begins chan<- struct{}) outcome {
	instance, err := pool.take(ctx)
	if err != nil {
		return outcome{err: err}
	}
	begins <- struct{}{}
	result, err := instance.Call(ctx, call)
	p.tasks.Go(func() {
		if err := instance.Close(); err != nil {
			p.warn(fmt.Sprintf("policy %q: %v", p.info.Name, err))
		}
		pool.fill(ctx)
	})
	return outcome{result, err}
}

// leave leaves a call behind, until it ends: on a machine that is very busy
// that may be the end of its fuel.
func (p *policy) leave(done <-chan outcome) {
	p.mu.Lock()
	p.stuck++
	p.mu.Unlock()
	p.tasks.Go(func() {
		<-done
		p.mu.Lock()
		p.stuck--
		p.mu.Unlock()
	})
}

// late waits a little longer for a call that is past its deadline.
func (p *policy) late(done <-chan outcome) (Result, error) {
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case o := <-done:
		return o.result, o.err
	case <-late.C:
		p.leave(done)
		return Result{}, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "it did not answer in time and cannot be stopped: it is not asked again until it has ended"}
	}
}

// readOutput holds an output to the contract and takes the decision from it.
func readOutput(v *dsh.Verdict, hook dsh.Hook, r Result) error {
	fault := func(kind dsh.FaultKind, format string, args ...any) error {
		return &dsh.Fault{Kind: kind, Message: fmt.Sprintf(format, args...)}
	}
	out := bytes.TrimSpace(r.Output)
	switch {
	case len(r.Output) > hostabi.MaxOutputBytes:
		return fault(dsh.FaultOutput, "an output of %d bytes, and at most %d are allowed", len(r.Output), hostabi.MaxOutputBytes)
	case len(out) == 0:
		return fault(dsh.FaultOutput, "no output: it set none, or one outside of its memory")
	case !utf8.Valid(out):
		return fault(dsh.FaultOutput, "an output that is not UTF-8")
	}
	var raw bytes.Buffer
	if err := json.Compact(&raw, out); err != nil {
		return fault(dsh.FaultSchema, "an output that is not JSON: %v", err)
	}
	var d dsh.Decision
	var err error
	if hook == dsh.HookRecover {
		d, err = dsh.ParseDecision(raw.Bytes())
	} else {
		d, err = parseStepAnswer(raw.Bytes())
	}
	if err == nil {
		err = checkRepairs(d)
	}
	if err != nil {
		return fault(dsh.FaultSchema, "%s", Printable(err.Error(), 512))
	}
	v.Decision, v.Raw, v.Fuel = d, raw.Bytes(), r.Fuel
	return nil
}

// checkRepairs holds the repairs of a decision, and of its fallback, to the
// contract. Whether they are granted is for the loop to say.
func checkRepairs(d dsh.Decision) error {
	for _, raw := range d.Repairs {
		if _, err := dsh.ParseRepair(raw); err != nil {
			return err
		}
	}
	if d.Fallback != nil {
		return checkRepairs(*d.Fallback)
	}
	return nil
}

func parseStepAnswer(raw []byte) (dsh.Decision, error) {
	var d dsh.Decision
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("not an answer: %w", err)
	}
	if d.Kind != dsh.KindProceed {
		return d, fmt.Errorf("an answer of kind %q, which is not proceed", d.Kind)
	}
	return d, nil
}

// close ends the policy after the decisions that are under way, and frees it.
// Calls that were left behind are not waited for.
func (p *policy) close() error {
	p.mu.Lock()
	p.closed = true
	stuck := p.stuck
	p.mu.Unlock()
	if stuck > 0 {
		return fmt.Errorf("policy %q: %d calls cannot be stopped and are left behind", p.info.Name, stuck)
	}
	p.tasks.Wait()
	if p.pool == nil {
		return nil
	}
	return p.pool.close()
}
