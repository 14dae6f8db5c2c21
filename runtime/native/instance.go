package native

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/guest"
	"github.com/dsh-agent/dsh/runtime/internal/kernel"
	"github.com/dsh-agent/dsh/runtime/internal/memory"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasi"
)

const (
	// kernelPages is the least that the kernel's memory may have, whatever the
	// guest's has.
	kernelPages = 32

	// kernelBytes is what the kernel's memory takes at first: an input, an
	// output, and what is between. It grows.
	kernelBytes = 16 << 10

	// slackPages is how much larger a memory's buffer is than it starts with:
	// most guests grow theirs at once, Go's by 9 pages, and a memory that has to
	// move is copied.
	slackPages = 16
)

// instance is one sandbox.
type instance struct {
	program *program
	mod     api.Module
	mem     memory.Allocator
	kernel  kernel.Kernel
	wasi    wasi.Process
	world   guest.World
	hosting guest.Hosting
	tank    meter.Tank
	input   uint64  // the handle that the input had when the call began
	exit    *uint32 // what proc_exit was called with
	ready   bool    // the guest's start has run

	export   string // that was called last
	function api.Function

	cancelled <-chan struct{} // is closed when the call's context ends

	over atomic.Bool // the call's context has ended; for the interpreter alone
}

type instanceKey struct{}

// Instance makes a fresh instance. Its memory is Go's, and is freed with it.
func (p *program) Instance(ctx context.Context) (runtime.Instance, error) {
	i := &instance{
		program: p,
		mem: memory.Allocator{
			Recycler: &p.guests, Slack: slackPages * hostabi.PageBytes,
			Limits: []uint64{uint64(p.module.MemoryPages) * hostabi.PageBytes},
		},
		kernel: kernel.New(p.kernels.Get(kernelBytes), uint64(max(p.module.MemoryPages, kernelPages))),
	}
	var err error
	i.mod, err = p.runtime.InstantiateModule(experimental.WithMemoryAllocator(context.WithoutCancel(ctx), &i.mem), p.code, p.config)
	if err != nil {
		i.mem.Free()
		p.kernels.Put(i.kernel.Buffer())
		return nil, err
	}
	fuel, _ := i.mod.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
	stack, _ := i.mod.ExportedGlobal(meter.StackExport).(api.MutableGlobal)
	reserve, _ := i.mod.ExportedGlobal(meter.ReserveExport).(api.MutableGlobal)
	if fuel == nil || stack == nil || reserve == nil {
		return nil, errors.Join(errors.New("the module has no limits in its code"), i.mod.Close(context.WithoutCancel(ctx)))
	}
	i.tank = meter.Tank{Fuel: fuel, Reserve: reserve, Stack: stack}
	i.kernel.Charge = i.charge
	i.kernel.Make = p.makeKernel
	i.wasi = wasi.Process{World: &i.world}
	return i, nil
}

// charge takes fuel for the kernel's work, unless the call has been cancelled: a
// walk over many blocks takes longer than its fuel lets expect on a busy machine.
func (i *instance) charge(units int64) bool {
	select {
	case <-i.cancelled:
		return false
	default:
		return i.tank.Charge(units)
	}
}

func (i *instance) Close() error {
	i.program.kernels.Put(i.kernel.Buffer())
	i.kernel = kernel.Kernel{}
	return i.mod.Close(context.Background()) // freeing is not to be interrupted
}

// MemoryBytes is what the guest's memory and the kernel's take.
func (i *instance) MemoryBytes() uint64 {
	n := uint64(cap(i.kernel.Buffer()))
	if memory := i.mod.Memory(); memory != nil {
		n += uint64(memory.Size())
	}
	return n
}

