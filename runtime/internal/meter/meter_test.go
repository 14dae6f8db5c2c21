package meter_test

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// plenty is fuel that no test uses up.
const plenty = 1 << 60

// engines are both of wazero's.
func engines() map[string]wazero.RuntimeConfig {
	return map[string]wazero.RuntimeConfig{
		"compiler":    wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false),
		"interpreter": wazero.NewRuntimeConfigInterpreter().WithDebugInfoEnabled(false),
	}
}

// slice is fuel after which the code of many tests pauses, as often as can be.
const slice = 3

// split leaves of a tank's fuel no more than a slice for now.
func split(t meter.Tank) {
	left := int64(t.Fuel.Get() + t.Reserve.Get())
	t.Fuel.Set(uint64(min(left, slice)))
	t.Reserve.Set(uint64(left - min(left, slice)))
}

func rewrite(tb testing.TB, b []byte, o meter.Options) []byte {
	tb.Helper()
	m, err := wasm.Decode(b)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := meter.Rewrite(m, o)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// instance is a module with its tank; the tank of a plain one is empty.
type instance struct {
	api.Module
	tank meter.Tank
}

func start(tb testing.TB, r wazero.Runtime, b []byte) instance {
	tb.Helper()
	ctx := context.Background()
	c, err := r.CompileModule(ctx, b)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := r.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithStartFunctions().WithName(""))
	if err != nil {
		tb.Fatal(err)
	}
	return instance{m, tank(m)}
}

func tank(m api.Module) meter.Tank {
	var t meter.Tank
	if g, ok := m.ExportedGlobal(meter.FuelExport).(api.MutableGlobal); ok {
		t.Fuel = g
	}
	if g, ok := m.ExportedGlobal(meter.StackExport).(api.MutableGlobal); ok {
		t.Stack = g
	}
	if g, ok := m.ExportedGlobal(meter.ReserveExport).(api.MutableGlobal); ok {
		t.Reserve = g
	}
	return t
}

// metered starts a module rewritten.
func metered(tb testing.TB, r wazero.Runtime, b []byte, o meter.Options) instance {
	tb.Helper()
	return start(tb, r, rewrite(tb, b, o))
}

// call calls with a full tank and says how much was used.
func (i instance) call(fuel int64, name string, args ...uint64) (results []uint64, used int64, err error) {
	i.tank.Fill(fuel, meter.StackBytes)
	results, err = i.ExportedFunction(name).Call(context.Background(), args...)
	return results, i.tank.Used(fuel), err
}

// each runs a test on both engines.
func each(t *testing.T, test func(t *testing.T, r wazero.Runtime)) {
	for name, config := range engines() {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			r := wazero.NewRuntimeWithConfig(ctx, config)
			defer r.Close(ctx)
			test(t, r)
		})
	}
}
