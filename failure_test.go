package dsh_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

func TestCodes(t *testing.T) {
	transient := map[dsh.Code]bool{
		dsh.CodeRateLimit: true, dsh.CodeServer: true, dsh.CodeTimeout: true, dsh.CodeTransport: true, dsh.CodeEmptyResponse: true,
	}
	seen := map[dsh.Code]bool{}
	for _, c := range dsh.Codes() {
		if seen[c] {
			t.Errorf("%s twice", c)
		}
		seen[c] = true
		if c.Transient() != transient[c] {
			t.Errorf("%s: transient %v", c, c.Transient())
		}
		if c.Error() != string(c) || c.Error() != strings.ToUpper(c.Error()) {
			t.Errorf("%s: %q", c, c.Error())
		}
	}
	if len(seen) != 13 {
		t.Errorf("%d codes: a new one needs fixtures for each adapter and a decision on the default policy", len(seen))
	}
	if dsh.Code("NEW").Transient() || dsh.Code("").Transient() {
		t.Error("an unknown code is transient")
	}
}

func TestFailureJSON(t *testing.T) {
	for _, c := range []struct {
		f    dsh.Failure
		want string
	}{
		{dsh.Failure{}, `{"message":"","code":""}`},
		{dsh.Failure{Message: "slow <down> & wait", Code: dsh.CodeRateLimit, Status: 429, RetryAfter: 1500 * time.Millisecond, RequestID: "req_1"},
			`{"message":"slow <down> & wait","code":"RATE_LIMIT","status":429,"providerRetryAfterMs":1500,"requestId":"req_1"}`},
		{dsh.Failure{Message: "x", Code: dsh.CodeServer, RetryAfter: 1234567 * time.Nanosecond}, `{"message":"x","code":"SERVER","providerRetryAfterMs":1.234567}`},
		{dsh.Failure{Message: "x", Code: dsh.CodeServer, RetryAfter: -time.Second}, `{"message":"x","code":"SERVER"}`},
		{dsh.Failure{Message: "x", Code: dsh.CodeUnknown, Cause: io.EOF}, `{"message":"x","code":"UNKNOWN"}`},
	} {
		for _, v := range []any{c.f, &c.f} {
			if got, err := json.Marshal(v); err != nil || string(got) != escaped(c.want) {
				t.Errorf("%+v: %s %v, want %s", c.f, got, err, c.want)
			}
		}
		got, err := dsh.JSON(c.f)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s %v, want %s", c.f, got, err, c.want)
		}
		var back dsh.Failure
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		c.f.Cause, c.f.RetryAfter = nil, max(c.f.RetryAfter, 0)
		if !reflect.DeepEqual(back, c.f) {
			t.Errorf("%s is read as %+v", got, back)
		}
	}
}

// escaped is JSON as encoding/json writes it around a Marshaler.
func escaped(s string) string {
	return strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(s)
}

func TestFailureJSONReads(t *testing.T) {
	for raw, want := range map[string]dsh.Failure{
		`{"code":"SERVER","providerRetryAfterMs":-5}`:                     {Code: dsh.CodeServer},
		`{"code":"SERVER","providerRetryAfterMs":0}`:                      {Code: dsh.CodeServer},
		`{"code":"SERVER","providerRetryAfterMs":null}`:                   {Code: dsh.CodeServer},
		`{"code":"SERVER","providerRetryAfterMs":1e300}`:                  {Code: dsh.CodeServer, RetryAfter: math.MaxInt64},
		`{"code":"OF_TOMORROW","status":599,"later":{"a":1},"cause":"x"}`: {Code: "OF_TOMORROW", Status: 599},
	} {
		var f dsh.Failure
		if err := json.Unmarshal([]byte(raw), &f); err != nil || !reflect.DeepEqual(f, want) {
			t.Errorf("%s: %+v %v", raw, f, err)
		}
	}
	for _, raw := range []string{`[]`, `{"status":"429"}`, `{"code":7}`, `{`} {
		if err := json.Unmarshal([]byte(raw), &dsh.Failure{}); err == nil {
			t.Errorf("%s is read", raw)
		}
	}
}

