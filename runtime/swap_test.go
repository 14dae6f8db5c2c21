package runtime_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// namer is an engine whose guests answer with the digest of their module.
type namer struct {
	open       atomic.Int64
	uncompiled string // the digest of a module that fails to compile
	problem    string // the digest of one that does not like its config
}

func (e *namer) Name() string { return "namer" }

func (e *namer) Compile(_ context.Context, m runtime.Module) (runtime.Program, error) {
	if m.Digest == e.uncompiled {
		return nil, errors.New("the compiler\nfails")
	}
	e.open.Add(1)
	return &named{e, m.Digest}, nil
}

type named struct {
	engine *namer
	digest string
}

func (p *named) Instance(context.Context) (runtime.Instance, error) {
	p.engine.open.Add(1)
	return p, nil
}

func (p *named) Call(_ context.Context, c runtime.Call) (runtime.Result, error) {
	switch {
	case c.Export == hostabi.ExportCheckConfig && p.digest == p.engine.problem:
		return runtime.Result{Output: []byte(`{"problems":["no config will do","none at all"]}`)}, nil
	case c.Export == hostabi.ExportCheckConfig:
		return runtime.Result{Output: []byte(`{"problems":[]}`)}, nil
	}
	return runtime.Result{Output: fmt.Appendf(nil, `{"kind":"delegate","reason":%q}`, p.digest)}, nil
}

func (p *named) Close() error {
	p.engine.open.Add(-1)
	return nil
}

// A swapped is a set over a folder, and what it has said.
type swapped struct {
	*runtime.Set
	dir string

	mu     sync.Mutex
	warned []string
}

func (s *swapped) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.warned)
}

func swap(t *testing.T, opts runtime.Options, specs ...runtime.Spec) *swapped {
	t.Helper()
	s := &swapped{dir: string(opts.Folder)}
	if s.dir == "" {
		s.dir = filepath.Join(t.TempDir(), "policies")
	}
	opts.Folder, opts.Builtin = runtime.Folder(s.dir), guests.Builtin
	if opts.Engine == nil {
		opts.Engine = &namer{}
	}
	opts.Warn = func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.warned = append(s.warned, text)
	}
	var err error
	if s.Set, err = runtime.Open(t.Context(), specs, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// names are the policies with the beginnings of their digests, in order.
func (s *swapped) names() []string {
	policies, _ := s.Policies()
	names := []string{}
	for _, p := range policies {
		names = append(names, p.Info().Name)
	}
	return names
}

// until waits for the waterfall to be as it should.
func (s *swapped) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.After(10 * time.Second)
	for {
		_, changed := s.Policies()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("not %s: %v, said %q", what, s.names(), s.said())
		}
	}
}

// put places a file as a careful writer does: at once.
func (s *swapped) put(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(s.dir, "."+name+".tmp")
	if err := errors.Join(os.WriteFile(temp, data, 0o600), os.Rename(temp, filepath.Join(s.dir, name))); err != nil {
		t.Fatal(err)
	}
}

