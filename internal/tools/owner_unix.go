//go:build unix

package tools

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives a new file the owner of the one that it takes the place of,
// where that is another and the system lets it. It is no error where not: the
// file is then the writer's, as any new one.
func keepOwner(file *os.File, old fs.FileInfo) {
	was, ok := old.Sys().(*syscall.Stat_t)
	info, err := file.Stat()
	if !ok || err != nil {
		return
	}
	if now, ok := info.Sys().(*syscall.Stat_t); ok && (now.Uid != was.Uid || now.Gid != was.Gid) {
		_ = file.Chown(int(was.Uid), int(was.Gid))
	}
}
