package schema

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func rational(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return new(big.Rat) // JSON's numbers are all read
	}
	return r
}

func whole(n json.Number) bool { return !strings.ContainsAny(n.String(), ".eE") || rational(n).IsInt() }

// is reports whether a value is of a type.
func is(v any, name string) bool {
	k := kindOf(v)
	if n, ok := v.(json.Number); ok && name == "integer" {
		return whole(n)
	}
	return k == name
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// kind is a value's type in words. A number is shown: it may miss by a little.
func kind(v any) string {
	switch n := v.(type) {
	case nil:
		return "null"
	case json.Number:
		return "the number " + quote(n)
	case []any, map[string]any:
		return "an " + kindOf(v)
	}
	return "a " + kindOf(v)
}

func equal(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		return ok && (x == y || rational(x).Cmp(rational(y)) == 0)
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, equal)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, equal)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// canonical is the same text for equal values.
func canonical(v any) string {
	var b strings.Builder
	var write func(any)
	write = func(v any) {
		switch v := v.(type) {
		case json.Number:
			b.WriteString(rational(v).RatString())
		case []any:
			b.WriteByte('[')
			for _, e := range v {
				write(e)
				b.WriteByte(',')
			}
			b.WriteByte(']')
		case map[string]any:
			b.WriteByte('{')
			for _, key := range slices.Sorted(maps.Keys(v)) {
				b.WriteString(strconv.Quote(key) + ":")
				write(v[key])
				b.WriteByte(',')
			}
			b.WriteByte('}')
		case string:
			b.WriteString(strconv.Quote(v))
		default:
			text, _ := json.Marshal(v) // null, true or false
			b.Write(text)
		}
	}
	write(v)
	return b.String()
}

const (
	maxQuoted = 80 // bytes of a value that is quoted
	maxListed = 10 // values of an enum
)

// quote is a value as JSON, cut where it is long.
func quote(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "…"
	}
	return clip(string(text), maxQuoted)
}

func quotes(values []any) string {
	var texts []string
	for _, v := range values[:min(len(values), maxListed)] {
		texts = append(texts, quote(v))
	}
	list := strings.Join(texts, ", ")
	if n := len(values) - maxListed; n > 0 {
		list += " and " + strconv.Itoa(n) + " others"
	}
	return list
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

// alternatives are names with commas and an or between them.
func alternatives(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// misfit says why none of n alternatives fits.
func misfit(n int, problems []string) string {
	why := strings.Join(problems, "; ")
	if n == 1 {
		return why
	}
	return "fits none of " + strconv.Itoa(n) + " alternatives: " + why
}

// count is a number of things; what is "" where they were named before.
func count(n int, what string) string {
	switch {
	case what == "":
		return strconv.Itoa(n)
	case n == 1:
		return "1 " + what
	case what == "property":
		return strconv.Itoa(n) + " properties"
	case strings.HasPrefix(what, "element "):
		return strconv.Itoa(n) + " elements" + what[len("element"):]
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// decimal is a bound as people write it.
func decimal(r *big.Rat) string {
	if r.IsInt() {
		return clip(r.RatString(), maxQuoted)
	}
	if places, exact := r.FloatPrec(); exact {
		return clip(r.FloatString(places), maxQuoted)
	}
	return clip(r.RatString(), maxQuoted)
}
