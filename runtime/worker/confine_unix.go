//go:build linux || darwin

package worker

import (
	"fmt"
	"syscall"
	"time"
)

// Supported reports whether guests can run in processes of their own here.
const Supported = true

// root is the folder in which a worker runs.
const root = "/"

// attributes put a worker into a session of its own: it has no terminal, and a
// signal from one is for its parent.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// files is how many descriptors a worker may have: its streams and what the Go
// runtime polls them with.
const files = 32

// confine gives up, for good, what a worker does not need.
func confine(memory uint64) error {
	if err := confineSystem(); err != nil {
		return err
	}
	for _, l := range []struct {
		resource int
		value    uint64
	}{
		{syscall.RLIMIT_CORE, 0},
		{syscall.RLIMIT_FSIZE, 0},
		{syscall.RLIMIT_NOFILE, files},
		{syscall.RLIMIT_DATA, memory},
		{syscall.RLIMIT_CPU, uint64(cpuLimit / time.Second)},
	} {
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("limit %d cannot be set to %d: %w", l.resource, l.value, err)
		}
	}
	return filterSystemCalls() // the last, since it leaves no way to the others
}

// cpuUsed is the CPU time of this process.
func cpuUsed() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return cpuLimit // it cannot be told: the worker is not used again
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
