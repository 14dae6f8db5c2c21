package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	judge "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dsh-agent/dsh/internal/schema"
)

// TestSuite runs the official test suite of JSON Schema, which another module
// carries as its test data.
func TestSuite(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/google/jsonschema-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "jsonschema", "testdata")
	for draft, want := range map[string]struct{ least, remote int }{"draft7": {784, 27}, "draft2020-12": {1051, 48}} {
		files, err := filepath.Glob(filepath.Join(dir, draft, "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", draft, len(files), err)
		}
		ran, remote := 0, 0
		for _, file := range files {
			r, other := suiteFile(t, draft, file)
			ran, remote = ran+r, remote+other
		}
		t.Logf("%s: %d cases, and %d of schemas that refer to others", draft, ran, remote)
		if ran < want.least || remote > want.remote {
			t.Errorf("%s: %d cases ran, and %d refer to others; want at least %d, and at most %d", draft, ran, remote, want.least, want.remote)
		}
	}
}

func suiteFile(t *testing.T, draft, file string) (ran, remote int) {
	if filepath.Base(file) == "format.json" {
		return 0, 0 // formats are notes
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var groups []struct {
		Description string
		Schema      json.RawMessage
		Tests       []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		s := g.Schema
		if draft == "draft7" && s[0] == '{' && !bytes.Contains(s, []byte(`"$schema"`)) {
			s = []byte(`{"$schema":"http://json-schema.org/draft-07/schema#",` + string(s[1:]))
			s = bytes.Replace(s, []byte(`,}`), []byte(`}`), 1)
		}
		compiled, err := schema.Compile(s)
		if err != nil && (strings.Contains(err.Error(), "may refer to itself alone") || strings.Contains(err.Error(), "/$schema")) {
			remote += len(g.Tests)
			continue
		}
		if err != nil {
			t.Errorf("%s: %s: %v", filepath.Base(file), g.Description, err)
			continue
		}
		for _, c := range g.Tests {
			ran++
			if got := compiled.Check(c.Data); (len(got) == 0) != c.Valid {
				t.Errorf("%s: %s: %s: %s: problems %q, want valid %v", filepath.Base(file), g.Description, c.Description, c.Data, got, c.Valid)
			}
		}
	}
	return ran, remote
}

// FuzzAgree: a well-known validator comes to the same verdict, in every draft.
func FuzzAgree(f *testing.F) {
	for _, s := range []string{
		`{"type":["object","null"],"properties":{"a":{"type":"integer","minimum":1,"exclusiveMaximum":9,"multipleOf":0.5}},"required":["a"],"additionalProperties":false}`,
		`{"items":[{"const":1},{"enum":["a",{"b":[1.0]}]}],"additionalItems":{"maxLength":2},"uniqueItems":true}`,
		`{"prefixItems":[{"not":{"type":"string"}}],"items":{"pattern":"^a+$"},"contains":{"minLength":3},"minContains":0,"maxContains":2}`,
		`{"$defs":{"p":{"type":"object","properties":{"next":{"$ref":"#/$defs/p"}},"patternProperties":{"^x":{"type":"number"}},"propertyNames":{"maxLength":5}}},"$ref":"#/$defs/p"}`,
		`{"if":{"properties":{"k":{"const":"a"}},"required":["k"]},"then":{"required":["a"]},"else":{"minProperties":2},"unevaluatedProperties":false,"properties":{"k":{}}}`,
		`{"anyOf":[{"properties":{"a":true}},{"properties":{"b":{"type":"null"}}}],"oneOf":[{"maxProperties":1},{"required":["b"]}],"unevaluatedProperties":{"type":"boolean"}}`,
		`{"dependentRequired":{"a":["b"]},"dependentSchemas":{"b":{"maxProperties":2}},"dependencies":{"c":["d"],"e":{"minProperties":3}}}`,
		`{"allOf":[{"prefixItems":[true]},{"contains":{"type":"string"}}],"unevaluatedItems":{"type":"integer"}}`,
		`{"minimum":3,"exclusiveMinimum":true,"id":"x:y"}`,
	} {
		for _, v := range []string{`{"a":1}`, `{"a":1.50,"b":null}`, `[1,{"b":[1]},"aaa"]`, `["abc",2,3,3.0]`, `{"next":{"x1":1,"next":{"xx":"s"}},"k":"a"}`, `3`, `null`, `{"c":1,"e":true,"d":0}`} {
			for draft := range drafts {
				f.Add(uint8(draft), []byte(s), []byte(v))
			}
		}
	}
	f.Fuzz(func(t *testing.T, draft uint8, s, value []byte) { agree(t, drafts[int(draft)%len(drafts)], s, value) })
}

var drafts = []*judge.Draft{judge.Draft4, judge.Draft6, judge.Draft7, judge.Draft2019, judge.Draft2020}

func agree(t *testing.T, draft *judge.Draft, s, value []byte) {
	doc, err := judge.UnmarshalJSON(bytes.NewReader(s))
	m, ok := doc.(map[string]any)
	if err != nil || !ok || !plain(doc) {
		return
	}
	m["$schema"] = draft.String()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	c := judge.NewCompiler()
	c.UseLoader(judge.SchemeURLLoader{})
	if err := c.AddResource("mem:///schema.json", doc); err != nil {
		return
	}
	theirs, err := c.Compile("mem:///schema.json")
	ours, ourErr := schema.Compile(text)
	if err != nil || ourErr != nil {
		return // which of the strange schemas are refused is for each to say
	}
	v, err := judge.UnmarshalJSON(bytes.NewReader(value))
	if err != nil || !plain(v) {
		return
	}
	verdict := theirs.Validate(v)
	var invalid *judge.ValidationError
	if verdict != nil && !errors.As(verdict, &invalid) {
		return
	}
	problems := ours.Check(value)
	if len(problems) > 0 && strings.HasPrefix(problems[0], "not checked") {
		return
	}
	if (verdict == nil) != (len(problems) == 0) {
		t.Errorf("%s\n%s\n%s\nproblems %q\nthe other says %v", draft, text, value, problems, verdict)
	}
}

// plain leaves out what the two mean to do differently: formats and contents
// are checked there, and numbers of any size worked with.
func plain(v any) bool {
	switch v := v.(type) {
	case json.Number:
		return len(v) < 20 && !strings.ContainsAny(v.String(), "eE")
	case []any:
		for _, e := range v {
			if !plain(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if k == "format" || strings.HasPrefix(k, "content") || k == "$schema" || k == "$vocabulary" || !plain(e) {
				return false
			}
		}
	}
	return true
}
