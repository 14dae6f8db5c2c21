package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/cli"
)

func TestGates(t *testing.T) {
	r := cli.Simulated{
		Recorded:  cli.SimulatedSide{Requests: 100, WaitMs: 1000, Tokens: 50, Retried: 10, Final: 0},
		Candidate: cli.SimulatedSide{Requests: 120, WaitMs: 500.5, Tokens: 50, Retried: 12, Final: 1},
		Lost:      2,
	}
	holds := []string{
		"requests>+19.9%", "requests>+19", "requests>119", "requests > 119%", "requests<121", "requests<+21", "requests<+21%",
		"wait<-49%", "wait<501", "wait<-499", "tokens<51", "tokens>-1", "final>+10%", "final>0", "lost>0", "lost>1", "retried>+10%", "changed<1",
	}
	fails := []string{
		"requests>+20%", "requests>+20", "requests>120", "requests>120%", "requests<120", "requests<+20%",
		"wait<-50%", "wait>+0", "tokens>+0%", "tokens<-0%", "final>1", "lost>2", "faults>0", "unavailable>0",
	}
	got, err := cli.Fails(r, append(slices.Clone(holds), fails...)...)
	if err != nil || !slices.Equal(got, holds) {
		t.Errorf("%v: these hold:\n%q\nwant\n%q", err, got, holds)
	}
	for _, bad := range []string{"", "requests", "requests>", "requests>many", "requests>=1", "requests>1e3", "cost>1", "requests>+-1", "requests>1%%", "requests>1 requests>2", "requests>99999999999999999999999999"} {
		_, err := cli.Fails(r, bad)
		if bad == "requests>99999999999999999999999999" {
			if err != nil { // it is a number, if a large one
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "--fail-if") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
