//go:build !linux

package peers_test

import "os"

// writeSync makes bytes at the end of a file durable.
func writeSync(f *os.File, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Sync()
}
