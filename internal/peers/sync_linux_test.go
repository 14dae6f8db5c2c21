package peers_test

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeSync makes bytes at the end of a file durable, and no more.
func writeSync(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	return unix.Fdatasync(int(f.Fd()))
}
