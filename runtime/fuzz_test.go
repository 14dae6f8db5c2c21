package runtime_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// FuzzOutput: whatever a guest answers, it is a decision in the contract's form
// or a fault whose message can be shown.
func FuzzOutput(f *testing.F) {
	for _, text := range []string{
		`{"kind":"retry","delayMs":1}`, `{"kind":"delegate","fallback":{"kind":"retry","delayMs":0,"repairs":[{"kind":"prune"}]}}`,
		"\xff", "", "null", `{"kind":"\u001b[2J"}`, `{"kind":"retry","delayMs":1e999}`, `{"kind":"retry","delayMs":1,"repairs":[{"kind":"x"}]}`,
	} {
		f.Add([]byte(text))
	}
	engine := &fake{}
	set, err := runtime.Open(f.Context(), []runtime.Spec{builtin}, runtime.Options{Engine: engine, Builtin: guests.Builtin})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := set.Close(); err != nil {
			f.Error(err)
		}
	})
	policies, _ := set.Policies()
	input, err := dsh.JSON(runtimetest.Input("retry"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		engine.call = answers(string(output))
		runtime.Reset(policies[0]) // it is asked whatever came before
		v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: input})
		var fault *dsh.Fault
		switch {
		case errors.As(err, &fault):
			if fault.Kind != dsh.FaultOutput && fault.Kind != dsh.FaultSchema || !utf8.ValidString(fault.Message) || strings.ContainsAny(fault.Message, "\x1b\n") {
				t.Errorf("%q: %v", output, fault)
			}
		case err != nil:
			t.Errorf("%q: %v", output, err)
		case len(output) > hostabi.MaxOutputBytes || !utf8.Valid(output) || v.Decision.Validate() != nil:
			t.Errorf("%q was taken as %+v", output, v.Decision)
		}
	})
}

// FuzzPrintable: a guest's text is safe to show, and no longer than it may be.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff\n", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, min(limit, 1<<16))
		p := runtime.Printable(s, limit)
		if len(p) > limit || !utf8.ValidString(p) || strings.ContainsAny(p, "\x00\x1b\n\r\u202e\u2028") {
			t.Errorf("%q became %q", s, p)
		}
	})
}
