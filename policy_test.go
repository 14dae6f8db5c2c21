package dsh_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
)

func TestRetryPolicyKey(t *testing.T) {
	normal := dsh.RetryPolicy{
		Mode: dsh.ModeNormal, MaxRetries: 2, RetryableCodes: []dsh.Code{dsh.CodeServer, dsh.CodeRateLimit},
		InitialDelayMs: 500, MaxDelayMs: 10000,
	}
	always := dsh.RetryPolicy{Mode: dsh.ModeAlways, MaxRetries: 7, RetryableCodes: []dsh.Code{dsh.CodeServer}, InitialDelayMs: 500, MaxDelayMs: 10000, JitterRatio: 0.1}
	none, broken := normal, normal
	none.RetryableCodes = nil
	broken.JitterRatio = math.NaN()
	for _, c := range []struct {
		p    dsh.RetryPolicy
		want string
	}{
		{normal, `["normal",2,["RATE_LIMIT","SERVER"],500,10000,0]`},
		{always, `["always",500,10000,0.1]`},
		{none, `["normal",2,[],500,10000,0]`},
		{dsh.DefaultRetryPolicy(), `["normal",5,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],500,10000,0.1]`},
		{dsh.RetryPolicy{Mode: dsh.ModeAlways, InitialDelayMs: 0.5, MaxDelayMs: dsh.MaxDelayMs, JitterRatio: 1}, `["always",0.5,2147483647,1]`},
		{dsh.RetryPolicy{Mode: dsh.ModeNormal, MaxRetries: 1<<53 - 1, InitialDelayMs: 1, MaxDelayMs: 1}, `["normal",9007199254740991,[],1,1,0]`},
	} {
		if got := c.p.Key(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.p, got, c.want)
		}
	}
	if got := normal.RetryableCodes[0]; got != dsh.CodeServer {
		t.Error("Key sorts the policy's own codes")
	}
	if broken.Key() == "" || broken.Key() == normal.Key() {
		t.Errorf("%q", broken.Key())
	}
}

