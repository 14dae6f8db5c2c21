package badger

import (
	"errors"
	"os"

	db "github.com/dgraph-io/badger/v4"
)

// Badger has a value log, into which nothing is written here: all values are
// small. It syncs it with every transaction all the same, which on ext4 flushes
// the disk's cache and was measured to take a third of an append. So the value
// log is made in memory where that can be: a durable append took 1.5 of a write
// and fdatasync then, where it took 1.9 otherwise.
//
// Badger opens its files once and keeps them, so that their folder can be
// deleted as soon as it has: a kill leaves nothing behind.
const (
	scratchPrefix = "dsh-log-"

	// scratchRoom is what has to be free where a scratch folder is made: files
	// are written through memory maps, and a process is killed that does so
	// where there is no room.
	scratchRoom = 4 << 20
)

// withScratch opens a database with its value log in memory below root, or
// beside its tables where there is no memory to be had like that. path is the
// folder in memory, which is deleted, or "".
func withScratch(root string, o db.Options, open func(db.Options) (*db.DB, error)) (database *db.DB, path string, err error) {
	if free, err := freeBytes(root); err != nil || free < scratchRoom || !inMemory(root) {
		database, err = open(o)
		return database, "", err
	}
	path, err = os.MkdirTemp(root, scratchPrefix)
	if err != nil {
		database, err = open(o)
		return database, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(path)) }()
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, "", err
	}
	database, err = open(o.WithValueDir(path))
	return database, path, err
}

// closeScratch closes a database whose value log is in memory at path, "" for
// none: Badger wants to find the folder once more.
func closeScratch(path string, closeIt func() error) error {
	if path == "" {
		return closeIt()
	}
	return errors.Join(makeFolder(path), closeIt(), os.RemoveAll(path))
}
