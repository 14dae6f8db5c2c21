package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

func decide(t *testing.T, p dsh.Policy, in dsh.RecoverInput) (dsh.Verdict, error) {
	t.Helper()
	raw, err := dsh.JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
}

func options(t *testing.T) runtime.Options {
	return runtime.Options{
		Engine:  extism.New(extism.Options{CacheDir: t.TempDir()}),
		Builtin: guests.Builtin,
		Modules: runtime.ModuleStore(t.TempDir()),
		Warn:    func(s string) { t.Error("warned:", s) },
	}
}

func open(t *testing.T, opts runtime.Options, specs ...runtime.Spec) []dsh.Policy {
	t.Helper()
	set, err := runtime.Open(t.Context(), specs, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	policies, changed := set.Policies()
	select {
	case <-changed:
		t.Fatal("the list has changed already")
	default:
	}
	return policies
}

var builtin = runtime.Spec{Name: "retry", Module: "builtin:retry"}

func TestBuiltinDecides(t *testing.T) {
	opts := options(t)
	p := open(t, opts, builtin)[0]
	info := p.Info()
	if _, err := opts.Modules.Load(info.Digest); err == nil {
		t.Error("the module is kept before it has decided")
	}
	for range 3 { // fresh, and from the pool
		v, err := decide(t, p, runtimetest.Input("retry"))
		if err != nil {
			t.Fatal(err)
		}
		if d := v.Decision; d.Kind != dsh.KindRetry || d.DelayMs != 500 || d.MaxRetries == nil || *d.MaxRetries != 5 {
			t.Fatalf("decided %s", v.Raw)
		}
	}
	kept, err := opts.Modules.Load(info.Digest)
	if want, _ := guests.Builtin("retry"); err != nil || string(kept) != string(want) {
		t.Errorf("the module is not kept: %v", err)
	}
	if info.Version == "" || info.ABI != hostabi.ABI || info.Engine != "extism" || info.Source != "builtin:retry" || string(info.Config) != "{}" ||
		len(info.Granted) != 0 || !slices.Equal(info.Hooks, []dsh.Hook{dsh.HookRecover}) {
		t.Errorf("it is %+v", info)
	}
}

// TestOrderAndNone: the list is the specs', and an empty one decides nothing.
func TestOrderAndNone(t *testing.T) {
	opts := options(t)
	spec := func(name string) runtime.Spec {
		return runtime.Spec{Name: name, Module: name + ".wasm", Wasm: runtimetest.Guest(t, name)}
	}
	policies := open(t, opts, spec("delegate"), builtin, spec("fallback"))
	var names []string
	for _, p := range policies {
		names = append(names, p.Info().Name)
	}
	if !slices.Equal(names, []string{"delegate", "retry", "fallback"}) {
		t.Errorf("the order is %v", names)
	}
	if got := open(t, opts); len(got) != 0 {
		t.Errorf("no specs make %d policies", len(got))
	}
}

// TestLoadProblems: all problems of all policies at once, one line each, which
// says which file and what is allowed.
func TestLoadProblems(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	large, err := os.Create(filepath.Join(dir, "large.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(2<<30), large.Close()); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop.wasm")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	good := write("good.wasm", string(runtimetest.Guest(t, "delegate")))
	type spec = runtime.Spec
	cases := []struct {
		spec      spec
		key, want string
	}{
		{spec{Module: write("note.txt", "hello")}, "module", "note.txt: not a WebAssembly module"},
		{spec{Module: write("empty.wasm", "")}, "module", "empty.wasm: not a WebAssembly module: it is empty"},
		{spec{Module: write("cut.wasm", string(runtimetest.Guest(t, "retry")[:64]))}, "module", "cut.wasm: a damaged module"},
		{spec{Module: filepath.Join(dir, "missing.wasm")}, "module", "missing.wasm: there is no such file"},
		{spec{Module: dir}, "module", "it is a folder"},
		{spec{Module: large.Name()}, "module", "large.wasm: it has 2147483648 bytes, and a module has at most 8388608"},
		{spec{Module: loop}, "module", "loop.wasm: it cannot be read"},
		{spec{Module: os.DevNull}, "module", "it is not a regular file"},
		{spec{Module: "builtin:nothing"}, "module", "builtin:nothing: there is no built-in policy of this name"},
		{spec{Module: "oci://r/n@sha256:00"}, "module", "not supported yet"},
		{spec{Module: "builtin:retry", SHA256: "00"}, "sha256", `"00" is not a SHA-256 digest`},
		{spec{Module: "builtin:retry", SHA256: strings.Repeat("0", 64)}, "sha256", "other bytes are refused"},
		{spec{Module: good, Capabilities: []string{"fly"}}, "capabilities", `"fly" is no capability: there are log.read`},
		{spec{Module: good, Capabilities: []string{"log.read", "log.read"}}, "capabilities", "granted twice"},
		{spec{Module: good, MemoryMB: -1}, "limits.memory_mb", "-1 is not from 1 to 1024"},
		{spec{Module: good, MemoryMB: 1025}, "limits.memory_mb", "1025 is not from 1 to 1024"},
		{spec{Module: good, HostCalls: 65}, "limits.host_calls", "65 is not from 1 to 64"},
		{spec{Module: good, Config: json.RawMessage(`[1]`)}, "config", "not an object"},
		{spec{Module: good, Config: json.RawMessage(`{`)}, "config", "not JSON"},
		{spec{Module: "builtin:retry", Config: json.RawMessage(`{"retry_policy":{}}`)}, "config", "[providers.NAME.retry_policy]"},
	}
	names := []string{"Upper", "", "../up", strings.Repeat("x", 65), "a b"}
	var specs []spec
	for i, c := range cases {
		c.spec.Name = "p" + string(rune('a'+i))
		specs = append(specs, c.spec)
	}
	for _, name := range names {
		specs = append(specs, spec{Name: name, Module: good})
	}
	specs = append(specs, spec{Name: "pa", Module: good})
	set, err := runtime.Open(t.Context(), specs, options(t))
	var load *runtime.LoadError
	if set != nil || !errors.As(err, &load) {
		t.Fatalf("%v, %v", set, err)
	}
	found := map[int][]runtime.Problem{}
	for _, p := range load.Problems {
		found[p.Index] = append(found[p.Index], p)
	}
	for i, c := range cases {
		if got := found[i]; len(got) != 1 || got[0].Key != c.key || got[0].Policy != specs[i].Name || !strings.Contains(got[0].Message, c.want) || strings.Contains(got[0].String(), "\n") {
			t.Errorf("%v; want %s: %s", got, c.key, c.want)
		}
	}
	for i := len(cases); i < len(specs); i++ {
		if got := found[i]; len(got) != 1 || got[0].Key != "name" {
			t.Errorf("the name %q: %v", specs[i].Name, got)
		}
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != len(load.Problems) {
		t.Errorf("%d lines for %d problems", len(lines), len(load.Problems))
	}
}

func TestPinnedDigestLoads(t *testing.T) {
	wasm, _ := guests.Builtin("retry")
	i, err := runtime.Inspect(wasm)
	if err != nil {
		t.Fatal(err)
	}
	spec := builtin
	spec.SHA256 = strings.ToUpper(i.Digest)
	open(t, options(t), spec)
}

// TestGrants: a policy is granted what it asks for and the spec grants.
func TestGrants(t *testing.T) {
	wasm, err := hostabi.Pack(runtimetest.Guest(t, "delegate"), hostabi.Manifest{Name: "x", Capabilities: []string{"repair.prune", "log.read"}})
	if err != nil {
		t.Fatal(err)
	}
	info := open(t, options(t), runtime.Spec{Name: "x", Module: "x.wasm", Wasm: wasm, Capabilities: []string{"surface.read", "repair.prune"}})[0].Info()
	if !slices.Equal(info.Granted, []string{"repair.prune"}) || !slices.Equal(info.Asked, []string{"repair.prune", "log.read"}) {
		t.Errorf("asked %v, granted %v", info.Asked, info.Granted)
	}
}

// TestCompilesLazily: what needs no check is compiled at its first decision.
func TestCompilesLazily(t *testing.T) {
	f := &fake{call: answers(`{"kind":"delegate"}`)}
	opts := runtime.Options{Engine: f, Builtin: guests.Builtin}
	set, err := runtime.Open(t.Context(), []runtime.Spec{builtin}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if f.compiled.Load() != 0 {
		t.Error("it is compiled before anything has failed")
	}
	policies, _ := set.Policies()
	for range 5 {
		if _, err := decide(t, policies[0], runtimetest.Input("retry")); err != nil {
			t.Fatal(err)
		}
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
	if f.compiled.Load() != 1 || f.open.Load() != 0 {
		t.Errorf("compiled %d times, %d left open", f.compiled.Load(), f.open.Load())
	}
	var fault *dsh.Fault
	if _, err := decide(t, policies[0], runtimetest.Input("retry")); !errors.As(err, &fault) || fault.Kind != dsh.FaultUnavailable {
		t.Errorf("after Close: %v", err)
	}
	// A file is compiled at once, so that whatever is wrong with it is said.
	spec := runtime.Spec{Name: "x", Module: "x.wasm", Wasm: runtimetest.Guest(t, "delegate")}
	if _, err := runtime.Open(t.Context(), []runtime.Spec{spec}, runtime.Options{Engine: &fake{compile: func() error { return errors.New("no\nway") }}}); err == nil || !strings.Contains(err.Error(), "it cannot be compiled: no way") {
		t.Errorf("a module that cannot be compiled: %v", err)
	}
}

// TestInputOfACall: an engine gets the bytes, and the clock and the random
// numbers that they name.
func TestInputOfACall(t *testing.T) {
	f := &fake{call: answers(`{"kind":"delegate"}`)}
	p := open(t, runtime.Options{Engine: f, Builtin: guests.Builtin}, builtin)[0]
	in := runtimetest.Input("retry")
	raw, err := dsh.JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw}); err != nil {
		t.Fatal(err)
	}
	if c := f.called()[0]; string(c.Input) != string(raw) || c.NowMs != in.NowMs || c.Random != in.Random || c.Export != "recover" {
		t.Errorf("it was called with %+v", c)
	}
	var fault *dsh.Fault
	for _, c := range []struct {
		hook  dsh.Hook
		input string
	}{
		{dsh.HookRecover, "{"},
		{dsh.HookRecover, `{"nowMs":"x"}`},
		{dsh.HookRecover, `{"x":"` + strings.Repeat("x", hostabi.MaxInputBytes) + `"}`},
		{dsh.HookCheckConfig, "{}"},
		{"other", "{}"},
	} {
		if _, err := p.Decide(t.Context(), dsh.Question{Hook: c.hook, Input: json.RawMessage(c.input)}); !errors.As(err, &fault) || fault.Kind != dsh.FaultUnavailable {
			t.Errorf("%s: %v", c.hook, err)
		}
	}
	if n := len(f.called()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestStuck: a guest that no engine can stop does not keep its decision, is not
// asked again, and does not keep Close.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{call: func(context.Context, runtime.Call) (runtime.Result, error) {
			<-release
			return runtime.Result{}, errors.New("late")
		}}
		set, err := runtime.Open(t.Context(), []runtime.Spec{builtin}, runtime.Options{Engine: f, Builtin: guests.Builtin, Deadline: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		policies, _ := set.Policies()
		var fault *dsh.Fault
		start := time.Now()
		if _, err := decide(t, policies[0], runtimetest.Input("retry")); !errors.As(err, &fault) || fault.Kind != dsh.FaultDeadline {
			t.Errorf("the first decision: %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := decide(t, policies[0], runtimetest.Input("retry")); !errors.As(err, &fault) || fault.Kind != dsh.FaultUnavailable || len(f.called()) != 1 {
			t.Errorf("the second decision: %v, %d calls", err, len(f.called()))
		}
		if err := set.Close(); err == nil || !strings.Contains(err.Error(), "cannot be stopped") {
			t.Errorf("Close: %v", err)
		}
		close(release)
	})
}

// TestCloseWaits: Close waits for a decision under way.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{call: func(context.Context, runtime.Call) (runtime.Result, error) {
			time.Sleep(100 * time.Millisecond)
			return runtime.Result{Output: []byte(`{"kind":"delegate"}`)}, nil
		}}
		set, err := runtime.Open(t.Context(), []runtime.Spec{builtin}, runtime.Options{Engine: f, Builtin: guests.Builtin})
		if err != nil {
			t.Fatal(err)
		}
		policies, _ := set.Policies()
		done := make(chan error, 1)
		go func() {
			_, err := decide(t, policies[0], runtimetest.Input("retry"))
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 100*time.Millisecond {
			t.Errorf("Close waited %v", took)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := f.open.Load(); n != 0 {
			t.Errorf("%d things are left open", n)
		}
	})
}

