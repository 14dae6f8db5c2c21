package tools_test

import (
	"strings"
	"syscall"
	"testing"
)

func mknod(name string) error {
	return syscall.Mknod(name, syscall.S_IFCHR|0o666, 1<<8|5)
}

// TestKernelFiles holds that a working folder of / does not open /proc.
func TestKernelFiles(t *testing.T) {
	b := openBox(t, "/")
	for _, path := range []string{"proc/self/environ", "/proc/self/environ", "proc/version", "/proc/self/cmdline", "sys/kernel/mm/transparent_hugepage/enabled"} {
		r := b.call("read", object("path", path))
		if !r.IsError {
			t.Errorf("%s is read", path)
		}
	}
	b.bad("read", `{"path":"proc/version"}`, "is the kernel's own")
	b.bad("read", `{"path":"/proc/self/fd/0"}`, "link") // an absolute link, or one to a pipe
	if r := b.call("list", `{"path":"/proc"}`); !r.IsError {
		t.Error("/proc is listed")
	}
	b.bad("read", `{"path":"/dev/null"}`, "device")
	if got := b.good("read", `{"path":"/etc/hostname"}`); strings.TrimSpace(got) == "" {
		t.Errorf("%q", got)
	}
}
