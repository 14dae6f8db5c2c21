package meter_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	. "github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// world runs a script of the specification's suite, with its modules plain or
// rewritten.
type world struct {
	r       wazero.Runtime
	rewrite func([]byte) ([]byte, bool) // false: the module is left plain
	named   map[string]api.Module
	last    api.Module
	tanks   []meter.Tank
	counted int  // the modules that were rewritten
	ours    bool // the last one was
}

func newWorld(t *testing.T, config wazero.RuntimeConfig, rewrite func([]byte) ([]byte, bool)) *world {
	ctx := context.Background()
	w := &world{r: wazero.NewRuntimeWithConfig(ctx, config), rewrite: rewrite, named: map[string]api.Module{}}
	t.Cleanup(func() { w.r.Close(ctx) })
	host := filepath.Join(ModuleDir(t, "github.com/tetratelabs/wazero"), "internal", "integration_test", "spectest", "testdata", "spectest.wasm")
	b, err := os.ReadFile(host)
	if err != nil {
		t.Skip(err)
	}
	if _, err := w.r.InstantiateWithConfig(ctx, b, wazero.NewModuleConfig().WithName("spectest")); err != nil {
		t.Fatal(err)
	}
	return w
}

// instantiate makes an instance, and runs its start function.
func (w *world) instantiate(b []byte, name, registered string) error {
	ctx := context.Background()
	out, ok := w.rewrite(b)
	if w.ours = ok; ok {
		b = out
		w.counted++
	}
	c, err := w.r.CompileModule(ctx, b)
	if err != nil {
		return err
	}
	w.fill()
	m, err := w.r.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithName(registered).WithStartFunctions())
	if err != nil {
		return err
	}
	w.last = m
	if name != "" {
		w.named[name] = m
	}
	if t := tank(m); t.Fuel != nil {
		w.tanks = append(w.tanks, t)
	}
	return nil
}

func (w *world) fill() {
	for _, t := range w.tanks {
		t.Fill(plenty, meter.StackBytes)
		split(t)
	}
}

// cause is why a call was stopped, if it was not the guest's doing.
func (w *world) cause() meter.Cause {
	for _, t := range w.tanks {
		if c := t.Cause(); c != meter.CauseNone {
			return c
		}
	}
	return meter.CauseNone
}

// act does an action: its results, or the first line of its error.
func (w *world) act(c *Command) ([]uint64, string) {
	m := w.last
	if c.Action.Module != "" {
		m = w.named[c.Action.Module]
	}
	if m == nil {
		return nil, "no module"
	}
	if c.Action.Type == "get" {
		return []uint64{m.ExportedGlobal(c.Action.Field).Get()}, ""
	}
	f := m.ExportedFunction(c.Action.Field)
	if f == nil {
		return nil, "no function"
	}
	w.fill()
	results, err := f.Call(context.Background(), arguments(c.Action.Args)...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return nil, line
	}
	return results, ""
}

func arguments(values []Value) []uint64 {
	args := make([]uint64, len(values))
	for i, v := range values {
		s, _ := v.Value.(string)
		n, err := strconv.ParseUint(s, 10, 64)
		switch {
		case v.Type == "externref" && err == nil:
			n++ // wazero's null is 0
		case strings.HasPrefix(s, "nan") && v.Type == "f32":
			n = 0x7fc00000
		case strings.HasPrefix(s, "nan"):
			n = 0x7ff8000000000000
		}
		args[i] = n
	}
	return args
}

// TestSpec runs the specification's suite plain and rewritten, in step: the
// same results, the same traps.
func TestSpec(t *testing.T) {
	for name, config := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rewritten, calls := 0, 0
			for _, s := range Spec(t) {
				n, c := script(t, &s, name, config)
				rewritten, calls = rewritten+n, calls+c
			}
			t.Logf("%d modules rewritten, %d calls compared", rewritten, calls)
			if rewritten < 1000 || calls < 19_000 {
				t.Errorf("only %d modules rewritten, and %d calls compared", rewritten, calls)
			}
		})
	}
}

func script(t *testing.T, s *Script, name string, config wazero.RuntimeConfig) (rewritten, calls int) {
	if strings.HasPrefix(s.Name, "simd_") {
		return 0, 0
	}
	plain := newWorld(t, config, func([]byte) ([]byte, bool) { return nil, false })
	meteredWorld := newWorld(t, config, func(b []byte) ([]byte, bool) {
		m, err := wasm.Decode(b)
		if err != nil {
			return nil, false
		}
		out, err := meter.Rewrite(m, meter.Options{Fuel: plenty, Stack: meter.StackBytes, Slice: slice})
		if err != nil {
			t.Fatal(err)
		}
		return out, true
	})
	for k := range s.Commands {
		c := &s.Commands[k]
		switch c.Type {
		case "module", "assert_uninstantiable", "assert_unlinkable":
			registered := ""
			if k+1 < len(s.Commands) && s.Commands[k+1].Type == "register" {
				registered = s.Commands[k+1].As
			}
			b := s.File(t, c.Filename)
			want, got := plain.instantiate(b, c.Name, registered), meteredWorld.instantiate(b, c.Name, registered)
			if (want == nil) != (got == nil) {
				t.Errorf("%s:%d: plain: %v; rewritten: %v", s.Name, c.Line, want, got)
			}
		case "assert_return", "action", "assert_trap":
			calls++
			results, trap := plain.act(c)
			got, gotTrap := meteredWorld.act(c)
			if !reflect.DeepEqual(results, got) || trap != gotTrap || meteredWorld.cause() != meter.CauseNone {
				t.Errorf("%s:%d: %s: plain: %v %s; rewritten: %v %s (%s)", s.Name, c.Line, c.Action.Field, results, trap, got, gotTrap, meteredWorld.cause())
			}
		case "assert_exhaustion":
			calls++
			_, trap := meteredWorld.act(c)
			// wazero's interpreter stops by itself at 2,000 calls within each other.
			own := strings.Contains(trap, "stack overflow") && (name == "interpreter" || !meteredWorld.ours)
			if trap == "" || meteredWorld.cause() != meter.CauseStack && !own {
				t.Errorf("%s:%d: %s: %q, stopped by %q", s.Name, c.Line, c.Action.Field, trap, meteredWorld.cause())
			}
		}
	}
	return meteredWorld.counted, calls
}
