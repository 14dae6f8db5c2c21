package glob

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// A translation turns a pattern into a regular expression. No wildcard but **
// matches a slash.
type translation struct {
	in     string
	pos    int
	braces bool // {a,b} is an alternative, as in ripgrep; git knows none
	open   int  // braces that are open
	out    strings.Builder
}

// errNever is the error of a pattern that git takes as one that never matches.
var errNever = errors.New("the pattern ends within a [class] or after a backslash")

func (t *translation) run() (string, error) {
	t.out.WriteString(`(?s)\A(?:`)
	for t.pos < len(t.in) {
		if err := t.next(); err != nil {
			return "", err
		}
	}
	if t.open > 0 {
		return "", errors.New("a { of the pattern has no }")
	}
	t.out.WriteString(`)\z`)
	return t.out.String(), nil
}

func (t *translation) next() error {
	c := t.in[t.pos]
	switch {
	case c == '*':
		t.star()
		return nil
	case c == '?':
		t.out.WriteString(`[^/]`)
	case c == '[':
		return t.class()
	case c == '\\':
		if t.pos+1 == len(t.in) {
			return errNever
		}
		t.pos++
		t.literal()
		return nil
	case t.braces && c == '{':
		t.open++
		t.out.WriteString(`(?:`)
	case t.open > 0 && c == ',':
		t.out.WriteString(`|`)
	case t.open > 0 && c == '}':
		t.open--
		t.out.WriteString(`)`)
	default:
		t.literal()
		return nil
	}
	t.pos++
	return nil
}

// literal writes the next rune. A byte that is not UTF-8 stands for any such
// byte: regular expressions see all of them as U+FFFD.
func (t *translation) literal() {
	r, n := utf8.DecodeRuneInString(t.in[t.pos:])
	t.out.WriteString(regexp.QuoteMeta(string(r)))
	t.pos += n
}

// star translates a run of stars. Two of them are special where they are a
// whole element of the path, and are one star elsewhere.
func (t *translation) star() {
	start := t.pos
	for t.pos < len(t.in) && t.in[t.pos] == '*' {
		t.pos++
	}
	if t.pos-start < 2 || !t.elementStarts(start) {
		t.out.WriteString(`[^/]*`)
		return
	}
	switch {
	case t.pos == len(t.in):
		t.out.WriteString(`.*`)
	case t.in[t.pos] == '/':
		t.pos++
		t.out.WriteString(`(?:.*/)?`)
	case strings.HasPrefix(t.in[t.pos:], `\/`): // to git the same, but for at least one element
		t.out.WriteString(`.*`)
	case t.open > 0 && (t.in[t.pos] == ',' || t.in[t.pos] == '}'):
		t.out.WriteString(`.*`)
	default:
		t.out.WriteString(`[^/]*`)
	}
}

func (t *translation) elementStarts(at int) bool {
	if at == 0 || t.in[at-1] == '/' {
		return true
	}
	if !t.braces && at == strings.IndexAny(t.in, special) {
		return true // git takes what is plain off the front before it looks at the rest
	}
	return t.open > 0 && (t.in[at-1] == '{' || t.in[at-1] == ',')
}

// class translates a [class]. Its members are runes; a slash is never one.
func (t *translation) class() error {
	i := t.pos + 1
	negated := i < len(t.in) && (t.in[i] == '!' || t.in[i] == '^')
	if negated {
		i++
	}
	var set []runeRange
	for first := true; ; first = false {
		if i >= len(t.in) {
			return errNever
		}
		if t.in[i] == ']' && !first {
			break
		}
		ranges, next, err := t.member(i)
		if err != nil {
			return err
		}
		set, i = append(set, ranges...), next
	}
	t.pos = i + 1
	t.out.WriteString(classExpr(set, negated))
	return nil
}

// A runeRange is a part of a class, both ends included.
type runeRange struct{ lo, hi rune }

// member reads one rune, range or [:name:] of a class at i.
func (t *translation) member(i int) ([]runeRange, int, error) {
	if strings.HasPrefix(t.in[i:], "[:") {
		if end := strings.IndexByte(t.in[i+2:], ']'); end > 0 && t.in[i+2+end-1] == ':' {
			name := t.in[i+2 : i+2+end-1]
			ranges, ok := posix(name)
			if !ok {
				return nil, 0, fmt.Errorf("the pattern has an unknown class [:%s:]", name)
			}
			return ranges, i + 2 + end + 1, nil
		}
	}
	lo, i, err := t.classRune(i)
	if err != nil {
		return nil, 0, err
	}
	hi := lo
	if i+1 < len(t.in) && t.in[i] == '-' && t.in[i+1] != ']' {
		if hi, i, err = t.classRune(i + 1); err != nil {
			return nil, 0, err
		}
	}
	return []runeRange{{lo, max(lo, hi)}}, i, nil // of [z-a], git takes the z
}

func (t *translation) classRune(i int) (rune, int, error) {
	if t.in[i] == '\\' {
		i++
	}
	if i >= len(t.in) {
		return 0, 0, errNever
	}
	r, n := utf8.DecodeRuneInString(t.in[i:])
	return r, i + n, nil
}

// classExpr writes a class without the slash.
func classExpr(set []runeRange, negated bool) string {
	var b strings.Builder
	for _, r := range set {
		for _, part := range []runeRange{{r.lo, min(r.hi, '/'-1)}, {max(r.lo, '/'+1), r.hi}} {
			if part.lo <= part.hi {
				fmt.Fprintf(&b, `\x{%x}-\x{%x}`, part.lo, part.hi)
			}
		}
	}
	switch {
	case negated:
		return `[^/` + b.String() + `]`
	case b.Len() == 0:
		return `[^\x{0}-\x{10FFFF}]` // nothing
	}
	return `[` + b.String() + `]`
}

// posix gives the members of a [:name:] in ASCII, as git has them.
func posix(name string) ([]runeRange, bool) {
	lower, upper, digit := runeRange{'a', 'z'}, runeRange{'A', 'Z'}, runeRange{'0', '9'}
	switch name {
	case "alnum":
		return []runeRange{lower, upper, digit}, true
	case "alpha":
		return []runeRange{lower, upper}, true
	case "blank":
		return []runeRange{{' ', ' '}, {'\t', '\t'}}, true
	case "cntrl":
		return []runeRange{{0, 31}, {127, 127}}, true
	case "digit":
		return []runeRange{digit}, true
	case "graph":
		return []runeRange{{33, 126}}, true
	case "lower":
		return []runeRange{lower}, true
	case "print":
		return []runeRange{{32, 126}}, true
	case "punct":
		return []runeRange{{33, 47}, {58, 64}, {91, 96}, {123, 126}}, true
	case "space":
		return []runeRange{{' ', ' '}, {'\t', '\r'}}, true
	case "upper":
		return []runeRange{upper}, true
	case "xdigit":
		return []runeRange{digit, {'a', 'f'}, {'A', 'F'}}, true
	}
	return nil, false
}
