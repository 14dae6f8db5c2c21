package fault

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// phrases are patterns of which one is looked for in a text. A pattern is
// tried only on a text that has the literal which it cannot do without: nearly
// none has, and a search for bytes is a hundred times faster.
//
// They are read at their first use, and each is compiled at its own: a process
// whose requests do not fail has no use for the tables, and they would cost it
// a third of its start. nil has no phrase.
type phrases func() []phrase

type phrase struct {
	literal string
	pattern func() *regexp.Regexp
}

// says makes phrases. Their first use panics on a pattern that is none: they
// are constants.
func says(patterns ...string) phrases {
	return sync.OnceValue(func() []phrase { return parse(patterns) })
}

func parse(patterns []string) []phrase {
	out := make([]phrase, 0, len(patterns))
	for _, p := range patterns {
		tree, err := syntax.Parse(p, syntax.Perl)
		if err != nil {
			panic(err)
		}
		if tree.Op == syntax.OpAlternate { // each has a literal of its own
			for _, sub := range tree.Sub {
				out = append(out, phrase{needs(sub), lazily(sub.String())})
			}
			continue
		}
		out = append(out, phrase{needs(tree), lazily(p)})
	}
	return out
}

// lazily compiles a pattern at its first use.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// needs returns the longest literal that every match of a pattern has in it.
func needs(r *syntax.Regexp) string {
	switch r.Op {
	case syntax.OpLiteral:
		if r.Flags&syntax.FoldCase == 0 {
			return string(r.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return needs(r.Sub[0])
	case syntax.OpConcat:
		longest := ""
		for _, sub := range r.Sub {
			if l := needs(sub); len(l) > len(longest) {
				longest = l
			}
		}
		return longest
	}
	return ""
}

// find returns what matches, or "".
func (p phrases) find(text string) string {
	if p == nil {
		return ""
	}
	for _, q := range p() {
		if strings.Contains(text, q.literal) {
			if m := q.pattern().FindString(text); m != "" {
				return m
			}
		}
	}
	return ""
}

// in reports whether one of the phrases is in the text.
func (p phrases) in(text string) bool { return p.find(text) != "" }

// and joins phrases.
func (p phrases) and(q phrases) phrases {
	return sync.OnceValue(func() []phrase { return slices.Concat(p(), q()) })
}
