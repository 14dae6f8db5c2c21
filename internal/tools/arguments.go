package tools

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dsh-agent/dsh"
)

// A param is one argument of a tool. The schema that the model is shown and
// the check of what it sends are both made of it.
type param struct {
	name     string
	kind     string // string, integer or boolean
	about    string
	required bool
	min, max int // of an integer
	def      int // of an integer that is not given
}

// arguments are a call's, by name, complete and within their bounds.
type arguments map[string]any

func (a arguments) text(name string) string { s, _ := a[name].(string); return s }
func (a arguments) number(name string) int  { n, _ := a[name].(int); return n }
func (a arguments) flag(name string) bool   { b, _ := a[name].(bool); return b }

// schema is the JSON Schema of the parameters, in their order.
func schema(params []param) json.RawMessage {
	type property struct {
		Type        string `json:"type"`
		Description string `json:"description"`
		Minimum     *int   `json:"minimum,omitempty"`
		Maximum     *int   `json:"maximum,omitempty"`
		Default     *int   `json:"default,omitempty"`
	}
	var properties bytes.Buffer
	required := []string{}
	for i, p := range params {
		prop := property{Type: p.kind, Description: p.about}
		if p.kind == "integer" {
			prop.Minimum, prop.Maximum, prop.Default = &p.min, &p.max, &p.def
		}
		if p.required {
			required = append(required, p.name)
		}
		if i > 0 {
			properties.WriteByte(',')
		}
		properties.Write(encode(p.name))
		properties.WriteByte(':')
		properties.Write(encode(prop))
	}
	return json.RawMessage(`{"type":"object","properties":{` + properties.String() + `},"required":` +
		string(encode(required)) + `,"additionalProperties":false}`)
}

// encode is for strings, numbers and structs of them, which cannot fail.
func encode(v any) []byte {
	b, err := dsh.JSON(v)
	if err != nil {
		panic(err)
	}
	return b
}

// parseArguments holds a call's arguments to the parameters. Its error is a
// mistake.
func parseArguments(tool string, params []param, raw json.RawMessage) (arguments, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return nil, mistakef("The arguments of %s must be one JSON object: %s.", tool, usage(params))
	}
	args := arguments{}
	for _, p := range params {
		v, ok := given[p.name]
		delete(given, p.name)
		if !ok || string(v) == "null" {
			if p.required {
				return nil, mistakef("The argument %q of %s is missing: %s.", p.name, tool, usage(params))
			}
			if p.kind == "integer" {
				args[p.name] = p.def
			}
			continue
		}
		parsed, err := p.parse(v)
		if err != nil {
			return nil, err
		}
		args[p.name] = parsed
	}
	if len(given) > 0 {
		unknown := slices.Min(slices.Collect(maps.Keys(given)))
		return nil, mistakef("%s has no argument %q: %s.", tool, cutText(unknown, 100), usage(params))
	}
	return args, nil
}

func (p param) parse(raw json.RawMessage) (any, error) {
	switch p.kind {
	case "string":
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return nil, mistakef("The argument %q must be a string, and is %s.", p.name, cutText(string(raw), 100))
		}
		return s, nil
	case "boolean":
		var b bool
		if json.Unmarshal(raw, &b) != nil {
			return nil, mistakef("The argument %q must be true or false, and is %s.", p.name, cutText(string(raw), 100))
		}
		return b, nil
	}
	n, err := strconv.ParseFloat(string(raw), 64) // 10, and also 10.0, which JSON Schema takes for an integer
	if err != nil || n != math.Trunc(n) || n < float64(p.min) || n > float64(p.max) {
		return nil, mistakef("The argument %q must be a whole number from %d to %d, and is %s.", p.name, p.min, p.max, cutText(string(raw), 100))
	}
	return int(n), nil
}

// usage lists the parameters for an error.
func usage(params []param) string {
	var b strings.Builder
	b.WriteString("its arguments are ")
	for i, p := range params {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.name + " (" + p.kind)
		if p.required {
			b.WriteString(", required")
		}
		b.WriteString(")")
	}
	return b.String()
}
