//go:build unix && !linux

package tools

import "syscall"

const adopts = false

func adopt() {}

func wardAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func limit(int) (restore func()) {
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	return func() {}
}

// sentry counts nothing here: how many processes a user may have is the
// system's own to say.
func (w *ward) sentry(chan<- int) {}

// members is the command's process group, if there is any process left in it.
func (w *ward) members() []member {
	if syscall.Kill(-w.pid, 0) != nil {
		return nil
	}
	return []member{{pid: w.pid, group: w.pid}}
}

// workdir is not to be had without its path.
func (f *Folder) workdir() (string, func()) { return "", nil }
