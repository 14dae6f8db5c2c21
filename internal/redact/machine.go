package redact

import (
	"regexp/syntax"
	"unicode/utf8"
)

// A machine finds the matches of a pattern in a text of which the end is not
// known: the same as package regexp finds in the whole, which cannot say whether
// more of the text would make or change a match. It is Pike's, without captures.
type machine struct {
	prog  *syntax.Prog
	first [utf8.RuneSelf]bool // what a match may begin with, of ASCII

	pos     int      // of the next rune in the text
	before  rune     // the last one; -1 at the beginning
	threads []thread // what waits for the next rune, what counts most first
	next    []thread
	stack   []uint32
	seen    []int // the round in which an instruction was met last
	round   int

	found   bool
	match   span   // the best until now, of the leftmost place
	matches []span // that are at their end
}

// A thread is an instruction that a match which began at from has come to.
type thread struct {
	pc   uint32
	from int
}

func newMachine(prog *syntax.Prog) machine {
	m := machine{prog: prog, before: -1, seen: make([]int, len(prog.Inst))}
	m.round++
	m.closure(uint32(prog.Start), func(i *syntax.Inst) bool {
		if takes(i) {
			for r := range m.first {
				m.first[r] = m.first[r] || i.MatchRune(rune(r))
			}
		}
		return true
	}, ^syntax.EmptyOp(0))
	return m
}

// takes reports whether an instruction takes a rune.
func takes(i *syntax.Inst) bool {
	switch i.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return true
	}
	return false
}

// open is where the first match may begin that is not at its end yet, or the
// end of what was fed.
func (m *machine) open() int {
	open := m.pos
	if m.found {
		open = m.match.from
	}
	if len(m.threads) > 0 {
		open = min(open, m.threads[0].from)
	}
	return open
}

// feed takes what is new of a text, given from a place that is not behind open.
func (m *machine) feed(text []byte, at int) {
	for m.pos < at+len(text) {
		r, size := utf8.DecodeRune(text[m.pos-at:])
		if len(m.threads) > 0 || m.found || r >= utf8.RuneSelf || m.first[r] {
			m.step(r)
			if m.found && len(m.threads) == 0 {
				m.end(text, at)
				continue
			}
		}
		m.before = r
		m.pos += size
	}
}

// finish says that the text is at its end.
func (m *machine) finish(text []byte, at int) {
	m.feed(text, at)
	for len(m.threads) > 0 {
		m.step(-1)
		if !m.found {
			return
		}
		m.end(text, at)
		m.feed(text, at)
	}
}

// end notes the match, and goes back to its end to look for the next one.
func (m *machine) end(text []byte, at int) {
	m.matches = append(m.matches, m.match)
	m.found, m.threads, m.pos = false, m.threads[:0], m.match.to
	m.before, _ = utf8.DecodeLastRune(text[:m.pos-at])
}

// step takes the next rune, or -1 for the end of the text. A match that is met
// ends what counts less than it.
func (m *machine) step(r rune) {
	m.round++
	m.next = m.next[:0]
	beside := syntax.EmptyOpContext(m.before, r)
	follow := func(t thread) bool {
		return m.closure(t.pc, func(i *syntax.Inst) bool {
			if i.Op == syntax.InstMatch {
				m.found, m.match = true, span{t.from, m.pos}
				return false
			}
			if takes(i) && r >= 0 && i.MatchRune(r) {
				m.next = append(m.next, thread{i.Out, t.from})
			}
			return true
		}, beside)
	}
	more := true
	for _, t := range m.threads {
		if more = follow(t); !more {
			break
		}
	}
	if more && !m.found {
		follow(thread{uint32(m.prog.Start), m.pos})
	}
	m.threads, m.next = m.next, m.threads
}

// closure visits the instructions that can be come to from one without taking a
// rune, the preferred ones first, those that were met in this round left out. It
// ends with false where visit does.
func (m *machine) closure(pc uint32, visit func(*syntax.Inst) bool, beside syntax.EmptyOp) bool {
	m.stack = append(m.stack[:0], pc)
	for len(m.stack) > 0 {
		pc := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if m.seen[pc] == m.round {
			continue
		}
		m.seen[pc] = m.round
		i := &m.prog.Inst[pc]
		if !visit(i) {
			return false
		}
		switch i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			m.stack = append(m.stack, i.Arg, i.Out)
		case syntax.InstCapture, syntax.InstNop:
			m.stack = append(m.stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^beside == 0 {
				m.stack = append(m.stack, i.Out)
			}
		}
	}
	return true
}

// matchesNothing reports whether a pattern matches without taking a rune, at a
// word's edge for example.
func matchesNothing(prog *syntax.Prog) bool {
	m := machine{prog: prog, seen: make([]int, len(prog.Inst)), round: 1}
	return !m.closure(uint32(prog.Start), func(i *syntax.Inst) bool { return i.Op != syntax.InstMatch }, ^syntax.EmptyOp(0))
}
