package runtime_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dsh-agent/dsh/runtime"
)

// fake is an engine whose guests are Go functions.
type fake struct {
	call    func(ctx context.Context, c runtime.Call) (runtime.Result, error)
	compile func() error

	compiled, instances, open atomic.Int64
	mu                        sync.Mutex
	calls                     []runtime.Call
}

// called returns the calls until now.
func (f *fake) called() []runtime.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Compile(context.Context, runtime.Module) (runtime.Program, error) {
	f.compiled.Add(1)
	if f.compile != nil {
		if err := f.compile(); err != nil {
			return nil, err
		}
	}
	f.open.Add(1)
	return fakeProgram{f}, nil
}

type fakeProgram struct{ f *fake }

func (p fakeProgram) Instance(context.Context) (runtime.Instance, error) {
	p.f.instances.Add(1)
	p.f.open.Add(1)
	return &fakeInstance{f: p.f}, nil
}

func (p fakeProgram) Close() error {
	p.f.open.Add(-1)
	return nil
}

type fakeInstance struct {
	f      *fake
	closed bool
}

func (i *fakeInstance) Call(ctx context.Context, c runtime.Call) (runtime.Result, error) {
	i.f.mu.Lock()
	i.f.calls = append(i.f.calls, c)
	i.f.mu.Unlock()
	return i.f.call(ctx, c)
}

func (i *fakeInstance) Close() error {
	if i.closed {
		return errors.New("closed twice")
	}
	i.closed = true
	i.f.open.Add(-1)
	return nil
}

// answers makes every call answer the same.
func answers(text string) func(context.Context, runtime.Call) (runtime.Result, error) {
	return func(context.Context, runtime.Call) (runtime.Result, error) {
		return runtime.Result{Output: []byte(text)}, nil
	}
}
