package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/schema"
)

func TestCheck(t *testing.T) {
	const s = `{"type":"object","properties":{"path":{"type":"string","minLength":1},"n":{"type":"integer","minimum":1,"maximum":9},
		"mode":{"enum":["a","b"]},"deep":{"type":"array","items":{"$ref":"#/$defs/point"}}},
		"required":["path"],"additionalProperties":false,"$defs":{"point":{"type":"object","required":["x"],"properties":{"x":{"type":"number"}}}}}`
	compiled, err := schema.Compile([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		value string
		want  []string // parts of the problems, in any order; none: it fits
	}{
		{`{"path":"a"}`, nil},
		{`{"path":"a","n":3,"mode":"b","deep":[{"x":1.5}]}`, nil},
		{`{"path":"a","n":3.0}`, nil},
		{`{}`, []string{"path"}},
		{`{"path":""}`, []string{"/path: "}},
		{`{"path":7}`, []string{"/path: ", "string"}},
		{`{"path":"a","n":10}`, []string{"/n: ", "9"}},
		{`{"path":"a","n":1.5}`, []string{"/n: ", "integer"}},
		{`{"path":"a","mode":"c"}`, []string{"/mode: "}},
		{`{"path":"a","deep":[{"x":1},{}]}`, []string{"/deep/1: ", "x"}},
		{`{"path":"a","a/b~c":1}`, []string{"a/b~c"}},
		{`[]`, []string{"object"}},
		{`{"path":"a","n":1e999999999}`, []string{"exponent"}},
		{`{"path":"a","n":1E-999999999}`, []string{"exponent"}},
		{`{"path":"a","deep":[{"x":1e99999999999999999999}]}`, []string{"exponent"}},
		{`{"path":"a","deep":[{"x":-1.5e+300}]}`, nil},
		{`{"path":`, []string{"not JSON"}},
	} {
		got := compiled.Check([]byte(c.value))
		if (len(got) == 0) != (c.want == nil) {
			t.Errorf("%s: %q", c.value, got)
		}
		for _, w := range c.want {
			if !strings.Contains(strings.Join(got, "\n"), w) {
				t.Errorf("%s: %q does not say %q", c.value, got, w)
			}
		}
	}
	many := `{"path":"a","deep":[` + strings.Repeat("{},", 100) + `{}]}`
	if got := compiled.Check([]byte(many)); len(got) != 6 || got[5] != "and 96 more" {
		t.Errorf("101 problems: %q", got)
	}
}

func TestCompile(t *testing.T) {
	for _, c := range []struct{ schema, want string }{
		{``, ""},
		{`{}`, ""},
		{`true`, ""},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":{"type":"string"}},"properties":{"b":{"$ref":"#/definitions/a"}}}`, ""},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`, ""},
		{`{"type":"objekt"}`, "type"},
		{`{"properties":{"a":{"$ref":"https://example.com/a.json"}}}`, "may refer to itself alone"},
		{`{"properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "may refer to itself alone"},
		{`{"$ref":"#/nowhere"}`, "nowhere"},
		{`{"pattern":"("}`, "pattern"},
		{`{`, "no JSON"},
		{`{"minimum":1e999999999}`, "exponent"},
	} {
		_, err := schema.Compile([]byte(c.schema))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.schema, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n")):
			t.Errorf("%s: error %v, want one line with %q", c.schema, err, c.want)
		}
	}
}

// TestCeilings: what would take for ever, or all of the stack, ends soon, and
// says so.
func TestCeilings(t *testing.T) {
	var doubling strings.Builder
	doubling.WriteString(`{"$ref":"#/$defs/0","$defs":{`)
	for i := range 60 {
		fmt.Fprintf(&doubling, `"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]},`, i, i+1, i+1)
	}
	doubling.WriteString(`"60":{"type":"string"}}}`)
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for _, c := range []struct{ name, schema, value, want string }{
		{"a reference to itself", `{"$ref":"#"}`, `1`, "refers to itself without end"},
		{"in a circle", `{"$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`, `1`, "refers to itself without end"},
		{"two to the 60th", doubling.String(), `1`, "more than 1000000 steps"},
		{"a large pattern on a long text", `{"pattern":"^(([a-z]{1,30}){1,30}x)+$"}`, `"` + strings.Repeat("a", 1<<20) + `"`, "more than 1000000 steps"},
		{"deep, and right", `{"type":"array","items":{"$ref":"#"}}`, deep, ""},
		{"deep, and wrong", `{"type":"array","minItems":1,"items":{"$ref":"#"}}`, deep, "…has 0 elements"},
		{"too deep for JSON", `{}`, strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "not JSON"},
		{"many numbers", `{"items":{"multipleOf":0.1}}`, "[" + strings.Repeat("1.5,", 200_000) + "1]", ""},
		{"many equal elements", `{"uniqueItems":true}`, "[" + strings.Repeat("7,", 200_000) + "8]", "the same element at 0 and 1"},
		{"a huge sum of digits", `{"enum":[1]}`, strings.Repeat("9", 5000), "too many digits"},
	} {
		compiled, err := schema.Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := strings.Join(compiled.Check([]byte(c.value)), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %.200q, want %q", c.name, got, c.want)
		}
	}
	if _, err := schema.Compile([]byte(`{"pattern":"(abcdefghijklmnopqrstuvwxyz){900}"}`)); err == nil || !strings.Contains(err.Error(), "at most 10000 steps") {
		t.Errorf("a pattern of a million steps: %v", err)
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type":"string"}`, `7`, `is the number 7, want string`},
		{`{"type":["integer","null"]}`, `{"a":1}`, `is an object, want integer or null`},
		{`{"properties":{"a":{"enum":["x",2]}}}`, `{"a":[1]}`, `/a: is [1], want one of "x", 2`},
		{`{"const":{"a":1}}`, `{"a":2}`, `is {"a":2}, want {"a":1}`},
		{`{"required":["a","b"]}`, `{}`, "misses the property \"a\"\nmisses the property \"b\""},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"b":1}`, `has the property "b", which is not allowed`},
		{`{"properties":{"a":false}}`, `{"a":1}`, `/a: is not allowed`},
		{`{"minLength":2}`, `"ä"`, `has 1 character, want at least 2`},
		{`{"maxProperties":1}`, `{"a":1,"b":2}`, `has 2 properties, want at most 1`},
		{`{"items":{"exclusiveMinimum":0.25}}`, `[1,0.25]`, `/1: is 0.25, want more than 0.25`},
		{`{"multipleOf":3}`, `4`, `is 4, want a multiple of 3`},
		{`{"anyOf":[{"type":"string"},{"properties":{"a":{"type":"null"}}}]}`, `{"a":1}`, `fits none of 2 alternatives: is an object, want string; /a: is the number 1, want null`},
		{`{"oneOf":[{"type":"number"},{"minimum":1}]}`, `2`, `2 alternatives fit, want exactly one`},
		{`{"not":{"type":"null"}}`, `null`, `is what the schema excludes`},
		{`{"contains":{"const":1}}`, `[2]`, `has 0 elements of the wanted kind, want at least 1`},
		{`{"propertyNames":{"maxLength":1}}`, `{"aa":1}`, `has a property whose name has 2 characters, want at most 1`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `misses the property "b", which "a" needs`},
		{`{"pattern":"^a"}`, `"b"`, `is "b", want what matches "^a"`},
		{`{"properties":{"a/b":{"properties":{"c~d":{"type":"null"}}}}}`, `{"a/b":{"c~d":0}}`, `/a~1b/c~0d: is the number 0, want null`},
		{`{"unevaluatedProperties":false,"anyOf":[{"properties":{"a":true}}]}`, `{"a":1,"b":1}`, `has the property "b", which is not allowed`},
	} {
		compiled, err := schema.Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if got := strings.Join(compiled.Check([]byte(c.value)), "\n"); got != c.want {
			t.Errorf("%s: %s:\n got %s\nwant %s", c.schema, c.value, got, c.want)
		}
	}
}

// FuzzSchema: neither a schema nor a value makes the check stop or panic.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"type":"object","properties":{"a":{"$ref":"#"}}}`), []byte(`{"a":{"a":{}}}`))
	f.Add([]byte(`{"allOf":[{"$ref":"#"}]}`), []byte(`{}`))
	f.Add([]byte(`{"pattern":"(a*)*b","multipleOf":1e-300,"minLength":1e9}`), []byte(`1e400`))
	f.Fuzz(func(t *testing.T, s, value []byte) {
		if compiled, err := schema.Compile(s); err == nil {
			compiled.Check(value)
		}
	})
}
