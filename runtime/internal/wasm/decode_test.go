package wasm_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// refusal decodes, and returns what it is refused for; nil: it is not.
func refusal(t *testing.T, b []byte) *wasm.Refusal {
	t.Helper()
	_, err := wasm.Decode(b)
	if err == nil {
		return nil
	}
	var r *wasm.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("the error %v is no refusal", err)
	}
	if s := r.Error(); strings.ContainsAny(s, "\n\r") || len(s) > 600 {
		t.Fatalf("not one line: %q", s)
	}
	return r
}

// accepts compiles with wazero's features without SIMD.
func accepts(t testing.TB, b []byte) error {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithDebugInfoEnabled(false))
	defer r.Close(ctx)
	m, err := r.CompileModule(ctx, b)
	if err == nil {
		m.Close(ctx)
	}
	return err
}

func repeat(typ byte, n int) []byte { return slices.Repeat([]byte{typ}, n) }

// TestLimits holds each limit at its figure and one above it.
func TestLimits(t *testing.T) {
	void := func(m *Module) uint32 { return m.Type(nil, nil) }
	for _, c := range []struct {
		rule  wasm.Rule
		max   int
		write func(m *Module, n int)
	}{
		{wasm.RuleTypes, wasm.MaxTypes, func(m *Module, n int) {
			for range n {
				void(m)
			}
		}},
		{wasm.RuleTypes, wasm.MaxTypeValues, func(m *Module, n int) {
			for ; n > 0; n -= 500 {
				m.Type(repeat(I32, min(n, 500)), nil)
			}
		}},
		{wasm.RuleArity, wasm.MaxArity, func(m *Module, n int) { m.Type(repeat(I32, n), nil) }},
		{wasm.RuleArity, wasm.MaxArity, func(m *Module, n int) { m.Type(nil, repeat(F64, n)) }},
		{wasm.RuleImports, wasm.MaxImports, func(m *Module, n int) {
			for range n {
				m.Import("a", "b", void(m))
			}
		}},
		{wasm.RuleFunctions, wasm.MaxFunctions, func(m *Module, n int) {
			for range n {
				m.Func(0)
			}
			void(m)
		}},
		{wasm.RuleBody, wasm.MaxBodyBytes, func(m *Module, n int) { m.Func(void(m), Repeat(n-1, Op(Nop))) }},
		{wasm.RuleLocals, wasm.MaxLocals, func(m *Module, n int) { m.FuncLocals(void(m), repeat(I64, n)) }},
		{wasm.RuleLocalsTotal, wasm.MaxLocalsTotal, func(m *Module, n int) {
			void(m)
			for ; n > 0; n -= 1000 {
				m.FuncLocals(0, repeat(I64, min(n, 1000)))
			}
		}},
		{wasm.RuleNesting, wasm.MaxNesting, func(m *Module, n int) {
			m.Func(void(m), Repeat(n, Op(0x02, Empty)), Repeat(n, Op(End)))
		}},
		{wasm.RuleBranchTable, wasm.MaxBranchTargets, func(m *Module, n int) {
			m.Func(void(m), I32Const(0), BrTable(make([]uint32, n+1)...))
		}},
		{wasm.RuleMemory, 1, func(m *Module, n int) {
			for range n {
				m.Memory(1)
			}
		}},
		{wasm.RuleTables, wasm.MaxTables, func(m *Module, n int) {
			for range n {
				m.Table(Funcref, 1)
			}
		}},
		{wasm.RuleTables, wasm.MaxTableEntries, func(m *Module, n int) {
			m.Table(Funcref, uint32(n-10))
			m.Table(Externref, 10)
		}},
		{wasm.RuleElements, wasm.MaxElements, func(m *Module, n int) {
			m.Table(Funcref, 1)
			for range n {
				m.Elements(0)
			}
		}},
		{wasm.RuleElements, wasm.MaxElementItems, func(m *Module, n int) {
			m.Table(Funcref, 1)
			m.Func(void(m))
			m.Elements(0, make([]uint32, n-5)...)
			m.Elements(0, make([]uint32, 5)...)
		}},
		{wasm.RuleGlobals, wasm.MaxGlobals, func(m *Module, n int) {
			for range n {
				m.Global(I32, true, I32Const(1))
			}
		}},
		{wasm.RuleData, wasm.MaxData, func(m *Module, n int) {
			for range n {
				m.PassiveData(nil)
			}
		}},
		{wasm.RuleExports, wasm.MaxExports, func(m *Module, n int) {
			m.Func(void(m))
			for i := range n {
				m.ExportFunc(string(rune('a'+i%26))+string(U32(uint32(i%64)))+string(rune(0x100+i)), 0)
			}
		}},
		{wasm.RuleNames, wasm.MaxNames, func(m *Module, n int) {
			m.Custom("name", Section(1, U32(uint32(n)), Repeat(n, U32(0), Name(""))))
		}},
	} {
		t.Run(string(c.rule), func(t *testing.T) {
			var legal, above Module
			c.write(&legal, c.max)
			if r := refusal(t, legal.Bytes()); r != nil {
				t.Fatalf("at the limit of %d: %v", c.max, r)
			}
			c.write(&above, c.max+1)
			r := refusal(t, above.Bytes())
			if r == nil {
				t.Fatalf("above the limit of %d: accepted", c.max)
			}
			if r.Rule != c.rule || r.Max != uint64(c.max) || r.Have != uint64(c.max+1) {
				t.Fatalf("rule %s, have %d, max %d: %v", r.Rule, r.Have, r.Max, r)
			}
		})
	}
}

