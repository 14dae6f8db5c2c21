package tools

import (
	"bytes"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// Limits of one command. A file of 8 GiB is more than any build makes; a
// process is counted with its threads by the system, and without by dsh.
const (
	maxFileBytes = 8 << 30
	threadsEach  = 4 // of a process, on the average
)

// Numbers of linux/prctl.h, asm-generic/resource.h and linux/sched.h.
const (
	prSetChildSubreaper = 36
	rlimitNproc         = 6
	schedRR             = 2
	schedResetOnFork    = 0x40000000
)

// adopts says that this process is the parent of all that is left below it: when
// it has no child, there is nothing.
const adopts = true

// adopt makes this process the parent of orphans below it, and the first that
// the kernel ends when memory is short, before dsh.
func adopt() {
	_, _, _ = syscall.Syscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
}

// wardAttr puts a command into a session of its own, and ends its shell with
// the supervisor.
func wardAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// limit sets the limits that a command inherits. The returned function gives
// this process its own number of threads back.
func limit(most int) (restore func()) {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	lower(syscall.RLIMIT_FSIZE, maxFileBytes)
	var was syscall.Rlimit
	if syscall.Getrlimit(rlimitNproc, &was) != nil {
		return func() {}
	}
	now := was
	now.Cur = min(was.Cur, was.Max, uint64(int(threads())+threadsEach*most))
	if syscall.Setrlimit(rlimitNproc, &now) != nil {
		return func() {}
	}
	return func() { _ = syscall.Setrlimit(rlimitNproc, &was) }
}

func lower(resource int, most uint64) {
	var l syscall.Rlimit
	if syscall.Getrlimit(resource, &l) == nil {
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: min(l.Cur, most), Max: min(l.Max, most)})
	}
}

// threads is how many there are on the system: as many or more than the user's
// own, and cheap to be had.
func threads() uint16 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return info.Procs
}

// prefer lets this thread go before all that it watches: a thousand processes
// that fork leave an ordinary one no time to see it. Only root may ask for
// that; a user's processes have a limit of the kernel's.
func prefer() {
	priority := int32(1)
	_, _, _ = syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, schedRR|schedResetOnFork, uintptr(unsafe.Pointer(&priority)))
}

// sentry ends the command when there are too many processes, and tells how
// many there were. They are counted when the system has so many more than
// before, and stand still meanwhile.
func (w *ward) sentry(crowd chan<- int) {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, w.pid, 5) // what it runs waits for those who watch
	runtime.LockOSThread()
	prefer()
	const others = 50 // that may have ended meanwhile
	alarm := int(threads()) + w.most - min(others, w.most/2)
	pause := syscall.NsecToTimespec(int64(watchTick))
	for {
		_ = syscall.Nanosleep(&pause, nil) // this very thread sleeps, and wakes
		if int(threads()) < alarm {
			continue
		}
		_ = syscall.Kill(-w.pid, syscall.SIGSTOP)
		if all := w.below(); len(all) > w.most {
			crowd <- len(all)
			signalAll(all, syscall.SIGKILL)
			return
		}
		_ = syscall.Kill(-w.pid, syscall.SIGCONT)
		alarm = int(threads()) + others
	}
}

// members are all processes below this one that have not ended. Without /proc
// it is the group of the command, while there is any process.
func (w *ward) members() []member {
	if _, err := os.Stat("/proc/self/stat"); err != nil && !w.ended(0) {
		return []member{{pid: w.pid, group: w.pid}}
	}
	return slices.DeleteFunc(w.below(), func(m member) bool { return m.ended })
}

// below are all processes below this one, by the parents that /proc names, also
// those that have ended and that nobody has asked about yet.
func (w *ward) below() []member {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	children := map[int][]member{} // by their parent
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if m, parent, ok := status(pid); ok {
				children[parent] = append(children[parent], m)
			}
		}
	}
	all := children[os.Getpid()]
	for i := 0; i < len(all); i++ { // it grows as it goes
		all = append(all, children[all[i].pid]...)
	}
	return all
}

// status reads what is asked of a process. The form is that of proc(5): pid
// (comm) state ppid pgrp …, and comm may hold anything.
func status(pid int) (m member, parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return member{}, 0, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 3 {
		return member{}, 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	group, _ := strconv.Atoi(fields[2])
	return member{pid, group, fields[0] == "Z" || fields[0] == "X"}, parent, true
}

// workdir is the folder itself, wherever it was moved: the child opens it by
// the file that it inherits until it begins. The function closes that.
func (f *Folder) workdir() (string, func()) {
	dir, err := f.root.Open(".")
	if err != nil {
		return "", nil
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())), func() { dir.Close() }
}
