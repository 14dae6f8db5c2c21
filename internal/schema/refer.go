package schema

import (
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"strings"
)

// A compiler makes the nodes of one document, each once, by their JSON
// pointers in it.
type compiler struct {
	doc    any
	draft  int
	nodes  map[string]*node
	at     map[string]*resource // by the pointer
	byURI  map[string]*resource
	tracks bool
}

// A resource is the document, or a part of it that has a URI of its own, to
// which the references in it are relative.
type resource struct {
	at      string
	base    *url.URL
	anchors map[string]string // to pointers
	dynamic map[string]string // by their $dynamicAnchor
	nodes   map[string]*node  // of dynamic
}

// recursive is the name under which dynamic has a $recursiveAnchor.
const recursive = "#"

func newResource(at string, base *url.URL) *resource {
	return &resource{at: at, base: base, anchors: map[string]string{}, dynamic: map[string]string{}, nodes: map[string]*node{}}
}

// parts yields the schemas right below one, with their pointers.
func parts(at string, m map[string]any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for keyword, v := range m {
			switch keyword {
			case "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if", "items", "not", "oneOf",
				"prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties":
				if list, ok := v.([]any); ok {
					for i, part := range list {
						if !yield(at+"/"+keyword+"/"+strconv.Itoa(i), part) {
							return
						}
					}
				} else if !yield(at+"/"+keyword, v) {
					return
				}
			case "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties":
				all, _ := v.(map[string]any)
				for key, part := range all {
					if !yield(at+"/"+keyword+"/"+escape(key), part) {
						return
					}
				}
			}
		}
	}
}

// survey finds the resources and anchors of the document.
func (c *compiler) survey(at string, raw any, in *resource) error {
	m, ok := raw.(map[string]any)
	if in == nil {
		in = newResource("", &url.URL{})
		c.at[at], c.byURI[""] = in, in
	}
	if !ok {
		return nil
	}
	if _, refers := m["$ref"]; !refers || c.draft > draft7 {
		var err error
		if in, err = c.name(at, m, in); err != nil {
			return err
		}
	}
	for path, part := range parts(at, m) {
		if err := c.survey(path, part, in); err != nil {
			return err
		}
	}
	return nil
}

// name notes what a schema says that it is called.
func (c *compiler) name(at string, m map[string]any, in *resource) (*resource, error) {
	keyword := "$id"
	if c.draft == draft4 {
		keyword = "id"
	}
	if id, ok := m[keyword].(string); ok {
		uri, err := in.base.Parse(id)
		if err != nil {
			return nil, wrong(at+"/"+keyword, id, "a URI")
		}
		anchor := uri.Fragment
		uri.Fragment, uri.RawFragment = "", ""
		if !strings.HasPrefix(id, "#") {
			in = newResource(at, uri)
			c.at[at], c.byURI[uri.String()] = in, in
		}
		if anchor != "" && c.draft <= draft7 {
			in.anchors[anchor] = at
		}
	}
	if anchor, ok := m["$anchor"].(string); ok && c.draft >= draft2019 {
		in.anchors[anchor] = at
	}
	if anchor, ok := m["$dynamicAnchor"].(string); ok && c.draft >= draft2020 {
		in.anchors[anchor], in.dynamic[anchor] = at, at
	}
	if m["$recursiveAnchor"] == true && c.draft == draft2019 && in.at == at {
		in.dynamic[recursive] = at
	}
	return in, nil
}

// dynamics compiles what a check may come to by a dynamic reference.
func (c *compiler) dynamics() error {
	for _, r := range c.at {
		for anchor, at := range r.dynamic {
			n, err := c.find(at)
			if err != nil {
				return err
			}
			r.nodes[anchor] = n
		}
	}
	return nil
}

// dynamic reads a reference to what the check came through first.
func (k *keywords) dynamic(n *node) {
	name := "$dynamicRef"
	if k.c.draft == draft2019 {
		name = "$recursiveRef"
	}
	text, ok := k.raw[name].(string)
	if !ok || k.c.draft < draft2019 {
		return
	}
	n.dynamic = k.refer(name)
	_, anchor, _ := strings.Cut(text, "#")
	if k.c.draft == draft2019 {
		anchor = recursive
	}
	if n.dynamic != nil {
		if at, ok := n.dynamic.home.dynamic[anchor]; ok && k.c.nodes[at] == n.dynamic {
			n.anchor = anchor
		}
	}
}

// refer finds the schema to which a keyword refers.
func (k *keywords) refer(name string) *node {
	text, ok := k.raw[name].(string)
	if !ok {
		k.wrong(name, k.raw[name], "a reference")
		return nil
	}
	uri, err := k.home.base.Parse(text)
	if err != nil {
		k.wrong(name, text, "a reference")
		return nil
	}
	fragment := uri.Fragment
	uri.Fragment, uri.RawFragment = "", ""
	r := k.c.byURI[uri.String()]
	if r == nil {
		k.err = fmt.Errorf("%s/%s: it refers to %s, and a schema may refer to itself alone", k.at, name, quote(text))
		return nil
	}
	at := r.at + fragment
	if fragment != "" && fragment[0] != '/' {
		if at, ok = r.anchors[fragment]; !ok {
			k.wrong(name, text, "something that is there")
			return nil
		}
	}
	n, err := k.c.find(at)
	if err != nil {
		k.err = fmt.Errorf("%s/%s: it refers to %s: %w", k.at, name, quote(text), err)
	}
	return n
}

// find compiles the schema at a pointer, wherever that leads.
func (c *compiler) find(at string) (*node, error) {
	home, value, path := c.at[""], c.doc, ""
	if at == "" {
		return c.node(at, value, home)
	}
	for _, token := range strings.Split(at[1:], "/") {
		path += "/" + token
		value = child(value, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
		if value == nil {
			return nil, fmt.Errorf("nothing is at %s", quote(path))
		}
		if r := c.at[path]; r != nil {
			home = r
		}
	}
	return c.node(path, value, home)
}

func child(value any, key string) any {
	switch v := value.(type) {
	case map[string]any:
		return v[key]
	case []any:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}
