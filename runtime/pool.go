package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

const (
	// warmInstances is how many instances a policy keeps ready.
	warmInstances = 2

	// warmBytes bounds what the memories of those take, as they begin: what
	// begins with a lot is made when it is needed.
	warmBytes = 8 << 20
)

// warmOf is how many instances of a module are kept ready.
func warmOf(m *hostabi.Module) int {
	n := uint64(warmInstances)
	for _, memory := range m.Memories {
		if memory.Min > 0 {
			n = min(n, warmBytes/hostabi.PageBytes/memory.Min)
		}
	}
	return int(n)
}

// pool makes instances of a program and keeps some ready. Each is used once.
type pool struct {
	program Program
	warms   bool // the module has an export warm
	timeout time.Duration
	keep    int // instances that are kept ready

	mu      sync.Mutex
	filling bool
	idle    []Instance
	frozen  bool                                    // it was tried to freeze a warm instance
	thaw    func(context.Context) (Instance, error) // makes warm instances; nil: by warming them
}

func newPool(program Program, warms bool, timeout time.Duration, keep int) *pool {
	return &pool{program: program, warms: warms, timeout: timeout, keep: keep}
}

// take returns an instance that nobody has used; the caller closes it.
func (p *pool) take(ctx context.Context) (Instance, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return i, nil
	}
	p.mu.Unlock()
	return p.fresh(ctx)
}

// fresh makes an instance and warms it. That runs before the input is known,
// so that it has a clock and random numbers of its own that never change: a
// decision does not depend on whether its instance was ready.
//
// What warm makes of an instance is the same each time, since nothing that it
// sees is another. So an engine that can freeze a warm instance makes the ones
// to come in its state, of which each is still used once.
func (p *pool) fresh(ctx context.Context) (Instance, error) {
	p.mu.Lock()
	begin, warm := p.thaw, p.thaw != nil || !p.warms
	p.mu.Unlock()
	if begin == nil {
		begin = p.program.Instance
	}
	i, err := begin(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "it was not ready in time", Cause: context.Cause(ctx)}
	}
	if err != nil {
		return nil, &dsh.Fault{Kind: dsh.FaultUnavailable, Message: "it cannot be instantiated: " + Printable(err.Error(), 512), Cause: err}
	}
	if warm {
		return i, nil
	}
	return p.warm(ctx, i)
}

// warm calls the export warm of an instance, which is closed where that fails.
func (p *pool) warm(ctx context.Context, i Instance) (Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	if _, err := i.Call(ctx, Call{Export: hostabi.ExportWarm, Host: noHost}); err != nil {
		var f *dsh.Fault
		if errors.As(err, &f) {
			err = &dsh.Fault{Kind: f.Kind, Message: fmt.Sprintf("in %s: %s", hostabi.ExportWarm, f.Message), Cause: f}
		}
		if closing := i.Close(); closing != nil {
			err = &dsh.Fault{Kind: dsh.FaultUnavailable, Message: messageOf(err), Cause: errors.Join(err, closing)}
		}
		return nil, err
	}
	return i, nil
}

// freeze lets the instances to come begin in the state of a warm one, if the
// engine can do that.
func (p *pool) freeze(ctx context.Context, i Instance) {
	f, ok := p.program.(Freezer)
	if !ok || !p.warms {
		return
	}
	p.mu.Lock()
	tried := p.frozen
	p.frozen = true
	p.mu.Unlock()
	if tried {
		return
	}
	thaw, err := f.Freeze(ctx, i)
	if err != nil {
		return // instances are warmed one by one, and what is wrong is met there
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thaw = thaw
}

// fill makes instances until enough are ready, unless another does already. It
// stops at a failure, which the next decision meets itself and reports.
func (p *pool) fill(ctx context.Context) {
	ctx = context.WithoutCancel(ctx) // it serves the next decision, not the one that began it
	p.mu.Lock()
	if p.filling {
		p.mu.Unlock()
		return
	}
	p.filling = true
	for len(p.idle) < p.keep {
		p.mu.Unlock()
		i, err := p.fresh(ctx)
		room := warmInstances
		if err == nil {
			if room = roomFor(i); room > 0 {
				p.freeze(ctx, i)
			} else {
				err = i.Close()
			}
		}
		p.mu.Lock()
		p.keep = min(p.keep, room)
		if err != nil || room == 0 {
			break
		}
		p.idle = append(p.idle, i)
	}
	p.filling = false
	p.mu.Unlock()
}

// ready makes the first instance, which is kept if it may be.
func (p *pool) ready(ctx context.Context) error {
	i, err := p.fresh(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.keep = min(p.keep, roomFor(i))
	keep := p.keep > 0
	if keep {
		p.idle = append(p.idle, i)
	}
	p.mu.Unlock()
	if !keep {
		return i.Close()
	}
	return nil
}

// roomFor is how many instances may be kept that are as large as a warm one: it
// may have grown.
func roomFor(i Instance) int {
	s, ok := i.(Sized)
	if !ok {
		return warmInstances
	}
	return int(warmBytes / max(1, s.MemoryBytes()))
}

// close frees everything. Nothing may be under way.
func (p *pool) close() error {
	var errs []error
	for _, i := range p.idle {
		errs = append(errs, i.Close())
	}
	p.idle = nil
	return errors.Join(append(errs, p.program.Close())...)
}
