package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
)

// A node is a schema or a part of one. Its zero value allows everything.
type node struct {
	home    *resource
	never   bool // the schema false
	ref     *node
	dynamic *node  // a reference that anchor may lead elsewhere
	anchor  string // looked for in what the check came through; "": nowhere

	types            []string
	enum             []any
	constant         *any
	multiple         *big.Rat
	least, most      *big.Rat // minimum, maximum
	above, below     *big.Rat // exclusiveMinimum, exclusiveMaximum
	length           bounds
	pattern          *pattern
	elements         bounds
	unique           bool
	prefix           []*node
	items            *node // of the elements after prefix
	contains         *node
	contained        bounds
	containsSees     bool // since 2020-12, what contains met is not unevaluated
	properties       map[string]*node
	names            []string // of properties, sorted
	patterns         []patterned
	additional       *node
	nameOf           *node // propertyNames
	required         []string
	size             bounds
	needs            map[string][]string
	whenThere        map[string][]*node // dependentSchemas
	all, some, one   []*node
	not              *node
	cond, then, els  *node
	restItems, restP *node // unevaluatedItems, unevaluatedProperties
}

// bounds are those of a count; max < 0: none.
type bounds struct{ min, max int }

func free() bounds { return bounds{0, -1} }

// A pattern is a regular expression and what a step of it costs.
type pattern struct {
	re   *regexp.Regexp
	size int // instructions
}

type patterned struct {
	pattern *pattern
	schema  *node
}

// maxPattern bounds the instructions of a pattern, as a check goes through all
// of them for each character.
const maxPattern = 10_000

// The drafts, by when they came out.
const (
	draft4 = iota
	draft6
	draft7
	draft2019
	draft2020
)

// draftNamed knows a draft by its $schema, without the scheme.
func draftNamed(uri string) (draft int, known bool) {
	switch uri {
	case "json-schema.org/draft-04/schema":
		return draft4, true
	case "json-schema.org/draft-06/schema":
		return draft6, true
	case "json-schema.org/draft-07/schema":
		return draft7, true
	case "json-schema.org/draft/2019-09/schema":
		return draft2019, true
	case "json-schema.org/draft/2020-12/schema":
		return draft2020, true
	}
	return 0, false
}

// since says from which draft on a keyword means something.
func since(keyword string) int {
	switch keyword {
	case "const", "contains", "propertyNames", "exclusiveMinimum", "exclusiveMaximum":
		return draft6
	case "if":
		return draft7
	case "minContains", "maxContains", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties":
		return draft2019
	case "prefixItems", "$dynamicRef":
		return draft2020
	}
	return draft4
}

func draftOf(doc any) (int, error) {
	m, _ := doc.(map[string]any)
	name, given := m["$schema"]
	if !given {
		return draft2020, nil
	}
	text, _ := name.(string)
	_, rest, _ := strings.Cut(strings.TrimSuffix(text, "#"), "://")
	draft, known := draftNamed(rest)
	if !known {
		return 0, fmt.Errorf("/$schema: %s is no draft of JSON Schema that is known here: they are 4, 6, 7, 2019-09 and 2020-12", quote(name))
	}
	return draft, nil
}

func compile(doc any) (*Schema, error) {
	draft, err := draftOf(doc)
	if err != nil {
		return nil, err
	}
	c := &compiler{doc: doc, draft: draft, nodes: map[string]*node{}, at: map[string]*resource{}, byURI: map[string]*resource{}}
	if err := c.survey("", doc, nil); err != nil {
		return nil, err
	}
	root, err := c.find("")
	if err != nil {
		return nil, err
	}
	return &Schema{root: root, tracks: c.tracks}, c.dynamics()
}

// node compiles the schema at a JSON pointer. One that is under way is
// returned as it is: schemas refer to each other in circles.
func (c *compiler) node(at string, raw any, home *resource) (*node, error) {
	if n := c.nodes[at]; n != nil {
		return n, nil
	}
	if r := c.at[at]; r != nil {
		home = r
	}
	n := &node{home: home, length: free(), elements: free(), contained: bounds{1, -1}, size: free()}
	c.nodes[at] = n
	switch v := raw.(type) {
	case bool:
		n.never = !v
		return n, nil
	case map[string]any:
		k := &keywords{c: c, at: at, raw: v, home: home}
		k.read(n)
		return n, k.err
	}
	return nil, wrong(at, raw, "an object, true or false")
}

