package badger

import "github.com/dsh-agent/dsh"

// The database writes its files through memory maps. On a full disk that does
// not fail, it ends the process, so there has to be room before anything is
// written: for the tables that are made of what is in memory, which is the
// reserve, and for those that Badger merges, of which the old ones are deleted
// only when the new ones are written.
const (
	// defaultReserve is two memtables in their logs, and again in tables.
	defaultReserve = 4 * memtableSize

	// maxMerge is about the most that is merged at a time: the 15 tables of
	// level 0 at which it stalls, a base level of 10 MiB, and a table of
	// another level with the ten below it.
	maxMerge = 192 << 20
)

// space fails with a *dsh.SpaceError where n bytes more would leave too little.
func (l *Log) space(n uint64) error {
	free, err := l.free(l.dir)
	if err != nil || free >= l.o.Reserve+maxMerge+n {
		return err
	}
	var tables uint64
	for _, level := range l.db.Levels() {
		tables += uint64(level.Size)
	}
	if need := l.o.Reserve + min(tables, maxMerge) + n; free < need {
		return tooFull(l.dir, free, need)
	}
	return nil
}

// tooFull rounds what is needed up, so that in MiB it is always more than what
// is free.
func tooFull(dir string, free, need uint64) error {
	const mib = 1 << 20
	return &dsh.SpaceError{Dir: dir, Free: free, Need: (need + mib - 1) / mib * mib}
}

// roomToOpen checks that opening, which copies the logs and writes what is in
// them into tables, has the room for that. tight says that there is no room to
// merge tables.
func roomToOpen(dir string, tables, logs uint64) (tight bool, err error) {
	const least = 2 << 20
	free, err := freeBytes(dir)
	if err != nil {
		return false, err
	}
	need := least + 3*logs
	if free < need {
		return true, tooFull(dir, free, need)
	}
	return free < need+min(tables, maxMerge), nil
}

// roomToClose checks that closing, which writes what is in memory into a
// table, has the room for that.
func roomToClose(dir, base string) error {
	const least = 1 << 20
	free, err := freeBytes(dir)
	if err != nil || free >= 2*memtableSize+least {
		return err
	}
	_, logs, err := listDatabase(base)
	if err != nil {
		return err
	}
	if need := logs + least; free < need {
		return tooFull(dir, free, need)
	}
	return nil
}
