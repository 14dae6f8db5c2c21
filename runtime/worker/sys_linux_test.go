package worker_test

import "syscall"

// sysPrlimit is the call that reads and sets the limits of any process.
const sysPrlimit = syscall.SYS_PRLIMIT64
