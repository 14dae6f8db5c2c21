package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// A Flag is a command's flag that sets a key, if it was given.
type Flag struct {
	Name  string // as typed: "--model"
	Key   string // dotted: "agent.model"
	Value any    // string, bool, int, int64, float64 or []string
}

// layers lays variables, --set and flags over a tree, the weaker ones first.
func (l *loader) layers(root *node) {
	for _, v := range []struct{ name, key string }{
		{"DSH_PROVIDER", "agent.provider"}, {"DSH_MODEL", "agent.model"}, {"DSH_DATA_DIR", "store.dir"},
	} {
		if text := l.variable(v.name); text != "" {
			o := Origin{Kind: FromVariable, Name: v.name}
			l.set(root, strings.Split(v.key, "."), fromGo(text, o), o)
		}
	}
	for _, text := range l.src.Sets {
		l.setText(root, text)
	}
	for _, f := range l.src.Flags {
		o := Origin{Kind: FromFlag, Name: f.Name}
		l.set(root, strings.Split(f.Key, "."), fromGo(f.Value, o), o)
	}
}

// setText carries out one --set.
func (l *loader) setText(root *node, text string) {
	o := Origin{Kind: FromFlag, Name: "--set"}
	key, value, problem := parseSet(text, o)
	if problem != "" {
		l.problem(o, "", problem)
		return
	}
	l.set(root, key, value, o)
}

// parseSet reads KEY=VALUE. A value that is no TOML is text, unless it begins
// as something that only TOML does.
func parseSet(text string, o Origin) ([]string, *node, string) {
	s := newScanner(text)
	parts, err := s.key()
	if err != nil || s.end() || s.peek() != '=' {
		return nil, nil, "wants KEY=VALUE with a dotted key, such as --set agent.model=NAME"
	}
	key := make([]string, len(parts))
	for i, p := range parts {
		key[i] = p.name
	}
	raw := strings.TrimSpace(text[s.off+1:])
	var doc map[string]any
	marks, err := scan("v = " + raw)
	if err == nil {
		_, err = toml.Decode("v = "+raw, &doc)
	}
	if err == nil && len(doc) == 1 && len(marks.order) == 1 {
		n := unplaced(build(doc["v"], nil, o))
		n.raw = raw
		return key, n, ""
	}
	if raw != "" && strings.ContainsRune(`"'[{`, rune(raw[0])) {
		return nil, nil, fmt.Sprintf("%s: the value begins as TOML does and is none; text needs quotes, as do texts in [ ] and { }", strings.Join(key, "."))
	}
	return key, &node{origin: o, value: raw, raw: raw}, ""
}

// unplaced takes line and column from a tree that is of no file.
func unplaced(n *node) *node {
	n.origin.Line, n.origin.Column = 0, 0
	for _, c := range n.table {
		unplaced(c)
	}
	for _, c := range n.array {
		unplaced(c)
	}
	return n
}

// set puts a value at a dotted key. An element of an array of tables is named
// by its name, or by its place from 0.
func (l *loader) set(root *node, key []string, value *node, o Origin) {
	if len(key) > 2 && key[0] == "recovery" && key[1] == "policy" {
		l.seedPolicies(root)
	}
	at := root
	for i, k := range key {
		last := i == len(key)-1
		if at.kind == arrayNode {
			item := element(at, k)
			if item == nil {
				l.problem(o, strings.Join(key, "."), fmt.Sprintf("%s names nothing in %s", shortQuote(k), strings.Join(key[:i], ".")))
				return
			}
			if last {
				*item = *value
				return
			}
			at = item
			continue
		}
		if at.kind != tableNode {
			l.problem(o, strings.Join(key, "."), strings.Join(key[:i], ".")+" is no table")
			return
		}
		if last {
			at.put(k, value)
			return
		}
		next := at.table[k]
		if next == nil {
			next = newTable(o)
			at.put(k, next)
		}
		at = next
	}
}

func element(array *node, name string) *node {
	for _, item := range array.array {
		if n := item.table["name"]; n != nil && n.value == name {
			return item
		}
	}
	if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(array.array) {
		return array.array[i]
	}
	return nil
}

// seedPolicies writes the built-in waterfall out, where nothing is said of
// one, so that a part of it can be set.
func (l *loader) seedPolicies(root *node) {
	recovery := root.table["recovery"]
	if recovery == nil {
		recovery = newTable(Origin{Kind: FromDefault})
		root.put("recovery", recovery)
	}
	if recovery.kind != tableNode || recovery.table["policy"] != nil {
		return
	}
	o := Origin{Kind: FromDefault}
	policies := &node{origin: o, kind: arrayNode}
	for _, b := range l.src.Support.Builtins {
		if !b.Default {
			continue
		}
		p := newTable(o)
		p.put("name", fromGo(b.Name, o))
		p.put("module", fromGo("builtin:"+b.Name, o))
		if len(b.Capabilities) > 0 {
			p.put("capabilities", fromGo(b.Capabilities, o))
		}
		policies.array = append(policies.array, p)
	}
	recovery.put("policy", policies)
}