func TestModuleSize(t *testing.T) {
	var m Module
	base := len(m.Bytes())
	m.Custom("x", make([]byte, wasm.MaxModuleBytes-base-7))
	b := m.Bytes()
	if len(b) != wasm.MaxModuleBytes {
		t.Fatalf("the test's module has %d bytes", len(b))
	}
	if r := refusal(t, b); r != nil {
		t.Fatal(r)
	}
	if r := refusal(t, append(b, 0)); r == nil || r.Rule != wasm.RuleModuleBytes {
		t.Fatal(r)
	}
}

// TestRefusalNamesTheFunction looks at the sentence.
func TestRefusalNamesTheFunction(t *testing.T) {
	var m Module
	v := m.Type(nil, nil)
	m.Import("env", "first", v)
	m.Func(v)
	m.ExportFunc("third", m.FuncLocals(v, repeat(I32, 1200)))
	r := refusal(t, m.Bytes())
	if r == nil || r.Func != 2 || r.Name != "third" || r.Error() != "function 2 (third) has 1200 locals, and at most 1000 are allowed" {
		t.Fatalf("%+v: %v", r, r)
	}
	m.Custom("name", Section(1, U32(1), U32(2), Name("by\nname")))
	// The section of names stands behind the code, and is looked for there.
	if r := refusal(t, m.Bytes()); r.Name != "byname" {
		t.Fatal(r)
	}
	var n Module
	n.CustomBefore("name", Section(1, U32(1), U32(0), Name("by\n"+strings.Repeat("n", 200))))
	n.FuncLocals(n.Type(nil, nil), repeat(I32, 1200))
	if r := refusal(t, n.Bytes()); !strings.HasPrefix(r.Name, "bynnn") || len(r.Name) > 90 {
		t.Fatal(r)
	}
}

