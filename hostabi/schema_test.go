package hostabi_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
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
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// validate is as much of JSON Schema as the schemas here use. It fails on a
// keyword that it does not know, so that none of them is looked past. covered
// collects which properties an instance has used.
func validate(root, s object, v any, path string, covered map[string]bool) []string {
	var wrong []string
	bad := func(format string, args ...any) {
		wrong = append(wrong, path+": "+fmt.Sprintf(format, args...))
	}
	number, isNumber := v.(float64)
	for keyword, want := range s {
		switch keyword {
		case "$schema", "$id", "$defs", "title", "description":
		case "$ref":
			def := root["$defs"].(object)[strings.TrimPrefix(want.(string), "#/$defs/")].(object)
			wrong = append(wrong, validate(root, def, v, path, covered)...)
		case "type":
			kinds, ok := want.([]any)
			if !ok {
				kinds = []any{want}
			}
			if !slices.ContainsFunc(kinds, func(k any) bool { return isOf(v, k.(string)) }) {
				bad("%v is not of type %v", v, want)
			}
		case "const":
			if !reflect.DeepEqual(v, want) {
				bad("%v is not %v", v, want)
			}
		case "enum":
			if !slices.ContainsFunc(want.([]any), func(w any) bool { return reflect.DeepEqual(v, w) }) {
				bad("%v is not one of %v", v, want)
			}
		case "minimum":
			if isNumber && number < want.(float64) {
				bad("%v is below %v", v, want)
			}
		case "maximum":
			if isNumber && number > want.(float64) {
				bad("%v is over %v", v, want)
			}
		case "exclusiveMinimum":
			if isNumber && number <= want.(float64) {
				bad("%v is not over %v", v, want)
			}
		case "exclusiveMaximum":
			if isNumber && number >= want.(float64) {
				bad("%v is not below %v", v, want)
			}
		case "maxLength":
			if text, ok := v.(string); ok && len(text) > int(want.(float64)) {
				bad("%q is too long", v)
			}
		case "minItems", "maxItems":
			if list, ok := v.([]any); ok && keyword == "minItems" == (len(list) < int(want.(float64))) && len(list) != int(want.(float64)) {
				bad("%d items", len(list))
			}
		case "uniqueItems":
		case "required":
			if o, ok := v.(object); ok {
				for _, key := range want.([]any) {
					if _, ok := o[key.(string)]; !ok {
						bad("%v is missing", key)
					}
				}
			}
		case "items":
			list, _ := v.([]any)
			for i, item := range list {
				wrong = append(wrong, validate(root, want.(object), item, fmt.Sprintf("%s[%d]", path, i), covered)...)
			}
		case "properties":
			o, _ := v.(object)
			for key, value := range o {
				property, ok := want.(object)[key]
				if !ok {
					bad("%s is not in the schema", key)
					continue
				}
				covered[fmt.Sprintf("%p.%s", want, key)] = true
				wrong = append(wrong, validate(root, property.(object), value, path+"."+key, covered)...)
			}
		default:
			bad("the schema has the keyword %s, which this test does not know", keyword)
		}
	}
	return wrong
}

func isOf(v any, kind string) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	}
	return kind == "object"
}

// uncovered names the properties that no instance has used.
func uncovered(s any, path string, covered map[string]bool) []string {
	var names []string
	switch s := s.(type) {
	case object:
		for key, value := range s {
			if properties, ok := value.(object); ok && key == "properties" {
				for name := range properties {
					if !covered[fmt.Sprintf("%p.%s", value, name)] {
						names = append(names, path+"."+name)
					}
				}
			}
			names = append(names, uncovered(value, path+"."+key, covered)...)
		}
	}
	return names
}

