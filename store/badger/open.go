package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	db "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/dsh-agent/dsh"
)

// Options say how a log is kept. The zero value is what the command uses.
type Options struct {
	// Reserve is how many bytes of the disk stay free, beside what merging the
	// database's tables takes: an append that would leave less fails with a
	// *dsh.SpaceError. A process that writes to a mapped file on a full disk,
	// as the database does, is killed. 0: 32 MiB.
	Reserve uint64

	// Linger is how long relaxed events may wait for others to share their
	// transaction. 0: 20 ms; negative: they don't wait.
	Linger time.Duration

	// Scratch is a folder on a file system in memory. The database's value
	// log, into which nothing is written, is made there, which makes an append
	// faster. "": /dev/shm where there is one. A folder that is not in memory
	// is not used.
	Scratch string

	// Key encrypts what is kept of sessions: events and head records in the
	// database, bodies, snapshots, and the heads file. Ids, seqs, sizes and
	// times of writing are not hidden. It has 32 bytes, and is the one with
	// which the folder was made. nil: nothing is encrypted.
	Key []byte

	// Warn is told of what was found and mended, one line each, such as a
	// heads file that was cut. It is called by the goroutine that found it.
	// nil: nobody is told.
	Warn func(error)
}

const defaultLinger = 20 * time.Millisecond

func (o Options) withDefaults() Options {
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	if o.Scratch == "" {
		o.Scratch = defaultScratch
	}
	if o.Warn == nil {
		o.Warn = func(error) {}
	}
	return o
}

// The figures of a command's database, measured for the design: it opens in
// 10 ms with a million events in it, where Badger's defaults take 268 ms.
const (
	memtableSize   = 8 << 20
	valueLogSize   = 1 << 20 // the least that Badger takes; nothing goes there
	valueThreshold = 1 << 20 // the most that Badger takes; no value is so large

	// compactFrom is the number of small tables, one a run, from which they
	// are merged on closing. Badger's own compactors wait for up to a second
	// before they look, which is longer than most runs.
	compactFrom = 8

	// mergeFrom is the number from which Badger merges them while it runs, and
	// maxChecked the bytes of tables that are looked at before, the small ones
	// first: at a gigabyte a second.
	mergeFrom  = 5
	maxChecked = 64 << 20
)

func databaseOptions(dir string, found findings) db.Options {
	o := db.DefaultOptions(dir).
		WithSyncWrites(true).
		WithMemTableSize(memtableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithValueLogFileSize(valueLogSize).
		WithValueThreshold(valueThreshold).
		WithCompression(options.None).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithCompactL0OnClose(found.smallTables >= compactFrom).
		WithLogger(nil)
	o.BypassLockGuard = !badgerLocks // see lockFolder
	if found.tight || found.unmerged {
		o = o.WithNumCompactors(0).WithNumLevelZeroTablesStall(1 << 20).WithCompactL0OnClose(false)
	}
	return o
}

// Open opens the log in a data folder, which is made if it does not exist. It
// fails with an *OpenError, with a *dsh.LockedError while another process (or
// this one) has the folder open, with a *dsh.SchemaError for a log that a newer
// version wrote, and with a *dsh.SpaceError where the disk is too full even to
// read.
//
// The log is to be closed.
func Open(dir string, o Options) (*Log, error) {
	if dir == "" {
		return nil, folderError(dir, errors.New("it has no name"))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, folderError(dir, err)
	}
	if err := makeFolder(dir); err != nil {
		return nil, folderError(dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, folderError(dir, err)
	}
	l := newLog(dir, o.withDefaults(), lock)
	if err := l.open(); err != nil {
		_ = lock.release()
		return nil, folderError(dir, err)
	}
	return l, nil
}

// open opens the database behind a log that has its lock, and starts its
// goroutines.
func (l *Log) open() error {
	if err := settle(l.dir); err != nil {
		return err
	}
	base := filepath.Join(l.dir, "log")
	if err := makeFolder(base); err != nil {
		return err
	}
	if err := l.lock.lockFolder(base); err != nil {
		return err
	}
	if err := l.openBox(base); err != nil {
		return err
	}
	found, err := preflight(l.dir, base)
	if err != nil {
		return err
	}
	if l.heads, err = openHeads(filepath.Join(l.dir, "heads"), l.box, found.fresh, l.o.Warn); err != nil {
		return err
	}
	l.beforeMerges(base, &found)
	if err := l.openDatabase(base, found); err != nil {
		l.abandon()
		return err
	}
	l.running.Go(l.commitLoop)
	l.running.Go(l.heads.loop)
	return nil
}

// beforeMerges looks at the tables where some are due to be merged: Badger drops
// what is behind a bad block without a word, and then deletes the old tables.
// While one is damaged none is merged.
func (l *Log) beforeMerges(base string, found *findings) {
	if found.smallTables < mergeFrom {
		return
	}
	if bad := damagedOf(base, found.tables, maxChecked); len(bad) > 0 {
		found.unmerged = true
		l.o.Warn(fmt.Errorf("%s of %s cannot be read to the end; tables are not merged until dsh doctor --repair has made new ones of them", strings.Join(bad, ", "), base))
	}
}

// abandon closes what open has opened.
func (l *Log) abandon() {
	if l.db != nil {
		_ = closeScratch(l.scratch, func() error { return l.guard(l.db.Close) })
	}
	_ = l.heads.f.Close()
}

func (l *Log) openDatabase(base string, found findings) (err error) {
	l.db, l.scratch, err = withScratch(l.o.Scratch, databaseOptions(base, found), openTwice)
	if err == nil {
		err = l.guard(func() error { return l.prepare(found) })
	}
	return damaged(l.dir, err)
}

// openTwice opens the database, and tries once more where it has left a file
// without a byte: a kill between the making of a file and its first byte leaves
// one that Badger refuses. The first look has removed those that were there;
// Badger may leave another when it gives up.
func openTwice(o db.Options) (*db.DB, error) {
	database, err := openBadger(o)
	if err != nil {
		if removed, _ := removeEmpty(o.Dir); removed {
			database, err = openBadger(o)
		}
	}
	return database, err
}

// prepare checks the version, and finishes what a crash has cut off.
func (l *Log) prepare(found findings) error {
	if err := l.checkSchema(); err != nil {
		return err
	}
	if err := l.checkPlain(); err != nil {
		return err
	}
	l.order = l.db.MaxVersion()
	if err := l.finishRemovals(); err != nil {
		return err
	}
	if !found.clean || l.heads.incomplete {
		if err := l.takeStock(!found.clean); err != nil {
			return err
		}
	}
	return tighten(filepath.Join(l.dir, "log"))
}

// openBadger opens Badger, whose panics on damaged files become errors.
func openBadger(o db.Options) (database *db.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			database, err = nil, gaveUp(r)
		}
	}()
	return db.Open(o)
}

