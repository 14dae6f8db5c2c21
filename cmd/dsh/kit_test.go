package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
)

// A kitLine is one of hostabi/kit/suite.jsonl: see hostabi/README.md.
type kitLine struct {
	Name   string                     `json:"name"`
	Module string                     `json:"module"`
	Input  map[string]json.RawMessage `json:"input"`
	Expect struct {
		Answer  json.RawMessage `json:"answer"`
		Fault   []dsh.FaultKind `json:"fault"`
		Refused bool            `json:"refused"`
	} `json:"expect"`
}

// TestKitForOtherHosts holds this host to the suite that others are given, on
// both engines.
func TestKitForOtherHosts(t *testing.T) {
	folder := filepath.Join("..", "..", "hostabi", "kit")
	base, err := os.ReadFile(filepath.Join(folder, "input.json"))
	if err != nil {
		t.Fatal(err)
	}
	suite, err := os.Open(filepath.Join(folder, "suite.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close()
	engines := []runtime.Engine{native.New(native.Options{}), extism.New(extism.Options{})}
	for lines := bufio.NewScanner(suite); lines.Scan(); {
		var l kitLine
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&l); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		input := map[string]json.RawMessage{}
		if err := json.Unmarshal(base, &input); err != nil {
			t.Fatal(err)
		}
		for key, v := range l.Input {
			input[key] = v
		}
		raw, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(l.Name, func(t *testing.T) {
			for _, e := range engines {
				l.run(t, e, filepath.Join(folder, filepath.FromSlash(l.Module)), raw)
			}
		})
	}
}

func (l kitLine) run(t *testing.T, e runtime.Engine, module string, input json.RawMessage) {
	t.Helper()
	deadline := 30 * time.Second
	if slices.Contains(l.Expect.Fault, dsh.FaultDeadline) {
		deadline = 200 * time.Millisecond
	}
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "kit", Module: module}}, runtime.Options{Engine: e, Deadline: deadline})
	var refused *runtime.LoadError
	if l.Expect.Refused != errors.As(err, &refused) {
		t.Fatalf("%s: %v; refused: %t", e.Name(), err, l.Expect.Refused)
	}
	if l.Expect.Refused {
		return
	}
	defer set.Close()
	policies, _ := set.Policies()
	v, err := policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: input})
	var f *dsh.Fault
	if errors.As(err, &f) != (l.Expect.Fault != nil) || f != nil && !slices.Contains(l.Expect.Fault, f.Kind) {
		t.Fatalf("%s: %s, %v; want %v", e.Name(), v.Raw, err, l.Expect.Fault)
	}
	if f != nil {
		return
	}
	var got, want any
	if json.Unmarshal(v.Raw, &got) != nil || json.Unmarshal(l.Expect.Answer, &want) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %s, want %s", e.Name(), v.Raw, l.Expect.Answer)
	}
}