// TestFeatures is what is refused as not supported, and never as damaged.
func TestFeatures(t *testing.T) {
	code := func(body ...[]byte) []byte {
		var m Module
		m.Memory(1)
		m.Table(Funcref, 1)
		m.Func(m.Type(nil, nil), body...)
		return m.Bytes()
	}
	module := func(write func(m *Module)) []byte {
		var m Module
		write(&m)
		return m.Bytes()
	}
	for name, c := range map[string]struct {
		b    []byte
		says string
	}{
		"simd":               {code(Op(0xfd, 12), make([]byte, 16), Op(Drop)), "SIMD"},
		"simd type":          {module(func(m *Module) { m.Type([]byte{V128}, nil) }), "SIMD"},
		"simd local":         {module(func(m *Module) { m.FuncLocals(m.Type(nil, nil), []byte{V128}) }), "SIMD"},
		"simd global":        {module(func(m *Module) { m.Global(V128, false, Op(0xfd, 12), make([]byte, 16)) }), "SIMD"},
		"atomics":            {code(Op(0xfe, 3, 0)), "threads"},
		"shared memory":      {module(func(m *Module) { m.ImportRaw("a", "b", 2, 3, 1, 1) }), "threads"},
		"try":                {code(Op(0x06, Empty, End)), "exceptions"},
		"try_table":          {code(Op(0x1f, Empty, 0, End)), "exceptions"},
		"throw":              {code(Op(0x08, 0)), "exceptions"},
		"tags":               {append(module(func(m *Module) {}), Section(13, []byte{0})...), "exceptions"},
		"exnref":             {module(func(m *Module) { m.Type([]byte{0x69}, nil) }), "exceptions"},
		"import of a tag":    {module(func(m *Module) { m.ImportRaw("a", "b", 4, 0, 0) }), "exceptions"},
		"tail call":          {code(Op(0x12, 0)), "tail calls"},
		"indirect tail call": {code(I32Const(0), Op(0x13, 0, 0)), "tail calls"},
		"call_ref":           {code(Op(0xd0, Funcref, 0x14, 0)), "typed function references"},
		"typed reference":    {module(func(m *Module) { m.Type([]byte{0x63, 0x70}, nil) }), "typed function references"},
		"table with a value": {append(module(func(m *Module) {}), Section(4, []byte{1, 0x40, 0, 0x70, 0, 1, 0xd0, 0x70, 0x0b})...), "typed function references"},
		"struct.new":         {code(Op(0xfb, 0, 0)), "garbage collection"},
		"rec group":          {append(module(func(m *Module) {}), Section(1, []byte{1, 0x4e, 1, 0x60, 0, 0})...), "garbage collection"},
		"memory 1":           {code(I32Const(0), Op(0x28, 0x42, 1, 0, Drop)), "several memories"},
		"grow memory 1":      {code(I32Const(0), Op(0x40, 1, Drop)), "several memories"},
		"data for memory 1":  {append(module(func(m *Module) { m.Memory(1) }), Section(11, []byte{1, 2, 1, 0x41, 0, 0x0b, 0})...), "several memories"},
		"64-bit memory":      {append(module(func(m *Module) {}), Section(5, []byte{1, 4, 1})...), "64-bit"},
		"64-bit table":       {append(module(func(m *Module) {}), Section(4, []byte{1, 0x70, 4, 1})...), "64-bit"},
		"extended constants": {module(func(m *Module) { m.Global(I32, false, I32Const(1), I32Const(2), Op(I32Add)) }), "extended constant"},
		"unknown 0xfc":       {code(Misc(18)), "unknown proposal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := refusal(t, c.b)
			if r == nil || r.Rule != wasm.RuleFeature || !strings.Contains(r.Error(), c.says) {
				t.Fatalf("%v, and it should speak of %s", r, c.says)
			}
		})
	}
}

