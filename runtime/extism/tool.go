package extism

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/compiled"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// A ToolSpec is a function of an Extism plugin as a tool, with what the plugin
// may do. It gets none of what a policy gets, and nothing that does not stand
// here: no environment, no arguments, no other folder, no other host.
type ToolSpec struct {
	Name        string
	Module      string // the path of its file
	SHA256      string // that the file must have, hex; "": any
	Function    string // the export that is called
	Description string
	Schema      json.RawMessage // of the arguments, which are handed over as JSON; nil: one text, "input", which is handed over as it is

	Hosts       []string // by HTTP, also where a redirect leads; * stands for any part of a name
	Read, Write []string // folders, as PATH:PLACE; without a place it is / and the folder's own name
	Config      map[string]string
	MemoryMB    int           // of its memory, and again of the kernel's; 0: 64
	Timeout     time.Duration // of a call, with the start of its instance; 0: 10 s

	CacheDir string // keeps compiled code, as Options has it
}

// What a plugin gets at most.
const (
	maxToolText = 64 << 10 // bytes of a result
	toolStack   = 32 << 20 // bytes
	toolVars    = 1 << 20  // bytes
	toolHTTP    = 8 << 20  // bytes of an answer

	// fuelPerSecond bounds a plugin that its time does not stop. Programs use
	// up a unit in 0.01 to 5 ns (see package meter): a plugin that is as fast as
	// can be is not stopped before its time.
	fuelPerSecond = 100_000_000_000
)

// A Tool is a plugin that a model may call. Each call has a fresh instance.
// Who made it closes it, when no call runs any more.
type Tool struct {
	spec   ToolSpec
	wasm   []byte // with its limits; nil once it is compiled
	mounts *mounts

	mu       sync.Mutex
	compiled *sdk.CompiledPlugin
	cache    wazero.CompilationCache
}

// NewTool reads a plugin and holds it to the limits of the code that is run
// here. It is compiled at its first call. The error says what is wrong with the
// file, for a person.
func NewTool(spec ToolSpec) (*Tool, error) {
	if spec.MemoryMB <= 0 {
		spec.MemoryMB = 64
	}
	if spec.Timeout <= 0 {
		spec.Timeout = 10 * time.Second
	}
	data, err := readPlugin(spec.Module)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); spec.SHA256 != "" && !strings.EqualFold(spec.SHA256, hex.EncodeToString(sum[:])) {
		return nil, fmt.Errorf("%s has other bytes than its sha256 allows: they have %x", spec.Module, sum)
	}
	code, err := limited(data, spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Module, err)
	}
	m, err := openMounts(spec.Read, spec.Write)
	if err != nil {
		return nil, err
	}
	return &Tool{spec: spec, wasm: code, mounts: m}, nil
}

func readPlugin(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, wasm.MaxModuleBytes+1))
	if err == nil && len(data) > wasm.MaxModuleBytes {
		err = fmt.Errorf("%s is larger than %d bytes", path, wasm.MaxModuleBytes)
	}
	return data, err
}

// limited is a module with fuel and a stack for one call, whose HTTP is ours.
//
// Code of a kind that package wasm does not know, as SIMD, can be given
// neither: it is stopped in its loops alone. So it is run only where its bytes
// are pinned.
func limited(data []byte, spec ToolSpec) ([]byte, error) {
	data = ownHTTP(data)
	m, err := wasm.Decode(data)
	var refusal *wasm.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == wasm.RuleFeature && spec.SHA256 == "":
		return nil, fmt.Errorf("%w by the limits on code: if you trust the plugin, pin it by sha256, and it is run without them", err)
	case errors.As(err, &refusal) && refusal.Rule == wasm.RuleFeature:
		return data, nil
	case err != nil:
		return nil, err
	}
	e, ok := m.Exported(spec.Function)
	if !ok || e.Kind != hostabi.ExternFunc {
		return nil, fmt.Errorf("it exports no function %q", spec.Function)
	}
	if t := m.FuncType(int(e.Index)); len(t.Params) > 0 || len(t.Results) > 1 {
		return nil, fmt.Errorf("its export %q is no function of a plugin, which takes nothing and gives a number at most", spec.Function)
	}
	return meter.Rewrite(m, meter.Options{
		MemoryPages: uint32(spec.MemoryMB * 16), Fuel: int64(spec.Timeout.Seconds()*fuelPerSecond) + meter.StartFuel, Stack: toolStack, Functions: true,
	})
}

