package guest

import (
	"fmt"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
)

// An End is how a call of a guest has ended.
type End struct {
	World   *World
	Hosting *Hosting
	Cause   meter.Cause // which limit has stopped it
	Started bool        // the guest's start is done: it was in the export
	Err     error       // nil: the export returned, with Code
	Code    uint32
	Exit    *uint32 // it has called proc_exit, with this
	Over    bool    // the call's context has ended
	Refused bool    // more memory was refused to it
	KiB     uint32  // the memory that it may have

	// StackOverflow says that the engine's own stack has overflowed.
	StackOverflow bool
}

// Fault is what the end means, or nil: the call is a success as far as it has
// an output. The order matters: why the host stopped a guest counts before
// what the guest's ruin looks like.
func (e *End) Fault() *dsh.Fault {
	because := func(kind dsh.FaultKind, format string, args ...any) *dsh.Fault {
		return &dsh.Fault{Kind: kind, Message: fmt.Sprintf(format, args...), Cause: e.Err}
	}
	switch {
	case e.Hosting.over():
		return because(dsh.FaultHostCalls, "it called more than %d host functions", e.Hosting.limit)
	case e.Cause == meter.CauseStack:
		return because(dsh.FaultStack, "its calls are nested too deep: they want more than %d KiB of stack", meter.StackBytes>>10)
	case e.Cause == meter.CauseFuel && !e.Started:
		return because(dsh.FaultFuel, "its start has used up its fuel, %d units", meter.StartFuel)
	case e.Cause == meter.CauseFuel:
		return because(dsh.FaultFuel, "it has used up its fuel, %d units", meter.DecisionFuel)
	case e.Err != nil && e.Over:
		return because(dsh.FaultDeadline, "it did not answer in time")
	case e.Exit != nil && *e.Exit == 0:
		return because(dsh.FaultExit, "it called proc_exit(0) instead of returning")
	case e.Exit != nil && !e.Started:
		return because(dsh.FaultExit, "it called proc_exit before it was ready%s", e.World.lastWords())
	case e.Exit != nil:
		return because(dsh.FaultExit, "it called proc_exit(%d)%s", *e.Exit, e.World.lastWords())
	case e.StackOverflow:
		return because(dsh.FaultStack, "its stack overflowed")
	case e.Err != nil && e.Refused:
		return because(dsh.FaultMemory, "it wanted more than its %d KiB of memory: %s", e.KiB, firstLine(e.Err))
	case e.Err != nil:
		return because(dsh.FaultTrap, "%s%s", firstLine(e.Err), e.World.lastWords())
	case e.Code != 0:
		return because(dsh.FaultExit, "it returned %d, and 0 is success%s", int32(e.Code), e.World.lastWords())
	}
	return nil
}

// OutputFault holds the output of a call without a fault to its limits.
func (e *End) OutputFault(out []byte, limit int) *dsh.Fault {
	switch {
	case len(out) > limit:
		return TooLong(len(out), limit)
	case len(out) == 0 && e.Refused:
		return &dsh.Fault{Kind: dsh.FaultMemory, Message: fmt.Sprintf("it wanted more than its %d KiB of memory, and set no output", e.KiB)}
	}
	return nil
}

// TooLong is the fault of an output that is longer than it may be.
func TooLong(bytes, limit int) *dsh.Fault {
	return &dsh.Fault{Kind: dsh.FaultOutput, Message: fmt.Sprintf("an output of %d bytes, and at most %d are allowed", bytes, limit)}
}

// Panicked is the fault of an engine that has panicked in a call.
func Panicked(r any) *dsh.Fault {
	return &dsh.Fault{Kind: dsh.FaultTrap, Message: runtime.Printable(fmt.Sprint(r), maxWords)}
}

// firstLine is the first line of an error that says something.
func firstLine(err error) string {
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSuffix(strings.TrimSpace(line), " (recovered by wazero)")
		if line = runtime.Printable(line, maxWords); strings.TrimSpace(line) != "" {
			return line
		}
	}
	return "it set an error without words"
}
