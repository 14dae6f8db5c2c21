package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxSteps = 1_000_000 // of one check, about a second's worth
	maxDepth = 30_000    // schemas within schemas: some 30 MB of stack
)

// stepBytes is how many instructions of patterns cost as much as a step.
const stepBytes = 64

// A check holds one value to a schema.
type check struct {
	tracks bool
	told   *sink // nil: only the verdict counts
	scope  []*resource
	spent  int
	depth  int
	deep   bool
}

// seen is what of a value schemas have looked at, for the keywords that are
// about the rest.
type seen struct {
	names    map[string]struct{}
	elements map[int]struct{}
	first    int // so many elements
	allNames bool
	allElems bool
}

func (s *seen) add(t seen) {
	s.allNames, s.allElems, s.first = s.allNames || t.allNames, s.allElems || t.allElems, max(s.first, t.first)
	for name := range t.names {
		s.name(name)
	}
	for i := range t.elements {
		s.element(i)
	}
}

func (s *seen) name(name string) {
	if s.names == nil {
		s.names = map[string]struct{}{}
	}
	s.names[name] = struct{}{}
}

func (s *seen) element(i int) {
	if s.elements == nil {
		s.elements = map[int]struct{}{}
	}
	s.elements[i] = struct{}{}
}

// spend counts steps. It is false when the check has to end, whose verdict does
// not count then.
func (c *check) spend(n int) bool {
	c.spent += n
	return c.spent <= maxSteps && !c.deep
}

// tell adds a problem.
func (c *check) tell(at *place, text func() string) bool {
	if c.told != nil {
		c.told.add(at, text())
	}
	return false
}

// node holds a value to a schema. What it saw counts where it fits.
func (c *check) node(n *node, v any, at *place) (ok bool, saw seen) {
	if c.depth++; c.depth > maxDepth {
		c.deep = true
	}
	defer func() { c.depth-- }()
	if !c.spend(1) {
		return true, saw
	}
	if n.never {
		return c.tell(at, func() string { return "is not allowed" }), saw
	}
	if len(c.scope) == 0 || c.scope[len(c.scope)-1] != n.home {
		c.scope = append(c.scope, n.home)
		defer func() { c.scope = c.scope[:len(c.scope)-1] }()
	}
	ok = c.referred(n, v, at, &saw)
	ok = c.general(n, v, at) && ok
	ok = c.combined(n, v, at, &saw) && ok
	switch v := v.(type) {
	case json.Number:
		ok = c.number(n, v, at) && ok
	case string:
		ok = c.text(n, v, at) && ok
	case []any:
		ok = c.array(n, v, at, &saw) && ok
	case map[string]any:
		ok = c.object(n, v, at, &saw) && ok
	}
	return ok, saw
}

// in holds a value to a schema at the same place, and adds what that saw.
func (c *check) in(n *node, v any, at *place, saw *seen) bool {
	if n == nil {
		return true
	}
	ok, s := c.node(n, v, at)
	if ok && c.tracks {
		saw.add(s)
	}
	return ok
}

// quiet is in for a schema that the value need not fit.
func (c *check) quiet(n *node, v any, at *place, saw *seen) bool {
	told := c.told
	c.told = nil
	defer func() { c.told = told }()
	return c.in(n, v, at, saw)
}

func (c *check) referred(n *node, v any, at *place, saw *seen) bool {
	ok := c.in(n.ref, v, at, saw)
	target := n.dynamic
	if n.anchor != "" {
		for _, r := range c.scope {
			if t := r.nodes[n.anchor]; t != nil {
				target = t
				break
			}
		}
	}
	return c.in(target, v, at, saw) && ok
}

func (c *check) general(n *node, v any, at *place) bool {
	ok := true
	if n.types != nil && !slices.ContainsFunc(n.types, func(t string) bool { return is(v, t) }) {
		ok = c.tell(at, func() string { return "is " + kind(v) + ", want " + alternatives(n.types) })
	}
	if n.enum != nil && c.spend(len(n.enum)) && !slices.ContainsFunc(n.enum, func(e any) bool { return equal(e, v) }) {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want one of " + quotes(n.enum) })
	}
	if n.constant != nil && !equal(*n.constant, v) {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want " + quote(*n.constant) })
	}
	return ok
}

