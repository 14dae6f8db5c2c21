package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/hostabi"
)

// Processes that count failures in one memory at the same time lose none.
func TestMemoryAtOnce(t *testing.T) {
	breaker, err := filepath.Abs(filepath.Join("..", "..", "guests", "breaker", "breaker.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	w := prepare(t, scripted.Step{Do: scripted.Status, Status: 500, Times: 100})
	config, err := os.OpenFile(w.config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	if _, err := fmt.Fprintf(config, `
[providers.test.retry_policy]
max_retries = 3
backoff = { initial_delay_ms = 1, max_delay_ms = 1 }
[[recovery.policy]]
name = "breaker"
module = %q
capabilities = ["log.read", "log.append", "state.shared"]
config = { failures = 1000 }
[[recovery.policy]]
name = "retry"
module = "builtin:retry"
`, breaker); err != nil {
		t.Fatal(err)
	}
	const processes, attempts = 4, 4
	var running sync.WaitGroup
	for range processes {
		running.Go(func() {
			if r := w.run(t, "run", "q"); r.code != 75 {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
		})
	}
	running.Wait()
	r := w.run(t, "log", "export")
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.err)
	}
	all := parsed(t, r.out)
	stored := ofType(all, dsh.TypePolicyState)
	var last dsh.PolicyState
	var value struct{ Failures int }
	if err := stored[len(stored)-1].Decode(&last); err != nil || json.Unmarshal(last.Value, &value) != nil {
		t.Fatal(err)
	}
	told := puts(t, all) // on a very slow disk some may have been refused
	if len(stored) != told || int(last.Version) != told || value.Failures != told || told > processes*attempts || told < processes {
		t.Errorf("%d values, of %d that were told to be stored; the last %+v", len(stored), told, last)
	}
}

// puts counts the values that policies were told to be stored.
func puts(t *testing.T, events []dsh.Event) (n int) {
	t.Helper()
	for _, e := range ofType(events, dsh.TypePolicyDecision) {
		var d dsh.PolicyDecision
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		for _, raw := range d.HostCalls {
			var c hostabi.HostCall
			var a hostabi.PutAnswer
			if json.Unmarshal(raw, &c) == nil && c.Function == hostabi.FuncStatePut && json.Unmarshal(c.Answer, &a) == nil && a.Version > 0 {
				n++
			}
		}
	}
	return n
}

// TestMemory plays stories of policies that keep something, and of what the host
// keeps of them.
func TestMemory(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	guests := strings.NewReplacer("$BREAKER", filepath.Join(root, "guests", "breaker", "breaker.wasm"), "$GUESTS", filepath.Join(root, "runtime", "runtimetest", "testdata"))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/memory",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			w, err := newWorld(e.WorkDir)
			if err != nil {
				return err
			}
			e.Vars = append(e.Vars, w.env...)
			e.Values[worldKey{}] = w
			e.Defer(func() { w.end(t, "memory") })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"provider": cmdProvider, "requests": cmdRequests, "exits": cmdExits,
			// configure adds a file to the configuration of the provider that
			// plays; $BREAKER stands for the path of that guest, $GUESTS for the
			// folder of the small ones.
			"configure": func(ts *testscript.TestScript, _ bool, args []string) {
				w := worldOf(ts)
				ts.Check(w.configure(w.server.URL))
				text, err := os.ReadFile(w.config)
				ts.Check(err)
				ts.Check(os.WriteFile(w.config, append(text, guests.Replace(ts.ReadFile(args[0]))...), 0o600))
			},
		},
	})
}