// module is a guest with a manifest, and so with a digest of its own.
func module(t testing.TB, version string, capabilities ...string) []byte {
	t.Helper()
	wasm, err := hostabi.Pack(runtimetest.Guest(t, "delegate"), hostabi.Manifest{Name: "x", Version: version, Capabilities: capabilities})
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

func digestOf(t testing.TB, wasm []byte) string {
	t.Helper()
	i, err := runtime.Inspect(wasm)
	if err != nil {
		t.Fatal(err)
	}
	return i.Digest
}

// TestSwap: a file is first if it is not listed, and takes the place of the
// listed policy of its name; without it all is as before.
func TestSwap(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin, runtime.Spec{Name: "second", Module: "second.wasm", Wasm: module(t, "1")})
	if got := s.names(); !slices.Equal(got, []string{"retry", "second"}) {
		t.Fatalf("it begins as %v", got)
	}
	digest := func(i int) string {
		policies, _ := s.Policies()
		return policies[i].Info().Digest
	}
	s.put(t, "zeta.wasm", module(t, "2"))
	s.put(t, "alpha.wasm", module(t, "3"))
	s.until(t, "two more", func() bool { return slices.Equal(s.names(), []string{"alpha", "zeta", "retry", "second"}) })
	own := digest(3)
	s.put(t, "second.wasm", module(t, "4"))
	s.until(t, "replaced", func() bool { return digest(3) == digestOf(t, module(t, "4")) })
	for _, name := range []string{"zeta.wasm", "alpha.wasm", "second.wasm"} {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, "as before", func() bool { return slices.Equal(s.names(), []string{"retry", "second"}) && digest(1) == own })
	if said := s.said(); len(said) > 0 {
		t.Errorf("said %q", said)
	}
	_, changed := s.Policies()
	s.put(t, "note.txt", []byte("x"))
	s.put(t, "second.wasm", module(t, "1")) // the bytes of the listed one: another source
	<-changed
	s.put(t, "second.wasm", module(t, "1"))
	time.Sleep(5 * time.Millisecond)
	if _, again := s.Policies(); again == changed {
		t.Error("the channel was not renewed")
	}
}

// TestPresentAtStart: what is in the folder when the program starts counts, and
// so does what comes before anybody asks.
func TestPresentAtStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies")
	s := &swapped{dir: dir}
	s.put(t, "first.wasm", module(t, "1"))
	s = swap(t, runtime.Options{Folder: runtime.Folder(dir)}, builtin)
	if e := s.Entries(); len(e) != 2 || e[0].Name != "first" || e[0].Listed || !e[1].Listed {
		t.Errorf("at start %+v", e)
	}
	s.put(t, "later.wasm", module(t, "2"))
	if got := s.names(); !slices.Equal(got, []string{"first", "later", "retry"}) {
		t.Errorf("at the first question %v", got)
	}
}

