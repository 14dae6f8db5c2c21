//go:build !linux

package main

import "os"

// executable is the program itself, or the name by which it was called.
func executable() string {
	if path, err := os.Executable(); err == nil {
		return path
	}
	return os.Args[0]
}
