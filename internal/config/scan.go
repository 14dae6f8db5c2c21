package config

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// Bounds on a document, which keep what a stranger wrote from growing the
// parser's stack. Nothing that dsh.toml can say comes near them.
const (
	maxFile  = 256 << 10 // bytes
	maxDepth = 32        // brackets in a value, and parts of a key
)

// A mark is the place of a key, and of what it holds. The TOML library keeps
// no positions of good keys, and every problem wants one.
type mark struct {
	line, column int
	keys         map[string]*mark
	order        []string // of keys, as in the document
	items        []*mark  // of an array; each is a mark without a name
}

// child gives the mark of a key, which it makes if there is none.
func (m *mark) child(p keyPart) *mark {
	if c := m.keys[p.name]; c != nil {
		return c
	}
	if m.keys == nil {
		m.keys = map[string]*mark{}
	}
	c := &mark{line: p.line, column: p.column}
	m.keys[p.name] = c
	m.order = append(m.order, p.name)
	return c
}

// into is the mark that a header's next part continues from: of an array of
// tables, the last one.
func (m *mark) into() *mark {
	if n := len(m.items); n > 0 {
		return m.items[n-1]
	}
	return m
}

type keyPart struct {
	name         string
	line, column int
}

// A scanError is where a scan could not go on.
type scanError struct {
	line, column int
	message      string
	bound        bool // it is well formed, but over one of our bounds
}

func (e *scanError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.line, e.column, e.message)
}

// scanner finds the places of keys in a document. It is no validator: what is
// no TOML, the library refuses.
type scanner struct {
	src    string
	off    int
	line   int
	column int // in characters
}

func newScanner(src string) *scanner { return &scanner{src: src, line: 1, column: 1} }

// scan indexes a document. A document that is not well formed gives an error,
// or marks that mean nothing.
func scan(src string) (*mark, error) {
	s := newScanner(src)
	if strings.HasPrefix(src, "\ufeff") {
		s.off = len("\ufeff")
	}
	root := &mark{line: 1, column: 1}
	table := root
	for {
		s.skip(true)
		if s.end() {
			return root, nil
		}
		var err error
		if s.peek() == '[' {
			table, err = s.header(root)
		} else {
			err = s.pair(table, 0)
		}
		if err != nil {
			return nil, err
		}
		s.skip(false)
		if !s.end() && s.peek() != '\n' && s.peek() != '\r' {
			return nil, s.fail("expected the end of the line")
		}
	}
}

func (s *scanner) end() bool  { return s.off >= len(s.src) }
func (s *scanner) peek() byte { return s.src[s.off] }

func (s *scanner) at(prefix string) bool { return strings.HasPrefix(s.src[s.off:], prefix) }

func (s *scanner) here() (line, column int) { return s.line, s.column }

func (s *scanner) fail(message string) error {
	line, column := s.here()
	return &scanError{line, column, message, false}
}

// step goes on by n bytes, counting lines.
func (s *scanner) step(n int) {
	for range n {
		switch c := s.src[s.off]; {
		case c == '\n':
			s.line, s.column = s.line+1, 1
		case utf8.RuneStart(c):
			s.column++
		}
		s.off++
	}
}

// skip passes white space and comments, and with lines also line ends.
func (s *scanner) skip(lines bool) {
	for !s.end() {
		switch c := s.peek(); {
		case c == ' ' || c == '\t':
			s.step(1)
		case lines && (c == '\n' || c == '\r'):
			s.step(1)
		case c == '#':
			for !s.end() && s.peek() != '\n' {
				s.step(1)
			}
		default:
			return
		}
	}
}

// header reads [a.b] or [[a.b]] and gives the table that what follows is in.
func (s *scanner) header(root *mark) (*mark, error) {
	array := s.at("[[")
	closing := "]"
	if array {
		closing = "]]"
	}
	s.step(len(closing))
	parts, err := s.key()
	if err != nil {
		return nil, err
	}
	if !s.at(closing) {
		return nil, s.fail("expected " + closing)
	}
	s.step(len(closing))
	m := root
	for _, p := range parts[:len(parts)-1] {
		m = m.child(p).into()
	}
	last := parts[len(parts)-1]
	m = m.child(last)
	if array {
		m.items = append(m.items, &mark{line: last.line, column: last.column})
		return m.into(), nil
	}
	m.line, m.column = last.line, last.column
	return m, nil
}

