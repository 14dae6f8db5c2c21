package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
)

// Options are the settings of an engine.
type Options struct {
	// Command runs a worker: a program and arguments that lead it to Main. What
	// a worker needs to know before anything else is added to it.
	Command []string

	// Engine is the name of the engine that Main is given.
	Engine string
}

// New makes an engine whose guests run in processes of their own. It holds
// nothing that has to be closed. Where the system has no such processes every
// module is refused: see Supported.
func New(opts Options) runtime.Engine { return &engine{opts} }

type engine struct{ opts Options }

func (e *engine) Name() string { return e.opts.Engine + "/process" }

const (
	// maxWorkers bounds the processes of one policy. A decision that would be
	// one more waits.
	maxWorkers = 16

	// maxIdle is how many processes of a policy wait for their next instance.
	maxIdle = 2

	// retireAfter is the CPU time after which a worker is not used again, far
	// from its limit.
	retireAfter = cpuLimit / 4

	// leave is how long a worker that is told to end may take.
	leave = time.Second

	// compileWithin and readyWithin are how long a worker may take to compile
	// its module, and to make an instance, where nothing else bounds it.
	compileWithin = time.Minute
	readyWithin   = 10 * time.Second
)

// Compile starts a first worker, which compiles the module, and ends it when
// ctx does.
func (e *engine) Compile(ctx context.Context, m runtime.Module) (runtime.Program, error) {
	if !Supported {
		return nil, errors.New("isolation in a process is not there on this system: isolation = \"in-process\" is")
	}
	p := &program{opts: e.opts, module: m, slots: make(chan struct{}, maxWorkers)}
	w, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	p.give(w)
	return p, nil
}

// A program is a module and the workers that have it compiled.
type program struct {
	opts   Options
	module runtime.Module
	slots  chan struct{} // one a worker

	mu     sync.Mutex
	idle   []*process
	closed bool
}

// take gives a worker that has the module and nothing else. Whoever takes one
// gives it back, or ends it and calls release.
func (p *program) take(ctx context.Context) (*process, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return w, nil
	}
	p.mu.Unlock()
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w, err := start(p.opts.Command, p.module.MemoryPages)
	if err != nil {
		p.release()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, compileWithin)
	defer cancel()
	m := p.module
	said := &module{m.Key, m.Digest, m.Info, m.Config, m.MemoryPages, m.HostCalls, m.CompileBytes}
	if err := w.do(ctx, message{Kind: kindModule, Module: said, body: m.Wasm}); err != nil {
		w.end()
		p.release()
		return nil, err
	}
	return w, nil
}

func (p *program) release() { <-p.slots }

// give takes a worker back for the next instance, unless there are enough.
func (p *program) give(w *process) {
	p.mu.Lock()
	if !p.closed && len(p.idle) < maxIdle && w.cpu < retireAfter {
		p.idle = append(p.idle, w)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	w.end()
	p.release()
}

// Instance makes a fresh instance in a worker. One that died while it was idle
// is replaced.
func (p *program) Instance(ctx context.Context) (runtime.Instance, error) {
	for {
		w, err := p.take(ctx)
		if err != nil {
			return nil, err
		}
		used := w.used
		w.used = true
		within, cancel := context.WithTimeout(ctx, readyWithin)
		err = w.do(within, message{Kind: kindInstance})
		cancel()
		if err == nil {
			return &instance{program: p, worker: w}, nil
		}
		w.end()
		p.release()
		if !used || ctx.Err() != nil {
			return nil, err
		}
	}
}

// Close ends the workers.
func (p *program) Close() error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		w.end()
		p.release()
	}
	return nil
}

// An instance is one in a worker.
type instance struct {
	program *program
	worker  *process
	spent   bool // the worker is of no use any more
}

// Close frees the instance, and the worker with it if that is not sound.
func (i *instance) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), leave)
	defer cancel()
	if i.spent || i.worker.do(ctx, message{Kind: kindFree}) != nil {
		i.worker.end()
		i.program.release()
		return nil
	}
	i.program.give(i.worker)
	return nil
}

// Call runs an export in the worker. When ctx ends the worker is killed.
func (i *instance) Call(ctx context.Context, c runtime.Call) (runtime.Result, error) {
	if i.spent {
		return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultUnavailable, Message: "its worker process has ended"}
	}
	stop := context.AfterFunc(ctx, i.worker.kill)
	r, err := i.call(ctx, c)
	if !stop() || err != nil {
		i.spent = true
		i.worker.kill()
	}
	if err == nil {
		return resultOf(r)
	}
	if ctx.Err() != nil {
		return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "it did not answer in time: its process was killed", Cause: context.Cause(ctx)}
	}
	return runtime.Result{}, i.worker.died(err)
}

// call says a call to the worker and answers what it asks until its result.
func (i *instance) call(ctx context.Context, c runtime.Call) (message, error) {
	w := i.worker
	if err := w.say(message{Kind: kindCall, Call: &call{c.Export, c.NowMs, c.Random}, body: c.Input}); err != nil {
		return message{}, err
	}
	for {
		m, err := w.hear()
		if err != nil {
			return m, err
		}
		switch {
		case m.Kind == kindResult && m.Result != nil:
			w.cpu = time.Duration(m.Result.CPUMs) * time.Millisecond
			return m, nil
		case m.Kind == kindAsk && ctx.Err() == nil:
			answer := []byte(nil)
			if c.Host != nil {
				answer = c.Host(ctx, m.Text, m.body)
			} else {
				answer = runtime.Refuse(hostabi.CodeUnavailable, "nobody answers here")
			}
			if err := w.say(message{Kind: kindAnswer, body: answer}); err != nil {
				return m, err
			}
		default:
			return m, errFrame
		}
	}
}

// resultOf takes a result from what a worker said of it, which need not be true.
func resultOf(m message) (runtime.Result, error) {
	var log runtime.Transcript
	for _, l := range m.Result.Logs {
		if !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, l.Level) {
			l.Level = "info"
		}
		log.Add(l.Level, l.Text)
	}
	r := runtime.Result{Fuel: m.Result.Fuel, Logs: log.Lines()}
	if kind := m.Result.Fault; kind != "" {
		if !slices.Contains(faults(), kind) {
			kind = dsh.FaultTrap
		}
		return r, &dsh.Fault{Kind: kind, Message: runtime.Printable(m.Result.Message, maxMessage)}
	}
	if len(m.body) > hostabi.MaxOutputBytes {
		return r, &dsh.Fault{Kind: dsh.FaultOutput, Message: fmt.Sprintf("an output of %d bytes, and at most %d are allowed", len(m.body), hostabi.MaxOutputBytes)}
	}
	r.Output = m.body
	return r, nil
}

// maxMessage bounds what of a worker's words gets into a fault, in bytes.
const maxMessage = 1024

func faults() []dsh.FaultKind {
	return []dsh.FaultKind{
		dsh.FaultFuel, dsh.FaultStack, dsh.FaultMemory, dsh.FaultTrap, dsh.FaultExit, dsh.FaultOutput, dsh.FaultSchema,
		dsh.FaultHostCalls, dsh.FaultDeadline, dsh.FaultDenied, dsh.FaultUnavailable,
	}
}
