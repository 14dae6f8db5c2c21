package wasm_test

import (
	"errors"
	"testing"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

func rules() wasm.Rules {
	i32, i64 := hostabi.ValueI32, hostabi.ValueI64
	return wasm.Rules{
		Imports: map[wasm.Symbol]hostabi.FuncType{
			{Module: "kernel", Name: "length"}: {Params: []hostabi.ValueType{i64}, Results: []hostabi.ValueType{i64}},
			{Module: "kernel", Name: "store"}:  {Params: []hostabi.ValueType{i64, i32}},
		},
		Exports:     wasm.PolicyExports(),
		Required:    []string{"recover"},
		MemoryPages: 256,
	}
}

// policy is a module that passes; write adds to it.
func policy(write func(m *Module)) []byte {
	var m Module
	hook := m.Type(nil, []byte{I32})
	length := m.Type([]byte{I64}, []byte{I64})
	store := m.Type([]byte{I64, I32}, nil)
	m.Import("kernel", "length", length)
	m.Import("kernel", "store", store)
	m.Type(nil, nil)
	if write != nil {
		write(&m)
	}
	m.ExportFunc("recover", m.Func(hook, I32Const(0)))
	return m.Bytes()
}

func TestVerify(t *testing.T) {
	const hook, length, void = 0, 1, 3
	for name, c := range map[string]struct {
		write func(m *Module)
		rule  wasm.Rule // "": accepted
		says  string
	}{
		"plain":  {nil, "", ""},
		"memory": {func(m *Module) { m.Memory(256, 1000); m.Export("memory", 2, 0) }, "", ""},
		"initialiser": {func(m *Module) {
			m.ExportFunc("_initialize", m.Func(void))
			m.ExportFunc("other", m.Func(length, Get(0)))
		}, "", ""},
		"all hooks": {func(m *Module) {
			for _, name := range []string{"before_step", "check_config", "warm"} {
				m.ExportFunc(name, m.Func(hook, I32Const(0)))
			}
		}, "", ""},
		"much memory": {func(m *Module) { m.Memory(257) }, wasm.RuleMemoryGrant,
			"the module begins with 16448 KiB of memory, and 16384 KiB are allowed"},
		"start": {func(m *Module) { m.Start(m.Func(void)) }, wasm.RuleStart,
			"function 2 is a start function, which would run before any limit holds: call it from an export"},
		"import not granted": {func(m *Module) { m.Import("kernel", "http_request", void) }, wasm.RuleImport,
			"the module imports kernel.http_request, which is not granted: there are length, store"},
		"import of a strange namespace": {func(m *Module) { m.Import("env", "abort", void) }, wasm.RuleImport,
			"the module imports env.abort, which is not granted: nothing of env is"},
		"import of another type": {func(m *Module) { m.Import("kernel", "length", void) }, wasm.RuleImport,
			"the module imports kernel.length with the type () -> (), and it has the type (i64) -> i64"},
		"import of a memory": {func(m *Module) { m.ImportRaw("kernel", "memory", 2, 0, 1) }, wasm.RuleImport,
			"the module imports the memory kernel.memory, and only functions may be imported"},
		"import of a global": {func(m *Module) { m.ImportRaw("kernel", "length", 3, I32, 0) }, wasm.RuleImport,
			"the module imports the global kernel.length, and only functions may be imported"},
		"hook of another type": {func(m *Module) { m.ExportFunc("warm", m.Func(void)) }, wasm.RuleExport,
			`function 2 (warm) is exported as "warm" with the type () -> (), and has to have the type () -> i32`},
		"import as a hook": {func(m *Module) { m.ExportFunc("warm", 0) }, wasm.RuleExport,
			`the module exports the function of the host kernel.length as "warm", and it has to be one of its own`},
		"hook that is a memory": {func(m *Module) { m.Memory(1); m.Export("warm", 2, 0) }, wasm.RuleExport,
			`the module exports a memory as "warm", and it has to be a function of the type () -> i32`},
		"initialiser of another type": {func(m *Module) { m.ExportFunc("_initialize", m.Func(hook, I32Const(0))) }, wasm.RuleExport, ""},
		"memory that is a function":   {func(m *Module) { m.ExportFunc("memory", m.Func(void)) }, wasm.RuleExport, ""},
		"reserved name": {func(m *Module) { m.ExportFunc("dsh:fuel", m.Func(void)) }, wasm.RuleExport,
			`the module exports "dsh:fuel", and names with "dsh:" belong to the host`},
		"name twice": {func(m *Module) { m.ExportFunc("recover", m.Func(void)) }, wasm.RuleExports,
			`the module exports the name "recover" twice`},
		"limits too": {func(m *Module) { m.FuncLocals(void, repeat(I32, 1001)) }, wasm.RuleLocals, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wasm.Verify(policy(c.write), rules())
			var r *wasm.Refusal
			switch {
			case c.rule == "" && err != nil:
				t.Fatal(err)
			case c.rule == "":
			case !errors.As(err, &r):
				t.Fatalf("it should be refused: %v", err)
			case r.Rule != c.rule || c.says != "" && r.Error() != c.says:
				t.Fatalf("%s: %v", r.Rule, r)
			}
		})
	}
}

func TestRequired(t *testing.T) {
	var m Module
	m.Func(m.Type(nil, nil))
	_, err := wasm.Verify(m.Bytes(), rules())
	if err == nil || err.Error() != `the module lacks the export "recover"` {
		t.Fatal(err)
	}
	if _, err := wasm.Verify(m.Bytes(), wasm.Rules{}); err != nil {
		t.Fatal(err)
	}
}

// TestCheck: every rule that is broken is named, in the module's order.
func TestCheck(t *testing.T) {
	r := rules()
	r.Denied = func(s wasm.Symbol) string {
		if s.Module == "net" {
			return "and there is no network"
		}
		return ""
	}
	m, refusals := wasm.Check(policy(func(m *Module) {
		m.Import("net", "send", 3)
		m.Import("env", "abort", 3)
		m.Memory(300)
		m.ExportFunc("warm", m.Func(3))
	}), r)
	want := []string{
		"the module imports net.send, and there is no network",
		"the module imports env.abort, which is not granted: nothing of env is",
		`function 4 (warm) is exported as "warm" with the type () -> (), and has to have the type () -> i32`,
		"the module begins with 19200 KiB of memory, and 16384 KiB are allowed",
	}
	if m != nil || len(refusals) != len(want) {
		t.Fatalf("%v, %v", m, refusals)
	}
	for i, refusal := range refusals {
		if refusal.Error() != want[i] {
			t.Errorf("%v; want %s", refusal, want[i])
		}
	}
	if m, refusals := wasm.Check(policy(nil), r); m == nil || refusals != nil {
		t.Errorf("%v, %v", m, refusals)
	}
}
