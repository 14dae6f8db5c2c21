package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A report is what a body says, without its wrappings.
type report struct {
	words    []word   // codes, types and status words, the innermost first
	texts    []string // messages, the outermost first
	stated   int      // the HTTP status that the body states; 0: none
	vendor   string   // which vendor's numbers the numeric words are, where the shape tells; "" otherwise
	quotas   []quota  // Google's
	waits    []waitField
	headers  http.Header // of an upstream, as a router passes them on
	id       string      // a request id
	traced   string      // an id of less worth than a header's
	html     bool
	plain    string // the body, where it is no JSON
	limitHit string // the dimension that an error's type names as exhausted: tokens, requests

	lower []string // texts, as the wordings want them
}

// A word is one code, type or status word, and how deep it was found.
type word struct {
	norm  string // lower case letters and digits only
	raw   string
	depth int
}

// A quota is one violation in a google.rpc.QuotaFailure.
type quota struct{ id, value string }

// A waitField is a field of a body that holds a wait.
type waitField struct{ name, value string }

// The bounds of unwrapping. No real error comes near them; a hostile one stops
// there.
const (
	maxDepth = 12
	maxWords = 64
	maxTexts = 32
)

// unwrap finds out what a body says.
func unwrap(e Evidence) *report {
	r := &report{}
	if t := e.Header.Get("x-amzn-errortype"); t != "" {
		r.word(t, 1)
	}
	body := bytes.TrimSpace(bytes.TrimPrefix(e.Body, []byte("\xef\xbb\xbf")))
	switch {
	case len(body) == 0:
	case body[0] == '{' || body[0] == '[' || body[0] == '"':
		r.document(body)
	case body[0] == '<':
		r.html = true
		r.plain = title(body)
	default:
		r.plain = string(body)
		r.text(r.plain, 0)
	}
	// The innermost first; of one depth, in order of appearance.
	slices.SortStableFunc(r.words, func(a, b word) int { return b.depth - a.depth })
	return r
}

// document reads JSON, one value or several, whole or cut.
func (r *report) document(body []byte) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	for range 8 {
		v, err := partial(dec, 0)
		r.value(v, 0)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			// Cut or broken: what was read counts, and so does the tail.
			if at := int(dec.InputOffset()); at < len(body) {
				r.text(string(body[at:]), 1)
			}
			return
		}
	}
}

// partial decodes the next value, and returns what there is of it when the
// input ends or breaks in its middle.
func partial(dec *json.Decoder, depth int) (any, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if depth > 4*maxDepth {
		return nil, io.ErrUnexpectedEOF
	}
	if open == '[' {
		list := []any{}
		for dec.More() {
			v, err := partial(dec, depth+1)
			list = append(list, v)
			if err != nil {
				return list, cut(err)
			}
		}
		_, err := dec.Token()
		return list, cut(err)
	}
	var o object
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return o, cut(err)
		}
		v, err := partial(dec, depth+1)
		name, _ := k.(string)
		o = append(o, member{name, v})
		if err != nil {
			return o, cut(err)
		}
	}
	_, err = dec.Token()
	return o, cut(err)
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// An object is a JSON object with the order of its members, so that the same
// body gives the same verdict every time.
type object []member

type member struct {
	name  string
	value any
}

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// value takes a decoded value at a place where an error stands.
func (r *report) value(v any, depth int) {
	if depth > maxDepth {
		return
	}
	switch v := v.(type) {
	case object:
		r.object(v, depth)
	case []any:
		for i, e := range v {
			if i == maxTexts {
				return
			}
			r.value(e, depth)
		}
	case string:
		r.text(v, depth)
	}
}

// object takes the members of an error, or of what stands around one.
func (r *report) object(o object, depth int) {
	if t, _ := o.get("@type").(string); t != "" {
		r.detail(t, o, depth)
		return
	}
	r.recognise(o)
	for _, m := range o {
		switch place(m.name) {
		case isText:
			r.value(m.value, depth)
		case isWord:
			r.wordValue(m.value, depth)
		case isWrapping:
			r.value(m.value, depth+1)
		case isObject:
			if _, ok := m.value.(string); !ok {
				r.value(m.value, depth+1)
			}
		case isID:
			if s, ok := m.value.(string); ok && s != "" && r.id == "" {
				r.id = s
			}
		case isWait:
			r.waits = append(r.waits, waitField{m.name, scalar(m.value)})
		case isHeaders:
			r.upstream(m.value)
		}
	}
}

// recognise tells whose numbers the codes of an object are.
func (r *report) recognise(o object) {
	if _, ok := o.get("status_msg").(string); ok || o.get("http_code") != nil {
		r.vendor = "minimax" // on its own wire, and on Anthropic's
		return
	}
	code := scalar(o.get("code"))
	if len(code) == 4 && digits(code) && o.get("type") == nil && o.get("object") == nil && o.get("message") != nil && r.vendor == "" {
		r.vendor = "zhipu"
	}
}

// wordValue takes the value of a code, type or status.
func (r *report) wordValue(v any, depth int) {
	switch v := v.(type) {
	case string:
		r.word(v, depth)
	case json.Number:
		r.word(v.String(), depth)
	case object, []any:
		r.value(v, depth+1)
	}
}

