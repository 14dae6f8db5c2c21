//go:build !unix

package mcp

import "os/exec"

func apart(*exec.Cmd) {}

func terminate(*exec.Cmd) {}

func finish(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
