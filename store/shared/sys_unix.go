//go:build linux || darwin

package shared

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dsh-agent/dsh"
)

// supported says that several processes can share a log on this system.
const supported = true

func ownedByUser(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// checkPeer fails where the other side of a connection is another user.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var uid int
	var peer error
	if err := raw.Control(func(fd uintptr) { uid, peer = peerUser(int(fd)) }); err != nil {
		return err
	}
	if peer == nil && uid != os.Geteuid() {
		peer = errors.New("the other side of the socket is another user")
	}
	return peer
}

// locks are those of the sessions that this process writes. The system's locks
// are the process's and not the file's: closing any descriptor of the file
// drops them all, so there is one for as long as the log is open.
type locks struct {
	f *os.File
}

func openLocks(dir string) (*locks, error) {
	f, err := os.OpenFile(filepath.Join(dir, "writers"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &locks{f}, nil
}

func (k *locks) close() error { return k.f.Close() }

// place is the byte that stands for a session.
func place(id dsh.SessionID) int64 {
	h := fnv.New64a()
	h.Write([]byte(id)) //nolint:errcheck // a hash takes everything
	return int64(h.Sum64() >> 2)
}

func (k *locks) call(cmd int, id dsh.SessionID, kind int16) (syscall.Flock_t, error) {
	l := syscall.Flock_t{Type: kind, Whence: 0, Start: place(id), Len: 1}
	for {
		err := syscall.FcntlFlock(k.f.Fd(), cmd, &l)
		if !errors.Is(err, syscall.EINTR) {
			return l, err
		}
	}
}

// take takes a session's lock. It gives the process that has it, or 0: it is
// this one's now, or the file system knows no locks.
func (k *locks) take(id dsh.SessionID) (pid int) {
	for range 100 { // it may be given up between the two calls
		_, err := k.call(syscall.F_SETLK, id, syscall.F_WRLCK)
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
			return 0
		}
		l, err := k.call(syscall.F_GETLK, id, syscall.F_WRLCK)
		if err != nil {
			return 0
		}
		if l.Type != syscall.F_UNLCK {
			return int(l.Pid)
		}
	}
	return 0
}

func (k *locks) drop(id dsh.SessionID) {
	k.call(syscall.F_SETLK, id, syscall.F_UNLCK) //nolint:errcheck // the process's end drops it
}
