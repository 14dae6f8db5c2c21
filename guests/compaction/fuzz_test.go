package compaction_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
)

// FuzzInput: whatever bytes an export is given, it never traps. It answers with
// JSON, or says what is wrong with its input.
func FuzzInput(f *testing.F) {
	wasm, _ := guests.Builtin("compaction")
	module, err := runtime.Prepare(wasm, runtime.Grants{})
	if err != nil {
		f.Fatal(err)
	}
	program, err := native.New(native.Options{}).Compile(f.Context(), module)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := program.Close(); err != nil {
			f.Error(err)
		}
	})
	good, err := dsh.JSON(base())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"purpose":"reply","failure":{"code":"CONTEXT_WINDOW_EXCEEDED"},"surface":{"tokens":1e308,"window":-1e308},"config":{"summaryMaxTokens":1e-400}}`))
	f.Add([]byte(`{"purpose":"reply","surface":{"tokens":1e308,"window":1e300},"config":{"thresholdRatio":1e-300,"retainRatio":1e308}}`))
	f.Add([]byte(`{"thresholdRatio":{},"x":"\""}`))
	f.Add([]byte(`{"repairs":[{"ok":tru}]}`))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 64<<10 {
			return
		}
		for _, export := range []string{hostabi.ExportRecover, hostabi.ExportBeforeStep, hostabi.ExportCheckConfig} {
			i, err := program.Instance(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			r, err := i.Call(ctx, runtime.Call{Export: export, Input: input})
			cancel()
			var fault *dsh.Fault
			switch {
			case errors.As(err, &fault):
				if strings.Contains(fault.Message, "wasm error") || fault.Kind != dsh.FaultTrap {
					t.Errorf("%s: %v", export, fault)
				}
			case err != nil:
				t.Error(err)
			case json.Valid(input) && !json.Valid(r.Output):
				t.Errorf("%s: it answered %q", export, r.Output)
			}
			if err := i.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
