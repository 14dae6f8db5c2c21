package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/hostabi"
)

// TestMain lets the test binary be dsh: tests run it by that name.
func TestMain(m *testing.M) {
	if isWorker(os.Args) { // whatever the program was called
		main()
	}
	testscript.Main(m, map[string]func(){"dsh": main, "dsh-dying": dying})
}

// canary is the provider's key in all tests: it must not occur in anything
// that dsh writes.
const canary = "sk-canary-3f9a1c77"

// TestScripts plays the stories of the command line.
func TestScripts(t *testing.T) {
	guests, err := filepath.Abs(filepath.Join("..", "..", "runtime", "runtimetest", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			w, err := newWorld(e.WorkDir)
			if err != nil {
				return err
			}
			e.Vars = append(e.Vars, w.env...)
			e.Values[worldKey{}] = w
			e.Defer(func() { w.end(t, "script") })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"provider": cmdProvider, "requests": cmdRequests, "exits": cmdExits, "hex": cmdHex, "concat": cmdConcat, "nokey": cmdNoKey,
			"require": cmdRequire, "tamper": cmdTamper, "modules": cmdModules, "registry": cmdRegistry, "fromfile": cmdFromFile, "listed": cmdListed, "age": cmdAge, "orphans": cmdOrphans,
			"guest": func(ts *testscript.TestScript, _ bool, args []string) { cmdGuest(ts, guests, args) },
		},
	})
}

type worldKey struct{}

// A world is the folder of one test: a configuration, a place for data, and
// the provider that the configuration names.
type world struct {
	dir    string
	env    []string
	config string
	server *scripted.Server
}

// newWorld makes a folder's configuration. Its provider is played later.
func newWorld(dir string) (*world, error) {
	w := &world{dir: dir, config: filepath.Join(dir, "home", "dsh.toml")}
	home := filepath.Dir(w.config)
	w.env = []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "config"), "XDG_STATE_HOME=" + filepath.Join(home, "state"),
		"XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "XDG_DATA_HOME=" + filepath.Join(home, "share"), "XDG_RUNTIME_DIR=" + home,
		"DSH_CONFIG=" + w.config, "DSH_DATA_DIR=" + filepath.Join(home, "data"), "PROVIDER_KEY=" + canary, "NO_COLOR=1",
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	return w, w.configure("http://127.0.0.1:1/v1")
}

func (w *world) configure(url string) error {
	text := fmt.Sprintf("[agent]\nprovider = \"test\"\nmodel = \"test-model\"\n[providers.test]\nbase_url = %q\napi_key_env = \"PROVIDER_KEY\"\n", url)
	return os.WriteFile(w.config, []byte(text), 0o600)
}

// play lets a provider play steps in the place of the one before.
func (w *world) play(steps ...scripted.Step) error { return w.script(scripted.Script{Steps: steps}) }

func (w *world) script(s scripted.Script) error {
	w.close()
	var err error
	if w.server, err = scripted.Play(s); err != nil {
		return err
	}
	return w.configure(w.server.URL)
}

func (w *world) close() {
	if w.server != nil {
		_ = w.server.Close() // nothing is left to be told
	}
}

// end closes the world of a script, and has its sessions kept.
func (w *world) end(t *testing.T, kind string) {
	w.close()
	if err := keepData(w.dir, kind+"+"+filepath.Base(w.dir)); err != nil {
		t.Error(err)
	}
}

func worldOf(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

// cmdProvider plays steps, one a word: see parseStep.
func cmdProvider(ts *testscript.TestScript, _ bool, args []string) {
	var steps []scripted.Step
	for _, a := range args {
		s, err := parseStep(a)
		ts.Check(err)
		steps = append(steps, s)
	}
	ts.Check(worldOf(ts).play(steps...))
}

// parseStep reads a step of a script: STATUS[;HEADER=VALUE…][*TIMES],
// KIND[:TEXT], tool:NAME:ARGUMENTS or slow:TEXT. An error status whose times
// are not given is answered to all requests that follow, where it stands last.
func parseStep(word string) (scripted.Step, error) {
	kind, text, _ := strings.Cut(word, ":")
	status, headers, _ := strings.Cut(kind, ";")
	number, times, repeated := strings.Cut(status, "*")
	if n, err := strconv.Atoi(number); err == nil {
		s := scripted.Step{Do: scripted.Status, Status: n, Headers: map[string]string{}}
		if repeated {
			if s.Times, err = strconv.Atoi(times); err != nil {
				return s, err
			}
		}
		for h := range strings.SplitSeq(headers, ";") {
			if k, v, ok := strings.Cut(h, "="); ok {
				s.Headers[k] = v
			}
		}
		return s, nil
	}
	switch kind {
	case "tool":
		name, arguments, _ := strings.Cut(text, ":")
		return scripted.Step{Do: scripted.Tool, Name: name, Arguments: arguments}, nil
	case "length":
		return scripted.Step{Do: scripted.Text, Text: text, Finish: "length"}, nil
	case "slow":
		return scripted.Step{Do: scripted.Text, Text: text, Chunks: max(1, len(text)/4), DelayMs: 50}, nil
	case scripted.Drop, scripted.Stall, scripted.StreamError, scripted.TruncateJSON:
		return scripted.Step{Do: kind, Text: text, Chunks: 3, AfterChunks: 2}, nil
	}
	return scripted.Step{Do: kind, Text: text}, nil
}

// cmdRequests checks how many requests the provider was sent, and with "same"
// that all had one body.
func cmdRequests(ts *testscript.TestScript, _ bool, args []string) {
	var got []scripted.Request
	if s := worldOf(ts).server; s != nil {
		got = s.Requests()
	}
	if want, err := strconv.Atoi(args[0]); err != nil || len(got) != want {
		ts.Fatalf("%d requests, want %s", len(got), args[0])
	}
	for _, r := range got {
		if len(args) > 1 && args[1] == "same" && !bytes.Equal(r.Body, got[0].Body) {
			ts.Fatalf("request %d has another body than the first", r.N)
		}
		if h := http.Header(r.Header).Get("Authorization"); h != "Bearer "+canary {
			ts.Fatalf("request %d does not carry the key", r.N)
		}
	}
}

// cmdExits runs a command and checks its exit code.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var failed *exec.ExitError
		if !errors.As(err, &failed) {
			ts.Check(err)
		}
		code = failed.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit %d, want %d", code, want)
	}
}