// ownHTTP is a module that asks dsh for HTTP in the place of the SDK, which
// follows redirects wherever they lead. The names are of one length. What is
// no module is left to be refused.
func ownHTTP(data []byte) []byte {
	const header = 8 // the magic number and the version
	out := bytes.Clone(data)
	for at := header; at < len(out); {
		size, n := binary.Uvarint(out[at+1:])
		begin := at + 1 + n
		if n <= 0 || size > uint64(len(out)-begin) {
			return out
		}
		if end := begin + int(size); out[at] == wasm.SectionImport {
			part := out[begin:end]
			for _, name := range []string{"http_request", "http_status_code", "http_headers"} {
				tail := string(rune(len(name))) + name
				copy(part, bytes.ReplaceAll(part, []byte(hostabi.NamespaceKernel+tail), []byte(httpNamespace+tail)))
			}
			return out
		}
		at = begin + int(size)
	}
	return out
}

// Spec describes the tool. It only reads if it may reach no host, and no folder
// to write to.
func (t *Tool) Spec() dsh.ToolSpec {
	s := dsh.ToolSpec{
		Name: t.spec.Name, Description: t.spec.Description, Schema: t.spec.Schema,
		ReadOnly: len(t.spec.Hosts) == 0 && len(t.spec.Write) == 0,
	}
	if s.Description == "" {
		s.Description = "The function " + t.spec.Function + " of the plugin " + t.spec.Name + "."
	}
	if s.Schema == nil {
		s.Schema = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string","description":"What the plugin is handed, as it is."}},"required":["input"],"additionalProperties":false}`)
	}
	return s
}

// Run calls the plugin. What goes wrong in it is a result; the error is the
// cause of a context that ended.
func (t *Tool) Run(ctx context.Context, arguments json.RawMessage) (dsh.ToolResult, error) {
	input := []byte(arguments)
	if t.spec.Schema == nil {
		var given struct{ Input *string }
		if err := json.Unmarshal(arguments, &given); err != nil || given.Input == nil {
			return toolError(`The arguments are to be one object with the text "input".`), nil
		}
		input = []byte(*given.Input)
	}
	plugin, err := t.plugin()
	if err != nil {
		return toolError("The tool %s cannot be run: %s.", t.spec.Name, oneLine(err)), nil
	}
	timed, cancel := context.WithTimeoutCause(ctx, t.spec.Timeout, errToolTime)
	defer cancel()
	out, err := t.call(timed, plugin, input)
	switch {
	case ctx.Err() != nil:
		return dsh.ToolResult{}, context.Cause(ctx)
	case timed.Err() != nil && err != nil:
		return toolError("The tool %s was stopped: its %v were up.", t.spec.Name, t.spec.Timeout), nil
	case err != nil:
		return toolError("The tool %s failed: %s.", t.spec.Name, oneLine(err)), nil
	}
	return toolText(out), nil
}

var errToolTime = errors.New("the tool's time was up")

