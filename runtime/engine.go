package runtime

import (
	"context"
)

// An Engine compiles modules. It may be used by several goroutines.
//
// Every engine passes runtimetest.Run: the same guests have the same decisions
// and the same faults under all of them.
type Engine interface {
	// Name is what the log calls the engine.
	Name() string

	// Compile makes a module that Prepare has made ready for instances.
	// Compilation may not end when ctx does. The caller closes the program.
	Compile(ctx context.Context, m Module) (Program, error)
}

// A Program is a compiled module. It may be used by several goroutines.
type Program interface {
	// Instance makes a fresh instance. None of the guest's code runs. The
	// caller closes the instance.
	Instance(ctx context.Context) (Instance, error)

	// Close frees the program. Its instances are closed before.
	Close() error
}

// A Freezer is a Program that makes instances in the state of another one, which
// is faster than to bring each there by running its code.
type Freezer interface {
	// Freeze remembers the state of an instance that is at rest, and returns what
	// makes instances that begin with it. nil: it cannot, or it is not worth it.
	// What is remembered goes with what was returned.
	Freeze(ctx context.Context, i Instance) (thaw func(ctx context.Context) (Instance, error), err error)
}

// An Instance is one sandbox. It is for one goroutine at a time.
type Instance interface {
	// Call runs an export. When ctx ends, it ends with a fault of kind
	// deadline, at the next place at which the engine can stop the guest. Its
	// error is a *dsh.Fault; an instance is of no use after one. What the
	// guest logged until then is in the result even so.
	Call(ctx context.Context, c Call) (Result, error)

	// Close frees the instance. It is not to be called during a Call.
	Close() error
}

// A Sized instance knows what its memories take.
type Sized interface {
	MemoryBytes() uint64
}

// A Call is all that a guest's code may depend on.
type Call struct {
	Export string
	Input  []byte     // exactly what the guest reads
	NowMs  int64      // what its clocks show, Unix ms; they stand still unless it sleeps
	Random [4]float64 // the seed of its random numbers: see Entropy

	// Host answers the functions of namespace hostabi.ABI: the bytes of an
	// argument to the JSON of an answer, refusals among them. It is called from
	// the goroutine of Call, with a context that ends when that of Call does. Of
	// an argument that is longer than hostabi.MaxArgumentBytes one byte more than
	// that is enough. nil: every call is answered as Refuse does.
	Host func(ctx context.Context, function string, argument []byte) []byte
}

// A Result is what a guest has left behind.
type Result struct {
	Output []byte // of a call without a fault; may be empty
	Fuel   uint64 // used by the export, the same every time; the guest's start is counted apart
	Logs   []LogLine
}

// A LogLine is something that a guest said for people to read. It is UTF-8
// without control characters.
type LogLine struct {
	Level string // trace, debug, info, warn or error
	Text  string
}
