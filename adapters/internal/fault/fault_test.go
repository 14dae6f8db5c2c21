package fault_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
)

// A wording is a line of testdata/wordings.jsonl: what a provider said, and
// what it must become.
type wording struct {
	Code      dsh.Code          `json:"code"`
	Or        []dsh.Code        `json:"or"` // other codes that would do
	Status    int               `json:"status"`
	Headers   map[string]string `json:"headers"`
	Body      string            `json:"body"`
	WaitMs    float64           `json:"waitMs"`
	RequestID dsh.RequestID     `json:"requestId"`
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

var later = regexp.MustCompile(`\$\{(\w+)\+(\d+)s\}`)

// fill replaces the points in time by ones after now.
func fill(s string) string {
	return later.ReplaceAllStringFunc(s, func(m string) string {
		p := later.FindStringSubmatch(m)
		n, _ := strconv.Atoi(p[2])
		t := now.Add(time.Duration(n) * time.Second)
		switch p[1] {
		case "RFC3339":
			return t.Format(time.RFC3339)
		case "HTTP_DATE":
			return t.Format(http.TimeFormat)
		}
		return strconv.FormatInt(t.UnixMilli(), 10)
	})
}

func TestWordings(t *testing.T) {
	raw, err := os.ReadFile("testdata/wordings.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var w wording
		if err := json.Unmarshal(line, &w); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		h := http.Header{}
		for k, v := range w.Headers {
			h.Set(k, fill(v))
		}
		v := fault.Classify(fault.Evidence{Status: w.Status, Header: h, Body: []byte(fill(w.Body)), Now: now})
		f := v.Failure
		if f.Code != w.Code && !slices.Contains(w.Or, f.Code) {
			t.Errorf("line %d: %s (by %s), want %s: %d %s", i+1, f.Code, v.Rule, w.Code, w.Status, w.Body)
		}
		if got := dsh.Millis(f.RetryAfter); got != w.WaitMs {
			t.Errorf("line %d: a wait of %v ms, want %v: %v %s", i+1, got, w.WaitMs, w.Headers, w.Body)
		}
		if w.RequestID != "" && f.RequestID != w.RequestID {
			t.Errorf("line %d: request id %q, want %q", i+1, f.RequestID, w.RequestID)
		}
		if v.Rule == "" || f.Message == "" {
			t.Errorf("line %d: rule %q, message %q", i+1, v.Rule, f.Message)
		}
	}
}
