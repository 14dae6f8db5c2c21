package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// FuzzHost: whatever JSON a policy gives a host function, it has an answer or a
// refusal, within bounds, and the log stays sound.
func FuzzHost(f *testing.F) {
	for _, c := range [][2]string{
		{hostabi.FuncLogRead, `{"types":["llm/retry"],"turn":1,"after":1e300,"limit":0.5}`},
		{hostabi.FuncSurfaceRead, `{"from":9007199254740991,"content":true}`},
		{hostabi.FuncStatePut, `{"scope":"session","key":"k","value":[null],"version":0}`},
		{hostabi.FuncStatePut, `{"scope":"shared","key":"k"}`},
		{hostabi.FuncStateGet, `{"scope":"other","key":"\u0000"}`},
		{hostabi.FuncEmit, `{"type":"a","data":{"a":{}}}`},
		{"", `null`},
	} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, function, argument string) {
		if !json.Valid([]byte(argument)) {
			return // which is refused before a host is asked
		}
		log := memory.New()
		p := caller{"mine", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
			for range 2 {
				var answer json.RawMessage
				err := call(function, json.RawMessage(argument), &answer)
				var refused *dsh.HostError
				switch {
				case err == nil && (len(answer) == 0 || answer[0] != '{' || len(answer) > hostabi.MaxAnswerBytes):
					t.Errorf("%s %s: %.100s", function, argument, answer)
				case err != nil && !errors.As(err, &refused):
					t.Errorf("%s %s: %v", function, argument, err)
				}
			}
			return dsh.Verdict{}, nil
		}}
		if err := asks(t.Context(), log, "s", p); err != nil {
			t.Fatal(err)
		}
		if _, err := loop.Verify(log.Read(t.Context(), "s", 0)); err != nil {
			t.Error(err)
		}
	})
}
