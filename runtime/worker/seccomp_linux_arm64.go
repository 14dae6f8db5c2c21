package worker

import "syscall"

// From linux/audit.h and asm-generic/unistd.h.
const (
	auditArch    = 0xc00000b7
	sysSeccomp   = 277
	sysGetrandom = 278
	sysRseq      = 293
	sysClone3    = 435
)

// archCalls are those that this architecture has besides.
func archCalls() []uint32 { return []uint32{syscall.SYS_GETRLIMIT} }
