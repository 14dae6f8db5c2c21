package badger

import "golang.org/x/sys/unix"

// defaultScratch is where Linux has a file system in memory for everybody.
const defaultScratch = "/dev/shm"

// inMemory reports whether a folder is on a file system in memory.
func inMemory(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && (s.Type == unix.TMPFS_MAGIC || s.Type == unix.RAMFS_MAGIC)
}
