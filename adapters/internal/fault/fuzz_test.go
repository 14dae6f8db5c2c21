package fault_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
)

// sound checks what holds for every verdict.
func sound(t *testing.T, e fault.Evidence) fault.Verdict {
	t.Helper()
	v := fault.Classify(e)
	f := v.Failure
	switch {
	case !slices.Contains(dsh.Codes(), f.Code):
		t.Fatalf("the code %q", f.Code)
	case f.RetryAfter < 0 || f.RetryAfter > 10*366*24*time.Hour:
		t.Fatalf("a wait of %v", f.RetryAfter)
	case f.Message == "" || len(f.Message) > 2100 || !utf8.ValidString(f.Message):
		t.Fatalf("the message %q", f.Message)
	case strings.ContainsFunc(f.Message, func(c rune) bool { return c < ' ' || c >= 0x7f && c < 0xa0 }):
		t.Fatalf("control characters in %q", f.Message)
	case len(f.RequestID) > 256 || strings.ContainsFunc(string(f.RequestID), func(c rune) bool { return c <= ' ' || c > '~' }):
		t.Fatalf("the request id %q", f.RequestID)
	case f.Status != 0 && (f.Status < 100 || f.Status > 599):
		t.Fatalf("the status %d", f.Status)
	case v.Rule == "":
		t.Fatal("no rule")
	}
	if _, err := json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzClassify unwraps whatever a body may hold, the same way every time.
func FuzzClassify(f *testing.F) {
	file, err := os.Open("testdata/wordings.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var w wording
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			f.Fatal(err)
		}
		f.Add(w.Status, []byte(w.Body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		e := fault.Evidence{Status: status, Body: body, Now: now}
		first := sound(t, e)
		if again := sound(t, e); again.Rule != first.Rule || *again.Failure != *first.Failure {
			t.Fatalf("two verdicts: %+v by %s, %+v by %s", first.Failure, first.Rule, again.Failure, again.Rule)
		}
	})
}

// FuzzRetryAfter holds the header to what it may mean.
func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "1.5", "0", "-3", "+3", "soon", "NaN", "Inf", "1e9", "0x10", "1_000", " 7 ", "99999999999999999999", "Wed, 21 Oct 2015 07:28:00 GMT",
		"Sun, 01 Mar 2026 12:00:30 GMT", "Sunday, 01-Mar-26 12:00:30 GMT", "Sun Mar  1 12:00:30 2026", "2026-03-01T12:00:30Z", "1,5", "5, 6", "5s", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		v := sound(t, fault.Evidence{Status: 429, Header: http.Header{"Retry-After": {value}}, Now: now})
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return
		}
		// A number is so many seconds, or nothing: no date, no guess.
		if got := v.Failure.RetryAfter.Seconds(); got != 0 && (got < n-1e-6*n-1e-9 || got > n+1e-6*n+1e-9) {
			t.Fatalf("%q gives %v", value, v.Failure.RetryAfter)
		}
	})
}

// FuzzResets reads the headers of exhausted limits.
func FuzzResets(f *testing.F) {
	for _, s := range []string{"1s", "6m0s", "1m26.4s", "120ms", "20", "1772366430", "1772366430000", "2026-03-01T12:00:30Z", "1d2h3m", "-1s", "1h1", "9999999h", ""} {
		f.Add("0", s)
	}
	f.Fuzz(func(t *testing.T, remaining, reset string) {
		for _, h := range []http.Header{
			{"X-Ratelimit-Remaining-Tokens": {remaining}, "X-Ratelimit-Reset-Tokens": {reset}},
			{"Anthropic-Ratelimit-Tokens-Remaining": {remaining}, "Anthropic-Ratelimit-Tokens-Reset": {reset}},
			{"Ratelimit": {remaining + reset}},
		} {
			v := sound(t, fault.Evidence{Status: 429, Header: h, Now: now})
			if n, err := strconv.ParseFloat(remaining, 64); err == nil && n > 0 && h["Ratelimit"] == nil && v.Failure.RetryAfter != 0 {
				t.Fatalf("%q remain, and a wait of %v", remaining, v.Failure.RetryAfter)
			}
		}
	})
}

// FuzzSpoken reads waits in messages and in fields.
func FuzzSpoken(f *testing.F) {
	for _, s := range []string{"1.898s", "9m38.016s", "58 hours", "1 seconds", "20m", "1 minute and 20 seconds", "6ms", "a few minutes", "-5s", "1e9 s", "99999999999 days", "0s", "3 m", "5 monkeys", "1h 2m", "1hour"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, body := range []string{
			"rate limit, please try again in " + s,
			"rate limit, retry after " + s + ".",
			"请在" + s + "秒后重试",
		} {
			sound(t, fault.Evidence{Status: 429, Body: []byte(body), Now: now})
		}
		for _, field := range []string{"retry_after", "retry_after_ms", "resets_at", "resets_in_seconds"} {
			raw, err := json.Marshal(map[string]any{"error": map[string]any{field: s, "details": []any{map[string]any{"@type": "x/google.rpc.RetryInfo", "retryDelay": s}}}})
			if err != nil {
				t.Fatal(err)
			}
			sound(t, fault.Evidence{Status: 429, Body: raw, Now: now})
		}
	})
}

