//go:build !linux

package badger_test

import "os"

func moreRoles() map[string]func(dir string) int { return nil }

// dataSync makes what was written to a file durable.
func dataSync(f *os.File) error { return f.Sync() }
