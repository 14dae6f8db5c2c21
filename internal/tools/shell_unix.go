//go:build unix

package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const canShell = true

// drain is how long the output of a command is waited for when all that it
// started has ended: what still holds it has escaped, or cannot be ended.
const drain = time.Second

// command runs a command by its supervisor, and waits till both have ended.
func (f *Folder) command(ctx context.Context, s Shell, command string, out *capture) (ending, error) {
	p, err := newPipes()
	if err != nil {
		return ending{}, err
	}
	defer p.close()
	args := append(s.Supervisor[1:len(s.Supervisor):len(s.Supervisor)], strconv.Itoa(s.Processes), shellPath(), "-c", command)
	cmd := exec.Command(s.Supervisor[0], args...) //nolint:noctx // ctx ends the command by its lifeline: the supervisor has to clear up
	if s.Name != "" {
		cmd.Args[0] = s.Name
	}
	cmd.Dir = f.names[0]
	if here, done := f.workdir(); done != nil {
		cmd.Dir = here
		defer done()
	}
	cmd.Env = append(Environment(s.Env, s.Secrets, s.Pass), plainTerminal()...)
	cmd.Env = append(cmd.Env, "PWD="+f.names[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.lifeR, p.outW, p.outW
	cmd.ExtraFiles = []*os.File{p.statusW}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal: not its signals, and nobody to be asked
	if err := cmd.Start(); err != nil {
		return ending{}, err
	}
	p.closeTheirs()
	copied, told := make(chan struct{}), make(chan ending, 1)
	go func() { defer close(copied); _, _ = io.Copy(out, p.outR) }()
	go func() { told <- readEnding(p.statusR) }()
	stop := context.AfterFunc(ctx, func() { _ = p.lifeW.Close() })
	defer stop()
	_ = cmd.Wait() // how it ended is told by itself
	end := <-told
	if !end.Done && end.Pid > 0 {
		_ = syscall.Kill(-end.Pid, syscall.SIGKILL) // the supervisor was killed: its shell's group is left
	}
	_ = p.outR.SetReadDeadline(time.Now().Add(drain))
	<-copied
	return end, nil
}

// pipes are what joins dsh and a supervisor: the output of the command, what
// the supervisor tells, and a lifeline, whose end is the supervisor's sign to
// end everything. It ends also when dsh is killed.
type pipes struct{ outR, outW, statusR, statusW, lifeR, lifeW *os.File }

func newPipes() (p pipes, err error) {
	for _, ends := range []struct{ r, w **os.File }{{&p.outR, &p.outW}, {&p.statusR, &p.statusW}, {&p.lifeR, &p.lifeW}} {
		if *ends.r, *ends.w, err = os.Pipe(); err != nil {
			p.close()
			return pipes{}, err
		}
	}
	return p, nil
}

func (p pipes) closeTheirs() {
	p.outW.Close()
	p.statusW.Close()
	p.lifeR.Close()
}

func (p pipes) close() {
	for _, f := range []*os.File{p.outR, p.outW, p.statusR, p.statusW, p.lifeR, p.lifeW} {
		if f != nil {
			f.Close() // those that were closed say so, which is nothing
		}
	}
}

// readEnding reads what a supervisor tells: the shell's id, and then its end.
func readEnding(r io.Reader) (end ending) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		pid := end.Pid
		_ = json.Unmarshal(lines.Bytes(), &end) // its own words; half a line is none
		end.Pid = max(end.Pid, pid)
	}
	return end
}

// plainTerminal are variables that keep programs from waiting for a person or
// painting for one.
func plainTerminal() []string {
	return []string{"TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true", "DEBIAN_FRONTEND=noninteractive"}
}

// shellPath is the shell that models write for, or the one that is everywhere.
func shellPath() string {
	for _, p := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p
		}
	}
	return "/bin/sh"
}

// signalName is a signal as kill(1) lists it, or its number in words.
func signalName(s syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGKILL: "KILL", syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGSEGV: "SEGV", syscall.SIGABRT: "ABRT",
		syscall.SIGPIPE: "PIPE", syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT", syscall.SIGBUS: "BUS", syscall.SIGFPE: "FPE",
		syscall.SIGXFSZ: "XFSZ (a file grew too large)", syscall.SIGXCPU: "XCPU", syscall.SIGILL: "ILL",
	}
	if n, ok := names[s]; ok {
		return n
	}
	return strings.TrimSpace(s.String())
}