func TestSpokenWaits(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"Please try again in 1.898s.":                                           1898 * time.Millisecond,
		"Please try again in 9m38.016s. Need more?":                             9*time.Minute + 38016*time.Millisecond,
		"Please try again in 20m. Visit":                                        20 * time.Minute,
		"Please try again in 6ms.":                                              6 * time.Millisecond,
		"Please try again in 1h12m0s":                                           72 * time.Minute,
		"resets in 58 hours":                                                    58 * time.Hour,
		"Try again in 60 seconds. Passed model=x":                               time.Minute,
		"please try again after 1 seconds":                                      time.Second,
		"Please retry after 45 seconds.":                                        45 * time.Second,
		"Please wait 12 seconds before retrying.":                               12 * time.Second,
		"Please wait for 1 minute and 30 seconds":                               90 * time.Second,
		"Please retry in 34.5s.":                                                34500 * time.Millisecond,
		"You can retry in about 5 minutes":                                      5 * time.Minute,
		"Retry-After: 30":                                                       30 * time.Second,
		"retry after 30":                                                        30 * time.Second,
		"Your quota will reset after 2d3h":                                      51 * time.Hour,
		"available again in 2 days":                                             48 * time.Hour,
		"请30秒后重试":                                                               30 * time.Second,
		"请在 2 分钟后再试":                                                            2 * time.Minute,
		"Your limit will reset at 2026-03-01T12:00:30Z":                         30 * time.Second,
		"Your limit will reset at 2026-03-01T14:00:30+02:00":                    30 * time.Second,
		"Your limit will reset at 2026-03-01 12:00:30":                          0,
		"Please try again in a few minutes":                                     0,
		"Please try again later":                                                0,
		"created within the last 5 minutes, please wait a moment and try again": 0,
		"Limit 10 per 60s exceeded":                                             0,
		"8 requests per second. Please retry later.":                            0,
		"Please try again in 0s":                                                0,
		"Please try again in 99999999 days":                                     0,
		"try again with 5 messages":                                             0,
		"retry your request in 2 of 3 regions":                                  0,
	} {
		v := fault.Classify(fault.Evidence{Status: 429, Body: []byte(text), Now: now})
		if v.Failure.RetryAfter != want {
			t.Errorf("%q: %v, want %v", text, v.Failure.RetryAfter, want)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{429, "", "the provider answered HTTP 429 Too Many Requests"},
		{500, "{}", "the provider answered HTTP 500 Internal Server Error"},
		{200, "{}", "the provider reported an error without saying which (HTTP 200)"},
		{500, `{"error":{"message":"  two\n\tlines \u001b[31m red\u0000 "}}`, "two lines [31m red"},
		{502, "<html><head><title>502 Bad &amp; Gateway</title></head>", "an HTML page: 502 Bad & Gateway"},
		{502, "<html>", "an HTML page"},
		{400, `{"error":{"type":"some_type"}}`, "the provider answered some_type (HTTP 400)"},
		{502, `{"error":{"message":"Provider returned error","metadata":{"raw":"{\"error\":{\"message\":\"the truth\"}}"}}}`, "the truth"},
		{502, `{"error":{"message":"Provider returned error"}}`, "Provider returned error"},
		{400, "a\u202eb\u200bc", "abc"},
		{503, "no healthy upstream", "no healthy upstream"},
	} {
		if v := fault.Classify(fault.Evidence{Status: c.status, Body: []byte(c.body)}); v.Failure.Message != c.want {
			t.Errorf("%s: %q, want %q", c.body, v.Failure.Message, c.want)
		}
	}
	long := fault.Clean(strings.Repeat("ü", 5000))
	if len(long) > 2010 || !utf8.ValidString(long) || !strings.HasSuffix(long, " …") {
		t.Errorf("a long message of %d bytes: …%q", len(long), long[len(long)-10:])
	}
}

func TestRedactor(t *testing.T) {
	r := fault.NewRedactor("sk-secret", "", "abc")
	f := &dsh.Failure{Message: "the key sk-secret of abc", RequestID: "x-sk-secret", Cause: dsh.Code("sk-secret")}
	g := r.Failure(f)
	if g.Message != "the key [redacted] of abc" || g.RequestID != "" || g.Cause != nil {
		t.Errorf("got %+v", g)
	}
	if f.RequestID == "" || f.Cause == nil {
		t.Error("the failure that was given was changed")
	}
	clean := &dsh.Failure{Message: "m", RequestID: "r", Cause: dsh.CodeServer}
	if g := r.Failure(clean); *g != *clean {
		t.Errorf("got %+v", g)
	}
}