func TestFailureIs(t *testing.T) {
	cause := errors.New("the wire's own")
	f := &dsh.Failure{Code: dsh.CodeTransport, Message: "reset", Cause: fmt.Errorf("read: %w", cause)}
	err := fmt.Errorf("attempt 2: %w", f)
	switch {
	case !errors.Is(err, dsh.CodeTransport), errors.Is(err, dsh.CodeServer), !errors.Is(err, cause), errors.Is(err, io.EOF):
		t.Error("errors.Is")
	case dsh.AsFailure(err) != f:
		t.Error("AsFailure")
	}
	if got := f.Error(); got != "TRANSPORT: reset" {
		t.Errorf("%q", got)
	}
	f.Status = 502
	if got := f.Error(); got != "TRANSPORT (HTTP 502): reset" {
		t.Errorf("%q", got)
	}
}

type silentError struct{}

func (silentError) Error() string { return "" }

func TestAsFailure(t *testing.T) {
	if dsh.AsFailure(nil) != nil {
		t.Error("nil")
	}
	f := &dsh.Failure{Code: dsh.CodeAuth, Message: "no"}
	if dsh.AsFailure(f) != f || dsh.AsFailure(errors.Join(io.EOF, f)) != f {
		t.Error("a failure keeps its identity")
	}
	for _, err := range []error{io.EOF, silentError{}, (*dsh.Failure)(nil), fmt.Errorf("wrapped: %w", (*dsh.Failure)(nil)), dsh.CodeServer} {
		got := dsh.AsFailure(err)
		if got == nil || got.Code != dsh.CodeUnknown || got.Message == "" {
			t.Errorf("%T: %+v", err, got)
			continue
		}
		if got.Error() == "" || errors.Is(got, dsh.CodeAuth) {
			t.Errorf("%T: %q", err, got.Error())
		}
	}
	if got := dsh.AsFailure(io.EOF); !errors.Is(got, io.EOF) || got.Message != "EOF" {
		t.Errorf("%+v", got)
	}
}

func TestMillis(t *testing.T) {
	for _, c := range []struct {
		ms   float64
		want time.Duration
	}{
		{0, 0}, {-1, 0}, {math.NaN(), 0}, {math.Inf(-1), 0}, {-math.SmallestNonzeroFloat64, 0}, {math.SmallestNonzeroFloat64, 0},
		{1, time.Millisecond}, {0.5, 500 * time.Microsecond}, {547.7, 547700 * time.Microsecond},
		{0.000001, 1}, {0.0000005, 1}, {0.0000004, 0}, {math.MaxInt32, math.MaxInt32 * time.Millisecond},
		{math.Inf(1), math.MaxInt64}, {math.MaxFloat64, math.MaxInt64}, {9223372036855, math.MaxInt64}, {9007199254, 9007199254 * time.Millisecond},
	} {
		if got := dsh.FromMillis(c.ms); got != c.want {
			t.Errorf("FromMillis(%v) = %d, want %d", c.ms, got, c.want)
		}
	}
	for _, d := range []time.Duration{0, 1, 999, time.Microsecond, time.Millisecond + 1, time.Second, 24 * 24 * time.Hour, 100 * 365 * 24 * time.Hour / 100} {
		if got := dsh.FromMillis(dsh.Millis(d)); got != d {
			t.Errorf("%v comes back as %v", d, got)
		}
	}
}

func FuzzFailureJSON(f *testing.F) {
	f.Add([]byte(`{"message":"m","code":"SERVER","status":500,"providerRetryAfterMs":1.5,"requestId":"r"}`))
	f.Add([]byte(`{"message":"\ud800","providerRetryAfterMs":1e308}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var one, two dsh.Failure
		if json.Unmarshal(raw, &one) != nil {
			return
		}
		if one.RetryAfter < 0 {
			t.Fatalf("a wait of %v", one.RetryAfter)
		}
		line, err := dsh.JSON(one)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &two); err != nil {
			t.Fatal(err)
		}
		if d := one.RetryAfter - two.RetryAfter; d.Abs() > one.RetryAfter>>50 { // a float64 has 53 bits
			t.Errorf("%v becomes %v", one.RetryAfter, two.RetryAfter)
		}
		one.RetryAfter, two.RetryAfter = 0, 0
		if !reflect.DeepEqual(one, two) {
			t.Errorf("%+v becomes %+v", one, two)
		}
	})
}