// cmdHex writes bytes to a file.
func cmdHex(ts *testscript.TestScript, _ bool, args []string) {
	b, err := hex.DecodeString(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o600))
}

// cmdConcat writes files one after the other to the first.
func cmdConcat(ts *testscript.TestScript, _ bool, args []string) {
	all := ""
	for _, f := range args[1:] {
		all += ts.ReadFile(f)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(all), 0o600))
}

// cmdNoKey checks that the key occurs in no file of the world.
func cmdNoKey(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(filepath.WalkDir(worldOf(ts).dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(canary)) {
			return fmt.Errorf("%s holds the key", path)
		}
		return err
	}))
}

// cmdGuest writes one of the engines' guests to a file: FILE GUEST, or FILE GUEST
// NAME VERSION [CAPABILITY…] for one with a manifest.
func cmdGuest(ts *testscript.TestScript, guests string, args []string) {
	wasm, err := os.ReadFile(filepath.Join(guests, args[1]+".wasm"))
	ts.Check(err)
	if len(args) > 2 {
		wasm, err = hostabi.Pack(wasm, hostabi.Manifest{Name: args[2], Version: args[3], Capabilities: args[4:]})
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), wasm, 0o600))
}

// cmdRequire lets the configuration ask for signatures of a public key's file.
func cmdRequire(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile(args[0])), "\n")
	w := worldOf(ts)
	text, err := os.ReadFile(w.config)
	ts.Check(err)
	text = fmt.Appendf(text, "[recovery]\nrequire_signature = true\nkeys = [%q]\n", lines[len(lines)-1])
	ts.Check(os.WriteFile(w.config, text, 0o600))
}

// cmdTamper copies a file with one bit changed in its middle.
func cmdTamper(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	b[len(b)/4] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

// keptModules are the files of the modules that are kept.
func keptModules(ts *testscript.TestScript) []string {
	files, err := filepath.Glob(filepath.Join(ts.Getenv("DSH_DATA_DIR"), "modules", "*.wasm"))
	ts.Check(err)
	return files
}

// cmdModules checks how many modules are kept.
func cmdModules(ts *testscript.TestScript, _ bool, args []string) {
	if got := keptModules(ts); fmt.Sprint(len(got)) != args[0] {
		ts.Fatalf("%d modules are kept: %v", len(got), got)
	}
}

// cmdAge lets the modules that are kept be two days old.
func cmdAge(ts *testscript.TestScript, _ bool, _ []string) {
	old := time.Now().Add(-48 * time.Hour)
	for _, f := range keptModules(ts) {
		ts.Check(os.Chtimes(f, old, old))
	}
}

// cmdOrphans keeps so many modules that no session names.
func cmdOrphans(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	for i := range n {
		path := filepath.Join(ts.Getenv("DSH_DATA_DIR"), "modules", fmt.Sprintf("%064x.wasm", i))
		ts.Check(os.WriteFile(path, nil, 0o600))
	}
}

// cmdRegistry serves an OCI registry on loopback, and sets REGISTRY to its host.
func cmdRegistry(ts *testscript.TestScript, _ bool, _ []string) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ts.Defer(server.Close)
	ts.Setenv("REGISTRY", strings.TrimPrefix(server.URL, "http://"))
}

// cmdFromFile sets a variable to what a file holds.
func cmdFromFile(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
}

// cmdListed adds a policy to the configuration: NAME MODULE.
func cmdListed(ts *testscript.TestScript, _ bool, args []string) {
	w := worldOf(ts)
	text, err := os.ReadFile(w.config)
	ts.Check(err)
	text = fmt.Appendf(text, "[[recovery.policy]]\nname = %q\nmodule = %q\n", args[0], args[1])
	ts.Check(os.WriteFile(w.config, text, 0o600))
}
