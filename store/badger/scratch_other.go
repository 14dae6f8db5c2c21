//go:build !linux

package badger

// defaultScratch is empty: there is no file system in memory to count on.
const defaultScratch = ""

func inMemory(string) bool { return false }