// payloads are values of the Go types with every field set, at least once each.
func payloads() map[string][]any {
	five, soon := int64(5), int64(1767225601000)
	left, wait := 47, int64(1000)
	repairs := []json.RawMessage{marshal(dsh.Repair{Kind: dsh.RepairPrune, Seqs: []uint64{3}, OverChars: 1, HeadChars: 1, TailChars: 1}),
		marshal(dsh.Repair{Kind: dsh.RepairCompact, RetainTokens: 1, From: 1, To: 2, Instructions: "i", MaxTokens: 1, IfOverTokens: &wait})}
	full := dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: "d", Policy: "retry", Session: "s", Turn: 1, Step: 2, Attempt: 3, Purpose: dsh.PurposeReply,
		Provider: "p", Model: "m", FailedAtMs: 1, ProviderNotBefore: &soon, NowMs: 2, Random: [4]float64{0, 0.5, 0.25, 0.75},
		Failure:     dsh.Failure{Message: "m", Code: dsh.CodeRateLimit, Status: 429, RetryAfter: time.Second, RequestID: "r"},
		RetryPolicy: dsh.DefaultRetryPolicy(),
		RetryCounts: []dsh.RetryCount{{Policy: "retry", PolicyKey: "k", Purpose: dsh.PurposeCompaction, Count: 1}},
		Repairs:     []dsh.RepairOutcome{{Kind: dsh.RepairCompact, Policy: "c", OK: true, TokensBefore: 2, TokensAfter: 1}},
		Surface:     dsh.SurfaceInfo{Generation: 1, Messages: 2, Tokens: 3, Window: 4, RequestBytes: 5},
		Limits:      dsh.LimitsLeft{AttemptsLeft: &left, WaitLeftMs: &wait}, Config: json.RawMessage(`{"a":1}`),
	}
	bare := dsh.RecoverInput{
		ABI: hostabi.ABI, Turn: 1, Step: 1, Attempt: 1, Purpose: dsh.PurposeCompaction, Failure: dsh.Failure{Code: dsh.CodeUnknown},
		RetryPolicy: dsh.RetryPolicy{Mode: dsh.ModeAlways, InitialDelayMs: 1, MaxDelayMs: 1},
		RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{}, Config: json.RawMessage(`{}`),
	}
	step := dsh.StepInput{
		ABI: full.ABI, DecisionID: "d", Policy: "p", Session: "s", Turn: 1, Step: 1, Attempt: 1, Purpose: full.Purpose, Provider: "p",
		Model: "m", NowMs: 1, Random: full.Random, RetryPolicy: full.RetryPolicy, RetryCounts: full.RetryCounts, Repairs: full.Repairs,
		Surface: full.Surface, Limits: full.Limits, Config: full.Config,
	}
	retry := dsh.Decision{Kind: dsh.KindRetry, DelayMs: 1.5, Mode: dsh.ModeNormal, MaxRetries: &five, PolicyKey: "k", Repairs: repairs, Reason: "r"}
	version, value := hostabi.Whole(3), json.RawMessage(`{"a":[1]}`)
	refusal := hostabi.Refusal{Err: dsh.HostError{Code: hostabi.CodeConflict, Message: "m"}}
	return map[string][]any{
		hostabi.SchemaLogRead: {hostabi.LogRead{Types: []dsh.EventType{dsh.TypeRetry}, Turn: 1, Step: 2, After: 3, Limit: 4, Content: true}, hostabi.LogRead{}},
		hostabi.SchemaLogAnswer: {
			hostabi.LogAnswer{Events: []hostabi.LogEvent{{Seq: 1, At: 2, Type: dsh.TypeRetry, Data: value}, {Seq: 2, Type: "t"}}, Next: 2, Tail: 3},
			hostabi.LogAnswer{Events: []hostabi.LogEvent{}},
		},
		hostabi.SchemaSurfaceRead: {hostabi.SurfaceRead{From: 1, Limit: 2, Content: true}, hostabi.SurfaceRead{}},
		hostabi.SchemaSurfaceAnswer: {hostabi.SurfaceAnswer{
			Entries: []hostabi.SurfaceEntry{
				{Seq: 1, Role: dsh.RoleUser, Kinds: []dsh.BlockType{dsh.BlockText}, Tokens: 5, Content: []dsh.Block{dsh.TextBlock("t")}},
				{Seq: 2, Role: dsh.RoleTool, Kinds: []dsh.BlockType{}},
			}, Next: 2, Tail: 9, Generation: 1, Tokens: 7,
		}},
		hostabi.SchemaStateGet:    {hostabi.StateGet{Scope: hostabi.ScopeSession, Key: "k"}},
		hostabi.SchemaStateAnswer: {hostabi.StateAnswer{Value: value, Version: 1}, hostabi.StateAnswer{Value: json.RawMessage("null")}},
		hostabi.SchemaStatePut:    {hostabi.StatePut{Scope: hostabi.ScopeShared, Key: "k", Value: value, Version: &version}},
		hostabi.SchemaPutAnswer:   {hostabi.PutAnswer{Version: 1}},
		hostabi.SchemaEmit:        {hostabi.Emit{Type: "t", Data: value}},
		hostabi.SchemaEmitAnswer:  {hostabi.EmitAnswer{Seq: 1}},
		hostabi.SchemaRefusal:     {refusal},
		hostabi.SchemaHostCall: {
			hostabi.HostCall{Function: "f", Argument: value, Answer: marshal(refusal)},
			hostabi.HostCall{Function: "f", ArgumentSHA256: "a", AnswerSHA256: "b", AnswerBytes: 1, Tail: 2},
		},
		hostabi.SchemaRecoverInput: {full, bare},
		hostabi.SchemaStepInput:    {step},
		hostabi.SchemaDecision:     {retry, dsh.Decision{Kind: dsh.KindRetry}, dsh.Decision{Kind: dsh.KindDelegate, Fallback: &retry}},
		hostabi.SchemaStepAnswer:   {dsh.Decision{Kind: dsh.KindProceed, Repairs: repairs, Reason: "r"}},
		hostabi.SchemaConfigAnswer: {hostabi.ConfigAnswer{Problems: []string{"p"}}},
		hostabi.SchemaManifest:     {hostabi.Manifest{ABI: hostabi.ABI, Name: "n", Version: "v", Description: "d", Capabilities: hostabi.Capabilities()}},
	}
}

