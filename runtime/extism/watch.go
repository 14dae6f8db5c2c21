package extism

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/guest"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasi"
)

// A watch is the limits of one call. The SDK hides the guest's instance, which
// has the globals that hold its fuel and its stack; a listener on the guest's
// exports is shown it.
type watch struct {
	export string     // what is called
	tank   meter.Tank // of the instance; nil globals: nothing of it has run
	begun  bool       // its start has been given its fuel
	called bool       // the export has been given its fuel
	depth  int        // of exports that are called within each other

	hosting guest.Hosting
	blocks  int // of the kernel's that have been asked for

	over atomic.Bool // the call's context has ended; for the interpreter alone
}

type watchKey struct{}

// enter fills the tank when the host calls the guest. What the guest calls
// itself goes on with what is left.
func (w *watch) enter(m api.Module, names []string) {
	w.depth++
	if w.depth > 1 {
		return
	}
	if w.tank.Fuel == nil {
		fuel, _ := m.ExportedGlobal(meter.FuelExport).(api.MutableGlobal)
		stack, _ := m.ExportedGlobal(meter.StackExport).(api.MutableGlobal)
		reserve, _ := m.ExportedGlobal(meter.ReserveExport).(api.MutableGlobal)
		if fuel == nil || stack == nil || reserve == nil {
			return // a module that was not prepared has no limits to fill
		}
		w.tank = meter.Tank{Fuel: fuel, Reserve: reserve, Stack: stack}
	}
	switch {
	case w.tank.Cause() != meter.CauseNone: // it is out of fuel already
	case slices.Contains(names, w.export):
		w.called = true
		w.tank.Fill(meter.DecisionFuel, meter.StackBytes)
	case !w.begun:
		w.begun = true
		w.tank.Fill(meter.StartFuel, meter.StackBytes)
	}
}

// cause says which limit has ended the call.
func (w *watch) cause() meter.Cause {
	if w.tank.Fuel == nil {
		return meter.CauseNone
	}
	return w.tank.Cause()
}

// used is the fuel of the export, without that of the guest's start.
func (w *watch) used() uint64 {
	if !w.called {
		return 0
	}
	return uint64(w.tank.Used(meter.DecisionFuel))
}

// blocksFree are the blocks that the SDK's kernel may go through for the price of
// a call, and bytesPerBlock is what going through one more is like.
const (
	blocksFree    = 16
	bytesPerBlock = 64
)

// charge takes fuel for what a function of the host has to do by a number that
// the guest chooses. The kernel looks for a block among all; how many there
// are is not known here, but no more than have been asked for.
func (w *watch) charge(ctx context.Context, m api.Module, def api.FunctionDefinition, args []uint64) {
	if w.tank.Fuel == nil {
		return
	}
	work := uint64(0)
	if def.ModuleName() == hostabi.NamespaceWASI {
		work = wasi.Work(def.Name(), args, m.Memory().Size()) // what was prepared has a memory
	} else {
		work = bytesPerBlock * uint64(max(0, w.blocks-blocksFree))
		switch name := def.Name(); {
		case name == "alloc":
			w.blocks++
		case name != "free" && name != "length":
			work += copied(ctx, args[0])
		}
	}
	if !w.tank.ChargeBytes(work) {
		panic(sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	}
}

// copied is the length of a block that the SDK copies, as the kernel has it
// before the handle. The bytes are new memory, which costs several times a copy.
func copied(ctx context.Context, handle uint64) uint64 {
	const used, times = 4, 8
	kernel, ok := ctx.Value(sdk.PluginCtxKey("extism")).(api.Module)
	if !ok || handle < 64 {
		return 0
	}
	n, ok := kernel.ExportedMemory("memory").ReadUint32Le(uint32(handle - used))
	if !ok || n <= meter.FreeBytes {
		return 0
	}
	return times * uint64(n)
}

// charged reports whether a function of the host does more for some numbers
// than for others: WASI's, and those for which the kernel looks for a block.
func charged(def api.FunctionDefinition) bool {
	name := def.Name()
	return def.ModuleName() == hostabi.NamespaceWASI || def.ModuleName() == hostabi.NamespaceKernel &&
		(strings.HasPrefix(name, "log_") || slices.Contains([]string{"alloc", "free", "length", "config_get"}, name))
}

// watchFactory puts a listener on the guest's exports, on functions of the host
// that are charged, and on none of the SDK's own. Where the guest is interpreted it listens to every function: a unit of
// fuel takes so long there that a guest has to be stopped before its fuel is
// out, and the interpreter itself looks at the context in loops only.
type watchFactory struct {
	source      *wasmSource
	interpreted bool
}

func (f *watchFactory) NewFunctionListener(def api.FunctionDefinition) experimental.FunctionListener {
	exported := len(def.ExportNames()) > 0
	switch {
	case def.GoFunction() != nil && charged(def):
		return listener{host: true}
	case f.source.taken && def.GoFunction() == nil && (exported || f.interpreted):
		return listener{exported: exported}
	}
	return nil
}

type listener struct {
	exported bool // it listens to an export of the guest's
	host     bool // or to a function of the host
}

func (l listener) Before(ctx context.Context, m api.Module, def api.FunctionDefinition, args []uint64, _ experimental.StackIterator) {
	w, ok := ctx.Value(watchKey{}).(*watch)
	switch {
	case !ok:
	case l.host:
		w.charge(ctx, m, def, args)
	case w.over.Load():
		panic(sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	case l.exported:
		w.enter(m, def.ExportNames())
	}
}

func (l listener) After(ctx context.Context, _ api.Module, _ api.FunctionDefinition, _ []uint64) {
	if w, ok := ctx.Value(watchKey{}).(*watch); ok && l.exported {
		w.depth--
	}
}

func (l listener) Abort(ctx context.Context, m api.Module, def api.FunctionDefinition, _ error) {
	l.After(ctx, m, def, nil)
}