func (c *check) combined(n *node, v any, at *place, saw *seen) bool {
	ok := true
	for _, part := range n.all {
		ok = c.in(part, v, at, saw) && ok
	}
	if n.some != nil {
		fit, problems := c.alternatives(n.some, v, at, saw)
		if fit == 0 {
			ok = c.tell(at, func() string { return misfit(len(n.some), problems) })
		}
	}
	if n.one != nil {
		switch fit, problems := c.alternatives(n.one, v, at, saw); fit {
		case 1:
		case 0:
			ok = c.tell(at, func() string { return misfit(len(n.one), problems) })
		default:
			ok = c.tell(at, func() string { return count(fit, "alternative") + " fit, want exactly one" })
		}
	}
	if n.not != nil && c.quiet(n.not, v, at, &seen{}) {
		ok = c.tell(at, func() string { return "is what the schema excludes" })
	}
	if n.cond != nil {
		next := n.els
		if c.quiet(n.cond, v, at, saw) {
			next = n.then
		}
		ok = c.in(next, v, at, saw) && ok
	}
	return ok
}

// alternatives counts the schemas that a value fits, and gives the first
// problem with each of the others.
func (c *check) alternatives(nodes []*node, v any, at *place, saw *seen) (fit int, problems []string) {
	told := c.told
	defer func() { c.told = told }()
	for _, n := range nodes {
		var found sink
		if c.told = nil; told != nil {
			c.told = &found
		}
		if c.in(n, v, at, saw) {
			fit++
		} else if len(found.lines) > 0 {
			problems = append(problems, strings.TrimPrefix(found.lines[0], clip(at.String(), maxPlace)))
		}
	}
	return fit, problems
}

func (c *check) number(n *node, v json.Number, at *place) bool {
	if n.multiple == nil && n.least == nil && n.most == nil && n.above == nil && n.below == nil {
		return true
	}
	x, ok := rational(v), true
	if n.least != nil && x.Cmp(n.least) < 0 {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want at least " + decimal(n.least) })
	}
	if n.most != nil && x.Cmp(n.most) > 0 {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want at most " + decimal(n.most) })
	}
	if n.above != nil && x.Cmp(n.above) <= 0 {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want more than " + decimal(n.above) })
	}
	if n.below != nil && x.Cmp(n.below) >= 0 {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want less than " + decimal(n.below) })
	}
	if n.multiple != nil && !x.Quo(x, n.multiple).IsInt() {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want a multiple of " + decimal(n.multiple) })
	}
	return ok
}

func (c *check) text(n *node, v string, at *place) bool {
	ok := n.length == free() || c.counted(n.length, utf8.RuneCountInString(v), "character", at)
	if n.pattern != nil && !c.matches(n.pattern, v) {
		ok = c.tell(at, func() string { return "is " + quote(v) + ", want what matches " + quote(n.pattern.re.String()) })
	}
	return ok
}

func (c *check) matches(p *pattern, text string) bool {
	return !c.spend(1+len(text)*p.size/stepBytes) || p.re.MatchString(text)
}

// counted holds a number of things to bounds.
func (c *check) counted(b bounds, n int, what string, at *place) bool {
	switch {
	case n < b.min:
		return c.tell(at, func() string { return "has " + count(n, what) + ", want at least " + count(b.min, "") })
	case b.max >= 0 && n > b.max:
		return c.tell(at, func() string { return "has " + count(n, what) + ", want at most " + count(b.max, "") })
	}
	return true
}

func (c *check) array(n *node, v []any, at *place, saw *seen) bool {
	ok := c.counted(n.elements, len(v), "element", at)
	if n.unique {
		ok = c.distinct(v, at) && ok
	}
	for i, part := range n.prefix[:min(len(n.prefix), len(v))] {
		ok = c.element(part, v, i, at) && ok
	}
	saw.first = max(saw.first, min(len(n.prefix), len(v)))
	if n.items != nil {
		for i := len(n.prefix); i < len(v); i++ {
			ok = c.element(n.items, v, i, at) && ok
		}
		saw.allElems = true
	}
	if n.contains != nil {
		ok = c.has(n, v, at, saw) && ok
	}
	if n.restItems == nil || saw.allElems {
		return ok
	}
	for i := saw.first; i < len(v); i++ {
		if _, known := saw.elements[i]; !known {
			ok = c.element(n.restItems, v, i, at) && ok
		}
	}
	saw.allElems = true
	return ok
}

