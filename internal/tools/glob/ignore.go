package glob

import (
	"bytes"
	"strings"
)

// MaxRules is how many patterns of one file count. The rest is left aside: a
// file of so many is not written for people, and each one costs time for each
// path.
const MaxRules = 4096

// A Verdict is what the patterns of a file say of a path.
type Verdict int

// The verdicts. Kept is that of a pattern with a leading !, which takes back
// what an earlier one said.
const (
	Silent Verdict = iota
	Ignored
	Kept
)

// An Ignore is the patterns of one file such as .gitignore. They hold for the
// folder that has the file and all below. The zero value is silent. It may be
// used by several goroutines.
type Ignore struct{ rules []rule }

type rule struct {
	matcher
	negated bool
	dirOnly bool
}

// ParseIgnore reads the patterns of a file, one a line, as git does. A line
// that makes no sense matches nothing, as with git.
func ParseIgnore(text []byte) Ignore {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var ig Ignore
	for line := range strings.SplitSeq(string(text), "\n") {
		if len(ig.rules) == MaxRules {
			break
		}
		if r, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			ig.rules = append(ig.rules, r)
		}
	}
	return ig
}

func parseRule(line string) (rule, bool) {
	if strings.HasPrefix(line, "#") || len(line) > MaxPattern {
		return rule{}, false
	}
	line = trimSpaces(line)
	text, negated := strings.CutPrefix(line, "!")
	text, dirOnly := strings.CutSuffix(text, "/")
	if text == "" {
		return rule{}, false
	}
	m, err := compile(text, false)
	if err != nil {
		return rule{}, false
	}
	return rule{m, negated, dirOnly}, true
}

// trimSpaces takes spaces from the end, except one that is escaped.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		if line[i] == ' ' {
			continue
		}
		if line[i] == '\\' && i+1 < len(line) {
			i++
		}
		end = i + 1
	}
	return line[:end]
}

// Match says what the patterns make of a path, which is relative to their
// folder, clean, and has slashes. The last one that fits counts. What is in an
// ignored folder is ignored with it: the caller does not go in.
func (ig Ignore) Match(path string, dir bool) Verdict {
	for i := len(ig.rules) - 1; i >= 0; i-- {
		r := &ig.rules[i]
		if r.dirOnly && !dir || !r.matches(path) {
			continue
		}
		if r.negated {
			return Kept
		}
		return Ignored
	}
	return Silent
}

// Empty reports whether there is no pattern.
func (ig Ignore) Empty() bool { return len(ig.rules) == 0 }
