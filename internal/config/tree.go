package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// A node is a value of a configuration before it is held to the contract,
// with its origin. It is a table, an array, or a scalar in value.
type node struct {
	origin Origin
	raw    string // of --set: the text, for a key that wants a string
	value  any    // string, int64, float64, bool or time.Time
	table  map[string]*node
	order  []string // of table, as in the document
	array  []*node
	kind   nodeKind
}

type nodeKind int

const (
	scalarNode nodeKind = iota
	tableNode
	arrayNode
)

func newTable(o Origin) *node {
	return &node{origin: o, table: map[string]*node{}, kind: tableNode}
}

// put sets a key of a table.
func (n *node) put(key string, v *node) {
	if _, old := n.table[key]; !old {
		n.order = append(n.order, key)
	}
	n.table[key] = v
}

// what says for people what a value is.
func (n *node) what() string {
	switch n.kind {
	case tableNode:
		return "is a table"
	case arrayNode:
		return "is an array"
	}
	switch v := n.value.(type) {
	case string:
		return shortQuote(v) + " is text"
	case int64:
		return strconv.FormatInt(v, 10) + " is a whole number"
	case float64:
		return formatFloat(v) + " is a number with a point"
	case bool:
		return strconv.FormatBool(v) + " is true or false"
	}
	return "is a date or time"
}

// parse reads a document into a tree. name is the file's, for origins.
func parse(name string, data []byte) (*node, Problems) {
	at := func(line, column int, message string) Problems {
		return Problems{{Origin{FromFile, name, line, column}, "", message}}
	}
	if len(data) > maxFile {
		return nil, at(0, 0, fmt.Sprintf("is larger than %d bytes: not a configuration", maxFile))
	}
	if !utf8.Valid(data) {
		line := 1 + strings.Count(string(data[:invalidUTF8(data)]), "\n")
		return nil, at(line, 0, fmt.Sprintf("line %d is not valid UTF-8", line))
	}
	src := string(data)
	marks, err := scan(src)
	var bad *scanError
	if errors.As(err, &bad) {
		// Only the part up to the fault is parsed: beyond it nothing bounds
		// the nesting. The library's words for the fault are better.
		if !bad.bound {
			if p := syntax(name, src[:lineEnd(src, bad.line)], bad.line); p != nil {
				return nil, Problems{*p}
			}
		}
		return nil, at(bad.line, bad.column, "syntax: "+bad.Error())
	}
	var doc map[string]any
	if _, err := toml.Decode(src, &doc); err != nil {
		return nil, Problems{*syntaxProblem(name, err, math.MaxInt)}
	}
	return build(doc, marks, Origin{FromFile, name, 1, 1}), nil
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// lineEnd is the offset of the end of a line.
func lineEnd(src string, line int) int {
	off := 0
	for range line {
		i := strings.IndexByte(src[off:], '\n')
		if i < 0 {
			return len(src)
		}
		off += i + 1
	}
	return off
}

func syntax(name, src string, line int) *Problem {
	var doc map[string]any
	if _, err := toml.Decode(src, &doc); err != nil {
		return syntaxProblem(name, err, line)
	}
	return nil
}

// syntaxProblem makes a problem of the library's error. A bare word is not
// repeated: it may be a key that was pasted without quotes. The fault is not
// after line most: the library counts a line end that it did not expect.
func syntaxProblem(name string, err error, most int) *Problem {
	p := &Problem{Origin: Origin{Kind: FromFile, Name: name}, Message: "syntax: " + err.Error()}
	var pe toml.ParseError
	if !errors.As(err, &pe) {
		return p
	}
	p.Origin.Line, p.Origin.Column = min(pe.Position.Line, most), pe.Position.Col
	message := strings.TrimSuffix(pe.Message, ".")
	if i := strings.Index(message, "expected value but found "); i >= 0 && len(message) > i+len("expected value but found ")+len("'\\x00' instead") {
		message = "expected a value; text needs quotes around it"
	}
	p.Message = fmt.Sprintf("syntax: line %d: %s", p.Origin.Line, message)
	if pe.LastKey != "" && !looksSecret(pe.LastKey) {
		p.Message += fmt.Sprintf(" (the last key before it is %s)", pe.LastKey)
	}
	return p
}

// build joins what the library read with where it stands.
func build(v any, m *mark, o Origin) *node {
	if m != nil {
		o.Line, o.Column = m.line, m.column
	} else {
		m = &mark{}
	}
	switch v := v.(type) {
	case map[string]any:
		n := newTable(o)
		for _, key := range keysInOrder(v, m) {
			n.put(key, build(v[key], m.keys[key], o))
		}
		return n
	case []map[string]any:
		n := &node{origin: o, kind: arrayNode}
		for i, item := range v {
			n.array = append(n.array, build(item, m.item(i), o))
		}
		return n
	case []any:
		n := &node{origin: o, kind: arrayNode}
		for i, item := range v {
			n.array = append(n.array, build(item, m.item(i), o))
		}
		return n
	}
	return &node{origin: o, value: v}
}

func (m *mark) item(i int) *mark {
	if i < len(m.items) {
		return m.items[i]
	}
	return nil
}

func keysInOrder(v map[string]any, m *mark) []string {
	var keys, rest []string
	for _, k := range m.order {
		if _, ok := v[k]; ok {
			keys = append(keys, k)
		}
	}
	for k := range v {
		if m.keys[k] == nil {
			rest = append(rest, k)
		}
	}
	slices.Sort(rest)
	return append(keys, rest...)
}

// fromGo makes a node of a flag's or a variable's value.
func fromGo(v any, o Origin) *node {
	switch v := v.(type) {
	case []string:
		n := &node{origin: o, kind: arrayNode}
		for _, s := range v {
			n.array = append(n.array, &node{origin: o, value: s})
		}
		return n
	case int:
		return &node{origin: o, value: int64(v)}
	}
	return &node{origin: o, value: v}
}