// TestDamaged is what is not well-formed; nothing of it may be accepted.
func TestDamaged(t *testing.T) {
	module := func(write func(m *Module)) []byte {
		var m Module
		write(&m)
		return m.Bytes()
	}
	code := func(body ...[]byte) []byte {
		return module(func(m *Module) { m.Func(m.Type(nil, nil), body...) })
	}
	raw := func(sections ...[]byte) []byte {
		return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), slices.Concat(sections...))
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for name, b := range map[string][]byte{
		"empty":                 {},
		"text":                  []byte("(module)"),
		"component":             []byte("\x00asm\x0d\x00\x01\x00"),
		"short":                 []byte("\x00asm\x01\x00\x00"),
		"section id":            raw(Section(14)),
		"section size":          raw([]byte{1}, huge),
		"section twice":         raw(Section(5, []byte{0}), Section(5, []byte{0})),
		"section order":         raw(Section(5, []byte{0}), Section(1, []byte{0})),
		"data count late":       raw(Section(10, []byte{0}), Section(12, []byte{0})),
		"left over":             raw(Section(5, []byte{0, 0})),
		"types, claimed":        raw(Section(1, huge)),
		"functions, claimed":    raw(Section(3, huge)),
		"exports, claimed":      raw(Section(7, huge)),
		"elements, claimed":     raw(Section(9, huge)),
		"code, claimed":         raw(Section(10, huge)),
		"data, claimed":         raw(Section(11, huge)),
		"data size":             module(func(m *Module) { m.DataRaw(U32(1), huge) }),
		"data without memory":   module(func(m *Module) { m.Data(0, nil) }),
		"data count":            module(func(m *Module) { m.DataCount(7) }),
		"locals, claimed":       module(func(m *Module) { m.FuncRaw(m.Type(nil, nil), slices.Concat(huge, []byte{End})) }),
		"type index":            module(func(m *Module) { m.Func(0) }),
		"import's type":         module(func(m *Module) { m.Import("a", "b", 0) }),
		"export's index":        module(func(m *Module) { m.ExportFunc("x", 0) }),
		"name not UTF-8":        module(func(m *Module) { m.Memory(1); m.Export("\xff", 2, 0) }),
		"start":                 module(func(m *Module) { m.Start(0) }),
		"element's function":    module(func(m *Module) { m.Table(Funcref, 1); m.Elements(0, 1) }),
		"element's table":       module(func(m *Module) { m.Elements(0) }),
		"global's global":       module(func(m *Module) { m.Global(I32, false, Index(0x23, 0)) }),
		"function without code": module(func(m *Module) { m.Type(nil, nil) })[:8],
		"memory of 4 GiB":       module(func(m *Module) { m.Memory(1, 65537) }),
		"limits":                module(func(m *Module) { m.Memory(2, 1) }),
		"code without function": raw(Section(10, []byte{1, 2, 0, End})),
		"no end":                module(func(m *Module) { m.FuncRaw(m.Type(nil, nil), []byte{0, Nop}) }),
		"two ends":              code(Op(End)),
		"else":                  code(Op(Else)),
		"two elses":             code(I32Const(0), Op(0x04, Empty, Else, Else, End)),
		"label":                 code(Br(1)),
		"br_table's label":      code(I32Const(0), BrTable(0, 1)),
		"br_table's size":       code(I32Const(0), Op(0x0e), huge),
		"br_table's arity":      code(Block(I32, I32Const(0), I32Const(0), BrTable(0, 1)), Op(Drop)),
		"local":                 code(Get(0), Op(Drop)),
		"global":                code(Index(0x23, 0), Op(Drop)),
		"function":              code(Call(1)),
		"table":                 code(I32Const(0), Index(0x25, 0), Op(Drop)),
		"call_indirect's table": code(I32Const(0), CallIndirect(0, 0)),
		"call_indirect's type":  module(func(m *Module) { m.Table(Funcref, 1); m.Func(m.Type(nil, nil), I32Const(0), CallIndirect(1, 0)) }),
		"block's type":          code(Op(0x02, 1, End)),
		"memory":                code(I32Const(0), Op(0x28, 0, 0, Drop)),
		"memory.fill":           code(I32Const(0), I32Const(0), I32Const(0), Misc(11), Op(0)),
		"data segment":          module(func(m *Module) { m.Memory(1); m.Func(m.Type(nil, nil), Misc(9, 0)) }),
		"element segment":       code(Misc(13, 0)),
		"ref.func":              code(Index(0xd2, 1), Op(Drop)),
		"operands":              code(Op(I32Add, Drop)),
		"operands left":         code(I32Const(0)),
		"operands of the block": code(I32Const(0), Block(Empty, Op(Drop))),
		"no result":             module(func(m *Module) { m.Func(m.Type(nil, []byte{I32})) }),
		"if without else":       code(I32Const(0), If(I32, I32Const(0)), Op(Drop)),
		"long number":           code(Op(0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, Drop)),
		"big number":            code(Op(0x41, 0xff, 0xff, 0xff, 0xff, 0x1f, Drop)),
		"opcode":                code(Op(0xff)),
		"names":                 module(func(m *Module) { m.Custom("name", Section(1, huge)) }),
		"names left over":       module(func(m *Module) { m.Custom("name", Section(0, Name("x"), []byte{0})) }),
		"local names":           module(func(m *Module) { m.Custom("name", Section(2, U32(1), U32(0), huge)) }),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "function without code" {
				b = raw(Section(1, []byte{1, 0x60, 0, 0}), Section(3, []byte{1, 0}))
			}
			r := refusal(t, b)
			if r == nil {
				t.Fatal("accepted")
			}
			if r.Rule == wasm.RuleFeature {
				t.Fatalf("refused as not supported: %v", r)
			}
		})
	}
}

// TestNumbers are numbers at the edges of what may be written.
func TestNumbers(t *testing.T) {
	for name, c := range map[string]struct {
		code []byte
		ok   bool
	}{
		"least i32":            {Op(0x41, 0x80, 0x80, 0x80, 0x80, 0x78), true},
		"most i32":             {Op(0x41, 0xff, 0xff, 0xff, 0xff, 0x07), true},
		"-1, written long":     {Op(0x41, 0xff, 0xff, 0xff, 0xff, 0x7f), true},
		"0, written long":      {Op(0x41, 0x80, 0x80, 0x80, 0x80, 0x00), true},
		"i32, sign against it": {Op(0x41, 0xff, 0xff, 0xff, 0xff, 0x0f), false},
		"i32, bits above":      {Op(0x41, 0x80, 0x80, 0x80, 0x80, 0x70), false},
		"least i64":            {Op(0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f), true},
		"most i64":             {Op(0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00), true},
		"i64, bits above":      {Op(0x42, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), false},
		"i64, too long":        {Op(0x42, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00), false},
	} {
		t.Run(name, func(t *testing.T) {
			var m Module
			m.Func(m.Type(nil, nil), c.code, Op(Drop))
			r := refusal(t, m.Bytes())
			if (r == nil) != c.ok {
				t.Fatal(r)
			}
			if err := accepts(t, m.Bytes()); (err == nil) != c.ok {
				t.Fatalf("the engine: %v", err)
			}
		})
	}
}