// TestOldVersionsDecide: a walk that began with a list ends with it, and what is
// not in use any more is freed.
func TestOldVersionsDecide(t *testing.T) {
	e := &namer{}
	s := swap(t, runtime.Options{Engine: e}, builtin)
	s.put(t, "a.wasm", module(t, "1"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	before, _ := s.Policies()
	s.put(t, "a.wasm", module(t, "2"))
	s.until(t, "replaced", func() bool { p, _ := s.Policies(); return p[0] != before[0] })
	for range 3 {
		v, err := decide(t, before[0], runtimetest.Input("a"))
		if err != nil || v.Decision.Reason != digestOf(t, module(t, "1")) {
			t.Errorf("the old version decides %s, %v", v.Raw, err)
		}
	}
	if err := os.Remove(filepath.Join(s.dir, "a.wasm")); err != nil {
		t.Fatal(err)
	}
	s.until(t, "gone", func() bool { return len(s.names()) == 1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := e.open.Load(); n != 0 {
		t.Errorf("%d things are left open", n)
	}
	if _, err := decide(t, before[0], runtimetest.Input("a")); err == nil {
		t.Error("a closed set decides")
	}
}

// TestThousandSwaps: under busy workers no decision fails, each is of the
// version that it began with, and nothing is left behind.
func TestThousandSwaps(t *testing.T) {
	swaps := 1000
	if testing.Short() {
		swaps = 100
	}
	e := &namer{}
	s := swap(t, runtime.Options{Engine: e}, builtin)
	s.put(t, "a.wasm", module(t, "0"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	goroutines := goruntime.NumGoroutine()
	input, err := dsh.JSON(runtimetest.Input("a"))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var decided atomic.Int64
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				policies, _ := s.Policies()
				v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: input})
				if err != nil || v.Decision.Reason != policies[0].Info().Digest {
					t.Errorf("decided %s, %v, by %s", v.Raw, err, policies[0].Info().Digest)
					return
				}
				decided.Add(1)
			}
		})
	}
	dir := s.dir
	for i := 1; i <= swaps; i++ {
		// Straight into the place, so that the folder's own pace does not count.
		wasm := module(t, fmt.Sprint(i))
		spec := []runtime.Spec{{Name: "a", Module: "a.wasm", Wasm: wasm}, builtin}
		if i == 1 {
			if err := os.Remove(filepath.Join(dir, "a.wasm")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Reload(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	workers.Wait()
	policies, _ := s.Policies()
	if got := policies[0].Info().Version; got != fmt.Sprint(swaps) {
		t.Errorf("it ends with version %s", got)
	}
	for end := time.Now().Add(5 * time.Second); goruntime.NumGoroutine() > goroutines && time.Now().Before(end); {
		goruntime.Gosched()
	}
	if n := goruntime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
	if n := e.open.Load(); n > 2*(3+1) {
		t.Errorf("%d programs and instances are open", n)
	}
	t.Logf("%d decisions over %d swaps", decided.Load(), swaps)
}

// TestRefusals: whatever is put into the folder, what worked goes on, and why
// the new is not taken is said once, in one line.
func TestRefusals(t *testing.T) {
	good := module(t, "1")
	cases := []struct {
		name string
		put  func(t *testing.T, path string) error
		want string
	}{
		{"half", write(good[:len(good)/2]), "damaged"},
		{"empty", write(nil), "empty"},
		{"text", write([]byte("hello")), "not a WebAssembly module"},
		{"folder", func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) }, "it is a folder"},
		{"loop", func(_ *testing.T, path string) error { return os.Symlink(path, path) }, "it cannot be read"},
		{"dangling", func(_ *testing.T, path string) error { return os.Symlink(path+"-not", path) }, "no such file"},
		{"device", func(_ *testing.T, path string) error { return os.Symlink(os.DevNull, path) }, "not a regular file"},
		{"zeros", func(_ *testing.T, path string) error {
			f, err := os.Create(path)
			return errors.Join(err, f.Truncate(2<<30), f.Close())
		}, "2147483648 bytes"},
		{"config", write(runtimetest.Guest(t, "trap-warm")), "warm"},
		{"import", write(runtimetest.Guest(t, "http")), "http_request"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			opts := options(t)
			s := swap(t, runtime.Options{Engine: opts.Engine}, builtin)
			s.put(t, "p.wasm", good)
			s.until(t, "there", func() bool { return len(s.names()) == 2 })
			before, _ := s.Policies()
			path := filepath.Join(s.dir, "p.wasm")
			temp := filepath.Join(s.dir, ".p.tmp")
			if c.name == "loop" {
				temp = path
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.put(t, temp); err != nil {
				t.Fatal(err)
			}
			if c.name == "folder" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(temp, path); err != nil {
				t.Fatal(err)
			}
			s.until(t, "refused", func() bool { return len(s.Refusals()) == 1 })
			after, _ := s.Policies()
			if len(after) != 2 || after[0] != before[0] {
				t.Errorf("it is %v", s.names())
			}
			if r := s.Refusals()[0]; r.Policy != "p" || r.Hook != dsh.HookCheckConfig || !strings.Contains(r.Message, c.want) {
				t.Errorf("refused: %+v", r)
			}
			if e := s.Entries()[0]; e.Refusal == nil || e.Policy == nil || e.Refusal.File != path {
				t.Errorf("the entry is %+v", e)
			}
			if kept, err := os.ReadFile(filepath.Join(s.dir, ".previous", "p.wasm")); err != nil || !bytes.Equal(kept, good) {
				t.Errorf("the one before is not kept to be rolled back to: %d bytes, %v", len(kept), err)
			}
			if said := s.said(); len(said) != 1 || !strings.Contains(said[0], c.want) || strings.Contains(said[0], "\n") || !strings.Contains(said[0], "goes on") {
				t.Errorf("said %q", said)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			s.put(t, "p.wasm", module(t, "2"))
			s.until(t, "mended", func() bool {
				p, _ := s.Policies()
				return len(s.Refusals()) == 0 && len(p) == 2 && p[0].Info().Version == "2"
			})
		})
	}
}

// TestFailsToLoad: a module that fails to compile, or that does not like the
// config of its name, leaves the one before in its place.
func TestFailsToLoad(t *testing.T) {
	checks := func(version string) []byte {
		wasm, err := hostabi.Pack(runtimetest.Guest(t, "config"), hostabi.Manifest{Name: "x", Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return wasm
	}
	e := &namer{uncompiled: digestOf(t, checks("2")), problem: digestOf(t, checks("3"))}
	s := swap(t, runtime.Options{Engine: e}, builtin)
	s.put(t, "p.wasm", checks("1"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	for _, c := range []struct{ version, want string }{
		{"2", "it cannot be compiled: the compiler fails"},
		{"3", "no config will do; none at all"},
	} {
		s.put(t, "p.wasm", checks(c.version))
		s.until(t, "refused", func() bool { r := s.Refusals(); return len(r) == 1 && strings.Contains(r[0].Message, c.want) })
		if p, _ := s.Policies(); p[0].Info().Version != "1" || s.Refusals()[0].Digest != digestOf(t, checks(c.version)) {
			t.Errorf("it is version %s, %+v", p[0].Info().Version, s.Refusals())
		}
	}
	if said := s.said(); len(said) != 2 || strings.Contains(said[0]+said[1], "\n") {
		t.Errorf("said %q", said)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := e.open.Load(); n != 0 {
		t.Errorf("%d things are left open", n)
	}
}

func write(data []byte) func(*testing.T, string) error {
	return func(_ *testing.T, path string) error { return os.WriteFile(path, data, 0o600) }
}

// TestSlowCopy: a file that is written bit by bit is taken when it is whole, and
// nothing is said of it before.
func TestSlowCopy(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin)
	s.names() // begins to watch
	wasm := module(t, "1")
	f, err := os.Create(filepath.Join(s.dir, "p.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	for piece := range slices.Chunk(wasm, len(wasm)/10) {
		if _, err := f.Write(piece); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	if said := s.said(); len(said) > 0 {
		t.Errorf("said %q", said)
	}
}

// TestNames: a file whose name is none of a policy's is refused, and so are two
// that differ in case.
func TestNames(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin)
	s.put(t, "p.wasm", module(t, "1"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	s.put(t, "P.wasm", module(t, "2"))
	s.put(t, "a b.wasm", module(t, "3"))
	s.put(t, "x.WASM", module(t, "4"))
	s.until(t, "refused", func() bool { return len(s.Refusals()) == 3 })
	if got := s.names(); !slices.Equal(got, []string{"p", "retry"}) {
		t.Errorf("it is %v", got)
	}
	if said := s.said(); len(said) != 3 {
		t.Errorf("said %q", said)
	}
}

// TestCrowd: of more modules than may be the first ones decide, who comes later
// puts nobody out, and one line says so.
func TestCrowd(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin)
	wasm := module(t, "1")
	name := func(i int) string { return fmt.Sprintf("p%02d", i) }
	for i := range 70 {
		s.put(t, name(i)+".wasm", wasm)
	}
	crowded := func(first string) func() bool {
		return func() bool {
			r := s.Refusals()
			return len(r) == 1 && r[0].Policy == first && strings.Contains(r[0].Message, "has over 64 modules, and no more are looked at")
		}
	}
	s.until(t, "crowded", crowded(name(64)))
	before := s.names()
	if len(before) != 65 || before[0] != name(0) || before[64] != "retry" {
		t.Errorf("it is %v", before)
	}
	s.put(t, "a.wasm", wasm)
	s.until(t, "more crowded", crowded("a"))
	if after := s.names(); !slices.Equal(after, before) {
		t.Errorf("it has become %v", after)
	}
	for i := range 7 {
		if err := os.Remove(filepath.Join(s.dir, name(i)+".wasm")); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, "there is room", func() bool { return len(s.Refusals()) == 0 && len(s.names()) == 65 })
	if now := s.names(); now[0] != "a" || now[63] != name(69) {
		t.Errorf("it is %v", now)
	}
	for _, line := range s.said() {
		if !strings.Contains(line, "take out what is not needed") {
			t.Errorf("said %q", line)
		}
	}
	s.put(t, "b.wasm", wasm)
	s.put(t, "c.wasm", wasm)
	s.until(t, "crowded again", crowded("b"))
	said := len(s.said())
	s.put(t, "d.wasm", wasm)
	s.until(t, "seen", func() bool { return runtime.Folder(s.dir).Has("d") })
	if err := s.Reload(t.Context(), []runtime.Spec{builtin}, nil); err != nil { // it has looked once more
		t.Fatal(err)
	}
	if now := len(s.said()); now != said || !crowded("b")() {
		t.Errorf("one more that finds no room is said, too: %q", s.said())
	}
}

// TestCrowdAndTheListed: the module of a name that the configuration lists finds
// room in a full folder, and who is put out is said.
func TestCrowdAndTheListed(t *testing.T) {
	s := swap(t, runtime.Options{}, runtime.Spec{Name: "zz", Module: "builtin:retry"})
	wasm := module(t, "1")
	for i := range 64 {
		s.put(t, fmt.Sprintf("p%02d.wasm", i), wasm)
	}
	s.until(t, "full", func() bool { return len(s.names()) == 65 })
	s.put(t, "zz.wasm", wasm)
	s.until(t, "there", func() bool {
		r, entries := s.Refusals(), s.Entries()
		last := entries[len(entries)-1]
		return len(r) == 1 && r[0].Policy == "p63" && len(s.names()) == 64 && last.Name == "zz" && last.Policy.Info().Digest == digestOf(t, wasm)
	})
	if _, before, err := runtime.Folder(s.dir).Previous("p63"); err != nil || before != nil {
		t.Errorf("who was put out is kept as if it had left: %v", err)
	}
}

// TestFolderGone: without the folder its policies go on; with an empty one they
// are removed.
func TestFolderGone(t *testing.T) {
	s := swap(t, runtime.Options{}, builtin)
	s.put(t, "p.wasm", module(t, "1"))
	s.until(t, "there", func() bool { return len(s.names()) == 2 })
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); len(s.said()) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if said := s.said(); len(said) != 1 || !strings.Contains(said[0], "is gone") || len(s.names()) != 2 {
		t.Errorf("%v, said %q", s.names(), said)
	}
	s.put(t, "q.wasm", module(t, "2"))
	s.until(t, "back", func() bool { return slices.Equal(s.names(), []string{"q", "retry"}) })
}

// TestTrust: the grants of a name are for modules that somebody vouches for.
func TestTrust(t *testing.T) {
	wasm := module(t, "1.2.0", hostabi.CapRepairPrune)
	sum := digestOf(t, wasm)
	spec := runtime.Spec{Name: "p", Module: "builtin:retry", Capabilities: []string{hostabi.CapRepairPrune}}
	pinned := spec
	pinned.Module, pinned.Wasm, pinned.SHA256 = "p.wasm", wasm, sum
	accepted := runtime.Record(t.TempDir())
	if err := accepted.Put("p", runtime.Acceptance{Version: "1.2.0", Digests: []string{sum}}); err != nil {
		t.Fatal(err)
	}
	verify := func(signer string, err error) func(string, []byte) (string, string, error) {
		return func(name string, got []byte) (string, string, error) {
			if name != "p" || string(got) != string(wasm) {
				t.Errorf("asked for %q", name)
			}
			return signer, "", err
		}
	}
	cases := []struct {
		name    string
		opts    runtime.Options
		spec    runtime.Spec
		granted bool
		refused string
	}{
		{name: "nobody", spec: spec},
		{name: "pinned", spec: pinned, granted: true},
		{name: "accepted", opts: runtime.Options{Record: accepted}, spec: spec, granted: true},
		{name: "signed", opts: runtime.Options{Verify: verify("KEY", nil)}, spec: spec, granted: true},
		{name: "unsigned", opts: runtime.Options{Verify: verify("", nil)}, spec: spec},
		{name: "bad signature", opts: runtime.Options{Verify: verify("", errors.New("a bad signature"))}, spec: spec, refused: "a bad signature"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := swap(t, c.opts, c.spec)
			s.put(t, "p.wasm", wasm)
			if c.refused != "" {
				s.until(t, "refused", func() bool { return len(s.Refusals()) == 1 })
				if r := s.Refusals()[0]; r.Kind != dsh.FaultDenied || !strings.Contains(r.Message, c.refused) {
					t.Errorf("refused %+v", r)
				}
				return
			}
			s.until(t, "there", func() bool {
				return strings.HasSuffix(s.Entries()[0].Policy.Info().Source, filepath.Join("policies", "p.wasm"))
			})
			e := s.Entries()[0]
			if got := len(e.Policy.Info().Granted) == 1; got != c.granted || e.Standing.Trusted() != c.granted {
				t.Errorf("granted %v, %+v", e.Policy.Info().Granted, e.Standing)
			}
			if said := s.said(); c.granted && len(said) > 0 || !c.granted && (len(said) != 1 || !strings.Contains(said[0], "goes without repair.prune")) {
				t.Errorf("said %q", said)
			}
		})
	}
}

// TestDowngrade: an older version than the one that was let in is refused.
func TestDowngrade(t *testing.T) {
	record := runtime.Record(t.TempDir())
	old := module(t, "1.9.0")
	if err := record.Put("p", runtime.Acceptance{Version: "1.10.0"}); err != nil {
		t.Fatal(err)
	}
	s := swap(t, runtime.Options{Record: record}, builtin)
	s.put(t, "p.wasm", old)
	s.until(t, "refused", func() bool { return len(s.Refusals()) == 1 })
	if r := s.Refusals()[0]; !strings.Contains(r.Message, "1.9.0") || !strings.Contains(r.Message, "1.10.0") {
		t.Errorf("refused %+v", r)
	}
	if err := record.Put("p", runtime.Acceptance{Version: "1.9.0", Digests: []string{digestOf(t, old)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(t.Context(), []runtime.Spec{builtin}, nil); err != nil || !slices.Equal(s.names(), []string{"p", "retry"}) {
		t.Errorf("%v, %v", s.names(), err)
	}
}

// TestVersions: which version may follow which.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		before, after string
		ok            bool
	}{
		{"", "", true}, {"", "0.1", true}, {"1.0.0", "", false}, {"1.0.0", "1.0.0", true}, {"1.0.0", "1.0.1", true},
		{"1.10.0", "1.9.9", false}, {"1.2", "1.2.0", true}, {"1.2.0", "1.2", true}, {"1.2.0", "v1.3", true},
		{"1.0.0", "1.0.0-rc.1", false}, {"1.0.0-rc.1", "1.0.0", true}, {"1.0.0-rc.2", "1.0.0-rc.10", true},
		{"1.0.0-rc.10", "1.0.0-rc.9", false}, {"1.0.0-alpha", "1.0.0-1", false}, {"1.0.0-alpha.1", "1.0.0-alpha", false},
		{"1.0.0+a", "1.0.0+b", true}, {"nightly", "nightly", true}, {"nightly", "1.0.0", true}, {"1.0.0", "nightly", false},
		{"2.0.0", "10.0.0", true}, {"1.0.0", "99999999999999999999.0", false},
	} {
		record := runtime.Record(t.TempDir())
		if err := record.Put("p", runtime.Acceptance{Version: c.before}); err != nil {
			t.Fatal(err)
		}
		s := swap(t, runtime.Options{Record: record})
		known, err := record.Of("p")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Try(t.Context(), "p", "p.wasm", module(t, c.after), known); (err == nil) != c.ok {
			t.Errorf("%q after %q: %v", c.after, c.before, err)
		}
	}
	record := runtime.Record(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(record), "p.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Of("p"); err == nil {
		t.Error("a damaged record is read")
	}
}

// TestReload: other specs take the place of the present ones, or nothing
// changes.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.wasm")
	if err := os.WriteFile(path, module(t, "1"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := runtime.Spec{Name: "own", Module: path}
	s := swap(t, runtime.Options{}, own, builtin)
	before, changed := s.Policies()
	if err := s.Reload(t.Context(), []runtime.Spec{own, builtin}, nil); err != nil {
		t.Fatal(err)
	}
	if after, _ := s.Policies(); !slices.Equal(before, after) {
		t.Error("nothing has changed, and the policies are others")
	}
	bad := runtime.Spec{Name: "bad", Module: path, Config: json.RawMessage("[]")}
	var failed *runtime.LoadError
	if err := s.Reload(t.Context(), []runtime.Spec{own, bad}, nil); !errors.As(err, &failed) {
		t.Errorf("a bad list: %v", err)
	}
	if after, _ := s.Policies(); !slices.Equal(before, after) {
		t.Error("a bad list has changed the policies")
	}
	select {
	case <-changed:
		t.Error("told of a change that there is not")
	default:
	}
	if err := os.WriteFile(path, module(t, "2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(t.Context(), []runtime.Spec{builtin, own}, nil); err != nil {
		t.Fatal(err)
	}
	<-changed
	after, _ := s.Policies()
	if after[0] != before[1] || after[1].Info().Version != "2" {
		t.Errorf("it is %v", s.names())
	}
}

// TestNoFolder: what stands in the place of a folder is named, and left there.
func TestNoFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"folder": runtime.Folder(file).Install("p", []byte("module")),
		"record": runtime.Record(file).Put("p", runtime.Acceptance{}),
	} {
		if err == nil || !strings.Contains(err.Error(), file+" is no folder") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// TestRecordForgets: however often something is accepted, its record can be read.
func TestRecordForgets(t *testing.T) {
	r := runtime.Record(t.TempDir())
	var a runtime.Acceptance
	for n := range 20_000 {
		a.Digests = append(a.Digests, fmt.Sprintf("%064x", n))
	}
	if err := r.Put("p", a); err != nil {
		t.Fatal(err)
	}
	got, err := r.Of("p")
	if err != nil || len(got.Digests) != 1000 || got.Digests[999] != a.Digests[19_999] {
		t.Errorf("%d digests, %v", len(got.Digests), err)
	}
}

// TestFolderInstall: install, rollback and remove, as the command line has them.
func TestFolderInstall(t *testing.T) {
	f := runtime.Folder(filepath.Join(t.TempDir(), "policies"))
	one, two := []byte("one"), []byte("two")
	has := func(now, before string) {
		t.Helper()
		n, b, err := f.Previous("p")
		if string(n) != now || string(b) != before || err != nil {
			t.Errorf("now %q, before %q, %v; want %q and %q", n, b, err, now, before)
		}
	}
	has("", "")
	if _, err := f.Rollback("p"); err == nil {
		t.Error("rolled back to nothing")
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(f.Install("p", one))
	has("one", "")
	must(f.Install("p", two))
	has("two", "one")
	must(f.Install("p", two))
	has("two", "one")
	now, err := f.Rollback("p")
	if must(err); string(now) != "one" {
		t.Errorf("rolled back to %q", now)
	}
	has("one", "two")
	must(f.Remove("p"))
	has("", "one")
	if err := f.Remove("p"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed again: %v", err)
	}
	_, err = f.Rollback("p")
	must(err)
	has("one", "")
	now, err = f.Rollback("p")
	if must(err); now != nil {
		t.Errorf("rolled back to %q", now)
	}
	has("", "one")
	for _, bad := range []string{"", "..", "a/b", "A"} {
		if err := f.Install(bad, one); err == nil {
			t.Errorf("installed as %q", bad)
		}
	}
}