func (r *report) word(s string, depth int) {
	if s == "" || len(s) > 256 || len(r.words) >= maxWords {
		return
	}
	// "ThrottlingException:http://…" is how AWS writes its types.
	if i := strings.Index(s, ":http"); i > 0 {
		s = s[:i]
	}
	if n, err := strconv.Atoi(s); err == nil && n >= 100 && n <= 599 {
		if r.stated == 0 || n != 200 {
			r.stated = n
		}
		return
	}
	switch s {
	case "tokens", "requests":
		r.limitHit = s
	}
	r.words = append(r.words, word{normal(s), s, depth})
	// "InternalError.Algo.DataInspectionFailed" and "limited:edu": the parts
	// may be known where the whole is not.
	if parts := strings.FieldsFunc(s, func(c rune) bool { return c == '.' || c == ':' || c == '/' }); len(parts) > 1 && !strings.Contains(s, " ") {
		for i := len(parts) - 1; i >= 0; i-- {
			r.words = append(r.words, word{normal(parts[i]), s, depth})
		}
	}
}

var (
	// className finds the exception classes that routers write into their
	// messages, as in "litellm.RateLimitError: …".
	className = lazily(`\b[A-Z][A-Za-z]{3,60}(?:Error|Exception|Failed)\b`)
	// pairs finds codes in JSON that was cut, or that Python printed.
	pairs = lazily(`['"](?:code|type|status|error_type)['"]: ?['"]([A-Za-z0-9_. -]{2,80})['"]`)
	// suffix finds MiniMax's code at the end of its message on Anthropic's wire.
	suffix   = lazily(`\((\d{4})\)$`)
	urls     = lazily(`https?://[^\s"'<>)\]]*`)
	idInText = lazily(`(?i)request[ _-]?id:?\s*[:=]?\s*"?([A-Za-z0-9_-]{8,80})`)
)

// text takes a message. A message that holds JSON is unwrapped as well.
func (r *report) text(s string, depth int) {
	s = strings.TrimSpace(s)
	if s == "" || len(r.texts) >= maxTexts {
		return
	}
	if s[0] == '{' || s[0] == '[' || s[0] == '"' {
		if json.Valid([]byte(s)) {
			if depth < maxDepth {
				dec := json.NewDecoder(strings.NewReader(s))
				dec.UseNumber()
				v, _ := partial(dec, 0)
				r.value(v, depth+1)
			}
			return
		}
	}
	if !slices.Contains(r.texts, s) {
		r.texts = append(r.texts, s)
	}
	if i := strings.Index(s, `{"`); i >= 0 && depth < maxDepth {
		dec := json.NewDecoder(strings.NewReader(s[i:]))
		dec.UseNumber()
		v, _ := partial(dec, 0)
		r.value(v, depth+1)
		s = s[:i]
	}
	for _, c := range className().FindAllString(s, 8) {
		r.word(c, depth)
	}
	if m := suffix().FindStringSubmatch(s); m != nil && r.vendor == "minimax" {
		r.word(m[1], depth)
	}
	for _, m := range pairs().FindAllStringSubmatch(s, 8) {
		r.word(m[1], depth+1)
	}
	if m := idInText().FindStringSubmatch(s); m != nil && r.traced == "" && strings.ContainsAny(m[1], "0123456789") {
		r.traced = m[1]
	}
}

// detail takes a google.rpc error detail.
func (r *report) detail(kind string, o object, depth int) {
	switch {
	case strings.HasSuffix(kind, "RetryInfo"):
		r.waits = append(r.waits, waitField{"retryDelay", scalar(o.get("retryDelay"))})
	case strings.HasSuffix(kind, "QuotaFailure"):
		list, _ := o.get("violations").([]any)
		for _, v := range list {
			v, _ := v.(object)
			if len(r.quotas) < maxTexts {
				id := scalar(v.get("quotaId"))
				if id == "" {
					id = scalar(v.get("subject"))
				}
				r.quotas = append(r.quotas, quota{id, scalar(v.get("quotaValue"))})
			}
		}
	case strings.HasSuffix(kind, "ErrorInfo"):
		r.wordValue(o.get("reason"), depth+1)
		about, _ := o.get("metadata").(object)
		for _, m := range about { // of Gemini's Code Assist
			switch m.name {
			case "quotaResetDelay":
				r.waits = append(r.waits, waitField{"retryDelay", scalar(m.value)})
			case "quotaResetTimeStamp":
				r.waits = append(r.waits, waitField{"resetsAt", scalar(m.value)})
			}
		}
	case strings.HasSuffix(kind, "RequestInfo"):
		if id := scalar(o.get("requestId")); id != "" && r.id == "" {
			r.id = id
		}
	case strings.HasSuffix(kind, "DebugInfo"), strings.HasSuffix(kind, "LocalizedMessage"):
		r.value(o.get("message"), depth+1)
		r.value(o.get("detail"), depth+1)
	}
}

// upstream takes the headers of an upstream, which OpenRouter passes on in the
// body.
func (r *report) upstream(v any) {
	o, _ := v.(object)
	for _, m := range o {
		if r.headers == nil {
			r.headers = http.Header{}
		}
		r.headers.Set(m.name, scalar(m.value))
	}
}

// normal keeps the letters and digits of a word, in lower case, so that
// context_length_exceeded and ContextLengthExceeded are one.
func normal(s string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c > 127:
			return c
		}
		return -1
	}, s)
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return strings.TrimSpace(v)
	case json.Number:
		return v.String()
	}
	return ""
}
