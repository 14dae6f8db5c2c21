//go:build amd64 || arm64

package worker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// From linux/seccomp.h and linux/filter.h.
const (
	seccompSetModeFilter   = 1
	seccompFilterFlagTsync = 1 // all threads of the process, with no_new_privs

	retAllow = 0x7fff0000
	retErrno = 0x00050000

	bpfLoad  = 0x20 // a word of seccomp_data
	bpfEqual = 0x15
	bpfSet   = 0x45 // a bit is set
	bpfRet   = 0x06

	dataNumber = 0 // places in seccomp_data, which is little-endian here
	dataArch   = 4
	dataArg0   = 16

	cloneThread = 0x10000
)

// filterSystemCalls leaves a worker the system calls by which Go has memory,
// threads, time and open descriptors: it opens, connects, starts and signals
// nothing. Any other call fails with EPERM, and is no reason to die: Go does
// without. A system that has no filters goes without.
func filterSystemCalls() error {
	program := filter(uint32(os.Getpid()))
	prog := struct {
		length uint16
		code   *syscall.SockFilter
	}{uint16(len(program)), &program[0]}
	runtime.LockOSThread() // no_new_privs is a thread's
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	other, _, errno := syscall.Syscall(sysSeccomp, seccompSetModeFilter, seccompFilterFlagTsync, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno == syscall.ENOSYS || errno == syscall.EINVAL || errno == syscall.EACCES:
		return nil
	case errno != 0:
		return fmt.Errorf("seccomp: %w", errno)
	case other != 0:
		return errors.New("seccomp: a thread has another filter")
	}
	return nil
}

// filter is the program that judges each system call of the process pid.
func filter(pid uint32) []syscall.SockFilter {
	const deny, allow = retErrno | uint32(syscall.EPERM), uint32(retAllow)
	ret := func(k uint32) syscall.SockFilter { return syscall.SockFilter{Code: bpfRet, K: k} }
	load := func(at uint32) syscall.SockFilter { return syscall.SockFilter{Code: bpfLoad, K: at} }
	jump := func(code uint16, k uint32, no uint8) syscall.SockFilter { // goes on if it holds, and else past so many
		return syscall.SockFilter{Code: code, K: k, Jf: no}
	}
	// only allows a call if its first argument is as it has to be.
	only := func(number, code uint16, k uint32) []syscall.SockFilter {
		return []syscall.SockFilter{jump(bpfEqual, uint32(number), 4), load(dataArg0), jump(code, k, 1), ret(allow), ret(deny)}
	}
	program := []syscall.SockFilter{
		load(dataArch), {Code: bpfEqual, K: auditArch, Jt: 1}, ret(deny), load(dataNumber),
		jump(bpfEqual, sysClone3, 1), ret(retErrno | uint32(syscall.ENOSYS)), // its arguments cannot be seen: clone's can
	}
	program = append(program, only(syscall.SYS_CLONE, bpfSet, cloneThread)...)
	program = append(program, only(syscall.SYS_TGKILL, bpfEqual, pid)...)
	program = append(program, only(syscall.SYS_KILL, bpfEqual, pid)...)
	program = append(program, only(syscall.SYS_PRLIMIT64, bpfEqual, 0)...)
	for _, n := range append(allowedCalls(), archCalls()...) {
		program = append(program, jump(bpfEqual, n, 1), ret(allow))
	}
	return append(program, ret(deny))
}

// allowedCalls are those that any architecture has.
func allowedCalls() []uint32 {
	return []uint32{
		syscall.SYS_READ, syscall.SYS_WRITE, syscall.SYS_PREAD64, syscall.SYS_CLOSE, syscall.SYS_FSTAT, syscall.SYS_FCNTL,
		syscall.SYS_EPOLL_CREATE1, syscall.SYS_EPOLL_CTL, syscall.SYS_EPOLL_PWAIT, syscall.SYS_EVENTFD2, syscall.SYS_PIPE2,
		syscall.SYS_MMAP, syscall.SYS_MUNMAP, syscall.SYS_MPROTECT, syscall.SYS_MADVISE, syscall.SYS_MREMAP, syscall.SYS_MINCORE, syscall.SYS_BRK,
		syscall.SYS_RT_SIGACTION, syscall.SYS_RT_SIGPROCMASK, syscall.SYS_RT_SIGRETURN, syscall.SYS_SIGALTSTACK,
		syscall.SYS_FUTEX, syscall.SYS_NANOSLEEP, syscall.SYS_CLOCK_NANOSLEEP, syscall.SYS_CLOCK_GETTIME, syscall.SYS_GETTIMEOFDAY,
		syscall.SYS_SCHED_YIELD, syscall.SYS_SCHED_GETAFFINITY, syscall.SYS_GETPID, syscall.SYS_GETTID, syscall.SYS_GETRUSAGE,
		syscall.SYS_SET_ROBUST_LIST, syscall.SYS_RESTART_SYSCALL, syscall.SYS_EXIT, syscall.SYS_EXIT_GROUP,
		sysGetrandom, sysRseq,
	}
}
