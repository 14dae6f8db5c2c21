package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A section reads the keys of one table. Each key that is asked for is known
// from then on, is recorded with its value and origin, and gives its fallback
// where it is not set or does not hold.
type section struct {
	l     *loader
	key   string // dotted; "" for the root
	title string // the header under which Show prints it
	node  *node  // nil: nothing is set
	known []string
}

// A fallback is what holds where a key is not set.
type fallback[T any] struct {
	value  T
	origin Origin
}

func byDefault[T any](v T) fallback[T] { return fallback[T]{v, Origin{Kind: FromDefault}} }

// child is the section of a table in this one. The table's own keys are
// checked when the child is closed.
func (s *section) child(key string) *section {
	c := &section{l: s.l, key: s.path(key)}
	c.title = "[" + c.key + "]"
	n := s.get(key)
	if n == nil {
		return c
	}
	if n.kind != tableNode {
		s.wrong(key, n, "a table")
		return c
	}
	c.node = n
	return c
}

// get is the node of a key; nil when it is not set.
func (s *section) get(key string) *node {
	if !slices.Contains(s.known, key) {
		s.known = append(s.known, key)
	}
	if s.node == nil {
		return nil
	}
	return s.node.table[key]
}

func (s *section) path(key string) string { return joinKey(s.key, key) }

func joinKey(table, key string) string {
	if !bareName(key) || looksSecret(key) {
		key = shortQuote(key)
	}
	if table == "" {
		return key
	}
	return table + "." + key
}