func (c *check) element(n *node, v []any, i int, at *place) bool {
	ok, _ := c.node(n, v[i], &place{at, strconv.Itoa(i)})
	return ok
}

// has counts the elements that fit what an array has to contain.
func (c *check) has(n *node, v []any, at *place, saw *seen) bool {
	fit := 0
	for i := range v {
		if c.quiet(n.contains, v[i], at, &seen{}) {
			fit++
			if c.tracks && n.containsSees {
				saw.element(i)
			}
		}
	}
	return c.counted(n.contained, fit, "element of the wanted kind", at)
}

func (c *check) distinct(v []any, at *place) bool {
	first := make(map[string]int, len(v))
	for i := range v {
		key := canonical(v[i])
		if !c.spend(1 + len(key)/stepBytes) {
			return true
		}
		if j, twice := first[key]; twice {
			return c.tell(at, func() string { return "has the same element at " + strconv.Itoa(j) + " and " + strconv.Itoa(i) })
		}
		first[key] = i
	}
	return true
}

func (c *check) object(n *node, v map[string]any, at *place, saw *seen) bool {
	ok := c.counted(n.size, len(v), "property", at)
	for _, name := range n.required {
		if _, there := v[name]; !there {
			ok = c.tell(at, func() string { return "misses the property " + quote(name) })
		}
	}
	c.spend(len(n.required))
	for _, name := range slices.Sorted(maps.Keys(n.needs)) {
		ok = c.needed(name, n.needs[name], v, at) && ok
	}
	for _, name := range slices.Sorted(maps.Keys(n.whenThere)) {
		if _, there := v[name]; !there {
			continue
		}
		for _, part := range n.whenThere[name] {
			ok = c.in(part, v, at, saw) && ok
		}
	}
	if n.properties == nil && n.patterns == nil && n.additional == nil && n.nameOf == nil && n.restP == nil {
		return ok
	}
	return c.properties(n, v, at, saw) && ok
}

func (c *check) needed(name string, needs []string, v map[string]any, at *place) bool {
	if _, there := v[name]; !there || !c.spend(len(needs)) {
		return true
	}
	ok := true
	for _, need := range needs {
		if _, there := v[need]; !there {
			ok = c.tell(at, func() string { return "misses the property " + quote(need) + ", which " + quote(name) + " needs" })
		}
	}
	return ok
}

func (c *check) properties(n *node, v map[string]any, at *place, saw *seen) bool {
	ok := true
	for _, name := range slices.Sorted(maps.Keys(v)) {
		value, in := v[name], &place{at, name}
		if n.nameOf != nil {
			ok = c.named(n.nameOf, name, at) && ok
		}
		known := false
		if part := n.properties[name]; part != nil {
			fits, _ := c.node(part, value, in)
			known, ok = true, fits && ok
		}
		for _, p := range n.patterns {
			if c.matches(p.pattern, name) {
				fits, _ := c.node(p.schema, value, in)
				known, ok = true, fits && ok
			}
		}
		if !known && n.additional != nil {
			known, ok = true, c.extra(n.additional, name, value, at) && ok
		}
		if known && c.tracks {
			saw.name(name)
		}
	}
	if n.additional != nil {
		saw.allNames = true
	}
	if n.restP == nil || saw.allNames {
		return ok
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if _, known := saw.names[name]; !known {
			ok = c.extra(n.restP, name, v[name], at) && ok
		}
	}
	saw.allNames = true
	return ok
}

// extra is for a property that no other keyword knows.
func (c *check) extra(n *node, name string, v any, at *place) bool {
	if n.never {
		return c.tell(at, func() string { return "has the property " + quote(name) + ", which is not allowed" })
	}
	ok, _ := c.node(n, v, &place{at, name})
	return ok
}

func (c *check) named(n *node, name string, at *place) bool {
	fit, problems := c.alternatives([]*node{n}, name, at, &seen{})
	if fit == 1 {
		return true
	}
	return c.tell(at, func() string { return "has a property whose name " + misfit(1, problems) })
}
