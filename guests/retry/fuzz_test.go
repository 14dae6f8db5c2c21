package retry_test

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

// FuzzInput: whatever bytes the guest is given, it never traps. It decides, and
// then in the contract's form, or says what is wrong with its input; what is
// not JSON is never decided on.
func FuzzInput(f *testing.F) {
	wasm, _ := guests.Builtin("retry")
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
	f.Add([]byte(`{"retryPolicy":{"mode":"always","initialDelayMs":1e-400,"maxDelayMs":-1e308,"jitterRatio":1e308},"random":[1e308]}`))
	f.Add([]byte(`{"retryPolicy":{"mode":"\u006eormal","key":"\ud83d\ude00","retryableCodes":["\""]},"failure":{"code":"\""}}`))
	f.Add([]byte(`{"a":` + strings.Repeat("[", 70)))
	f.Add([]byte(`{"retryCounts":[{"count":1e5}],"retryPolicy":{"mode":"normal"}} x`))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 64<<10 {
			return
		}
		i, err := program.Instance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		// Every turn of a loop costs: none of them may have too many.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := i.Call(ctx, runtime.Call{Export: hostabi.ExportRecover, Input: input})
		var fault *dsh.Fault
		switch {
		case errors.As(err, &fault):
			if strings.Contains(fault.Message, "wasm error") || fault.Kind != dsh.FaultTrap {
				t.Errorf("%v", fault)
			}
		case err != nil:
			t.Error(err)
		case json.Valid(input) && !json.Valid(r.Output):
			t.Errorf("it answered %q", r.Output)
		}
	})
}
