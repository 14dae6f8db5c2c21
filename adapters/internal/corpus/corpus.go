// Package corpus holds recorded provider responses and what each must become,
// for the tests of every adapter.
package corpus

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/dsh-agent/dsh"
)

//go:embed testdata/*.jsonl
var files embed.FS

// A Case is one response.
type Case struct {
	ID             string            `json:"id"`
	Provider       string            `json:"provider"`
	Wire           string            `json:"wire"`  // openai-chat, anthropic-messages, other
	Phase          string            `json:"phase"` // response, stream, connect
	Status         int               `json:"status"`
	Headers        map[string]string `json:"headers"`
	Body           string            `json:"body"`
	TransportError string            `json:"transportError"` // what ends the body, or the connection
	Expect         struct {
		Code       *dsh.Code     `json:"code"` // nil: a good answer
		RetryAfter *float64      `json:"providerRetryAfterMs"`
		RequestID  dsh.RequestID `json:"requestId"`
		Text       string        `json:"text"`
		ToolCalls  int           `json:"toolCalls"`
	} `json:"expect"`
	Why        string     `json:"why"`
	Ambiguous  bool       `json:"ambiguous"`
	Alt        []dsh.Code `json:"alt"` // "" is no failure
	Provenance string     `json:"provenance"`
	Family     string     `json:"family"`
}

// Load reads the cases of a file in testdata.
func Load(name string) ([]Case, error) {
	raw, err := files.ReadFile("testdata/" + name)
	if err != nil {
		return nil, err
	}
	var cases []Case
	for i, line := range bytes.Split(raw, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var c Case
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, i+1, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

var placeholder = regexp.MustCompile(`\$\{(HTTP_DATE|RFC3339|EPOCH|EPOCH_MS)\+(\d+)s\}`)

// At replaces the points in time of a case by ones after now.
func (c Case) At(now time.Time) Case {
	fill := func(s string) string {
		return placeholder.ReplaceAllStringFunc(s, func(m string) string {
			p := placeholder.FindStringSubmatch(m)
			n, _ := strconv.Atoi(p[2])
			t := now.Add(time.Duration(n) * time.Second).UTC()
			switch p[1] {
			case "HTTP_DATE":
				return t.Format(http.TimeFormat)
			case "RFC3339":
				return t.Format(time.RFC3339)
			case "EPOCH":
				return strconv.FormatInt(t.Unix(), 10)
			}
			return strconv.FormatInt(t.UnixMilli(), 10)
		})
	}
	headers := map[string]string{}
	for k, v := range c.Headers {
		headers[k] = fill(v)
	}
	c.Headers, c.Body = headers, fill(c.Body)
	return c
}

// Header is the case's, as net/http has it.
func (c Case) Header() http.Header {
	h := http.Header{}
	for k, v := range c.Headers {
		h.Set(k, v)
	}
	return h
}

// Dated reports whether the case has a point in time, which is to the second.
func (c Case) Dated() bool {
	for _, v := range c.Headers {
		if placeholder.MatchString(v) {
			return true
		}
	}
	return placeholder.MatchString(c.Body)
}

// Check compares a failure, nil for none, with what the case expects, and says
// what is wrong. dated is the slack for a point in time.
func (c Case) Check(f *dsh.Failure, dated bool) []string {
	var wrong []string
	code := dsh.Code("")
	if f != nil {
		code = f.Code
	}
	want := dsh.Code("")
	if c.Expect.Code != nil {
		want = *c.Expect.Code
	}
	if code != want && !(c.Ambiguous && (slices.Contains(c.Alt, code) || code == "" && len(c.Alt) == 0)) {
		wrong = append(wrong, fmt.Sprintf("code %q, want %q", code, want))
	}
	if f == nil {
		return wrong
	}
	got, wait, slack := dsh.Millis(f.RetryAfter), 0.0, 1.0
	if c.Expect.RetryAfter != nil {
		wait = *c.Expect.RetryAfter
	}
	if dated {
		slack = 1600
	}
	if (wait > 0 || !c.Ambiguous) && (got < wait-slack || got > wait+slack) {
		wrong = append(wrong, fmt.Sprintf("wait %v ms, want %v", got, wait))
	}
	if c.Expect.RequestID != "" && f.RequestID != c.Expect.RequestID {
		wrong = append(wrong, fmt.Sprintf("request id %q, want %q", f.RequestID, c.Expect.RequestID))
	}
	return wrong
}
