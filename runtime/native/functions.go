package native

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/sys"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasi"
)

// A function runs for the instance that calls it. Arguments are on the stack,
// and a result is left there. What stops the guest is its error.
type function func(ctx context.Context, i *instance, stack []uint64) error

// What stops a guest in a function of the host.
var (
	errFuel      = errors.New("the fuel is out")
	errCancelled = errors.New("the call is cancelled")
)

// functionOf finds what a module imports.
func functionOf(i hostabi.Import) (api.GoModuleFunc, error) {
	var f function
	switch i.Module {
	case hostabi.NamespaceKernel:
		f = kernelFunctions()[i.Name]
	case hostabi.NamespaceWASI:
		f = wasiFunction(i.Name)
	case hostabi.ABI:
		f = hostFunction(i.Name)
	}
	if f == nil || i.Kind != hostabi.ExternFunc {
		return nil, fmt.Errorf("there is no %s %s.%s", i.Kind, i.Module, i.Name)
	}
	return func(ctx context.Context, _ api.Module, stack []uint64) {
		i, ok := ctx.Value(instanceKey{}).(*instance)
		if !ok {
			panic(errors.New("a guest runs outside of a call"))
		}
		if err := i.call(ctx, f, stack); err != nil {
			panic(err) // as the library wants it
		}
	}, nil
}

// call runs a function, unless the call of the guest has been cancelled: a
// flood of functions takes longer than its fuel lets expect on a busy machine.
func (i *instance) call(ctx context.Context, f function, stack []uint64) error {
	select {
	case <-i.cancelled:
		return errCancelled
	default:
		return f(ctx, i, stack)
	}
}

func values(types []hostabi.ValueType) []api.ValueType {
	b := make([]api.ValueType, len(types))
	for i, t := range types {
		b[i] = api.ValueType(t)
	}
	return b
}

// wasiFunction runs in the guest's own memory.
func wasiFunction(name string) function {
	if name == wasi.ProcExit {
		return procExit
	}
	f, ok := wasi.Lookup(name)
	if !ok {
		return nil
	}
	return func(_ context.Context, i *instance, stack []uint64) error {
		mem := i.mod.Memory()
		if work := wasi.Work(name, stack, mem.Size()); !i.tank.ChargeBytes(work) {
			return errFuel
		}
		errno := f(&i.wasi, mem, stack)
		if len(stack) > 0 {
			stack[0] = uint64(errno)
		}
		return nil
	}
}

func procExit(_ context.Context, i *instance, stack []uint64) error {
	code := uint32(stack[0])
	i.exit = &code
	return sys.NewExitError(code)
}

// hostFunction takes the handle of an argument, and gives that of an answer.
func hostFunction(name string) function {
	return func(ctx context.Context, i *instance, stack []uint64) error {
		if !i.hosting.Allow() {
			return errors.New("too many host functions are called")
		}
		argument, err := i.kernel.Read(stack[0])
		if err != nil {
			return err
		}
		argument = append([]byte(nil), argument[:min(len(argument), hostabi.MaxArgumentBytes+1)]...)
		answer := i.hosting.Answer(ctx, name, argument)
		if !i.tank.ChargeBytes(uint64(len(argument) + len(answer))) {
			return errFuel
		}
		stack[0], err = i.kernel.Write(answer)
		return err
	}
}

// kernelFunctions are Extism's.
func kernelFunctions() map[string]function {
	return map[string]function{
		"alloc": func(_ context.Context, i *instance, s []uint64) (err error) {
			s[0], err = i.kernel.Alloc(s[0])
			return err
		},
		"free": func(_ context.Context, i *instance, s []uint64) error { return i.kernel.Free(s[0]) },
		"length": func(_ context.Context, i *instance, s []uint64) (err error) {
			s[0], err = i.kernel.Length(s[0])
			return err
		},
		"length_unsafe": func(_ context.Context, i *instance, s []uint64) (err error) {
			s[0], err = i.kernel.LengthUnsafe(s[0])
			return err
		},
		"load_u8": func(_ context.Context, i *instance, s []uint64) error {
			b, err := i.kernel.Load8(s[0])
			s[0] = uint64(b)
			return err
		},
		"load_u64": func(_ context.Context, i *instance, s []uint64) (err error) {
			s[0], err = i.kernel.Load64(s[0])
			return err
		},
		"store_u8": func(_ context.Context, i *instance, s []uint64) error { return i.kernel.Store8(s[0], byte(s[1])) },
		"store_u64": func(_ context.Context, i *instance, s []uint64) error {
			return i.kernel.Store64(s[0], s[1])
		},
		"input_offset": func(_ context.Context, i *instance, s []uint64) error {
			s[0] = i.kernel.Input()
			return nil
		},
		"input_length": func(_ context.Context, i *instance, s []uint64) error {
			s[0] = i.kernel.InputLength()
			return nil
		},
		"input_load_u8": func(_ context.Context, i *instance, s []uint64) error {
			b, err := i.kernel.InputLoad8(s[0])
			s[0] = uint64(b)
			return err
		},
		"input_load_u64": func(_ context.Context, i *instance, s []uint64) (err error) {
			s[0], err = i.kernel.InputLoad64(i.input, s[0])
			return err
		},
		"output_set": func(_ context.Context, i *instance, s []uint64) error {
			i.kernel.SetOutput(s[0], s[1])
			return nil
		},
		"error_set": func(_ context.Context, i *instance, s []uint64) error {
			i.kernel.SetError(s[0])
			return nil
		},
		"config_get":    configGet,
		"get_log_level": logLevel,
		"log_trace":     logAt("trace"),
		"log_debug":     logAt("debug"),
		"log_info":      logAt("info"),
		"log_warn":      logAt("warn"),
		"log_error":     logAt("error"),
	}
}

// configGet gives the value of a key, or 0.
func configGet(_ context.Context, i *instance, s []uint64) error {
	key, err := i.kernel.Read(s[0])
	if err != nil {
		return err
	}
	s[0] = 0
	if len(key) > i.program.longestKey {
		return nil
	}
	value, ok := i.program.module.Config[string(key)]
	switch {
	case !ok:
		return nil
	case !i.tank.ChargeBytes(uint64(len(value))):
		return errFuel
	}
	s[0], err = i.kernel.Write([]byte(value))
	return err
}

// The levels as Extism numbers them for guests.
const (
	levelInfo = 2
	levelOff  = math.MaxInt32
)

// maxLine is what is looked at of a line, in bytes: more than is ever kept.
const maxLine = 4 * hostabi.MaxLogBytes

func logLevel(_ context.Context, i *instance, s []uint64) error {
	if s[0] = levelOff; i.program.engine.opts.Logs {
		s[0] = levelInfo
	}
	return nil
}

// logAt takes a line from level info on, and frees its block.
func logAt(level string) function {
	quiet := strings.Contains("trace debug", level)
	return func(_ context.Context, i *instance, s []uint64) error {
		if !quiet && i.program.engine.opts.Logs {
			text, err := i.kernel.Read(s[0])
			if err != nil {
				return err
			}
			text = text[:min(len(text), maxLine)]
			if !i.tank.ChargeBytes(uint64(len(text))) {
				return errFuel
			}
			i.world.Log.Add(level, string(text))
		}
		return i.kernel.Free(s[0])
	}
}