func wrong(at string, value any, want string) error {
	if at == "" {
		at = "the schema"
	}
	return fmt.Errorf("%s is %s, want %s", at, quote(value), want)
}

// keywords reads those of one schema. The first that is wrong ends it.
type keywords struct {
	c    *compiler
	at   string
	raw  map[string]any
	home *resource
	err  error
}

// get finds a keyword that the draft knows.
func (k *keywords) get(name string) (any, bool) {
	v, ok := k.raw[name]
	return v, ok && k.err == nil && since(name) <= k.c.draft
}

func (k *keywords) wrong(name string, value any, want string) {
	if k.err == nil {
		k.err = wrong(k.at+"/"+escape(name), value, want)
	}
}

func (k *keywords) read(n *node) {
	if _, ok := k.raw["$ref"]; ok {
		n.ref = k.refer("$ref")
		if k.c.draft <= draft7 {
			return // what is beside it does not count
		}
	}
	k.dynamic(n)
	k.general(n)
	k.number(n)
	k.text(n)
	k.array(n)
	k.object(n)
	n.all, n.some, n.one, n.not = k.list("allOf"), k.list("anyOf"), k.list("oneOf"), k.schema("not")
	if n.cond = k.schema("if"); n.cond != nil {
		n.then, n.els = k.schema("then"), k.schema("else")
	}
}

func (k *keywords) general(n *node) {
	if v, ok := k.get("type"); ok {
		n.types = k.strings("type", v, true)
		for _, t := range n.types {
			if !slices.Contains([]string{"array", "boolean", "integer", "null", "number", "object", "string"}, t) {
				k.wrong("type", v, "array, boolean, integer, null, number, object or string")
			}
		}
	}
	if v, ok := k.get("enum"); ok {
		if n.enum, ok = v.([]any); !ok {
			k.wrong("enum", v, "an array")
		}
		if n.enum == nil {
			n.enum = []any{}
		}
	}
	if v, ok := k.get("const"); ok {
		n.constant = &v
	}
}

func (k *keywords) number(n *node) {
	n.multiple, n.least, n.most = k.rat("multipleOf"), k.rat("minimum"), k.rat("maximum")
	if n.multiple != nil && n.multiple.Sign() <= 0 {
		k.wrong("multipleOf", k.raw["multipleOf"], "a number above 0")
	}
	if k.c.draft > draft4 {
		n.above, n.below = k.rat("exclusiveMinimum"), k.rat("exclusiveMaximum")
		return
	}
	if k.raw["exclusiveMinimum"] == true {
		n.above, n.least = n.least, nil
	}
	if k.raw["exclusiveMaximum"] == true {
		n.below, n.most = n.most, nil
	}
}

func (k *keywords) text(n *node) {
	n.length = bounds{k.count("minLength", 0), k.count("maxLength", -1)}
	if v, ok := k.get("pattern"); ok {
		n.pattern = k.regexp("pattern", v)
	}
}

func (k *keywords) array(n *node) {
	n.elements = bounds{k.count("minItems", 0), k.count("maxItems", -1)}
	if v, ok := k.get("uniqueItems"); ok {
		if n.unique, ok = v.(bool); !ok {
			k.wrong("uniqueItems", v, "true or false")
		}
	}
	n.prefix = k.list("prefixItems")
	if _, ok := k.raw["items"].([]any); ok && k.c.draft < draft2020 {
		n.prefix, n.items = k.list("items"), k.schema("additionalItems")
	} else {
		n.items = k.schema("items")
	}
	n.contains = k.schema("contains")
	n.contained = bounds{k.count("minContains", 1), k.count("maxContains", -1)}
	n.containsSees = k.c.draft >= draft2020
	if n.restItems = k.schema("unevaluatedItems"); n.restItems != nil {
		k.c.tracks = true
	}
}

