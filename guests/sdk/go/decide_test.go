package sdk_test

import (
	"testing"

	sdk "github.com/dsh-agent/dsh/guests/sdk/go"
)

func TestReasonsShowAllDigits(t *testing.T) {
	ms := 3600000.0
	if got := sdk.Delegate("%v ms, %.1f s, %v of %d", ms, ms/1000, "x", 3).Reason; got != "3600000 ms, 3600.0 s, x of 3" {
		t.Error(got)
	}
	all := "100%"
	if got := sdk.Retry(ms).Because(all).Reason; got != "100%" {
		t.Error(got)
	}
}

// TestOutsideOfAGuest: what decides can be tested natively, and has no host.
func TestOutsideOfAGuest(t *testing.T) {
	if _, err := sdk.GetState(sdk.Shared, "k", new(int)); err == nil || err.Code != "unavailable" {
		t.Error(err)
	}
	if err := sdk.PutState(sdk.Shared, "k", 1, 0); err == nil || err.Conflict() {
		t.Error(err)
	}
}