func TestRetryPolicyJSON(t *testing.T) {
	for _, c := range []struct {
		p    dsh.RetryPolicy
		want string
	}{
		{dsh.DefaultRetryPolicy(), `{"key":"[\"normal\",5,[\"EMPTY_RESPONSE\",\"RATE_LIMIT\",\"SERVER\",\"TIMEOUT\",\"TRANSPORT\"],500,10000,0.1]","mode":"normal","maxRetries":5,"retryableCodes":["EMPTY_RESPONSE","RATE_LIMIT","SERVER","TIMEOUT","TRANSPORT"],"initialDelayMs":500,"maxDelayMs":10000,"jitterRatio":0.1}`},
		{dsh.RetryPolicy{Mode: dsh.ModeNormal, RetryableCodes: []dsh.Code{dsh.CodeServer}, InitialDelayMs: 1, MaxDelayMs: 2}, `{"key":"[\"normal\",0,[\"SERVER\"],1,2,0]","mode":"normal","maxRetries":0,"retryableCodes":["SERVER"],"initialDelayMs":1,"maxDelayMs":2,"jitterRatio":0}`},
		{dsh.RetryPolicy{Mode: dsh.ModeAlways, InitialDelayMs: 1, MaxDelayMs: 2, JitterRatio: 0.25}, `{"key":"[\"always\",1,2,0.25]","mode":"always","initialDelayMs":1,"maxDelayMs":2,"jitterRatio":0.25}`},
	} {
		got, err := dsh.JSON(c.p)
		if err != nil || string(got) != c.want {
			t.Errorf("%s %v\nwant %s", got, err, c.want)
		}
		var back dsh.RetryPolicy
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, c.p) {
			t.Errorf("%s is read as %+v %v", got, back, err)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestDecisionJSON(t *testing.T) {
	for _, c := range []struct {
		d    dsh.Decision
		want string
	}{
		{dsh.Decision{Kind: dsh.KindDelegate}, `{"kind":"delegate"}`},
		{dsh.Decision{Kind: dsh.KindRetry}, `{"kind":"retry","delayMs":0}`},
		{dsh.Decision{Kind: dsh.KindRetry, DelayMs: 547.7, Mode: dsh.ModeNormal, MaxRetries: ptr(int64(0)), PolicyKey: "k", Repairs: []json.RawMessage{[]byte(`{"kind":"prune"}`)}, Reason: "why"},
			`{"kind":"retry","delayMs":547.7,"mode":"normal","maxRetries":0,"policyKey":"k","repairs":[{"kind":"prune"}],"reason":"why"}`},
		{dsh.Decision{Kind: dsh.KindDelegate, Reason: "others first", Fallback: &dsh.Decision{Kind: dsh.KindRetry, DelayMs: 5, Mode: dsh.ModeAlways}},
			`{"kind":"delegate","reason":"others first","fallback":{"kind":"retry","delayMs":5,"mode":"always"}}`},
	} {
		got, err := dsh.JSON(c.d)
		if err != nil || string(got) != c.want {
			t.Errorf("%s %v\nwant %s", got, err, c.want)
		}
		back, err := dsh.ParseDecision(got)
		if err != nil || !reflect.DeepEqual(back, c.d) {
			t.Errorf("%s is read as %+v %v", got, back, err)
		}
	}
}

func TestParseDecision(t *testing.T) {
	for raw, want := range map[string]string{ // "": it is good
		`{"kind":"delegate"}`:                                                        "",
		`{"kind":"delegate","delayMs":-5,"maxRetries":-1}`:                           "",
		`{"kind":"delegate","fallback":null}`:                                        "",
		`{"kind":"retry","delayMs":0}`:                                               "",
		`{"kind":"retry","delayMs":-0.0}`:                                            "",
		`{"kind":"retry","delayMs":2147483647}`:                                      "",
		`{"kind":"retry","delayMs":1e3,"unknown":[{}],"later":1}`:                    "",
		`{"kind":"retry","delayMs":1,"mode":"always","maxRetries":9007199254740991}`: "",
		`{"kind":"retry","delayMs":1,"maxRetries":5.0}`:                              "",
		`{"kind":"retry","delayMs":1,"maxRetries":1e2}`:                              "",
		` {"kind":"retry","delayMs":1} `:                                             "",

		``:                                 "not a decision",
		`nonsense`:                         "not a decision",
		`[]`:                               "not a decision",
		`"retry"`:                          "not a decision",
		`{"kind":"retry","delayMs":1} {}`:  "not a decision",
		`{"kind":7}`:                       "not a decision",
		`{"kind":"retry","delayMs":"1"}`:   "not a decision",
		`{"kind":"retry","delayMs":1e999}`: "not a decision",
		`{"kind":"retry","delayMs":1,"maxRetries":2.5}`: "no whole number",
		`{"kind":"retry","delayMs":1,"maxRetries":"5"}`: "not a decision",
		`{"kind":"retry","delayMs":1,"repairs":{}}`:     "not a decision",
		`null`:                              "neither retry nor delegate",
		`{}`:                                "neither retry nor delegate",
		`{"kind":"proceed"}`:                "neither retry nor delegate",
		`{"kind":"Retry","delayMs":1}`:      "neither retry nor delegate",
		`{"kind":"retry"}`:                  "without delayMs",
		`{"kind":"retry","delayMs":null}`:   "without delayMs",
		`{"kind":"retry","delayMs":-0.001}`: "is not from 0",
		`{"kind":"retry","delayMs":2147483647.5}`:                      "is not from 0",
		`{"kind":"retry","delayMs":1,"mode":"never"}`:                  "neither normal nor always",
		`{"kind":"retry","delayMs":1,"maxRetries":-1}`:                 "maxRetries",
		`{"kind":"retry","delayMs":1,"maxRetries":1e16}`:               "maxRetries",
		`{"kind":"retry","delayMs":1,"maxRetries":1e300}`:              "maxRetries",
		`{"kind":"delegate","fallback":{"kind":"delegate"}}`:           "which is not retry",
		`{"kind":"delegate","fallback":{"kind":"retry"}}`:              "without delayMs",
		`{"kind":"delegate","fallback":{"kind":"retry","delayMs":-1}}`: "is not from 0",
	} {
		_, err := dsh.ParseDecision([]byte(raw))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", raw, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q", raw, err, want)
		}
	}
}