func (k *keywords) object(n *node) {
	n.size = bounds{k.count("minProperties", 0), k.count("maxProperties", -1)}
	if v, ok := k.get("required"); ok {
		n.required = k.strings("required", v, false)
	}
	n.properties = k.schemas("properties")
	n.names = slices.Sorted(maps.Keys(n.properties))
	byPattern := k.schemas("patternProperties")
	for _, p := range slices.Sorted(maps.Keys(byPattern)) {
		n.patterns = append(n.patterns, patterned{k.regexp("patternProperties", p), byPattern[p]})
	}
	n.additional, n.nameOf = k.schema("additionalProperties"), k.schema("propertyNames")
	if n.restP = k.schema("unevaluatedProperties"); n.restP != nil {
		k.c.tracks = true
	}
	n.needs, n.whenThere = map[string][]string{}, map[string][]*node{}
	for property, part := range k.schemas("dependentSchemas") {
		n.whenThere[property] = []*node{part}
	}
	if v, ok := k.get("dependentRequired"); ok {
		k.dependencies(n, "dependentRequired", v)
	}
	if v, ok := k.get("dependencies"); ok { // dropped in 2019-09, and still met
		k.dependencies(n, "dependencies", v)
	}
}

// dependencies are what properties need beside them: others, or a schema.
func (k *keywords) dependencies(n *node, name string, v any) {
	m, ok := v.(map[string]any)
	if !ok {
		k.wrong(name, v, "an object")
		return
	}
	for property, need := range m {
		if _, ok := need.([]any); ok {
			n.needs[property] = append(n.needs[property], k.strings(name, need, false)...)
			continue
		}
		n.whenThere[property] = append(n.whenThere[property], k.sub(name+"/"+escape(property), need))
	}
}

// sub compiles a schema below this one.
func (k *keywords) sub(path string, raw any) *node {
	if k.err != nil {
		return nil
	}
	n, err := k.c.node(k.at+"/"+path, raw, k.home)
	k.err = err
	return n
}

func (k *keywords) schema(name string) *node {
	v, ok := k.get(name)
	if !ok {
		return nil
	}
	return k.sub(escape(name), v)
}

func (k *keywords) list(name string) []*node {
	v, ok := k.get(name)
	if !ok {
		return nil
	}
	raws, ok := v.([]any)
	if !ok {
		k.wrong(name, v, "an array of schemas")
		return nil
	}
	nodes := make([]*node, len(raws))
	for i, raw := range raws {
		nodes[i] = k.sub(name+"/"+strconv.Itoa(i), raw)
	}
	return nodes
}

func (k *keywords) schemas(name string) map[string]*node {
	v, ok := k.get(name)
	if !ok {
		return nil
	}
	raws, ok := v.(map[string]any)
	if !ok {
		k.wrong(name, v, "an object of schemas")
		return nil
	}
	nodes := make(map[string]*node, len(raws))
	for key, raw := range raws {
		nodes[key] = k.sub(name+"/"+escape(key), raw)
	}
	return nodes
}

// strings reads an array of strings, or, if one is allowed to stand alone, one.
func (k *keywords) strings(name string, v any, alone bool) []string {
	if s, ok := v.(string); ok && alone {
		return []string{s}
	}
	raws, ok := v.([]any)
	texts := make([]string, len(raws))
	for i := range raws {
		if texts[i], ok = raws[i].(string); !ok {
			break
		}
	}
	if !ok {
		k.wrong(name, v, "an array of strings")
	}
	return texts
}

func (k *keywords) rat(name string) *big.Rat {
	v, ok := k.get(name)
	if !ok {
		return nil
	}
	n, ok := v.(json.Number)
	if !ok {
		k.wrong(name, v, "a number")
		return nil
	}
	return rational(n)
}

// count reads a size. One beyond all sizes that a value can have is as good as
// the largest.
func (k *keywords) count(name string, absent int) int {
	r := k.rat(name)
	if r == nil {
		return absent
	}
	if !r.IsInt() || r.Sign() < 0 {
		k.wrong(name, k.raw[name], "a whole number from 0 on")
		return absent
	}
	if r.Num().BitLen() > 60 {
		return 1 << 60
	}
	return int(r.Num().Int64())
}

func (k *keywords) regexp(name string, v any) *pattern {
	text, ok := v.(string)
	if !ok {
		k.wrong(name, v, "a regular expression")
		return nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	var program *syntax.Prog
	if err == nil {
		program, err = syntax.Compile(parsed.Simplify())
	}
	var re *regexp.Regexp
	if err == nil && len(program.Inst) <= maxPattern {
		re, err = regexp.Compile(text)
	}
	switch {
	case err != nil:
		k.wrong(name, v, "a regular expression of Go's: "+strings.Join(strings.Fields(err.Error()), " "))
		return nil
	case re == nil:
		k.wrong(name, v, fmt.Sprintf("a regular expression of at most %d steps", maxPattern))
		return nil
	}
	return &pattern{re, len(program.Inst)}
}
