package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHideSecrets holds that nobody reads a key in /proc, and that the process
// itself still has it.
func TestHideSecrets(t *testing.T) {
	if os.Getenv("DSH_TEST_HIDE") != "" {
		hideSecrets([]string{"DSH_TEST_KEY", "DSH_TEST_NONE"})
		out, err := exec.Command("cat", fmt.Sprintf("/proc/%d/environ", os.Getpid())).Output() // root alone is let in
		if err == nil && !strings.Contains(string(out), "DSH_TEST_HIDE=1\x00") {
			t.Errorf("the others are gone: %s", out)
		}
		if strings.Contains(string(out), canary) || os.Getenv("DSH_TEST_KEY") != canary {
			t.Errorf("own %q, outside:\n%s", os.Getenv("DSH_TEST_KEY"), out)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHideSecrets$")
	cmd.Env = append(os.Environ(), "DSH_TEST_HIDE=1", "DSH_TEST_KEY="+canary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
