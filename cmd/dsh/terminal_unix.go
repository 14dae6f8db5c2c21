//go:build unix

package main

import "os"

// hasTerminal reports whether the process has a controlling terminal, which
// can go away. /dev/tty opens only then.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	_ = f.Close() // it was only looked at
	return true
}
