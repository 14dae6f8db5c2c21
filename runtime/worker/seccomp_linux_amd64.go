package worker

import "syscall"

// From linux/audit.h and asm/unistd_64.h.
const (
	auditArch    = 0xc000003e
	sysSeccomp   = 317
	sysGetrandom = 318
	sysRseq      = 334
	sysClone3    = 435
)

// archCalls are those that this architecture has besides.
func archCalls() []uint32 {
	return []uint32{syscall.SYS_EPOLL_WAIT, syscall.SYS_ARCH_PRCTL, syscall.SYS_GETRLIMIT}
}
