//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// apart puts a server into a session of its own, away from the terminal and
// its signals, with all that it starts.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = ownSession() }

func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

func finish(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
