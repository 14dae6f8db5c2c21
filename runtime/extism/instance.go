package extism

import (
	"context"
	"errors"
	"os"
	"strings"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/guest"
	"github.com/dsh-agent/dsh/runtime/internal/memory"
)

// initFailed begins the SDK's error of a guest's _initialize, which carries
// the text of its cause alone.
const initFailed = "failed to initialize runtime: "

type instance struct {
	program *program
	plugin  *sdk.Plugin
	mem     *memory.Allocator
	world   guest.World
	exits   bool // it imports proc_exit
}

// Instance makes a fresh instance. Its memory is Go's, and is freed with it.
func (p *program) Instance(ctx context.Context) (runtime.Instance, error) {
	// The SDK looks here each time, and would hand the process's own stdout to
	// the guest.
	if _, set := os.LookupEnv(wasiOutputVariable); set {
		if err := os.Unsetenv(wasiOutputVariable); err != nil {
			return nil, err
		}
	}
	i := &instance{program: p, mem: p.allocator()}
	for _, imp := range p.module.Info.Imports {
		i.exits = i.exits || imp.Module == hostabi.NamespaceWASI && imp.Name == "proc_exit"
	}
	config := wazero.NewModuleConfig().
		WithWalltime(i.world.Walltime, sys.ClockResolution(1)).
		WithNanotime(i.world.Nanotime, sys.ClockResolution(1)).
		WithNanosleep(i.world.Sleep).
		WithOsyield(func() {}).
		WithRandSource(&i.world).
		WithStderr(&i.world)
	ctx = experimental.WithMemoryAllocator(context.WithoutCancel(ctx), i.mem)
	var err error
	if i.plugin, err = p.compiled.Instance(ctx, sdk.PluginInstanceConfig{ModuleConfig: config}); err != nil {
		return nil, err
	}
	i.plugin.SetLogger(func(level sdk.LogLevel, text string) {
		if level >= sdk.LogLevelInfo {
			i.world.Log.Add(strings.ToLower(level.String()), text)
		}
	})
	return i, nil
}

func (i *instance) Close() error {
	return i.plugin.CloseWithContext(context.Background()) // freeing is not to be interrupted
}

// Call runs an export and takes none of the SDK's silences for a success.
func (i *instance) Call(ctx context.Context, c runtime.Call) (result runtime.Result, err error) {
	i.world = guest.NewWorld(c)
	i.mem.Reset()
	w := &watch{export: c.Export, hosting: guest.NewHosting(c, &i.program.module)}
	if i.program.engine.opts.Interpreter {
		defer context.AfterFunc(ctx, func() { w.over.Store(true) })()
	}
	defer func() {
		if r := recover(); r != nil {
			err = guest.Panicked(r)
		}
		result.Logs, result.Fuel = i.world.Log.Lines(), w.used()
	}()
	code, out, callErr := i.plugin.CallWithContext(context.WithValue(ctx, watchKey{}, w), c.Export, c.Input)
	end := guest.End{
		World: &i.world, Hosting: &w.hosting, Cause: w.cause(), Started: w.called, Err: callErr, Code: code,
		Exit: i.exit(callErr, code), Over: ctx.Err() != nil, Refused: i.mem.Refused(), KiB: i.program.module.MemoryPages * 64,
		StackOverflow: callErr != nil && strings.Contains(callErr.Error(), "stack overflow"),
	}
	if fault := end.Fault(); fault != nil {
		return result, fault
	}
	if fault := end.OutputFault(out, hostabi.MaxOutputBytes); fault != nil {
		return result, fault
	}
	result.Output = out
	return result, nil
}

// exit is the code of a proc_exit; nil: there was none. The SDK tells of a
// guest's start in words alone, and of proc_exit(0) not at all.
func (i *instance) exit(err error, code uint32) *uint32 {
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil && strings.HasPrefix(err.Error(), initFailed) && strings.Contains(err.Error(), "exit_code("):
	case err == nil && code == 0 && i.exits && i.closed():
	default:
		return nil
	}
	return &code
}

// closed reports whether the guest has left through proc_exit(0), of which the
// SDK makes a success. It does not tell, but it refuses another call in other
// words than a call of an export that is not there.
func (i *instance) closed() bool {
	_, _, err := i.plugin.CallWithContext(context.Background(), "\x00", nil)
	return err != nil && strings.Contains(err.Error(), "closed")
}
