package redact

import (
	"slices"
	"strings"
)

// leastCut is from how many bytes on the end of a text that was cut off is taken
// out where more might have made a match of it.
const leastCut = 4

// A Stream takes what matches out of one text that comes in pieces, wherever
// they are cut: the end of a piece is kept back as long as more could make a
// match of it. What it gives in all is what it would give of the whole. It is
// for one goroutine.
type Stream struct {
	machines []machine
	held     []byte // what was not given yet
	at       int    // of that in the text
}

// Stream begins a text.
func (p Patterns) Stream() *Stream {
	s := &Stream{}
	for _, prog := range p.progs {
		s.machines = append(s.machines, newMachine(prog))
	}
	return s
}

// Next takes the next piece, of whole letters, and gives what is certain of the
// text until now.
func (s *Stream) Next(piece string) string {
	s.held = append(s.held, piece...)
	safe := s.at + len(s.held)
	for i := range s.machines {
		s.machines[i].feed(s.held, s.at)
		safe = min(safe, s.machines[i].open())
	}
	matches := s.matches()
	for _, m := range slices.Backward(matches) {
		if m.from < safe && safe < m.to {
			safe = m.from // of another pattern, over the beginning of this one's
		}
	}
	return s.give(safe, matches)
}

// End gives the rest of the text. Where that was cut off, the beginning of what
// may have become a match goes too.
func (s *Stream) End(cut bool) string {
	end := s.at + len(s.held)
	open := end
	for i := range s.machines {
		open = min(open, s.machines[i].open())
		s.machines[i].finish(s.held, s.at)
	}
	matches := s.matches()
	if cut && end-open >= leastCut {
		matches = union(append(matches, span{open, end}))
	}
	return s.give(end, matches)
}

// give takes what is held up to a place off, with a mark for each match.
func (s *Stream) give(to int, matches []span) string {
	var clean strings.Builder
	done := s.at
	for _, m := range matches {
		if m.to > to {
			break
		}
		clean.Write(s.held[done-s.at : m.from-s.at])
		clean.WriteString(Mark)
		done = m.to
	}
	clean.Write(s.held[done-s.at : to-s.at])
	s.held, s.at = append(s.held[:0], s.held[to-s.at:]...), to
	for i := range s.machines {
		m := &s.machines[i]
		m.matches = slices.DeleteFunc(m.matches, func(m span) bool { return m.to <= to })
	}
	return clean.String()
}

// matches are the matches of all patterns that are at their end, in order and
// apart.
func (s *Stream) matches() []span {
	var all []span
	for i := range s.machines {
		all = append(all, s.machines[i].matches...)
	}
	return union(all)
}

// A span is a part of the text.
type span struct{ from, to int }

// union joins spans that overlap.
func union(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return a.from - b.from })
	apart := all[:0]
	for _, m := range all {
		if n := len(apart); n > 0 && m.from < apart[n-1].to {
			apart[n-1].to = max(apart[n-1].to, m.to)
			continue
		}
		apart = append(apart, m)
	}
	return apart
}
