// Package redact takes what matches a pattern out of the texts of an event
// before it is logged. What is not in the log is not in a later request
// either, since that is made of the log.
//
// It looks at whole texts. One that comes in pieces goes through a [Stream].
package redact

import (
	"encoding/json"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/dsh-agent/dsh"
)

// Mark stands where something was taken out.
const Mark = "[redacted]"

// Patterns are regular expressions (RE2). The zero value takes nothing out. It
// may be used by several goroutines.
type Patterns struct {
	list  []*regexp.Regexp
	progs []*syntax.Prog // the same, for streams
}

// Compile reads patterns. One that matches the empty text is refused.
func Compile(patterns []string) (Patterns, error) {
	var p Patterns
	for _, text := range patterns {
		re, err := regexp.Compile(text)
		if err != nil {
			return Patterns{}, err
		}
		parsed, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			return Patterns{}, err
		}
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return Patterns{}, err
		}
		if matchesNothing(prog) {
			return Patterns{}, fmt.Errorf("the pattern %q matches the empty text", text)
		}
		p.list, p.progs = append(p.list, re), append(p.progs, prog)
	}
	return p, nil
}

// Text takes what matches out of a text.
func (p Patterns) Text(s string) string {
	for _, re := range p.list {
		s = re.ReplaceAllLiteralString(s, Mark)
	}
	return s
}

// JSON takes what matches out of the texts of a JSON value, wherever they
// stand. Names of fields stay, and so do the texts by which events refer to
// each other or which a provider wants back to the byte: see [kept]. All else
// stays as it is, to the byte. What is no JSON is given back.
func (p Patterns) JSON(data []byte) []byte {
	if len(p.list) == 0 {
		return data
	}
	var out []byte
	done := 0
	var names []string // the name of the field that each open container is in or at
	name := ""
	object := []bool{}
	for i := 0; i < len(data); {
		switch c := data[i]; c {
		case '{', '[':
			names, object = append(names, name), append(object, c == '{')
			i++
		case '}', ']':
			if len(names) == 0 {
				return data
			}
			name = names[len(names)-1]
			names, object = names[:len(names)-1], object[:len(object)-1]
			i++
		case '"':
			end := stringEnd(data, i)
			if end < 0 {
				return data
			}
			if isName(data, end) && len(object) > 0 && object[len(object)-1] {
				name = unquoted(data[i:end])
			} else if !kept(name) {
				out, done = p.replace(out, data, done, i, end)
			}
			i = end
		default:
			i++
		}
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

// replace copies data up to a text, and that with what matches taken out.
func (p Patterns) replace(out, data []byte, done, from, to int) ([]byte, int) {
	text := unquoted(data[from:to])
	clean := p.Text(text)
	if clean == text {
		return out, done
	}
	quoted, err := dsh.JSON(clean)
	if err != nil { // never: it is a text
		quoted = []byte(`"` + Mark + `"`)
	}
	return append(append(out, data[done:from]...), quoted...), to
}

// stringEnd is the place behind a string, or -1.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// isName reports whether the string that ends here is the name of a field.
func isName(data []byte, end int) bool {
	for ; end < len(data); end++ {
		switch data[end] {
		case ' ', '\t', '\n', '\r':
			continue
		}
		return data[end] == ':'
	}
	return false
}

func unquoted(b []byte) string {
	var s string
	if json.Unmarshal(b, &s) != nil {
		return ""
	}
	return s
}

// kept reports whether the texts of a field stay as they are.
func kept(name string) bool {
	switch name {
	case "id", "callId", "retryId", "compactionId", "decisionId", "session", "digest", "configSha256", "requestSha256",
		"type", "kind", "hook", "purpose", "role", "mode", "code", "policy", "policyKey", "scope", "provider", "model",
		"engine", "abi", "mediaType", "opaque", "surface", "requestId":
		return true
	}
	return false
}
