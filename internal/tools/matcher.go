package tools

import (
	"context"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"
)

const (
	maxPattern = 1000  // bytes of a regular expression
	maxProgram = 20000 // instructions of it
)

// uninterrupted is how much work one match does without a look at the context,
// in bytes times instructions: what takes some 0.1 s at worst.
const uninterrupted = 4 << 20

// A matcher is a regular expression that can be stopped.
type matcher struct {
	re           *regexp.Regexp
	instructions int
}

func newMatcher(pattern string) (*matcher, error) {
	if len(pattern) > maxPattern {
		return nil, mistakef("The pattern is %d bytes long, and at most %d are allowed.", len(pattern), maxPattern)
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, mistakef("The pattern cannot be used: %v. It is a regular expression of the RE2 kind: no look-around, no back-references; to find ( or [ itself write \\( or \\[.", err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, mistakef("The pattern cannot be used: %v.", err)
	}
	if len(program.Inst) > maxProgram {
		return nil, mistakef("The pattern is too large: its repetitions make %d instructions, and at most %d are allowed.", len(program.Inst), maxProgram)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, mistakef("The pattern cannot be used: %v.", err)
	}
	return &matcher{re, len(program.Inst)}, nil
}

// find returns where the first match begins and ends, or nil. Where ctx ends
// meanwhile the answer means nothing.
func (m *matcher) find(ctx context.Context, line []byte) []int {
	if len(line)*m.instructions <= uninterrupted {
		return m.re.FindIndex(line)
	}
	return m.re.FindReaderIndex(&runes{line, 0, func() bool { return ctx.Err() != nil }})
}

// runes reads a line and ends early when it is told to.
type runes struct {
	line []byte
	read int
	stop func() bool
}

func (r *runes) ReadRune() (rune, int, error) {
	if r.read++; r.read%256 == 0 && r.stop() || len(r.line) == 0 {
		return 0, 0, io.EOF
	}
	c, n := utf8.DecodeRune(r.line)
	r.line = r.line[n:]
	return c, n, nil
}
