//go:build unix

package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
)

// builds reports whether a language's tools are here and may be used: those that
// take long, or the network, only where DSH_TEST_TOOLCHAINS=all says so.
func builds(t *testing.T, language string) {
	t.Helper()
	all := os.Getenv("DSH_TEST_TOOLCHAINS") == "all"
	have := func(name string) bool { _, err := exec.LookPath(name); return err == nil }
	switch {
	case !have("sh") || !have("make"):
		t.Skip("there is no make here")
	case language == "c" && (!have("clang") || !have("wasm-ld")):
		t.Skip("there is no clang with wasm-ld here")
	case language != "c" && !all:
		t.Skip("it takes long: DSH_TEST_TOOLCHAINS=all builds it")
	}
}

// shell runs a command line in a folder, with dsh on the PATH and the caches of
// whoever runs the tests.
func (w *world) shell(t *testing.T, dir, line string) string {
	t.Helper()
	c := exec.Command("sh", "-c", line)
	c.Dir, c.Env = dir, append(append(os.Environ(), w.env...), "HOME="+os.Getenv("HOME"), "GOCACHE="+goCache(t), "GOFLAGS=", "GOWORK=off")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func goCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Skip("there is no go here")
	}
	return strings.TrimSpace(string(out))
}

// oneLine is the change of one line that a new user makes in a language: the
// provider's wait is not taken.
func oneLine(language string) (file, from, to string) {
	switch language {
	case "go":
		return "policy.go", "sdk.Retry(wait)", "sdk.Retry(1)"
	case "rust":
		return "src/lib.rs", "return retry(wait)", "return retry(1.0)"
	case "c":
		return "policy.c", "dsh_retry(wait,", "dsh_retry(1,"
	}
	return "assembly/policy.ts", "retry(wait,", "retry(1,"
}

// TestPolicyInFiveMinutes takes the way of a new user in each language: new,
// make, a change of one line, and into a dsh that waits, which decides anew by
// it.
func TestPolicyInFiveMinutes(t *testing.T) {
	for _, language := range []string{"go", "rust", "c", "assemblyscript"} {
		t.Run(language, func(t *testing.T) {
			builds(t, language)
			t.Parallel()
			began := time.Now()
			w := prepare(t, rateLimit("9"), answer("got over it"))
			w.shell(t, w.dir, "dsh policy new demo --lang "+language)
			dir := filepath.Join(w.dir, "demo")
			if out := w.shell(t, dir, "make -s test"); !strings.Contains(out, "8 cases, 8 as expected") {
				t.Fatalf("the cases:\n%s", out)
			}
			file, from, to := oneLine(language)
			source, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil || strings.Count(string(source), from) != 1 {
				t.Fatalf("%v: %q is not once in %s", err, from, file)
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(source), from, to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := w.shell(t, dir, "make -s test || true"); !strings.Contains(out, "delayMs is 1, and 2000 is expected") {
				t.Fatalf("the cases after the change:\n%s", out)
			}
			first := w.shell(t, dir, "cksum <demo.wasm")
			w.shell(t, dir, "sh build.sh")
			if again := w.shell(t, dir, "cksum <demo.wasm"); again != first {
				t.Errorf("the same source has other bytes: %s and %s", first, again)
			}
			ran := make(chan ran, 1)
			go func() { ran <- w.run(t, "run", "hello") }()
			err = w.server.Await(t.Context(), func(r []scripted.Request) bool { return len(r) == 1 && !r[0].Done.IsZero() })
			if err != nil {
				t.Fatal(err)
			}
			w.shell(t, dir, "dsh policy install demo.wasm")
			r := <-ran
			decisions := ofType(w.events(t), dsh.TypePolicyDecision)
			if r.code != 0 || !strings.Contains(r.out, "got over it") || !strings.Contains(string(decisions[len(decisions)-1].Data), `"policy":"demo"`) {
				t.Errorf("the run: %+v, and the decisions are %v", r, decisions)
			}
			if out := w.shell(t, dir, "dsh policy replay last"); !strings.Contains(out, "the same") {
				t.Errorf("its decision is not the same again:\n%s", out)
			}
			if out := w.shell(t, dir, "dsh policy simulate demo.wasm --all --fail-if 'changed>0'"); !strings.Contains(out, "1 failure in 1 session") {
				t.Errorf("the simulation:\n%s", out)
			}
			t.Logf("from nothing to a decision in a waiting dsh: %v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestWhatThePageSays pastes the commands of guests/README.md, the part of the
// five minutes, into a shell.
func TestWhatThePageSays(t *testing.T) {
	builds(t, "c")
	w := prepare(t, scripted.Step{Do: scripted.Text, Text: "hello"})
	out := w.shell(t, w.dir, fiveMinutes(t, filepath.Join("..", "..", "guests", "README.md")))
	for _, want := range []string{
		"8 cases, 8 as expected",                               // as it is made
		"FAIL  line 1: ", "maxRetries is 9, and 4 is expected", // after the change
		"were written anew",
		"of them decided otherwise",
		"installed my-policy 0.1.0",
		"my-policy", // explains
		"removed my-policy",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// fiveMinutes are the commands of a page's part of this name, for a shell.
func fiveMinutes(t *testing.T, file string) string {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(page), "## A policy in five minutes")
	part, _, _ = strings.Cut(part, "\n## ")
	var script strings.Builder
	script.WriteString("set -ex\n")
	inside := false
	for line := range strings.Lines(part) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh\n"
		case inside:
			script.WriteString(line)
		}
	}
	return script.String()
}

// TestWhatTheReadmeSays pastes the commands of README.md, from nothing to a
// signed policy that is pulled where signatures are asked for, into a shell. The
// registry is another than the one that it starts.
func TestWhatTheReadmeSays(t *testing.T) {
	builds(t, "go")
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	script, found := "", false
	for line := range strings.Lines(fiveMinutes(t, filepath.Join("..", "..", "README.md"))) {
		if strings.HasPrefix(line, "go run github.com/google/go-containerregistry/cmd/registry@") && strings.HasSuffix(line, "-port 5000 2>registry.log &\n") {
			found = true
			continue
		}
		script += strings.ReplaceAll(line, "localhost:5000", strings.TrimPrefix(s.URL, "http://"))
	}
	if !found {
		t.Fatal("the page starts another registry")
	}
	w := prepare(t, scripted.Step{Do: scripted.Text, Text: "hello"})
	out := w.shell(t, w.dir, script)
	for _, want := range []string{
		"8 cases, 8 as expected",
		"installed patient 0.1.0",
		"patient retries after 3 s",
		"removed patient",
		"signed patient 0.1.0 by key ",
		", signed by ", // installed by its digest
		"rolled back patient: nothing decides under this name now",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// TestBuildWithoutDsh: a project whose dsh is not on the PATH says how to name it,
// before anything is built.
func TestBuildWithoutDsh(t *testing.T) {
	w := prepare(t, answer("hello"))
	w.shell(t, w.dir, "dsh policy new demo --lang go")
	c := exec.CommandContext(t.Context(), "sh", "build.sh")
	c.Dir, c.Env = filepath.Join(w.dir, "demo"), append(os.Environ(), "DSH=/nowhere/dsh")
	out, err := c.CombinedOutput()
	if want := "build.sh: there is no /nowhere/dsh on the PATH: DSH=/path/to/dsh names it\n"; err == nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}
