package worker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// From linux/prctl.h.
const (
	prSetDumpable   = 4
	prSetNoNewPrivs = 38
)

// confineSystem closes descriptors that came with the process, and takes from
// all of its threads the way to more rights than they have.
func confineSystem() error {
	if err := closeInherited(); err != nil {
		return err
	}
	// Nobody attaches to the process or reads its memory.
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetDumpable, 0, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	_, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	if errno != 0 && errno != syscall.ENOTSUP { // a build with cgo has no way to all threads
		return fmt.Errorf("prctl: %w", errno)
	}
	return nil
}

// closeInherited closes what was open before the program began. Go opens
// everything so that no program which it starts gets it, and a program that
// was started otherwise can have passed anything on.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil // without /proc it cannot be told
	}
	var errs []error
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno != 0 || flags&syscall.FD_CLOEXEC != 0 {
			continue
		}
		errs = append(errs, syscall.Close(fd))
	}
	return errors.Join(errs...)
}