// key reads a dotted key, up to what follows it.
func (s *scanner) key() ([]keyPart, error) {
	var parts []keyPart
	for {
		s.skip(false)
		line, column := s.here()
		name, err := s.name()
		if err != nil {
			return nil, err
		}
		parts = append(parts, keyPart{name, line, column})
		if len(parts) > maxDepth {
			return nil, &scanError{line, column, fmt.Sprintf("a key of more than %d parts", maxDepth), true}
		}
		s.skip(false)
		if s.end() || s.peek() != '.' {
			return parts, nil
		}
		s.step(1)
	}
}

// name reads one part of a key.
func (s *scanner) name() (string, error) {
	if s.end() {
		return "", s.fail("expected a key")
	}
	start := s.off
	if c := s.peek(); c == '"' || c == '\'' {
		if err := s.quoted(); err != nil {
			return "", err
		}
		text := s.src[start:s.off]
		if c == '\'' || !strings.Contains(text, `\`) {
			return text[1 : len(text)-1], nil
		}
		var v struct{ K string }
		if _, err := toml.Decode("K = "+text, &v); err != nil {
			return "", s.fail("expected a key")
		}
		return v.K, nil
	}
	for !s.end() && bareKey(s.peek()) {
		s.step(1)
	}
	if s.off == start {
		return "", s.fail("expected a key")
	}
	return s.src[start:s.off], nil
}

func bareKey(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// pair reads key = value into a table.
func (s *scanner) pair(table *mark, depth int) error {
	parts, err := s.key()
	if err != nil {
		return err
	}
	if s.end() || s.peek() != '=' {
		return s.fail("expected =")
	}
	s.step(1)
	s.skip(false)
	m := table
	for _, p := range parts {
		m = m.into().child(p)
	}
	return s.value(m, depth)
}

// value passes a value and marks what is in it.
func (s *scanner) value(m *mark, depth int) error {
	if s.end() {
		return s.fail("expected a value")
	}
	if depth > maxDepth {
		line, column := s.here()
		return &scanError{line, column, fmt.Sprintf("values nested more than %d deep", maxDepth), true}
	}
	switch s.peek() {
	case '"', '\'':
		return s.quoted()
	case '[':
		return s.list(']', func() error {
			line, column := s.here()
			item := &mark{line: line, column: column}
			m.items = append(m.items, item)
			return s.value(item, depth+1)
		})
	case '{':
		return s.list('}', func() error { return s.pair(m, depth+1) })
	}
	start := s.off
	for !s.end() && !strings.ContainsRune(",]}#\n\r", rune(s.peek())) {
		s.step(1)
	}
	if s.off == start {
		return s.fail("expected a value")
	}
	return nil
}

// list passes the elements between brackets.
func (s *scanner) list(closing byte, element func() error) error {
	s.step(1)
	for {
		s.skip(true)
		if s.end() {
			return s.fail("expected " + string(closing))
		}
		if s.peek() == closing {
			s.step(1)
			return nil
		}
		if err := element(); err != nil {
			return err
		}
		s.skip(true)
		if !s.end() && s.peek() == ',' {
			s.step(1)
		} else if s.end() || s.peek() != closing {
			return s.fail("expected a comma or " + string(closing))
		}
	}
}

// quoted passes a string of any of the four kinds.
func (s *scanner) quoted() error {
	q := s.src[s.off : s.off+1]
	mark, multi := q, false
	if long := strings.Repeat(q, 3); s.at(long) {
		mark, multi = long, true
	}
	s.step(len(mark))
	for !s.end() {
		switch c := s.peek(); {
		case c == '\\' && q == `"` && s.off+1 < len(s.src):
			s.step(2)
		case c == '\n' && !multi:
			return s.fail("expected " + q)
		case s.at(mark):
			s.step(len(mark))
			// A long string may end in up to two quotes of its own.
			for i := 0; multi && i < 2 && s.at(q); i++ {
				s.step(1)
			}
			return nil
		default:
			s.step(1)
		}
	}
	return s.fail("expected " + mark)
}