func TestReplay(t *testing.T) {
	opts := options(t)
	policies := open(t, opts, builtin, runtime.Spec{Name: "config", Module: "config.wasm", Wasm: runtimetest.Guest(t, "config"), Config: json.RawMessage(`{"answer":{"kind":"delegate"}}`)})
	var logged []dsh.PolicyDecision
	for _, p := range policies {
		in := runtimetest.Input(p.Info().Name)
		in.Config = p.Info().Config
		raw, err := dsh.JSON(in)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
		if err != nil {
			t.Fatal(err)
		}
		logged = append(logged, dsh.PolicyDecision{Hook: dsh.HookRecover, Policy: p.Info().Name, Digest: p.Info().Digest, Input: raw, Decision: v.Raw})
	}
	check := func(r *runtime.Replayer) {
		t.Helper()
		for _, d := range slices.Concat(logged, logged) {
			raw, err := r.Replay(t.Context(), d)
			if err != nil || string(raw) != string(d.Decision) {
				t.Errorf("%s: %s, %v; the log has %s", d.Policy, raw, err, d.Decision)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	check(runtime.NewReplayer(opts)) // from what is kept
	elsewhere := opts
	elsewhere.Modules = ""
	r := runtime.NewReplayer(elsewhere)
	if _, err := r.Replay(t.Context(), logged[0]); err == nil || !strings.Contains(err.Error(), "not kept") {
		t.Errorf("without the module: %v", err)
	}
	wasm, _ := guests.Builtin("retry")
	r.Add(wasm)
	r.Add(runtimetest.Guest(t, "config"))
	check(r)
}

func TestInspect(t *testing.T) {
	wasm, _ := guests.Builtin("retry")
	i, err := runtime.Inspect(wasm)
	if err != nil || i.Name != "retry" || !i.HasManifest || !i.ChecksConfig || len(i.Problems) != 0 || i.Bytes != len(wasm) {
		t.Errorf("%+v, %v", i, err)
	}
	if !slices.Contains(i.Imports, runtime.Extern{Module: "extism:host/env", Name: "alloc", Kind: "function", Type: "(i64) -> i64"}) {
		t.Errorf("imports %v", i.Imports)
	}
	i, err = runtime.Inspect(runtimetest.Guest(t, "http"))
	if err != nil || i.HasManifest || len(i.Problems) != 1 {
		t.Errorf("%+v, %v", i, err)
	}
	if _, err := runtime.Inspect([]byte("hello")); !errors.Is(err, hostabi.ErrNotWasm) {
		t.Error(err)
	}
}

func TestModuleStore(t *testing.T) {
	wasm, digest := runtimetest.Guest(t, "retry"), ""
	if i, err := runtime.Inspect(wasm); err != nil {
		t.Fatal(err)
	} else {
		digest = i.Digest
	}
	dir := filepath.Join(t.TempDir(), "data", "modules")
	s := runtime.ModuleStore(dir)
	for range 2 {
		if err := s.Keep(digest, wasm); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, digest+".wasm")
	if info, err := os.Stat(path); err != nil || goruntime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the folder has %v, %v", files, err)
	}
	// A torn file is made whole at the next decision; a wrong one is not used.
	if err := os.WriteFile(path, wasm[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(digest); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a torn file: %v", err)
	}
	if err := s.Keep(digest, wasm); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(digest); err != nil || string(got) != string(wasm) {
		t.Error(err)
	}
	for _, bad := range []string{"", "..", strings.Repeat("/", 64), strings.Repeat("0", 64)} {
		if _, err := s.Load(bad); err == nil {
			t.Errorf("%q loads", bad)
		}
	}
	// Where it cannot be kept the decision is made, and that is said.
	var warned []string
	opts := options(t)
	opts.Modules = runtime.ModuleStore(filepath.Join(path, "below a file"))
	opts.Warn = func(text string) { warned = append(warned, text) }
	if _, err := decide(t, open(t, opts, builtin)[0], runtimetest.Input("retry")); err != nil || len(warned) != 1 || !strings.Contains(warned[0], "cannot be kept") {
		t.Errorf("%v, warned %q", err, warned)
	}
}
