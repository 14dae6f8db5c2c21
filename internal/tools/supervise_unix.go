//go:build unix

package tools

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	termGrace = 300 * time.Millisecond // between asking processes to end and ending them
	killTime  = 5 * time.Second        // after which one that does not end is given up
	watchTick = 10 * time.Millisecond
	statusFD  = 3
)

// Supervise runs a command, and sees to it that nothing of it is left when it
// has ended. It is the whole work of a process of its own, whose exit code it
// returns: dsh starts one for each command of the tool shell, with a lifeline
// as its stdin and a place for its report as its file 3. The arguments are the
// number of processes that it may have at a time, and the command. When the lifeline
// ends, because the time is up or because dsh was killed, so does everything.
//
// On Linux it is the parent of all orphans below it, so that also what left
// the command's process group and session is found; it sets limits on what one
// command may take, and ends a command that runs too many processes.
func Supervise(argv []string) int {
	runtime.LockOSThread() // the parent's death is that of the thread that forked
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	syscall.CloseOnExec(statusFD)
	status := os.NewFile(statusFD, "status")
	if len(argv) < 2 || status == nil {
		return 2
	}
	most, err := strconv.Atoi(argv[0])
	if err != nil {
		return 2
	}
	tell := func(e ending) {
		line, _ := json.Marshal(e)              // numbers and strings
		_, _ = status.Write(append(line, '\n')) // nobody is left to be told, then
	}
	adopt()
	pid, err := start(argv[1:], most)
	if err != nil {
		tell(ending{Done: true, Error: err.Error()})
		return 1
	}
	tell(ending{Pid: pid})
	w := ward{pid: pid, most: most, exited: make(chan syscall.WaitStatus, 1), gone: make(chan struct{})}
	go w.reap()
	tell(w.watch(lifeline()))
	return 0
}

// lifeline is closed when stdin ends.
func lifeline() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	return ended
}

// start begins the command in a session of its own, with nothing to read.
func start(argv []string, most int) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	restore := limit(most)
	defer restore()
	return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), 1, 2},
		Sys:   wardAttr(),
	})
}

// A ward is the command with all that it started.
type ward struct {
	pid    int
	most   int                     // processes at a time
	exited chan syscall.WaitStatus // of the shell
	gone   chan struct{}           // closed when no child is left
}

// reap collects what ends, until there is no child.
func (w *ward) reap() {
	defer close(w.gone)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case pid == w.pid && (ws.Exited() || ws.Signaled()):
			w.exited <- ws
		}
	}
}

// watch waits for the end of the command, for that of the lifeline, or for too
// many processes, and clears up.
func (w *ward) watch(lifeline <-chan struct{}) (e ending) {
	crowd := make(chan int, 1)
	go w.sentry(crowd)
	e.Done = true
	select {
	case ws := <-w.exited:
		if ws.Signaled() {
			e.Signal = signalName(ws.Signal())
		} else {
			e.Exit = ws.ExitStatus()
		}
		e.Left, e.Alive = w.clear(termGrace)
	case <-lifeline:
		e.Signal = signalName(syscall.SIGKILL)
		_, e.Alive = w.clear(termGrace)
	case n := <-crowd:
		e.Signal, e.Processes = signalName(syscall.SIGKILL), n
		_, e.Alive = w.clear(0)
	}
	select {
	case n := <-crowd: // which is why the shell ended
		e.Processes = n
	default:
	}
	return e
}

// clear ends all that is left: first by asking, if there is time for that. It
// returns how many there were, and how many could not be ended.
func (w *ward) clear(grace time.Duration) (left, alive int) {
	if adopts && w.ended(watchTick) {
		return 0, 0 // as it mostly is
	}
	all := w.members()
	left = len(all)
	if left == 0 {
		return 0, 0
	}
	if grace > 0 {
		signalAll(all, syscall.SIGTERM)
		w.ended(grace)
	}
	for end := time.Now().Add(killTime); time.Now().Before(end); {
		all = w.members()
		if len(all) == 0 {
			return left, 0
		}
		signalAll(all, syscall.SIGKILL)
		if w.ended(watchTick) {
			return left, 0
		}
	}
	return left, len(w.members())
}

// ended reports whether all have ended within a time.
func (w *ward) ended(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-w.gone:
		return true
	case <-t.C:
		return false
	}
}

// A member is one process of a ward.
type member struct {
	pid, group int
	ended      bool // and not yet collected by its parent
}

// signalAll sends a signal to processes and to their groups: a group gets it
// at once, also what is being born in it.
func signalAll(all []member, s syscall.Signal) {
	own := syscall.Getpgrp()
	for _, m := range all {
		if m.group > 1 && m.group != own {
			_ = syscall.Kill(-m.group, s)
		}
	}
	for _, m := range all {
		_ = syscall.Kill(m.pid, s)
	}
}