// TestMemoryOfRefusals: whatever small bytes claim, little is allocated.
func TestMemoryOfRefusals(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for id := byte(0); id < 14; id++ {
		for _, contents := range [][]byte{huge, append([]byte{1, 0x60}, huge...), append([]byte{1}, huge...), append([]byte{4, 'n', 'a', 'm', 'e', 1, 9}, huge...)} {
			b := slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), Section(id, contents))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := wasm.Decode(b); err == nil && id != 0 && id != 8 && id != 12 {
				t.Errorf("section %d: accepted", id)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
				t.Errorf("section %d: %d bytes allocated", id, n)
			}
		}
	}
}

// TestRealModules: what toolchains write is accepted, but for two modules
// whose reasons are known.
func TestRealModules(t *testing.T) {
	known := map[string]wasm.Rule{
		"hello_haskell.wasm":  wasm.RuleFeature, // SIMD
		"nested.c.instr.wasm": wasm.RuleLocals,  // 1,687 in one function, by a profiler
	}
	n := 0
	for path, b := range Real(t) {
		name := path[strings.LastIndexByte(path, '/')+1:]
		start := time.Now()
		m, err := wasm.Decode(b)
		switch {
		case err == nil && known[name] != "":
			t.Errorf("%s: accepted", path)
		case err != nil && accepts(t, b) != nil:
		case err != nil && (strings.Contains(path, "/fuzzcases/") || strings.HasSuffix(path, "/hugestack.wasm")):
			if r := refusal(t, b); r.Rule != wasm.RuleFeature {
				t.Errorf("%s: %v", path, err)
			}
		case err != nil:
			if r := refusal(t, b); r.Rule != known[name] {
				t.Errorf("%s: %v", path, err)
			}
		default:
			n++
			walk(t, m)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s took %v", path, d)
		}
	}
	if n < 40 {
		t.Errorf("only %d modules", n)
	}
}

// walk goes over all code, and finds that instructions join without gaps.
func walk(t *testing.T, m *wasm.Module) {
	for k := range m.Code {
		f := &m.Code[k]
		c := m.Walk(f)
		var i wasm.Instr
		at := f.Body
		for c.Next(&i) {
			if i.Start != at || i.End <= i.Start {
				t.Fatalf("function %d: an instruction from %d to %d, after %d", k, i.Start, i.End, at)
			}
			at = i.End
		}
		if at != f.End {
			t.Fatalf("function %d: its code ends at %d, and the walk at %d", k, f.End, at)
		}
	}
}

// TestSpec: every module of the specification's suite that the engine accepts
// is accepted, unless it uses what is not supported or is above a limit; and
// what is malformed is refused by one of both.
func TestSpec(t *testing.T) {
	accepted, refused := 0, map[wasm.Rule]int{}
	for _, s := range Spec(t) {
		for _, c := range s.Commands {
			if !strings.HasSuffix(c.Filename, ".wasm") {
				continue
			}
			b := s.File(t, c.Filename)
			m, err := wasm.Decode(b)
			var r *wasm.Refusal
			switch errors.As(err, &r); c.Type {
			case "module":
				if r != nil {
					refused[r.Rule]++
					if r.Rule == wasm.RuleFormat {
						t.Errorf("%s: %v", c.Filename, r)
					}
					break
				}
				walk(t, m)
				accepted++
			case "assert_malformed", "assert_invalid":
				if r == nil && accepts(t, b) == nil {
					t.Errorf("%s: accepted by both: %s", c.Filename, c.Text)
				}
			}
		}
	}
	t.Logf("%d modules accepted, refused: %v", accepted, refused)
	if accepted < 900 {
		t.Errorf("only %d modules accepted", accepted)
	}
	delete(refused, wasm.RuleFeature)
	for rule, n := range refused {
		if n > 3 {
			t.Errorf("%d modules refused by the rule %s", n, rule)
		}
	}
}