func marshal(v any) json.RawMessage {
	b, err := dsh.JSON(v)
	if err != nil {
		panic(err)
	}
	return b
}

// TestSchemasAreTheTypes: what the Go types write fits the schemas, and the
// schemas have no property that the types do not write.
func TestSchemasAreTheTypes(t *testing.T) {
	all := payloads()
	files, err := fs.Glob(hostabi.Schemas(), "*.json")
	if err != nil || !slices.Equal(files, slices.Sorted(maps.Keys(all))) {
		t.Errorf("schemas %v, payloads %v: %v", files, slices.Sorted(maps.Keys(all)), err)
	}
	for name, values := range all {
		s, covered := schema(t, name), map[string]bool{}
		for _, v := range values {
			var instance any
			if err := json.Unmarshal(marshal(v), &instance); err != nil {
				t.Fatal(err)
			}
			for _, wrong := range validate(s, s, instance, name, covered) {
				t.Error(wrong)
			}
		}
		for _, missing := range uncovered(s, name, covered) {
			t.Errorf("%s: no Go type writes it", missing)
		}
	}
}

// TestWhole: a number that a language writes with a point is read as the whole
// number that it is, and nothing else is taken for one.
func TestWhole(t *testing.T) {
	for text, want := range map[string]hostabi.Whole{"0": 0, "5": 5, "5.0": 5, "1e3": 1000, "9007199254740991": 1<<53 - 1} {
		var w hostabi.Whole
		if err := json.Unmarshal([]byte(text), &w); err != nil || w != want {
			t.Errorf("%s: %d, %v", text, w, err)
		}
	}
	for _, text := range []string{"-1", "0.5", "9007199254740992", `"5"`, "true"} {
		if err := json.Unmarshal([]byte(text), new(hostabi.Whole)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

// TestSchemasAreTheChecks: what the schema of a decision refuses, the host
// refuses, and the other way round.
func TestSchemasAreTheChecks(t *testing.T) {
	s := schema(t, hostabi.SchemaDecision)
	for text, good := range map[string]bool{
		`{"kind":"delegate"}`:                                            true,
		`{"kind":"retry","delayMs":0}`:                                   true,
		`{"kind":"retry","delayMs":2147483647,"mode":"always"}`:          true,
		`{"kind":"delegate","fallback":{"kind":"retry","delayMs":1}}`:    true,
		`{"kind":"wait"}`:                                                false,
		`{"kind":"proceed"}`:                                             false,
		`{}`:                                                             false,
		`[]`:                                                             false,
		`{"kind":"retry","delayMs":-1}`:                                  false,
		`{"kind":"retry","delayMs":2147483648}`:                          false,
		`{"kind":"retry","delayMs":"1"}`:                                 false,
		`{"kind":"retry","delayMs":1,"mode":"sometimes"}`:                false,
		`{"kind":"retry","delayMs":1,"maxRetries":1.5}`:                  false,
		`{"kind":"retry","delayMs":1,"maxRetries":-1}`:                   false,
		`{"kind":"retry","delayMs":1,"maxRetries":9007199254740992}`:     false,
		`{"kind":"delegate","fallback":{"kind":"delegate"}}`:             false,
		`{"kind":"delegate","fallback":{"kind":"retry","delayMs":-0.5}}`: false,
		`{"kind":"delegate","fallback":{"kind":"retry"}}`:                false,
		`{"kind":"retry","delayMs":1,"reason":7}`:                        false,
		`{"kind":"retry","delayMs":1,"repairs":{}}`:                      false,
	} {
		var instance any
		if err := json.Unmarshal([]byte(text), &instance); err != nil {
			t.Fatal(err)
		}
		wrong := validate(s, s, instance, "", map[string]bool{})
		_, err := dsh.ParseDecision([]byte(text))
		if (len(wrong) == 0) != good || (err == nil) != good {
			t.Errorf("%s: good %v; the schema says %v, the host %v", text, good, wrong, err)
		}
	}
}
