package fault

import (
	"bytes"
	"fmt"
	"html"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
)

// maxMessage is the longest message, in bytes.
const maxMessage = 2000

// message is what a person reads: the provider's own words where it has any.
func (r *report) message(status int, code dsh.Code) string {
	if t := Clean(r.plain); t != "" {
		return t
	}
	said := ""
	for _, t := range r.texts {
		// The outermost text is the provider's. One that says nothing gives way
		// to what it wraps.
		if said = t; !empty().MatchString(t) {
			break
		}
	}
	if s := Clean(said); s != "" {
		return s
	}
	for _, w := range r.words {
		return Clean(fmt.Sprintf("the provider answered %s%s", w.raw, inHTTP(status)))
	}
	if status >= 300 {
		return strings.TrimSpace(fmt.Sprintf("the provider answered HTTP %d %s", status, http.StatusText(status)))
	}
	return "the provider reported an error without saying which" + inHTTP(status)
}

func inHTTP(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf(" (HTTP %d)", status)
}

// empty is what routers say when they have nothing to say.
var empty = lazily(`(?i)^(provider returned error|error|upstream error|unknown error|bad request|internal error)\.?$`)

// Clean makes one line that is fit for a terminal: no control characters, no
// runs of space, no more than about 2,000 bytes.
func Clean(s string) string {
	if len(s) > 4*maxMessage {
		s = s[:4*maxMessage]
	}
	s = strings.Map(func(c rune) rune {
		switch {
		case c == utf8.RuneError, unicode.Is(unicode.Cf, c):
			return -1
		case unicode.IsSpace(c), c == '\u2028', c == '\u2029':
			return ' '
		case unicode.IsControl(c):
			return -1
		}
		return c
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxMessage {
		s = clip(s, maxMessage) + " …"
	}
	return s
}

var tagged = lazily(`(?is)<(title|h1)[^>]*>(.*?)</`)

// title is what an HTML page says it is.
func title(page []byte) string {
	m := tagged().FindSubmatch(page[:min(len(page), 16<<10)])
	if m == nil {
		return "an HTML page"
	}
	t := html.UnescapeString(string(bytes.TrimSpace(m[2])))
	return "an HTML page: " + clip(t, 200)
}

// A Redactor takes secrets out of what is shown.
type Redactor struct{ secrets []string }

// NewRedactor returns one for these values. Values of fewer than four bytes
// are no secrets.
func NewRedactor(values ...string) *Redactor {
	r := &Redactor{}
	for _, v := range values {
		if len(v) >= 4 {
			r.secrets = append(r.secrets, v)
		}
	}
	return r
}

// Text returns s without the secrets.
func (r *Redactor) Text(s string) string {
	for _, v := range r.secrets {
		s = strings.ReplaceAll(s, v, "[redacted]")
	}
	return s
}

// Failure returns f without the secrets; f itself is not changed. A cause
// whose words hold one is dropped.
func (r *Redactor) Failure(f *dsh.Failure) *dsh.Failure {
	g := *f
	g.Message = r.Text(f.Message)
	if s := r.Text(string(f.RequestID)); s != string(f.RequestID) {
		g.RequestID = ""
	}
	if f.Cause != nil && r.Text(f.Cause.Error()) != f.Cause.Error() {
		g.Cause = nil
	}
	return &g
}
