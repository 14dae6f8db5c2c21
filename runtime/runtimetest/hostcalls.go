package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
)

// A host answers host functions as a test wants it.
type host func(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error)

func (h host) Call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	return h(ctx, function, argument)
}

// hosted opens a guest of the suite that has all capabilities.
func (s *suite) hosted(t *testing.T, name string, config any, calls int) dsh.Policy {
	t.Helper()
	wasm, err := hostabi.Pack(Guest(t, name), hostabi.Manifest{ABI: hostabi.ABI, Name: name, Capabilities: hostabi.Capabilities()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := dsh.JSON(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.open(t, runtime.Spec{Name: name, Wasm: wasm, Config: raw, Capabilities: hostabi.Capabilities(), HostCalls: calls}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// asked asks a policy and reads what the log would have of its host calls.
func asked(t *testing.T, p dsh.Policy, h dsh.Host) (dsh.Verdict, []hostabi.HostCall, error) {
	t.Helper()
	raw, err := dsh.JSON(Input(p.Info().Name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw, Host: h})
	calls := make([]hostabi.HostCall, len(v.HostCalls))
	for i, c := range v.HostCalls {
		if err := json.Unmarshal(c, &calls[i]); err != nil {
			t.Fatalf("host call %s: %v", c, err)
		}
	}
	return v, calls, err
}

type config = map[string]any

// hostFunctions: a guest's argument reaches the host as it is, and the host's
// answer the guest.
func (s *suite) hostFunctions(t *testing.T) {
	for f, argument := range map[string]string{
		"log_read":     `{"types":["llm/retry"],"after":3}`,
		"surface_read": `{"content":true}`,
		"g state_get":  `{"scope":"session","key":"k"}`,
		"p state_put":  `{"scope":"shared","key":"k","value":{"a":"ä\u2028"},"version":0}`,
		"emit":         `{"type":"t","data":{}}`,
	} {
		function := f[strings.LastIndex(f, " ")+1:]
		for _, size := range []int{10, 10_000, hostabi.MaxAnswerBytes - 100} {
			answer := `{"kind":"delegate","reason":"` + strings.Repeat("r", size) + `"}`
			p := s.hosted(t, "host-calls", config{"function": f, "argument": argument}, 0)
			v, calls, err := asked(t, p, host(func(_ context.Context, name string, got json.RawMessage) (json.RawMessage, error) {
				if name != function || string(got) != argument {
					t.Errorf("%s was called with %s", name, got)
				}
				return json.RawMessage(answer), nil
			}))
			if err != nil || string(v.Raw) != answer || len(calls) != 1 || calls[0].Function != function {
				t.Errorf("%s: %.100s, %v, %d calls", function, v.Raw, err, len(calls))
			}
		}
	}
	t.Run("refusals are values", s.hostRefusals)
	t.Run("floods", s.hostFlood)
	t.Run("waiting", s.hostWaits)
}

func (s *suite) hostRefusals(t *testing.T) {
	long := `{"scope":"session","key":"` + strings.Repeat("k", hostabi.MaxArgumentBytes) + `"}`
	for _, c := range []struct {
		argument any
		code     string
	}{
		{"", hostabi.CodeInvalid},
		{"7", hostabi.CodeInvalid},
		{"[]", hostabi.CodeInvalid},
		{"null", hostabi.CodeInvalid},
		{`{"scope":"mine"}`, hostabi.CodeInvalid},
		{long, hostabi.CodeTooLarge},
		{`{"scope":"session"}`, hostabi.CodeConflict},
	} {
		p := s.hosted(t, "host-calls", config{"function": "g", "argument": c.argument}, 0)
		_, calls, err := asked(t, p, host(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, &dsh.HostError{Code: hostabi.CodeConflict, Message: "another was faster"}
		}))
		var f *dsh.Fault
		if !errors.As(err, &f) || f.Kind != dsh.FaultSchema { // a refusal is no decision
			t.Errorf("%.40v: %v", c.argument, err)
		}
		var refusal hostabi.Refusal
		if len(calls) != 1 || json.Unmarshal(calls[0].Answer, &refusal) != nil || refusal.Err.Code != c.code || refusal.Err.Message == "" {
			t.Errorf("%.40v: %+v; want the code %s", c.argument, calls, c.code)
		}
	}
}

// hostFlood: a guest has so many calls and no more, whatever it calls with.
func (s *suite) hostFlood(t *testing.T) {
	for _, limit := range []int{1, 7, hostabi.MaxHostCalls} {
		p := s.hosted(t, "host-flood", config{}, limit)
		for range 2 {
			_, calls, err := asked(t, p, nil)
			var f *dsh.Fault
			if !errors.As(err, &f) || f.Kind != dsh.FaultHostCalls || !strings.Contains(f.Message, fmt.Sprint(limit)) {
				t.Fatalf("limit %d: %v", limit, err)
			}
			if len(calls) != limit {
				t.Errorf("limit %d: %d calls", limit, len(calls))
			}
		}
	}
}

// hostWaits: a host that does not answer is left, and the time that it took is
// not the guest's.
func (s *suite) hostWaits(t *testing.T) {
	p := s.hosted(t, "host-calls", config{"function": "e", "argument": "{}"}, 0)
	start := time.Now()
	_, calls, _ := asked(t, p, host(func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	if took := time.Since(start); took > late || len(calls) != 1 || !strings.Contains(string(calls[0].Answer), hostabi.CodeUnavailable) {
		t.Errorf("after %v: %+v", took, calls)
	}
}