// Call runs an export.
func (i *instance) Call(ctx context.Context, c runtime.Call) (result runtime.Result, err error) {
	i.world = guest.NewWorld(c)
	i.hosting = guest.NewHosting(c, &i.program.module)
	i.mem.Reset()
	i.exit, i.cancelled = nil, ctx.Done()
	if i.program.engine.opts.Interpreter {
		i.over.Store(ctx.Err() != nil)
		defer context.AfterFunc(ctx, func() { i.over.Store(true) })()
	}
	end := guest.End{World: &i.world, Hosting: &i.hosting, KiB: i.program.module.MemoryPages * 64}
	defer func() {
		if r := recover(); r != nil {
			err = guest.Panicked(r)
		}
		result.Logs = i.world.Log.Lines()
		if end.Started {
			result.Fuel = uint64(i.tank.Used(meter.DecisionFuel))
		}
	}()
	i.run(context.WithValue(ctx, instanceKey{}, i), c, &end)
	end.Exit, end.Over, end.Refused = i.exit, ctx.Err() != nil, i.mem.Refused() || i.kernel.Refused
	end.StackOverflow = end.Err != nil && strings.Contains(end.Err.Error(), "stack overflow")
	if fault := end.Fault(); fault != nil {
		return result, fault
	}
	if n := i.kernel.OutputLength(); n > hostabi.MaxOutputBytes {
		return result, guest.TooLong(int(n), hostabi.MaxOutputBytes)
	}
	out := i.kernel.Output()
	if fault := end.OutputFault(out, hostabi.MaxOutputBytes); fault != nil {
		return result, fault
	}
	result.Output = slices.Clone(out)
	return result, nil
}

// run starts the guest, if that has not been done, and calls the export. How it
// ended is in end.
func (i *instance) run(ctx context.Context, c runtime.Call, end *guest.End) {
	if !i.kernel.Reset(c.Input) {
		end.Err = errors.New("the input does not fit into the kernel's memory")
		return
	}
	i.input = i.kernel.Input()
	if i.export != c.Export {
		// Each has a stack of its own, which is used again.
		i.export, i.function = c.Export, i.mod.ExportedFunction(c.Export)
	}
	if i.function == nil {
		end.Err = errors.New("there is no export " + c.Export)
		return
	}
	if end.Err = i.start(ctx); end.Err != nil {
		end.Cause = i.tank.Cause()
		return
	}
	end.Started = true
	i.tank.Fill(meter.DecisionFuel, meter.StackBytes)
	var results [1]uint64
	end.Err = i.function.CallWithStack(ctx, results[:])
	end.Cause = i.tank.Cause()
	if end.Err != nil {
		return
	}
	end.Code = uint32(results[0])
	message, err := i.kernel.Error()
	switch {
	case err != nil:
		end.Err = err
	case len(message) > 0:
		end.Err = errors.New(string(message[:min(len(message), hostabi.MaxLogBytes)]))
	}
}

// start runs the exports that the guest wants to be run before anything else.
// They have fuel of their own.
func (i *instance) start(ctx context.Context) error {
	if i.ready {
		return nil
	}
	i.ready = true
	if len(i.program.starts) == 0 {
		return nil
	}
	i.tank.Fill(meter.StartFuel, meter.StackBytes)
	for k, name := range i.program.starts {
		f, args := i.mod.ExportedFunction(name), []uint64(nil)
		if name == startHaskell {
			args = []uint64{0, 0} // no arguments of a command line
		}
		// The SDK goes on without an _initialize before Haskell's.
		if _, err := f.Call(ctx, args...); err != nil && k == len(i.program.starts)-1 {
			return err
		}
	}
	return nil
}

// interrupts stops interpreted guests at the entry of a function when their
// context has ended: the interpreter looks at it in loops only, and a unit of
// fuel takes long there.
type interrupts struct{}

func (interrupts) NewFunctionListener(def api.FunctionDefinition) experimental.FunctionListener {
	if def.GoFunction() != nil {
		return nil
	}
	return interrupts{}
}

func (interrupts) Before(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	if i, ok := ctx.Value(instanceKey{}).(*instance); ok && i.over.Load() {
		panic(sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	}
}

func (interrupts) After(context.Context, api.Module, api.FunctionDefinition, []uint64) {}

func (interrupts) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}
