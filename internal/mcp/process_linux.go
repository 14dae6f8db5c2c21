package mcp

import "syscall"

// ownSession is that of a server, which the kernel ends with dsh.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