func TestNativePolicy(t *testing.T) {
	p := dsh.NativePolicy("mine", func(in dsh.RecoverInput) dsh.Decision {
		if in.Failure.Code != dsh.CodeServer {
			return dsh.Decision{Kind: "odd"}
		}
		return dsh.Decision{Kind: dsh.KindRetry, DelayMs: 10}
	})
	v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: json.RawMessage(`{"failure":{"code":"SERVER"}}`)})
	if err != nil || v.Decision.DelayMs != 10 || string(v.Raw) != `{"kind":"retry","delayMs":10}` {
		t.Errorf("%+v %v", v, err)
	}
	for input, kind := range map[string]dsh.FaultKind{`{"failure":{"code":"AUTH"}}`: dsh.FaultSchema, `[]`: dsh.FaultSchema} {
		var f *dsh.Fault
		if _, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: json.RawMessage(input)}); !errors.As(err, &f) || f.Kind != kind {
			t.Errorf("%s: %v", input, err)
		}
	}
	var f *dsh.Fault
	if _, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookBeforeStep, Input: json.RawMessage(`{}`)}); !errors.As(err, &f) || f.Kind != dsh.FaultUnavailable {
		t.Errorf("%v", err)
	}
	if i := p.Info(); i.Name != "mine" || len(i.Digest) != 64 || i.Ref() != (dsh.PolicyRef{Name: "mine", Digest: i.Digest, ConfigSHA256: i.ConfigSHA256}) {
		t.Errorf("%+v", i)
	}
	list, changed := dsh.FixedWaterfall{p}.Policies()
	select {
	case <-changed:
		t.Error("a fixed waterfall changed")
	default:
	}
	if len(list) != 1 {
		t.Errorf("%d policies", len(list))
	}
}

func TestFault(t *testing.T) {
	cause := errors.New("wasm trap")
	err := fmt.Errorf("policy retry: %w", &dsh.Fault{Kind: dsh.FaultTrap, Message: "unreachable", Cause: cause})
	if !errors.Is(err, cause) || err.Error() != "policy retry: trap: unreachable" {
		t.Errorf("%v", err)
	}
}

func FuzzDecision(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"retry","delayMs":547.7,"mode":"normal","maxRetries":5,"policyKey":"k","repairs":[{"kind":"prune"}],"reason":"r"}`,
		`{"kind":"delegate","fallback":{"kind":"retry","delayMs":1}}`, `{"kind":"retry","delayMs":1e400}`, `{"maxRetries":9.3e18}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := dsh.ParseDecision(raw)
		if err != nil {
			return
		}
		r := d
		if d.Fallback != nil && d.Kind == dsh.KindDelegate {
			r = *d.Fallback
		}
		if r.Kind == dsh.KindRetry && (!(r.DelayMs >= 0) || r.DelayMs > dsh.MaxDelayMs || r.MaxRetries != nil && (*r.MaxRetries < 0 || *r.MaxRetries > 1<<53-1)) {
			t.Errorf("%s is good: %+v", raw, r)
		}
		roundTrip[dsh.RetryPolicy](t, raw)
		if line, err := dsh.JSON(d); err == nil {
			if back, err := dsh.ParseDecision(line); err != nil || back.Kind != d.Kind || back.DelayMs != d.DelayMs && d.Kind == dsh.KindRetry {
				t.Errorf("%s becomes %+v, %v", line, back, err)
			}
		}
	})
}

// TestAFallbackHasNone: a fallback within a fallback is not read. Each that was
// would take another walk over all within it: seconds for the 64 KiB of an output.
func TestAFallbackHasNone(t *testing.T) {
	const depth = 1500
	raw := `{"kind":"delegate","fallback":` + strings.Repeat(`{"kind":"retry","delayMs":7,"fallback":`, depth) + "null" + strings.Repeat("}", depth+1)
	d, err := dsh.ParseDecision([]byte(raw))
	if err != nil || d.Fallback == nil || d.Fallback.DelayMs != 7 || d.Fallback.Fallback != nil {
		t.Errorf("%v %+v", err, d.Fallback)
	}
}
