package config

import (
	"cmp"
	"slices"
	"strings"
)

// A Problem is one thing that does not hold, or, among a Config's hazards, one
// that holds and is likely not meant.
type Problem struct {
	Origin  Origin // where the value stands; the zero value: nowhere
	Key     string // dotted; "" when it is about the whole
	Message string // what is wrong and what is allowed, in one line
}

// Error is the problem as one line: place, key, message.
func (p Problem) Error() string {
	var parts []string
	if place := p.Origin.place(); place != "" {
		parts = append(parts, place)
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	return oneLine(strings.Join(append(parts, p.Message), ": "))
}

// Problems is all that is wrong with a configuration, in the order of the
// file, then of variables and flags. As an error it is one line a problem.
type Problems []Problem

// Error gives one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// sorted orders problems by place and drops what is said twice.
func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.rank(), b.rank()),
			cmp.Compare(a.Origin.Name, b.Origin.Name),
			cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Origin.Column, b.Origin.Column),
		)
	})
	return slices.Compact(ps)
}

func (p Problem) rank() int {
	switch p.Origin.Kind {
	case FromFile:
		return 0
	case FromVariable:
		return 1
	case FromFlag:
		return 2
	}
	return 3
}

// oneLine replaces what would break a line or a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\uFFFD'
		}
		return r
	}, s)
}
