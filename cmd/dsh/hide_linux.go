package main

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// prSetDumpable is PR_SET_DUMPABLE of linux/prctl.h.
const prSetDumpable = 4

// hideSecrets keeps the values of variables from commands that run as the same
// user, which the kernel lets read /proc/PID/environ: there they are overwritten,
// and for all but root the process is closed. The process itself has its own
// copies. What fails of it is no error: it is the second lock on the door, and
// the first is the environment that commands are given.
func hideSecrets(names []string) {
	wipe(names)
	_, _, _ = syscall.Syscall6(syscall.SYS_PRCTL, prSetDumpable, 0, 0, 0, 0, 0)
}

// wipe overwrites values in the memory in which the process was handed its
// environment; proc(5) says where that is.
func wipe(names []string) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return
	}
	const envStart = 50 - 3 // the fields are counted from 1, and two stand before the name's end
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= envStart {
		return
	}
	start, err := strconv.ParseInt(fields[envStart], 10, 64)
	if err != nil || start == 0 {
		return
	}
	environ, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer mem.Close()
	at := start
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, ok := bytes.Cut(entry, []byte{'='})
		if ok && slices.Contains(names, string(name)) {
			_, _ = mem.WriteAt(bytes.Repeat([]byte{'*'}, len(value)), at+int64(len(name))+1)
		}
		at += int64(len(entry)) + 1
	}
}
