package worker_test

// sysPrlimit is a call that is not there.
const sysPrlimit = ^uintptr(0)