// plugin compiles the module where that has not been done.
func (t *Tool) plugin() (*sdk.CompiledPlugin, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.compiled != nil {
		return t.compiled, nil
	}
	if t.wasm == nil {
		return nil, errors.New("it was closed")
	}
	if _, set := os.LookupEnv(wasiOutputVariable); set {
		if err := os.Unsetenv(wasiOutputVariable); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(t.wasm)
	quiet := func(string, ...any) {} // it is compiled anew the next time
	err := compiled.Cache(t.spec.CacheDir).Compile("tool-"+hex.EncodeToString(sum[:]), quiet, t.compile)
	return t.compiled, err
}

// compile compiles through a folder, or without one.
func (t *Tool) compile(dir string) (err error) {
	cache := wazero.NewCompilationCache()
	if dir != "" {
		if cache, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
			return err
		}
	}
	ctx := context.Background() // compiling cannot be interrupted
	manifest := sdk.Manifest{
		Wasm:   []sdk.Wasm{sdk.WasmData{Data: t.wasm, Name: "main"}},
		Memory: &sdk.ManifestMemory{MaxPages: uint32(t.spec.MemoryMB * 16), MaxHttpResponseBytes: 0, MaxVarBytes: toolVars},
		Config: t.spec.Config,
	}
	plugin, err := sdk.NewCompiledPlugin(ctx, manifest, sdk.PluginConfig{
		RuntimeConfig: wazero.NewRuntimeConfig().WithCloseOnContextDone(true).WithDebugInfoEnabled(false).WithCompilationCache(cache),
		EnableWasi:    true,
	}, httpFunctions())
	if err != nil {
		return errors.Join(err, cache.Close(ctx))
	}
	t.compiled, t.cache = plugin, cache
	return nil
}

// call makes an instance, calls it and frees it.
func (t *Tool) call(ctx context.Context, compiled *sdk.CompiledPlugin, input []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	config := wazero.NewModuleConfig().
		WithSysWalltime().WithSysNanotime().WithRandSource(rand.Reader).
		WithNanosleep(func(ns int64) { sleep(ctx, time.Duration(ns)) }).
		WithFSConfig(t.mounts.config())
	ctx = context.WithValue(ctx, webKey{}, &web{hosts: t.spec.Hosts})
	plugin, err := compiled.Instance(ctx, sdk.PluginInstanceConfig{ModuleConfig: config})
	if err != nil {
		return nil, err
	}
	defer plugin.CloseWithContext(context.WithoutCancel(ctx)) //nolint:errcheck // it is memory, and goes with it
	plugin.SetLogger(func(sdk.LogLevel, string) {})
	code, out, err := plugin.CallWithContext(ctx, t.spec.Function, input)
	if err != nil {
		switch left, _, lerr := plugin.CallWithContext(ctx, meter.LeftExport, nil); {
		case lerr == nil && int32(left) == meter.LeftNoFuel:
			return nil, fmt.Errorf("it used up the work that %v are good for", t.spec.Timeout)
		case lerr == nil && int32(left) == meter.LeftNoStack:
			return nil, fmt.Errorf("its stack of %d MiB was used up", toolStack>>20)
		}
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if code != 0 {
		return nil, fmt.Errorf("it gave the number %d, which is no success: %s", int32(code), out[:min(len(out), 1000)])
	}
	return out, nil
}

// sleep sleeps for a guest, and no longer than its call.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Close frees the tool.
func (t *Tool) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	errs := []error{t.mounts.close()}
	if t.compiled != nil {
		ctx := context.Background() // freeing is not to be interrupted
		errs = append(errs, t.compiled.Close(ctx), t.cache.Close(ctx))
	}
	t.compiled, t.wasm = nil, nil
	return errors.Join(errs...)
}

func toolError(format string, args ...any) dsh.ToolResult {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(fmt.Sprintf(format, args...))}, IsError: true}
}

// toolText is a plugin's output for a model.
func toolText(out []byte) dsh.ToolResult {
	cut := ""
	if len(out) > maxToolText {
		cut = fmt.Sprintf("\n[the first %d bytes of %d]", maxToolText, len(out))
		out = out[:maxToolText]
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(string(out), "\uFFFD"), "\x00", "\uFFFD") + cut
	if text == "" {
		text = "[the output is empty]"
	}
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(text)}}
}

// oneLine is an error's first line, as text: what a guest says may be anything.
func oneLine(err error) string {
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("it ended with the exit code %d", exit.ExitCode())
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text[:min(len(text), 1000)], "\uFFFD"))
	return strings.TrimRight(text, ". ")
}
