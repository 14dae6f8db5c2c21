package workshop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// A Case is one line of a file of cases: a situation, and what the policy is to
// answer to it.
type Case struct {
	Line int    // of the file, from 1
	Name string // may be ""
	Hook dsh.Hook

	input   map[string]any // of recover or before_step, without the policy's name where the case gives none
	config  json.RawMessage
	host    *caseHost
	expect  map[string]any // nil: it has none
	written lineJSON       // as it stands in the file
}

// lineJSON is a case as it is written.
type lineJSON struct {
	Name    string          `json:"name,omitempty"`
	Hook    dsh.Hook        `json:"hook,omitempty"`
	Failure json.RawMessage `json:"failure,omitempty"`
	Context json.RawMessage `json:"context,omitempty"`
	Expect  json.RawMessage `json:"expect,omitempty"`
}

// extrasJSON are the keys of a context that are no fields of the input.
type extrasJSON struct {
	Retries   *int                                  `json:"retries"`
	State     map[string]map[string]json.RawMessage `json:"state"`
	Log       []hostabi.LogEvent                    `json:"log"`
	HostCalls []scriptedCall                        `json:"hostCalls"`
}

// MaxCaseBytes is the longest line of a file of cases.
const MaxCaseBytes = 1 << 20

// ParseCases reads a file of cases, one JSON object a line; empty lines are
// passed over. It reads all of it: the error has a line for each case that does
// not hold, which begins with its number.
func ParseCases(r io.Reader) ([]Case, error) {
	var cases []Case
	var problems []error
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, MaxCaseBytes)
	n := 0
	for lines.Scan() {
		n++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		c, err := parseCase(n, text)
		if err != nil {
			problems = append(problems, fmt.Errorf("line %d: %w", n, err))
		}
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		problems = append(problems, fmt.Errorf("line %d: %w", n+1, err))
	}
	if len(cases) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("it has no cases"))
	}
	return cases, errors.Join(problems...)
}

func parseCase(n int, text []byte) (Case, error) {
	c := Case{Line: n, Hook: dsh.HookRecover}
	if err := strict(text, &c.written); err != nil {
		return c, err
	}
	c.Name = c.written.Name
	if c.written.Hook != "" {
		c.Hook = c.written.Hook
	}
	switch c.Hook {
	case dsh.HookRecover:
		if len(c.written.Failure) == 0 {
			return c, errors.New("a case of recover needs a failure")
		}
	case dsh.HookBeforeStep, dsh.HookCheckConfig:
		if len(c.written.Failure) > 0 {
			return c, fmt.Errorf("a case of %s has no failure", c.Hook)
		}
	default:
		return c, fmt.Errorf("hook is %q; it is recover, before_step or check_config", c.Hook)
	}
	if err := c.readContext(); err != nil {
		return c, err
	}
	return c, c.readExpect()
}

