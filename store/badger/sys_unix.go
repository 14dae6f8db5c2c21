//go:build linux || darwin

package badger

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// tryLock takes the one lock of a file, and reports false where somebody else
// has it. The lock goes with the file and with its process.
func tryLock(f *os.File) (bool, error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		default:
			return false, err
		}
	}
}

// unlock gives a lock up. Closing the file would leave it to a process that is
// being forked off this one until that runs its program.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// badgerLocks says whether the lock of the database's folder is left to Badger.
const badgerLocks = false

// alive reports whether a process exists.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

// freeBytes is what a user may still write in the file system of a folder.
func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		if err == nil {
			return uint64(s.Bavail) * uint64(s.Bsize), nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

// allocated is what a file takes of its file system: the database makes its logs
// long, and fills them later.
func allocated(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return min(uint64(s.Blocks)*512, uint64(info.Size())) // of 512 bytes on every file system: stat(2)
	}
	return uint64(info.Size())
}

// diskFull reports whether an error says that there is no room.
func diskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
