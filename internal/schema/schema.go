// Package schema holds the arguments of a tool to its JSON Schema.
//
// It reads the drafts 4, 6, 7, 2019-09 and 2020-12, within one document:
// nothing is ever fetched. Formats and contents are notes to the reader, as in
// 2020-12, and not checked. Both the schema and the value come from strangers:
// whatever they are, a check ends after a bounded number of steps.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Schema is a compiled JSON Schema. It may be used by several goroutines.
type Schema struct {
	root   *node
	tracks bool // it has keywords that ask what others have looked at
}

// maxProblems is how many problems are told of one value: who corrects the
// first few of a thousand has learnt how.
const maxProblems = 5

// Compile reads a schema, of any draft from 4 on (2020-12 where it does not
// say). One that refers to another document is refused. An empty schema allows
// everything.
func Compile(raw json.RawMessage) (*Schema, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	doc, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	return compile(doc)
}

// Check holds a JSON value to the schema. It returns a line for each problem,
// at most five of them, with its place in the value; none if the value fits.
func (s *Schema) Check(raw json.RawMessage) []string {
	value, err := parse(raw)
	if err != nil {
		return []string{"not JSON: " + err.Error()}
	}
	var found sink
	c := &check{tracks: s.tracks, told: &found}
	c.node(s.root, value, nil)
	switch n := found.n; {
	case c.spent > maxSteps:
		return []string{fmt.Sprintf("not checked: it takes more than %d steps", maxSteps)}
	case c.deep:
		return []string{fmt.Sprintf("not checked: it is nested deeper than %d levels, or its schema refers to itself without end", maxDepth)}
	case n > maxProblems:
		return append(found.lines, fmt.Sprintf("and %d more", n-maxProblems))
	}
	return found.lines
}

// A sink takes problems, and keeps the first of them.
type sink struct {
	lines []string
	n     int
}

// What is shown of a place and of a problem: names and values may be large.
const (
	maxPlace = 200
	maxText  = 300
)

func (s *sink) add(at *place, text string) {
	if s.n++; s.n <= maxProblems {
		s.lines = append(s.lines, clip(at.String(), maxPlace)+clip(text, maxText))
	}
}

// A place is where in the value something is; nil: the value itself.
type place struct {
	in    *place
	token string
}

// String is a JSON pointer and a colon, or "" for the value itself.
func (p *place) String() string {
	if p == nil {
		return ""
	}
	var tokens []string
	for ; p != nil; p = p.in {
		tokens = append(tokens, p.token)
	}
	var b strings.Builder
	for i := len(tokens) - 1; i >= 0; i-- {
		b.WriteString("/" + escape(tokens[i]))
	}
	return b.String() + ": "
}

func escape(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }

// parse reads JSON, with its numbers as they are written. It refuses those that
// nobody means: all their digits count here, and 1e999999999 would take all
// memory and time there is.
func parse(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the value")
	}
	return value, tame(value)
}

const (
	maxExponent = 400  // a little more than what a float64 holds
	maxDigits   = 1000 // of a number
)

func tame(value any) error {
	switch v := value.(type) {
	case json.Number:
		_, exponent, found := strings.Cut(strings.ToLower(v.String()), "e")
		n, err := strconv.Atoi(exponent)
		if found && (err != nil || n < -maxExponent || n > maxExponent) {
			return fmt.Errorf("the number %.40s has too large an exponent", v)
		}
		if len(v) > maxDigits {
			return fmt.Errorf("the number %.40s… has too many digits", v)
		}
	case []any:
		for _, e := range v {
			if err := tame(e); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, e := range v {
			if err := tame(e); err != nil {
				return err
			}
		}
	}
	return nil
}
