//go:build unix && !linux

package mcp

import "syscall"

// ownSession is that of a server, which ends with dsh because its stdin does.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