func bareName(s string) bool {
	for i := range len(s) {
		if !bareKey(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

func (s *section) wrong(key string, n *node, want string) {
	s.l.problem(n.origin, s.path(key), n.what()+"; allowed: "+want)
}

func (s *section) problem(key string, n *node, format string, args ...any) {
	o := s.origin()
	if n != nil {
		o = n.origin
	}
	s.l.problem(o, s.path(key), fmt.Sprintf(format, args...))
}

// origin is where the section begins.
func (s *section) origin() Origin {
	if s.node == nil {
		return Origin{}
	}
	return s.node.origin
}

func (s *section) record(key string, v any, o Origin) {
	s.l.settings = append(s.l.settings, Setting{Key: s.path(key), Value: v, Origin: o, title: s.title, element: s.node, name: key})
}

// text reads a string. check says what is wrong with it, in words that follow
// the value, or "".
func (s *section) text(key string, def fallback[string], check func(string) string) string {
	n := s.get(key)
	v, o := def.value, def.origin
	if n != nil {
		if t, ok := n.text(); !ok {
			s.wrong(key, n, "text in quotes")
		} else if fault := callCheck(check, t); fault != "" {
			s.problem(key, n, "%s", fault)
		} else {
			v, o = t, n.origin
		}
	}
	s.record(key, v, o)
	return v
}

func callCheck(check func(string) string, v string) string {
	if check == nil {
		return ""
	}
	return check(v)
}

// text is a string node's value. What --set gave without quotes is text where
// text is wanted.
func (n *node) text() (string, bool) {
	if t, ok := n.value.(string); ok && n.kind == scalarNode {
		return t, true
	}
	return n.raw, n.raw != "" && n.kind == scalarNode
}

// oneOf reads a string out of a list. later are words of the contract that
// are not yet supported.
func (s *section) oneOf(key string, def fallback[string], allowed, later []string) string {
	return s.text(key, def, func(v string) string { return choice(v, allowed, later) })
}

// choice says why v is none of the allowed words.
func choice(v string, allowed, later []string) string {
	if slices.Contains(allowed, v) {
		return ""
	}
	what := shortQuote(v) + " is not known"
	if slices.Contains(later, v) {
		what = shortQuote(v) + " is not yet supported"
	} else if near := nearest(v, allowed); near != "" {
		what += fmt.Sprintf(" (did you mean %q?)", near)
	}
	return what + "; allowed: " + list(allowed)
}

// list writes words for people.
func list(words []string) string {
	if len(words) == 0 {
		return "nothing yet"
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return strings.Join(quoted, ", ")
}

func (s *section) boolean(key string, def fallback[bool]) bool {
	n := s.get(key)
	v, o := def.value, def.origin
	if n != nil {
		if b, ok := n.value.(bool); ok {
			v, o = b, n.origin
		} else {
			s.wrong(key, n, "true or false")
		}
	}
	s.record(key, v, o)
	return v
}

// integer reads a whole number from lo to hi.
func (s *section) integer(key string, def fallback[int64], lo, hi int64) int64 {
	n := s.get(key)
	v, o := def.value, def.origin
	if n != nil {
		want := fmt.Sprintf("a whole number from %d to %s", lo, formatInt(hi))
		if i, ok := n.value.(int64); !ok {
			s.wrong(key, n, want)
		} else if i < lo || i > hi {
			s.problem(key, n, "%d is out of range; allowed: %s", i, want)
		} else {
			v, o = i, n.origin
		}
	}
	s.record(key, v, o)
	return v
}

// formatInt writes the largest exact integer of JSON as people know it.
func formatInt(i int64) string {
	if i == maxSafeInt {
		return "2^53-1"
	}
	return strconv.FormatInt(i, 10)
}

const maxSafeInt = 1<<53 - 1

// A span is the range of a number.
type span struct {
	lo, hi float64
	over   bool // lo itself is not in it
}

func (r span) holds(v float64) bool {
	return (v > r.lo || v == r.lo && !r.over) && v <= r.hi // NaN is in none
}

func (r span) String() string {
	switch {
	case r.over && math.IsInf(r.hi, 1):
		return "a finite number over " + formatFloat(r.lo)
	case math.IsInf(r.hi, 1):
		return "a finite number from " + formatFloat(r.lo)
	case r.over:
		return "a number over " + formatFloat(r.lo) + " and up to " + formatFloat(r.hi)
	}
	return "a number from " + formatFloat(r.lo) + " to " + formatFloat(r.hi)
}

// number reads a number, written with or without a point.
func (s *section) number(key string, def fallback[float64], r span) float64 {
	n := s.get(key)
	v, o := def.value, def.origin
	if n != nil {
		f, ok := n.float()
		switch {
		case !ok:
			s.wrong(key, n, r.String())
		case math.IsNaN(f) || math.IsInf(f, 0) || !r.holds(f):
			s.problem(key, n, "%s is out of range; allowed: %s", formatFloat(f), r)
		default:
			v, o = f, n.origin
		}
	}
	s.record(key, v, o)
	return v
}

func (n *node) float() (float64, bool) {
	switch v := n.value.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func formatFloat(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// texts reads an array of strings. check is of one element.
func (s *section) texts(key string, def fallback[[]string], check func(string) string) []string {
	n := s.get(key)
	v, o := def.value, def.origin
	if n != nil {
		if got, ok := s.elements(key, n, check); ok {
			v, o = got, n.origin
		}
	}
	s.record(key, slices.Clone(v), o)
	return slices.Clone(v)
}

func (s *section) elements(key string, n *node, check func(string) string) ([]string, bool) {
	if n.kind != arrayNode {
		s.wrong(key, n, "an array of texts")
		return nil, false
	}
	out, good := []string{}, true
	seen := map[string]bool{}
	for _, item := range n.array {
		t, ok := item.text()
		fault := ""
		switch {
		case !ok:
			fault = item.what() + "; allowed: text in quotes"
		case seen[t]:
			fault = shortQuote(t) + " stands there twice; allowed: no duplicates"
		default:
			fault = callCheck(check, t)
		}
		if fault != "" {
			s.problem(key, item, "%s", fault)
			good = false
			continue
		}
		out, seen[t] = append(out, t), true
	}
	return out, good
}

// close reports the keys that nobody asked for.
func (s *section) close() {
	if s.node == nil {
		return
	}
	for _, key := range s.node.order {
		if !slices.Contains(s.known, key) {
			s.l.problem(s.node.table[key].origin, s.path(key), s.unknown(key))
		}
	}
}
