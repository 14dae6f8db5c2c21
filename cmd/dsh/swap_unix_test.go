//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// guestFile is the path of one of the engines' guests.
func guestFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "runtime", "runtimetest", "testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSwapInAWait: a policy that is installed while a run waits, in another
// process, ends the wait; so does one that is installed while the run is
// suspended.
func TestSwapInAWait(t *testing.T) {
	for _, suspended := range []bool{false, true} {
		name := map[bool]string{false: "live", true: "suspended"}[suspended]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, rateLimit("9"), answer("the answer"))
			began := time.Now()
			c := w.command(t, "run", "q", "--output", "stream-json")
			out, err := c.StdoutPipe()
			if err == nil {
				err = c.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			lines.Buffer(nil, 16<<20)
			for lines.Scan() && !strings.Contains(lines.Text(), `"type":"llm/retry"`) {
			}
			if suspended {
				if err := c.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			install := func() {
				if r := w.run(t, "policy", "install", guestFile(t, "retry-at-once"), "--name", "retry"); r.code != 0 {
					t.Fatalf("install: exit %d, %s", r.code, r.err)
				}
			}
			if !suspended {
				install()
			}
			for lines.Scan() {
			}
			_ = c.Wait() // how it ended is in the log
			if suspended {
				install()
				if r := w.run(t, "run", "--resume", "last"); r.code != 0 || r.out != "the answer\n" {
					t.Fatalf("resume: exit %d, %s, %s", r.code, r.out, r.err)
				}
			}
			t.Logf("it took %v of a wait of 9 s", time.Since(began))
			events := w.events(t)
			cancelled, changed := ofType(events, dsh.TypeRetryCancelled), ofType(events, dsh.TypePoliciesChanged)
			if len(cancelled) != 1 || !strings.Contains(string(cancelled[0].Data), dsh.CancelPoliciesChanged) || len(changed) != 2 {
				t.Errorf("%d cancelled, %d changed", len(cancelled), len(changed))
			}
			if retries := ofType(events, dsh.TypeRetry); len(retries) != 2 || !strings.Contains(string(retries[1].Data), `"retry":1,`) {
				t.Errorf("%d retries: %s", len(retries), retries[len(retries)-1].Data)
			}
			if end := ofType(events, dsh.TypeTurnEnd); len(end) != 1 || !strings.Contains(string(end[0].Data), `"completed"`) {
				t.Errorf("the turn ended with %v", end)
			}
			if r := w.run(t, "policy", "replay", "last"); r.code != 0 {
				t.Errorf("replay: exit %d, %s", r.code, r.err)
			}
		})
	}
}

// TestSIGHUPReloads: the configuration and its modules are read again; what does
// not hold changes nothing.
func TestSIGHUPReloads(t *testing.T) {
	t.Parallel()
	w := prepare(t, rateLimit("9"), answer("the answer"))
	c := w.command(t, "run", "q")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no controlling terminal
	errs, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c.Stdout = &out
	began := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(extra string) {
		if err := errors.Join(os.WriteFile(w.config, append(bytes.Clone(good), extra...), 0o600), c.Process.Signal(syscall.SIGHUP)); err != nil {
			t.Fatal(err)
		}
	}
	said := ""
	for lines := bufio.NewScanner(errs); lines.Scan(); {
		said += lines.Text() + "\n"
		switch {
		case strings.Contains(lines.Text(), "retry 1 of 5"):
			reload("[[recovery.policy]]\nname = \"x\"\nmodule = \"nothing.wasm\"\n")
		case strings.Contains(lines.Text(), "not loaded anew"):
			reload(fmt.Sprintf("[[recovery.policy]]\nname = \"now\"\nmodule = %q\n", guestFile(t, "retry-at-once")))
		}
	}
	if err := c.Wait(); err != nil || out.String() != "the answer\n" {
		t.Errorf("%v after %v: %q", err, time.Since(began), out.String())
	}
	for _, want := range []string{"go on as they were: ", "nothing.wasm", "SIGHUP: the policies were loaded anew", "decided by now"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%q is not there once: %s", want, said)
		}
	}
}
