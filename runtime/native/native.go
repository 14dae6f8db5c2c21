// Package native runs guests on wazero alone. Extism's kernel and WASI are Go
// functions here (packages kernel and wasi), of which an instance has those
// that its module imports. That is several times faster than a kernel that is
// WebAssembly itself, and every function is charged for its work.
//
// A guest is stopped by the fuel and the stack limit that are written into its
// code: nothing here looks at the clock while it runs, and a call that is
// cancelled ends with its fuel, which takes about 200 ms at worst. The
// interpreter, whose fuel takes longer, looks at the context, too.
package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/compiled"
	"github.com/dsh-agent/dsh/runtime/internal/memory"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// Name is what the log and the configuration call this engine.
const Name = "native"

// Options are the settings of an engine. The zero value compiles, and keeps
// nothing.
type Options struct {
	// CacheDir keeps compiled code, a folder a module. That is native code: the
	// folder is made with mode 0700 and has to be the user's alone, or it is
	// not used; what is damaged is made again. "": nothing is kept.
	CacheDir string

	// Interpreter runs guests without compiling them: slowly, and everywhere.
	// It is what runs them on processors that wazero does not compile for.
	Interpreter bool

	// Logs lets guests log at level info and above.
	Logs bool

	// Warn is told, once each, what the engine goes on without. nil: nobody.
	Warn func(string)
}

// New makes an engine. It holds nothing that has to be closed.
func New(opts Options) runtime.Engine {
	opts.Interpreter = opts.Interpreter || !compiles(goruntime.GOARCH)
	return &engine{opts: opts}
}

// compiles reports whether wazero 1.12 has a compiler for a processor.
func compiles(arch string) bool { return arch == "amd64" || arch == "arm64" }

type engine struct {
	opts    Options
	outside atomic.Int64
}

// OutsideBytes is what the memories of all guests take outside of Go's heap.
func (e *engine) OutsideBytes() int64 { return e.outside.Load() }

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
	config := wazero.NewRuntimeConfigCompiler()
	if e.opts.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter().WithCloseOnContextDone(true)
		ctx = experimental.WithFunctionListenerFactory(ctx, interrupts{})
	}
	// Each version of a policy has a cache of its own, which goes with it: one
	// for all would keep the code of all.
	kept := wazero.NewCompilationCache()
	if cacheDir != "" {
		if kept, err = wazero.NewCompilationCacheWithDir(cacheDir); err != nil {
			return nil, err
		}
	}
	p := &program{
		engine: e, module: m, kept: kept,
		runtime: wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(kept).WithDebugInfoEnabled(false)),
		// The library would seed random numbers of its own for each instance.
		config: wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(noRandom{}),
		starts: startsOf(m.Info),
	}
	if !e.opts.Interpreter { // which a context that ends lets free a memory in the middle of a call
		p.guests.Outside, p.kernels.Outside = &e.outside, &e.outside
	}
	p.makeKernel = p.kernels.Get
	for key := range m.Config {
		p.longestKey = max(p.longestKey, len(key))
	}
	if err := p.build(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// startsOf are the exports that toolchains want to be called before anything
// else, in the way of Extism's SDK: those of Haskell's runtime, or else the
// first that the module has of the others.
func startsOf(m *hostabi.Module) []string {
	var starts []string
	if _, ok := m.Export(startHaskell); ok {
		if _, ok := m.Export(startInitialize); ok {
			starts = append(starts, startInitialize)
		}
		return append(starts, startHaskell)
	}
	for _, name := range []string{startInitialize, startConstructors} {
		if _, ok := m.Export(name); ok {
			return []string{name}
		}
	}
	return nil
}

// The exports that start a guest.
const (
	startInitialize   = "_initialize"
	startConstructors = "__wasm_call_ctors"
	startHaskell      = "hs_init"
)

// noRandom is for what is never read: random numbers come from package wasi.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, io.EOF }

// program is a compiled module, with a runtime of wazero's of its own.
type program struct {
	engine  *engine
	module  runtime.Module
	kept    wazero.CompilationCache
	runtime wazero.Runtime
	code    wazero.CompiledModule
	config  wazero.ModuleConfig
	starts  []string // what is called before anything else
	guests  memory.Recycler

	longestKey int // of the config, in bytes
	kernels    memory.Recycler
	makeKernel func(capacity uint64) []byte // of kernels
}

// maxWorkers bounds how many functions of a module are compiled at once.
const maxWorkers = 4

// workers is how many functions of the module are compiled at once: as many as
// there are processors but one, which is for the sessions that go on meanwhile,
// and as fit together into what one may take.
func (p *program) workers() int {
	room := wasm.MaxCompileSpace / max(1, p.module.CompileBytes)
	return int(max(1, min(maxWorkers, uint64(goruntime.GOMAXPROCS(0)-1), room)))
}

// build makes the functions that the module imports, and compiles it.
func (p *program) build(ctx context.Context) error {
	builders := map[string]wazero.HostModuleBuilder{}
	for _, i := range p.module.Info.Imports {
		f, err := functionOf(i)
		if err != nil {
			return err
		}
		b, ok := builders[i.Module]
		if !ok {
			b = p.runtime.NewHostModuleBuilder(i.Module)
			builders[i.Module] = b
		}
		b.NewFunctionBuilder().WithGoModuleFunction(f, values(i.Type.Params), values(i.Type.Results)).Export(i.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	var err error
	ctx = experimental.WithCompilationWorkers(ctx, p.workers())
	p.code, err = p.runtime.CompileModule(ctx, p.module.Wasm)
	return err
}

func (p *program) Close() error {
	ctx := context.Background() // freeing is not to be interrupted
	return errors.Join(p.runtime.Close(ctx), p.kept.Close(ctx))
}
