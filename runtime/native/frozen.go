package native

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/frozen"
	"github.com/dsh-agent/dsh/runtime/internal/wasi"
)

// state is all that tells an instance at rest from a fresh one. A call's own
// things are made new by each call, and so is the content of the kernel's memory.
type state struct {
	memory  frozen.Image
	globals []uint64
	closed  wasi.Process // what it closed
	kernel  uint64       // the pages of the kernel's memory
}

// Freeze remembers an instance of this program.
func (p *program) Freeze(ctx context.Context, warm runtime.Instance) (func(context.Context) (runtime.Instance, error), error) {
	i, ok := warm.(*instance)
	if !ok || p.module.Globals == nil {
		return nil, nil
	}
	made, err := p.Instance(ctx)
	if err != nil {
		return nil, err
	}
	fresh, _ := made.(*instance)
	s := state{closed: i.wasi, kernel: i.kernel.Pages()}
	s.closed.World = nil
	s.memory, ok = frozen.Compare(fresh.bytes(), i.bytes())
	for _, name := range p.module.Globals {
		s.globals = append(s.globals, i.mod.ExportedGlobal(name).Get())
	}
	if err := made.Close(); err != nil || !ok {
		return nil, err
	}
	return func(ctx context.Context) (runtime.Instance, error) { return p.thaw(ctx, &s) }, nil
}

// bytes is the memory, a view; nil: there is none.
func (i *instance) bytes() []byte {
	memory := i.mod.Memory()
	if memory == nil {
		return nil
	}
	b, _ := memory.Read(0, memory.Size())
	return b
}

// thaw makes an instance that begins in a state.
func (p *program) thaw(ctx context.Context, s *state) (runtime.Instance, error) {
	made, err := p.Instance(ctx)
	if err != nil {
		return nil, err
	}
	i, _ := made.(*instance)
	if more := s.memory.Size() - len(i.bytes()); more > 0 {
		if _, ok := i.mod.Memory().Grow(uint32(more / hostabi.PageBytes)); !ok {
			return nil, errors.Join(errors.New("its memory cannot be made as large as it was"), i.Close())
		}
	}
	s.memory.Put(i.bytes())
	for k, name := range p.module.Globals {
		g, ok := i.mod.ExportedGlobal(name).(api.MutableGlobal)
		if !ok {
			return nil, errors.Join(errors.New("the module does not export its globals"), i.Close())
		}
		g.Set(s.globals[k])
	}
	i.wasi = s.closed
	i.wasi.World = &i.world
	i.kernel.Grown(s.kernel)
	i.ready = true
	return i, nil
}
