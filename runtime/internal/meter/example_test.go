package meter_test

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
	"github.com/dsh-agent/dsh/runtime/internal/wasm/wasmtest"
)

// An engine verifies a module, rewrites it and compiles the result. It fills
// the tank of an instance before each call, and asks it why a call has ended
// before it believes the call's error.
func Example() {
	var m wasmtest.Module // a guest whose "recover" never returns
	hook := m.Type(nil, []byte{wasmtest.I32})
	m.ExportFunc("recover", m.Func(hook, wasmtest.Loop(wasmtest.Empty, wasmtest.Br(0)), wasmtest.Op(wasmtest.Unreachable)))

	verified, err := wasm.Verify(m.Bytes(), wasm.Rules{Exports: wasm.PolicyExports(), Required: []string{"recover"}, MemoryPages: 256})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	code, err := meter.Rewrite(verified, meter.Options{MemoryPages: 256})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}

	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer r.Close(ctx)
	instance, err := r.Instantiate(ctx, code)
	if err != nil {
		fmt.Println(err)
		return
	}
	tank := meter.Tank{
		Fuel:    instance.ExportedGlobal(meter.FuelExport).(api.MutableGlobal),
		Stack:   instance.ExportedGlobal(meter.StackExport).(api.MutableGlobal),
		Reserve: instance.ExportedGlobal(meter.ReserveExport).(api.MutableGlobal),
	}

	tank.Fill(meter.DecisionFuel, meter.StackBytes)
	_, err = instance.ExportedFunction("recover").Call(ctx)
	fmt.Println("failed:", err != nil)
	fmt.Println("cause:", tank.Cause())
	fmt.Println("used:", tank.Used(meter.DecisionFuel))
	// Output:
	// failed: true
	// cause: fuel
	// used: 50000000
}
