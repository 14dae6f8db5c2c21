// Package glob matches paths against patterns as git and ripgrep write them:
// *, ?, [classes] and ** over paths with slashes, and files of such patterns
// that say what is to be left out.
//
// Patterns become regular expressions of the RE2 kind, so that no pattern
// takes more than linear time, whoever wrote it.
package glob

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// MaxPattern is the length in bytes of the longest pattern.
const MaxPattern = 4096

// A Pattern says which paths are meant. The zero value matches nothing. It may
// be used by several goroutines.
type Pattern struct {
	matcher
	negated bool
}

// Compile reads a pattern in ripgrep's form: without a slash it is matched
// against a path's last element, with one against the whole path; {a,b} is
// either, a trailing slash means all that is below, and a leading ! everything
// else. Its error is for whoever wrote the pattern.
func Compile(pattern string) (*Pattern, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("the pattern is %d bytes long, and at most %d are allowed", len(pattern), MaxPattern)
	}
	text, negated := strings.CutPrefix(pattern, "!")
	text = strings.TrimPrefix(text, "./")
	if strings.HasSuffix(text, "/") && strings.Trim(text, "/") != "" {
		text += "**"
	}
	if strings.Trim(text, "/") == "" {
		return nil, errors.New("the pattern is empty")
	}
	m, err := compile(text, true)
	if err != nil {
		return nil, err
	}
	return &Pattern{m, negated}, nil
}

// Match reports whether path is meant. It is relative, clean, and has slashes.
func (p *Pattern) Match(path string) bool { return p.matches(path) != p.negated }

// Negated reports whether the pattern began with a !.
func (p *Pattern) Negated() bool { return p.negated }

// A matcher is a pattern without its signs. Most patterns are a plain name or
// a suffix, and are compared as such.
type matcher struct {
	base   bool           // matched against the last element only
	plain  string         // the whole text, if not ""
	suffix string         // the end of it, if not ""
	re     *regexp.Regexp // nil with both of the above empty: matches nothing
}

func (m matcher) matches(p string) bool {
	if m.base {
		p = path.Base(p)
	}
	switch {
	case m.plain != "":
		return p == m.plain
	case m.suffix != "":
		return strings.HasSuffix(p, m.suffix)
	}
	return m.re != nil && m.re.MatchString(p)
}

const special = `*?[\`

// compile makes a matcher of a pattern's text. Its slashes say whether it is
// anchored.
func compile(text string, braces bool) (matcher, error) {
	m := matcher{base: !strings.Contains(text, "/")}
	text = strings.TrimPrefix(text, "/")
	chars := special
	if braces {
		chars += "{},"
	}
	if !strings.ContainsAny(text, chars) {
		m.plain = text
		return m, nil
	}
	if m.base && len(text) > 1 && text[0] == '*' && !strings.ContainsAny(text[1:], chars) {
		m.suffix = text[1:]
		return m, nil
	}
	t := translation{in: text, braces: braces}
	expr, err := t.run()
	if err != nil {
		return matcher{}, err
	}
	m.re, err = regexp.Compile(expr)
	if err != nil {
		return matcher{}, fmt.Errorf("the pattern is too large or nests too deeply: %w", err)
	}
	return m, nil
}