// checkSchema reads the version of the keys and records, and writes it into a
// new database.
func (l *Log) checkSchema() error {
	return l.guard(func() error {
		return l.db.Update(func(txn *db.Txn) error {
			item, err := txn.Get([]byte(keySchema))
			if errors.Is(err, db.ErrKeyNotFound) {
				return txn.Set([]byte(keySchema), []byte{formatSchema})
			}
			if err != nil {
				return err
			}
			value, err := item.ValueCopy(nil)
			if err != nil {
				return err
			}
			if len(value) != 1 {
				return damaged(l.dir, errors.New("its schema cannot be read"))
			}
			if value[0] > formatSchema {
				return &dsh.SchemaError{Have: int(value[0]), Max: formatSchema}
			}
			return nil
		})
	})
}

// makeFolder makes a folder that only its owner can enter. One that is there
// already keeps its mode.
func makeFolder(dir string) error {
	info, err := os.Stat(dir)
	if err == nil {
		if !info.IsDir() {
			return errors.New("it is not a folder")
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if to, err := os.Readlink(dir); err == nil {
		return fmt.Errorf("it is a link to %s, which is not there", to) // of a disk that is not mounted, maybe
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(dir, 0o700)
}

// tighten takes the files of a folder away from everybody but their owner:
// Badger makes some of them with the umask's mode.
func tighten(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // Badger removes files when it likes
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
			if err := os.Chmod(filepath.Join(dir, e.Name()), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// adviceDamaged is what to do with a database that cannot be opened.
const adviceDamaged = "dsh doctor --repair makes a new one of all that can be read, and keeps the old one aside; or restore a backup"

// damaged is the error of a database that Badger does not open or read. An
// error that is the system's stays what it is: Badger's have no type.
func damaged(dir string, err error) error {
	var open *OpenError
	var schema *dsh.SchemaError
	var path *fs.PathError
	if err == nil || errors.As(err, &open) || errors.As(err, &schema) || errors.As(err, &path) {
		return err
	}
	return &OpenError{Dir: dir, Kind: ErrDamaged, Err: err,
		Detail: "the database in it is damaged (" + oneLine(err) + ")",
		Advice: adviceDamaged}
}

// folderError makes of any error one that names the folder and what to do.
func folderError(dir string, err error) error {
	var open *OpenError
	var locked *dsh.LockedError
	var schema *dsh.SchemaError
	var space *dsh.SpaceError
	switch {
	case errors.As(err, &open), errors.As(err, &locked), errors.As(err, &schema), errors.As(err, &space):
		return err
	case diskFull(err):
		return &dsh.SpaceError{Dir: dir, Need: defaultReserve}
	}
	advice := "choose another one with --data-dir or DSH_DATA_DIR"
	if errors.Is(err, fs.ErrPermission) {
		advice = "make it yours to write, or " + advice
	}
	return &OpenError{Dir: dir, Kind: ErrFolder, Err: err, Detail: oneLine(err), Advice: advice}
}

// oneLine keeps the first line of an error: Badger's may carry a stack.
func oneLine(err error) string {
	first, _, _ := strings.Cut(strings.Trim(err.Error(), "\n= "), "\n")
	return strings.TrimRight(first, "= ")
}
