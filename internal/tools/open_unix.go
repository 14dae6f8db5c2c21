//go:build unix

package tools

import (
	"os"
	"syscall"
)

// openFlags keep an open from waiting for the other end of a pipe, and a
// terminal from becoming the process's own.
const openFlags = os.O_RDONLY | syscall.O_NONBLOCK | syscall.O_NOCTTY
