// Package extism runs guests on extism/go-sdk and wazero.
//
// What the SDK does that its names don't tell is absorbed here: proc_exit(0),
// a bad output range, a failed allocation and a return code other than 0 are
// no successes; its debugging variable EXTISM_ENABLE_WASI_OUTPUT is taken out
// of the environment; its timeout covers the call alone.
//
// A guest is stopped by the fuel and the stack limit that are written into its
// code. The deadline stops what those do not reach, which is the SDK's own
// kernel: it is looked at in every loop.
package extism

import (
	"context"
	"errors"
	"fmt"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/compiled"
	"github.com/dsh-agent/dsh/runtime/internal/memory"
)

// Name is what the log and the configuration call this engine.
const Name = "extism"

// Options are the settings of an engine.
type Options struct {
	// CacheDir keeps compiled code, a folder a module. That is native code: the
	// folder is made with mode 0700 and has to be the user's alone, or it is
	// not used; what is damaged is made again. "": nothing is kept.
	CacheDir string

	// Interpreter runs guests without compiling them: slowly, and everywhere.
	Interpreter bool

	// Logs lets guests log at level info and above. Extism has one level for
	// the whole process, which this sets.
	Logs bool

	// Warn is told, once each, what the engine goes on without. nil: nobody.
	Warn func(string)
}

// wasiOutputVariable makes the SDK hand the process's own stdout to guests.
const wasiOutputVariable = "EXTISM_ENABLE_WASI_OUTPUT"

// New makes an engine. It holds nothing that has to be closed.
func New(opts Options) runtime.Engine {
	if opts.Logs {
		sdk.SetLogLevel(sdk.LogLevelInfo)
	}
	return &engine{opts}
}

type engine struct{ opts Options }

func (e *engine) Name() string { return Name }

func (e *engine) warn(format string, args ...any) {
	if e.opts.Warn != nil {
		e.opts.Warn(fmt.Sprintf(format, args...))
	}
}

// Compile compiles through the cache, and without it where the cache fails.
func (e *engine) Compile(ctx context.Context, m runtime.Module) (p runtime.Program, err error) {
	cache := compiled.Cache(e.opts.CacheDir)
	if e.opts.Interpreter {
		cache = ""
	}
	err = cache.Compile(Name+"-"+m.Key, e.warn, func(dir string) error {
		p, err = e.compile(ctx, m, dir)
		return err
	})
	return p, err
}

func (e *engine) compile(ctx context.Context, m runtime.Module, cacheDir string) (_ runtime.Program, err error) {
	config := wazero.NewRuntimeConfig()
	if e.opts.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	config = config.WithCloseOnContextDone(true).WithDebugInfoEnabled(false)
	kept := wazero.NewCompilationCache()
	if cacheDir != "" {
		if kept, err = wazero.NewCompilationCacheWithDir(cacheDir); err != nil {
			return nil, err
		}
	}
	source := &wasmSource{data: m.Wasm}
	manifest := sdk.Manifest{
		Wasm:   []sdk.Wasm{source},
		Memory: &sdk.ManifestMemory{MaxHttpResponseBytes: 0, MaxVarBytes: 0},
		Config: m.Config,
	}
	ctx = experimental.WithFunctionListenerFactory(ctx, &watchFactory{source: source, interpreted: e.opts.Interpreter})
	plugin, err := sdk.NewCompiledPlugin(ctx, manifest, sdk.PluginConfig{
		RuntimeConfig: config.WithCompilationCache(kept),
		EnableWasi:    wantsWASI(m.Info),
	}, hostFunctions(m.Info))
	if err != nil {
		return nil, errors.Join(err, kept.Close(context.WithoutCancel(ctx)))
	}
	return &program{engine: e, module: m, compiled: plugin, kept: kept}, nil
}

// wantsWASI reports whether the module imports WASI, or exports what the SDK
// runs as a guest's start only where it has WASI, as AssemblyScript's does.
func wantsWASI(m *hostabi.Module) bool {
	_, initialises := m.Export("_initialize")
	_, constructs := m.Export("__wasm_call_ctors")
	return m.ImportsFrom(hostabi.NamespaceWASI) || initialises || constructs
}

// wasmSource hands the module over. The SDK asks for it after it has compiled
// its own kernel and right before it compiles the guest.
type wasmSource struct {
	data  []byte
	taken bool
}

func (s *wasmSource) ToWasmData(context.Context) (sdk.WasmData, error) {
	s.taken = true
	return sdk.WasmData{Data: s.data, Name: "main"}, nil
}

type program struct {
	engine   *engine
	module   runtime.Module
	compiled *sdk.CompiledPlugin
	kept     wazero.CompilationCache
	recycler memory.Recycler
}

func (p *program) Close() error {
	ctx := context.Background() // freeing is not to be interrupted
	return errors.Join(p.compiled.Close(ctx), p.kept.Close(ctx))
}

// kernelPages is the least that the SDK's kernel may have: the 16 pages that
// it starts with, and room for an input, an output and what is between.
const kernelPages = 32

// slackPages is how much larger a memory's buffer is than it starts with: the
// kernel grows at its first allocation, as most guests do, Go's by 9 pages.
const slackPages = 16

// allocator makes the memories of an instance: first the SDK's kernel's, and
// then the guest's.
func (p *program) allocator() *memory.Allocator {
	guest := uint64(p.module.MemoryPages)
	return &memory.Allocator{
		Recycler: &p.recycler, Slack: slackPages * hostabi.PageBytes,
		Limits: []uint64{max(guest, kernelPages) * hostabi.PageBytes, guest * hostabi.PageBytes},
	}
}
