package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	for _, tt := range []struct{ policy, want string }{
		{"patient.wasm", `completed after 4 attempts and 2 retries: "It is late."`},
		{"", "failed after 1 attempts and 0 retries: \"\"\nSERVER (HTTP 500)"},
	} {
		var out strings.Builder
		if err := run(t.Context(), &out, tt.policy); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("policy %q: got\n%swant %s", tt.policy, out.String(), tt.want)
		}
	}
}
