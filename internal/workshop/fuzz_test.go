package workshop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/workshop"
)

// FuzzCases: whatever a file of cases holds is run, or refused with the number
// of its line; what is updated is read again, and is as expected then.
func FuzzCases(f *testing.F) {
	f.Add([]byte(`{"name":"n","failure":{"code":"SERVER","status":503},"context":{"retries":2,"config":{},"state":{"shared":{"k":1}},"log":[{"seq":1,"at":1,"type":"tool/call","data":{}}],"hostCalls":[{"function":"emit","answer":{}}]},"expect":{"kind":"retry","delayMs":{"min":1,"max":2}}}`))
	f.Add([]byte(`{"hook":"check_config","context":{"config":{}},"expect":{"problems":[]}}`))
	f.Add([]byte("\n{\"hook\":\"before_step\",\"expect\":{}}\r\n"))
	plain := func(context.Context, json.RawMessage) (workshop.Loaded, error) {
		return workshop.Loaded{Policy: answering{}}, nil
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		cases, err := workshop.ParseCases(bytes.NewReader(file))
		if err != nil {
			return
		}
		results, err := workshop.Run(t.Context(), plain, "p", cases)
		if err != nil {
			return
		}
		updated, _, err := workshop.Update(file, results)
		if err != nil {
			t.Fatal(err)
		}
		cases, err = workshop.ParseCases(bytes.NewReader(updated))
		if err != nil {
			t.Fatalf("%v\n%s", err, updated)
		}
		if results, err = workshop.Run(t.Context(), plain, "p", cases); err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if len(r.Differences) > 0 {
				t.Errorf("still different: %+v\n%s", r.Differences, updated)
			}
		}
	})
}

// answering is a policy that always answers the same.
type answering struct{}

func (answering) Info() dsh.PolicyInfo { return dsh.PolicyInfo{Name: "p"} }

func (answering) Decide(_ context.Context, q dsh.Question) (dsh.Verdict, error) {
	if q.Hook == dsh.HookBeforeStep {
		return dsh.Verdict{Raw: json.RawMessage(`{"kind":"proceed"}`)}, nil
	}
	return dsh.Verdict{Raw: json.RawMessage(`{"kind":"retry","delayMs":1.5,"reason":"<&>\u2028"}`)}, nil
}