// readContext lays the case's failure and context over a situation as any.
func (c *Case) readContext() error {
	c.input = situation()
	if c.Hook != dsh.HookRecover {
		for _, k := range []string{"failure", "failedAtMs"} {
			delete(c.input, k)
		}
	} else if err := overlay(c.input, "failure", c.written.Failure); err != nil {
		return err
	}
	fields := map[string]json.RawMessage{}
	if len(c.written.Context) > 0 {
		if err := strict(c.written.Context, &fields); err != nil {
			return fmt.Errorf("context: %w", err)
		}
	}
	extras := map[string]json.RawMessage{}
	for _, k := range []string{"retries", "state", "log", "hostCalls"} {
		if raw, ok := fields[k]; ok {
			extras[k] = raw
			delete(fields, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if k == "failure" {
			return errors.New("context: failure stands beside context, not in it")
		}
		if err := overlay(c.input, k, fields[k]); err != nil {
			return fmt.Errorf("context: %w", err)
		}
	}
	c.config, _ = json.Marshal(c.input["config"]) // it was read from JSON
	return c.readExtras(extras)
}

func (c *Case) readExtras(fields map[string]json.RawMessage) error {
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	var x extrasJSON
	if err := strict(raw, &x); err != nil {
		return fmt.Errorf("context: %w", err)
	}
	for scope := range x.State {
		if scope != dsh.ScopeSession && scope != dsh.ScopeShared {
			return fmt.Errorf("context: state has the scope %q; the scopes are session and shared", scope)
		}
	}
	for _, s := range x.HostCalls {
		if len(s.Answer) == 0 {
			return fmt.Errorf("context: hostCalls: the call of %q has no answer", s.Function)
		}
	}
	c.host = newCaseHost(x)
	if x.Retries != nil {
		if *x.Retries < 0 {
			return errors.New("context: retries is below 0")
		}
		c.input["retries"] = *x.Retries // until the policy's name is known
	}
	return nil
}

// readExpect holds what is expected to what can be.
func (c *Case) readExpect() error {
	if len(c.written.Expect) == 0 {
		return nil
	}
	if err := strict(c.written.Expect, &c.expect); err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	allowed := []string{"kind", "delayMs", "mode", "maxRetries", "policyKey", "repairs", "reason", "fallback", "fault", "state", "emitted"}
	switch c.Hook {
	case dsh.HookBeforeStep:
		allowed = []string{"kind", "repairs", "reason", "fault", "state", "emitted"}
	case dsh.HookCheckConfig:
		allowed = []string{"problems"}
	}
	for _, k := range slices.Sorted(maps.Keys(c.expect)) {
		if !slices.Contains(allowed, k) {
			return fmt.Errorf("expect: %q is an unknown key; of %s there are %s", k, c.Hook, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// question makes the input for a policy of this name.
func (c *Case) question(policy string) (json.RawMessage, error) {
	in := maps.Clone(c.input)
	if in["policy"] == "" {
		in["policy"] = policy
	}
	retries, counted := in["retries"].(int)
	delete(in, "retries")
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	if c.Hook == dsh.HookBeforeStep {
		var step dsh.StepInput
		if err := json.Unmarshal(raw, &step); err != nil {
			return nil, typeError(err)
		}
		if counted {
			step.RetryCounts = ownCount(step.RetryCounts, step.Policy, step.RetryPolicy, step.Purpose, retries)
		}
		return dsh.JSON(step)
	}
	var r dsh.RecoverInput
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, typeError(err)
	}
	if !slices.Contains(dsh.Codes(), r.Failure.Code) {
		return nil, fmt.Errorf("failure: code is %q, which is none of %s", string(r.Failure.Code), words(dsh.Codes()))
	}
	if counted {
		r.RetryCounts = ownCount(r.RetryCounts, r.Policy, r.RetryPolicy, r.Purpose, retries)
		r.Attempt = max(r.Attempt, retries+1)
	}
	if r.ProviderNotBefore == nil && r.Failure.RetryAfter > 0 {
		at := r.FailedAtMs + int64(math.Ceil(dsh.Millis(r.Failure.RetryAfter)))
		r.ProviderNotBefore = &at
	}
	return dsh.JSON(r)
}

// ownCount adds retries of the policy itself, under the settings' key.
func ownCount(counts []dsh.RetryCount, policy string, p dsh.RetryPolicy, purpose dsh.Purpose, n int) []dsh.RetryCount {
	if n == 0 {
		return counts
	}
	return append(counts, dsh.RetryCount{Policy: policy, PolicyKey: p.Key(), Purpose: purpose, Count: n})
}

func words[T ~string](list []T) string {
	var all []string
	for _, v := range list {
		all = append(all, string(v))
	}
	return strings.Join(all, ", ")
}

// situation is the first failure of a session as any: what a case does not say.
func situation() map[string]any {
	raw, err := json.Marshal(dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: "case", Session: "case", Turn: 1, Step: 1, Attempt: 1,
		Purpose: dsh.PurposeReply, Provider: "example", Model: "example-model",
		Failure: dsh.Failure{Message: "a case"}, FailedAtMs: 1767225600000, NowMs: 1767225600000, // the first ms of 2026, UTC
		Random: [4]float64{0.5, 0.5, 0.5, 0.5}, RetryPolicy: dsh.DefaultRetryPolicy(),
		RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{},
		Surface: dsh.SurfaceInfo{Messages: 3, Tokens: 1000, Window: 131072, RequestBytes: 4000},
		Config:  json.RawMessage("{}"),
	})
	in := map[string]any{}
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		panic(err) // it is a constant in all but syntax
	}
	return in
}

// overlay puts a value in the place of an input's. Objects are laid over field
// by field; a field that no input has is refused.
func overlay(in map[string]any, key string, raw json.RawMessage) error {
	old, known := in[key]
	optional := key == "providerNotBeforeMs" && in["failure"] != nil
	if !known && !optional {
		return fmt.Errorf("%q is an unknown key; there are %s", key, strings.Join(append(slices.Sorted(maps.Keys(in)), "retries", "state", "log", "hostCalls"), ", "))
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	object, isObject := v.(map[string]any)
	base, wasObject := old.(map[string]any)
	if !wasObject || key == "config" {
		if key == "config" && !isObject {
			return errors.New("config is an object")
		}
		in[key] = v
		return nil
	}
	if !isObject {
		return fmt.Errorf("%s is an object", key)
	}
	for _, k := range slices.Sorted(maps.Keys(object)) {
		_, known := base[k]
		if !known && !(key == "failure" && slices.Contains([]string{"status", "providerRetryAfterMs", "requestId"}, k)) {
			return fmt.Errorf("%s: %q is an unknown key", key, k)
		}
		base[k] = object[k]
	}
	return nil
}

// strict reads one JSON value. A key that v has no field for, a repeated end or
// another type is an error for people.
func strict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return typeError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the end of the JSON")
	}
	return nil
}

// typeError words an error of encoding/json.
func typeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s cannot be a %s", wrong.Field, wrong.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}
