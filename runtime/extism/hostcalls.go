package extism

import (
	"context"
	"fmt"

	sdk "github.com/extism/go-sdk"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/hostabi"
)

// hostFunctions are those that the module imports.
func hostFunctions(m *hostabi.Module) []sdk.HostFunction {
	var functions []sdk.HostFunction
	seen := map[string]bool{}
	for _, i := range m.Imports {
		if i.Module != hostabi.ABI || seen[i.Name] {
			continue
		}
		seen[i.Name] = true
		f := sdk.NewHostFunctionWithStack(i.Name, call(i.Name), []sdk.ValueType{sdk.ValueTypePTR}, []sdk.ValueType{sdk.ValueTypePTR})
		f.SetNamespace(hostabi.ABI)
		functions = append(functions, f)
	}
	return functions
}

// call takes the handle of an argument from the stack and leaves that of an
// answer there. What stops the guest is a panic, as the engine wants it.
func call(name string) sdk.HostFunctionStackCallback {
	return func(ctx context.Context, p *sdk.CurrentPlugin, stack []uint64) {
		w, ok := ctx.Value(watchKey{}).(*watch)
		if !ok {
			panic(fmt.Errorf("%s is called outside of a call", name))
		}
		if !w.hosting.Allow() {
			panic(sys.NewExitError(sys.ExitCodeContextCanceled))
		}
		answer, err := p.WriteBytes(w.hosting.Answer(ctx, name, argument(ctx, p, stack[0])))
		if err != nil {
			panic(err) // the kernel has no memory left
		}
		stack[0] = answer
	}
}

// argument reads a block of the kernel's memory, and no more of it than shows
// that it is too long. A handle of nothing is an empty argument.
func argument(ctx context.Context, p *sdk.CurrentPlugin, handle uint64) []byte {
	n, err := p.LengthWithContext(ctx, handle)
	if err != nil || handle+n > 1<<32-1 {
		return nil
	}
	raw, ok := p.Memory().Read(uint32(handle), uint32(min(n, hostabi.MaxArgumentBytes+1)))
	if !ok {
		return nil
	}
	return append([]byte(nil), raw...)
}
