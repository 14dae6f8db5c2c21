package tools

import (
	"os"
	"syscall"
)

// ofKernel reports whether a file is on one of the file systems that tell what
// the kernel knows: a working folder of / has them. The numbers are those of
// linux/magic.h.
func ofKernel(f *os.File) bool {
	var st syscall.Statfs_t
	c, err := f.SyscallConn()
	if err != nil {
		return true
	}
	if cerr := c.Control(func(fd uintptr) { err = syscall.Fstatfs(int(fd), &st) }); cerr != nil || err != nil {
		return true
	}
	switch uint32(st.Type) {
	case 0x9fa0, // PROC_SUPER_MAGIC
		0x62656572, // SYSFS_MAGIC
		0x64626720, // DEBUGFS_MAGIC
		0x74726163, // TRACEFS_MAGIC
		0x73636673, // SECURITYFS_MAGIC
		0x6165676c: // PSTOREFS_MAGIC
		return true
	}
	return false
}
