package workshop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// A Difference is one place at which a policy answers other than expected.
type Difference struct {
	Path string `json:"path"` // of the answer, such as fallback.delayMs; "": all of it
	Have any    `json:"have"` // nil: it is not there
	Want any    `json:"want"`
}

// A Result is what a policy made of a case.
type Result struct {
	Case        Case
	Answer      json.RawMessage // the decision as the policy wrote it; nil: a fault, or of check_config
	Problems    []string        // of the case's config
	Fault       *dsh.Fault      // nil: none
	Fuel        uint64          // 0: not counted
	Differences []Difference    // none: it is as expected
	have        map[string]any
}

// Run asks a policy of a name about cases, in order. Its error is for what
// keeps a case from being asked.
func Run(ctx context.Context, load Load, name string, cases []Case) (results []Result, err error) {
	loaded := map[string]Loaded{}
	defer func() {
		for _, l := range loaded {
			if l.Free != nil {
				err = errors.Join(err, l.Free())
			}
		}
	}()
	for _, c := range cases {
		l, ok := loaded[string(c.config)]
		if !ok {
			if l, err = load(ctx, c.config); err != nil {
				return nil, err
			}
			loaded[string(c.config)] = l
		}
		r, err := l.run(ctx, name, c)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func (l Loaded) run(ctx context.Context, name string, c Case) (Result, error) {
	r := Result{Case: c, Problems: l.Problems, have: map[string]any{}}
	switch {
	case c.Hook == dsh.HookCheckConfig:
		r.have["problems"] = listOf(l.Problems)
	case len(l.Problems) > 0:
		r.Differences = []Difference{{Path: "context.config", Have: strings.Join(l.Problems, "; "), Want: "a config that the policy takes"}}
		return r, nil
	default:
		if err := l.ask(ctx, name, &r); err != nil {
			return r, err
		}
	}
	if c.expect == nil {
		r.Differences = []Difference{{Path: "", Have: r.have, Want: "an expect, which the case has not"}}
		return r, nil
	}
	r.Differences = differences(r.have, c.expect)
	return r, nil
}

// ask puts the question and collects what came of it.
func (l Loaded) ask(ctx context.Context, name string, r *Result) error {
	input, err := r.Case.question(name)
	if err != nil {
		return wordf("line %d: %v", r.Case.Line, err)
	}
	host := r.Case.host.again()
	v, err := l.Policy.Decide(ctx, dsh.Question{Hook: r.Case.Hook, Input: input, Host: host})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if !errors.As(err, &r.Fault) {
			r.Fault = &dsh.Fault{Kind: dsh.FaultUnavailable, Message: err.Error()}
		}
		r.have["fault"] = string(r.Fault.Kind)
	} else {
		r.Answer, r.Fuel = v.Raw, v.Fuel
		if err := json.Unmarshal(v.Raw, &r.have); err != nil {
			return err
		}
	}
	if m := host.memory(); len(m) > 0 {
		r.have["state"] = m
	}
	if len(host.emitted) > 0 {
		r.have["emitted"] = host.emitted
	}
	return nil
}

func listOf(texts []string) []any {
	list := []any{}
	for _, s := range texts {
		list = append(list, s)
	}
	return list
}

// differences compares what is with what is expected: each field that is
// expected has to be there, and a fault only where one is.
func differences(have, want map[string]any) []Difference {
	all := compare("", have, want)
	if fault, ok := have["fault"]; ok && want["fault"] == nil {
		all = append([]Difference{{"fault", fault, nil}}, all...)
	}
	return all
}

func compare(path string, have, want any) []Difference {
	if least, most, ok := bounds(want); ok {
		if n, isNumber := have.(float64); isNumber {
			if n >= least && n <= most {
				return nil
			}
			return []Difference{{path, have, fmt.Sprintf("from %v to %v", least, most)}}
		}
	}
	object, isObject := want.(map[string]any)
	if !isObject {
		if list, ok := want.([]any); ok {
			return compareLists(path, have, list)
		}
		if reflect.DeepEqual(have, want) {
			return nil
		}
		return []Difference{{path, have, want}}
	}
	other, ok := have.(map[string]any)
	if !ok {
		return []Difference{{path, have, want}}
	}
	var all []Difference
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := key
		if path != "" {
			at = path + "." + key
		}
		all = append(all, compare(at, other[key], object[key])...)
	}
	return all
}

func compareLists(path string, have any, want []any) []Difference {
	list, ok := have.([]any)
	if !ok || len(list) != len(want) {
		return []Difference{{path, have, want}}
	}
	var all []Difference
	for i := range want {
		all = append(all, compare(fmt.Sprintf("%s[%d]", path, i), list[i], want[i])...)
	}
	return all
}

// bounds reads {"min":A,"max":B}, which any number from A to B fulfils.
func bounds(want any) (least, most float64, ok bool) {
	o, isObject := want.(map[string]any)
	if !isObject || len(o) != 2 {
		return 0, 0, false
	}
	least, hasLeast := o["min"].(float64)
	most, hasMost := o["max"].(float64)
	return least, most, hasLeast && hasMost
}

// Update returns the file of the cases with what the policy answers now in the
// expect of those that differ, and how many those are. Every other line keeps
// its bytes.
func Update(file []byte, results []Result) (updated []byte, changed int, err error) {
	lines := bytes.SplitAfter(file, []byte("\n"))
	for _, r := range results {
		if len(r.Differences) == 0 || r.Differences[0].Path == "context.config" {
			continue
		}
		c := r.Case.written
		expect, err := dsh.JSON(r.have)
		if err != nil {
			return nil, 0, err
		}
		c.Expect = expect
		line, err := dsh.JSON(c)
		if err != nil {
			return nil, 0, err
		}
		changed++
		at := r.Case.Line - 1
		end := []byte{}
		if bytes.HasSuffix(lines[at], []byte("\n")) {
			end = []byte("\n")
		}
		lines[at] = append(line, end...)
	}
	return bytes.Join(lines, nil), changed, nil
}
