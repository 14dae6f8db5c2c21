package badger

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is where the locked byte is: far behind the text of the file, which
// others may read.
const lockAt = 1 << 30

// tryLock takes the one lock of a file, and reports false where somebody else
// has it. The lock goes with the file and with its process.
func tryLock(f *os.File) (bool, error) {
	err := windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{Offset: lockAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return false, nil
	}
	return err == nil, err
}

// unlock gives a lock up.
func unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{Offset: lockAt})
}

// badgerLocks says whether the lock of the database's folder is left to Badger:
// a folder cannot be locked here, and it has a way of its own.
const badgerLocks = true

// alive reports whether a process exists.
func alive(pid int) bool {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	_ = windows.CloseHandle(h)
	return true
}

// freeBytes is what a user may still write in the file system of a folder.
func freeBytes(dir string) (uint64, error) {
	p, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(p, &free, nil, nil)
	return free, err
}

// allocated is what a file takes of its file system, at most.
func allocated(info fs.FileInfo) uint64 { return uint64(info.Size()) }

// diskFull reports whether an error says that there is no room.
func diskFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

// syncDir does nothing: NTFS keeps names in its own journal, and a folder
// cannot be flushed.
func syncDir(string) error { return nil }
