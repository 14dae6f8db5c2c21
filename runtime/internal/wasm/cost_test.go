package wasm_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// TestBombs: each is refused at its full size, in little time; and what is
// not refused at a smaller size compiles in the time that it was given.
func TestBombs(t *testing.T) {
	for name, write := range Bombs() {
		t.Run(name, func(t *testing.T) {
			for _, bytes := range []int{8 << 10, 100 << 10, 7 << 20} {
				var m Module
				write(&m, bytes)
				b := m.Bytes()
				start := time.Now()
				r := refusal(t, b)
				if d := time.Since(start); d > 10*time.Second {
					t.Errorf("%d bytes: it took %v to tell", len(b), d)
				}
				switch {
				case r != nil && r.Rule != wasm.RuleCompileTime && r.Rule != wasm.RuleCompileSpace:
					t.Fatalf("%d bytes: %v", len(b), r)
				case r != nil && r.Func < 0:
					t.Errorf("%d bytes: no function is named: %v", len(b), r)
				case r == nil && bytes == 7<<20:
					t.Errorf("%d bytes are accepted", len(b))
				}
			}
		})
	}
}

// TestCompileTime compares the judgement with the engine. It is slow, and its
// figures depend on the machine: set DSH_WASM_COMPILE=1 to run it.
func TestCompileTime(t *testing.T) {
	if os.Getenv("DSH_WASM_COMPILE") == "" {
		t.Skip("set DSH_WASM_COMPILE=1 to compile the largest modules that are accepted, which takes minutes")
	}
	files := map[string][]byte{}
	for name, write := range Bombs() {
		// The largest size that is accepted, within an eighth.
		for bytes := 1 << 10; bytes < 7<<20; bytes += bytes / 8 {
			var m Module
			write(&m, bytes)
			if refusal(t, m.Bytes()) != nil {
				break
			}
			files["bomb: "+name] = m.Bytes()
		}
	}
	for name, b := range Real(t) {
		if len(b) > 30<<10 && refusal(t, b) == nil {
			files[name] = b
		}
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m, err := wasm.Decode(files[name])
		if err != nil {
			t.Fatal(err)
		}
		judged := m.CompileTime()
		start := time.Now()
		compile(t, files[name])
		took := time.Since(start)
		t.Logf("%-60s %8d bytes: judged %8v, took %8v, %.1f", name, len(files[name]),
			judged.Round(time.Millisecond), took.Round(time.Millisecond), float64(judged)/float64(took))
	}
}

func compile(tb testing.TB, b []byte) {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false))
	defer r.Close(ctx)
	if _, err := r.CompileModule(ctx, b); err != nil {
		tb.Fatal(err)
	}
}
