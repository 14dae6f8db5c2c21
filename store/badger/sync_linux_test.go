package badger_test

import (
	"os"

	"golang.org/x/sys/unix"
)

// dataSync makes what was written to a file durable, and no more.
func dataSync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
