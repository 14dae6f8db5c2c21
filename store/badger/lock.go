package badger

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// A dirLock is the right to have a data folder open: a lock on its file
// "lock", whose text is the process id of the owner. The lock ends with the
// process, so a text that was left behind by a dead one means nothing.
//
// The database's folder has a lock of its own, by which other programs that use
// Badger know that it is open.
type dirLock struct {
	dir    string
	f      *os.File
	folder *os.File // of the database; nil where Badger takes this lock
}

// lockWait is how long a lock is waited for that nobody living says to have: it
// was taken this moment, or a process that was forked off its owner has not yet
// let go of it.
const lockWait = 200 * time.Millisecond

// lockDir takes the lock, or fails with a *dsh.LockedError that names the
// owner.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = await(dir, path, func() (bool, error) { return tryLock(f) })
	if err == nil {
		err = errors.Join(f.Chmod(0o600), f.Truncate(0))
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &dirLock{dir: dir, f: f}, nil
}

// lockFolder takes Badger's lock of the database's folder in its place: it would
// give it up by closing the folder, see unlock, and says that it is taken with
// an error that has no type.
func (l *dirLock) lockFolder(base string) error {
	if badgerLocks {
		return nil
	}
	d, err := os.Open(base)
	if err != nil {
		return err
	}
	if err := await(l.dir, filepath.Join(base, "LOCK"), func() (bool, error) { return tryLock(d) }); err != nil {
		return errors.Join(err, d.Close())
	}
	l.folder = d
	return nil
}

// await tries to take a lock of a folder until it succeeds, and gives up as
// soon as the file at path names a living owner.
func await(dir, path string, try func() (bool, error)) error {
	for end := time.Now().Add(lockWait); ; time.Sleep(time.Millisecond) {
		ok, err := try()
		if ok || err != nil {
			return err
		}
		pid := owner(path)
		if pid > 0 || time.Now().After(end) {
			return &dsh.LockedError{Dir: dir, PID: pid}
		}
	}
}

// owner reads the id of a living process from a file. It gives 0 where there
// is none.
func owner(path string) int {
	b, err := os.ReadFile(path)
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil || pid <= 0 || !alive(pid) {
		return 0
	}
	return pid
}

// release gives the folder up. The file stays: removing it would let two
// processes lock two files of one name.
func (l *dirLock) release() error {
	var err error
	if l.folder != nil {
		err = errors.Join(unlock(l.folder), l.folder.Close())
	}
	return errors.Join(err, l.f.Truncate(0), unlock(l.f), l.f.Close())
}
