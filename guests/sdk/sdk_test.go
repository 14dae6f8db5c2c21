package sdk_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/guests/sdk"
	gosdk "github.com/dsh-agent/dsh/guests/sdk/go"
	"github.com/dsh-agent/dsh/hostabi"
)

type object = map[string]any

func schema(t *testing.T, name string) object {
	t.Helper()
	raw, err := fs.ReadFile(hostabi.Schemas(), name)
	if err != nil {
		t.Fatal(err)
	}
	var s object
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// fields are the fields of a schema, or of one of its definitions: FILE or
// FILE#DEFINITION.
func fields(t *testing.T, place string) []string {
	t.Helper()
	file, def, _ := strings.Cut(place, "#")
	s := schema(t, file)
	if def != "" {
		d, ok := s["$defs"].(object)[def].(object)
		if !ok {
			t.Fatalf("there is no %s", place)
		}
		s = d
	}
	return slices.Sorted(maps.Keys(s["properties"].(object)))
}

// without are the fields of a place that another has not.
func without(t *testing.T, place, other string) []string {
	have := fields(t, other)
	return slices.DeleteFunc(fields(t, place), func(f string) bool { return slices.Contains(have, f) })
}

var (
	place   = regexp.MustCompile(`^(?://|/\*) The fields of ([a-z-]+\.json(?:#[a-zA-Z]+)?)( that ([a-z-]+\.json) has not)?\.(?: \*/)?$`)
	literal = regexp.MustCompile(`"([a-zA-Z]+)"`)
)

// TestKitsHaveTheContractsFields reads, in the sources of the kits that name
// fields by literals, the parts that say which schema they follow, and holds the
// literals there to the fields of that schema: none is missing, none is more.
func TestKitsHaveTheContractsFields(t *testing.T) {
	required := []string{
		"step-input.json", "recover-input.json", "recover-input.json#failure", "step-input.json#retryPolicy", "step-input.json#retryCount",
		"step-input.json#repairOutcome", "step-input.json#surface", "step-input.json#limits", "decision.json", "decision.json#repair",
	}
	for language, files := range map[string][]string{"rust": {"types.rs", "host.rs"}, "c": {"dsh.c"}, "assemblyscript": {"types.ts"}} {
		kit, err := sdk.Kit(language)
		if err != nil {
			t.Fatal(err)
		}
		var source []byte
		for _, file := range files {
			text, err := fs.ReadFile(kit, file)
			if err != nil {
				t.Fatal(err)
			}
			source = append(source, text...)
		}
		held := map[string]bool{}
		at, want, have := "", []string(nil), map[string]bool{}
		for line := range strings.Lines(string(source)) {
			line = strings.TrimRight(line, "\n")
			if m := place.FindStringSubmatch(line); m != nil {
				at, have = m[1], map[string]bool{}
				if want = fields(t, at); m[3] != "" {
					want = without(t, at, m[3])
				}
				continue
			}
			if at == "" {
				continue
			}
			for _, m := range literal.FindAllStringSubmatch(line, -1) {
				have[m[1]] = true
			}
			if line == "}" {
				if got := slices.Sorted(maps.Keys(have)); !slices.Equal(got, want) {
					t.Errorf("%s, %s: the fields are %v, and the schema has %v", language, at, got, want)
				}
				held[at], at = true, ""
			}
		}
		for _, r := range required {
			if !held[r] {
				t.Errorf("the kit for %s does not say where it reads or writes %s", language, r)
			}
		}
	}
}

// jsonFields are the names that encoding/json knows of a type.
func jsonFields(typ reflect.Type) []string {
	var names []string
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			names = append(names, jsonFields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestGoKitHasTheContractsFields does the same by the types of the kit in Go,
// and for its host functions by those of package hostabi.
func TestGoKitHasTheContractsFields(t *testing.T) {
	for at, v := range map[string]any{
		"step-input.json": gosdk.StepInput{}, "recover-input.json": gosdk.RecoverInput{}, "recover-input.json#failure": gosdk.Failure{},
		"step-input.json#retryPolicy": gosdk.RetryPolicy{}, "step-input.json#retryCount": gosdk.RetryCount{},
		"step-input.json#repairOutcome": gosdk.RepairOutcome{}, "step-input.json#surface": gosdk.Surface{}, "step-input.json#limits": gosdk.Limits{},
		"decision.json": gosdk.Decision{}, "decision.json#repair": gosdk.Repair{}, "step-answer.json": gosdk.StepAnswer{},
		"config-answer.json": gosdk.ConfigAnswer{},
	} {
		if got, want := jsonFields(reflect.TypeOf(v)), fields(t, at); !slices.Equal(got, want) {
			t.Errorf("%T has the fields %v, and %s has %v", v, got, at, want)
		}
	}
	for v, host := range map[any]any{
		&gosdk.LogAnswer{}: hostabi.LogAnswer{}, &gosdk.LogEvent{}: hostabi.LogEvent{}, &gosdk.LogRead{}: hostabi.LogRead{},
		&gosdk.SurfaceRead{}: hostabi.SurfaceRead{}, &gosdk.SurfaceAnswer{}: hostabi.SurfaceAnswer{}, &gosdk.SurfaceEntry{}: hostabi.SurfaceEntry{},
	} {
		got, want := jsonFields(reflect.TypeOf(v).Elem()), jsonFields(reflect.TypeOf(host))
		if !slices.Equal(got, want) {
			t.Errorf("%T has the fields %v, and %T has %v", v, got, host, want)
		}
	}
	if gosdk.ABI != hostabi.ABI {
		t.Errorf("the kit speaks %q", gosdk.ABI)
	}
}
