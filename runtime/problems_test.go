package runtime_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
	"github.com/dsh-agent/dsh/runtime/native"
)

// TestManyProblems: a module that finds thousands of problems in its
// configuration does not flood a terminal, and one without words is said all
// the same.
func TestManyProblems(t *testing.T) {
	var m Module
	Answer(&m, hostabi.ExportCheckConfig, `{"problems":["","\u001b\n",`+strings.Repeat(`"x",`, 3000)+`"y"]}`)
	m.ExportFunc(hostabi.ExportRecover, m.Func(m.Type(nil, []byte{I32}), I32Const(0)))
	_, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "p", Module: "p.wasm", Wasm: m.Bytes()}}, runtime.Options{Engine: native.New(native.Options{})})
	var failed *runtime.LoadError
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if n := len(failed.Problems); n < 3 || n > 20 {
		t.Errorf("%d problems", n)
	}
	for _, p := range failed.Problems[:2] {
		if !strings.Contains(p.Message, "has no words for it") {
			t.Errorf("%q", p.Message)
		}
	}
	if last := failed.Problems[len(failed.Problems)-1].Message; last != "and 2987 more problems" {
		t.Errorf("%q", last)
	}
}
