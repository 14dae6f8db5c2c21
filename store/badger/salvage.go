package badger

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	db "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/dsh-agent/dsh"
)

// A Salvaged says what was made of a database that could not be opened.
type Salvaged struct {
	Aside   string // the folder in which the old database is, all of it
	Tables  int    // that it had
	Damaged int    // of these, those of which a part or all could not be read
	Entries int    // that are in the new database by them
}

// A new database is made in salvageFolder. When its completeFile is there, which
// names the place of the old one, it is to be put in place: see settle.
const (
	salvageFolder = "log.new"
	completeFile  = "complete"
)

const asidePrefix = "log."

// asideName names the folder of an old database.
func asideName() string { return asidePrefix + stamp() }

// stamp tells what is set aside now from what was before.
func stamp() string { return time.Now().UTC().Format("20060102-150405.000") }

// lockAtRest takes the lock of a folder that is not open, and finishes what a
// kill has left of a salvage. The caller releases it. dir is made absolute.
func lockAtRest(dir string) (string, *dirLock, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir, nil, folderError(dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return dir, nil, folderError(dir, err)
	}
	if err := settle(dir); err != nil {
		return dir, nil, errors.Join(folderError(dir, err), lock.release())
	}
	return dir, lock, nil
}

// Salvage makes a new database of all that can be read of the tables and logs of
// one that cannot be opened, puts that aside, and the new one in its place. What
// it has of a session need not be whole: reads find that as everywhere, and
// [Log.SetAside] mends it. A salvage that fails or is killed leaves the old
// database as it was, or is finished by who opens the folder next. The folder
// must not be open.
func Salvage(dir string, o Options) (s Salvaged, err error) {
	dir, lock, err := lockAtRest(dir)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	l := newLog(dir, o.withDefaults(), lock)
	if err := l.openBox(filepath.Join(dir, "log")); err != nil {
		return s, err
	}
	if l.heads, err = openHeads(filepath.Join(dir, "heads"), l.box, false, l.o.Warn); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, l.heads.f.Close()) }()
	v := salvage{log: l, from: filepath.Join(dir, "log"), to: filepath.Join(dir, salvageFolder), latest: map[string]version{}, sessions: map[dsh.SessionID]bool{}}
	if err = v.begin(); err == nil {
		err = v.run()
	}
	if err != nil {
		return s, errors.Join(err, os.RemoveAll(v.to))
	}
	s.Tables, s.Damaged, s.Entries = len(v.tables), len(v.damaged), v.entries
	name := asideName()
	s.Aside = filepath.Join(dir, repairedFolder, name)
	return s, errors.Join(writeFile(filepath.Join(v.to, completeFile), []byte(name)), settle(dir))
}

// settle puts the database of a salvage in place, if there is one that is
// complete. Each step may have been done before: a kill between two of them is
// made good by the next call.
func settle(dir string) error {
	to, base := filepath.Join(dir, salvageFolder), filepath.Join(dir, "log")
	name, err := os.ReadFile(filepath.Join(to, completeFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(name), asidePrefix) || filepath.Base(string(name)) != string(name) {
		name = []byte(asideName()) // somebody else has written there
	}
	repaired := filepath.Join(dir, repairedFolder)
	aside := filepath.Join(repaired, string(name))
	if err := makeFolder(repaired); err != nil {
		return err
	}
	if err := renameIfThere(base, aside); err != nil {
		return err
	}
	if err := makeFolder(aside); err != nil {
		return err
	}
	// What says how the old one was goes with it.
	for _, name := range []string{closedFile, manifestCopy} {
		if err := renameIfThere(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil {
			return err
		}
	}
	if err := keepBodies(filepath.Join(dir, "bodies"), filepath.Join(aside, "bodies")); err != nil {
		return err
	}
	if err := errors.Join(syncDir(aside), syncDir(repaired)); err != nil {
		return err
	}
	if err := errors.Join(os.Rename(to, base), syncDir(dir)); err != nil {
		return err
	}
	return os.Remove(filepath.Join(base, completeFile))
}

func renameIfThere(from, to string) error {
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keepBodies gives bodies a second name: those that the new database does not
// name are deleted some time. Where a file has one name, they are copied.
func keepBodies(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = makeFolder(to)
	}
	for _, e := range entries {
		if err != nil {
			break
		}
		path := filepath.Join(to, e.Name())
		if err = os.Link(filepath.Join(from, e.Name()), path); err == nil || errors.Is(err, fs.ErrExist) {
			err = nil
			continue
		}
		var b []byte
		if b, err = os.ReadFile(filepath.Join(from, e.Name())); err == nil {
			err = writeFile(path, b)
		}
	}
	return err
}

// A version is the newest one that the tables have of a key.
type version struct {
	ts   uint64
	gone bool
}

// A salvage reads tables without the list of them.
type salvage struct {
	log      *Log
	from, to string // the folders of the old database, and of the new one
	tables   []string
	damaged  map[string]bool
	latest   map[string]version
	sessions map[dsh.SessionID]bool // that have a record, or a mark in the heads file
	entries  int
}

// begin makes the new folder, with the logs of the old one. What a salvage has
// left there is of the old one, and goes, unless there is no old one.
func (s *salvage) begin() error {
	tables, bytes, err := listDatabase(s.from)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(tables) == 0 && bytes == 0:
		err = errors.Join(makeFolder(filepath.Join(s.log.dir, repairedFolder)),
			renameIfThere(s.to, filepath.Join(s.log.dir, repairedFolder, salvageFolder+"."+stamp())))
	case err == nil:
		err = os.RemoveAll(s.to)
	}
	if err != nil {
		return err
	}
	if err := s.room(sizes(tables) + bytes); err != nil {
		return err
	}
	if err := makeFolder(s.to); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(s.from, "*.mem"))
	for _, name := range logs {
		var b []byte
		if b, err = os.ReadFile(name); err == nil && len(b) > 0 {
			err = os.WriteFile(filepath.Join(s.to, filepath.Base(name)), b, 0o600)
		}
		if err != nil {
			break
		}
	}
	return err
}

// room checks that there is room for a second database of so many bytes: Badger
// maps its files, and dies where the disk is full.
func (s *salvage) room(bytes uint64) error {
	free, err := s.log.free(s.log.dir)
	need := bytes + bytes/4 + 2*memtableSize + s.log.o.Reserve/4
	if err == nil && free < need {
		err = tooFull(s.log.dir, free, need)
	}
	return err
}

func (s *salvage) run() (err error) {
	if s.tables, err = filepath.Glob(filepath.Join(s.from, "*.sst")); err != nil {
		return err
	}
	s.damaged = map[string]bool{}
	database, err := openTwice(databaseOptions(s.to, findings{}))
	if err != nil {
		return damaged(s.log.dir, err)
	}
	defer func() { err = errors.Join(err, s.log.guard(database.Close)) }()
	for _, name := range s.tables {
		s.each(name, s.note)
	}
	if err := s.overlay(database); err != nil {
		return err
	}
	err = s.log.heads.each(func(known map[dsh.SessionID]mark, _ fingerprint) error {
		for id := range known {
			s.sessions[id] = true
		}
		return nil
	})
	batch := database.NewWriteBatch()
	defer batch.Cancel()
	for _, name := range s.tables {
		s.each(name, func(key string, ts uint64, gone bool, value []byte) {
			if v, ok := s.latest[key]; err == nil && ok && v.ts == ts && !gone && s.wanted(key) {
				err = batch.Set([]byte(key), value)
				s.entries++
				delete(s.latest, key)
			}
		})
	}
	return errors.Join(err, batch.Flush())
}

// note remembers the newest version of a key.
func (s *salvage) note(key string, ts uint64, gone bool, _ []byte) {
	if v, ok := s.latest[key]; !ok || ts > v.ts {
		s.latest[key] = version{ts, gone}
	}
	if id, ok := strings.CutPrefix(key, prefixRecord); ok {
		s.sessions[dsh.SessionID(id)] = !s.latest[key].gone
	}
}

// overlay takes the keys that the logs have, which are newer than the tables,
// out of what is salvaged from these.
func (s *salvage) overlay(database *db.DB) error {
	return database.View(func(txn *db.Txn) error {
		o := db.DefaultIteratorOptions
		o.PrefetchValues, o.AllVersions = false, true
		it := txn.NewIterator(o)
		defer it.Close()
		met := map[string]bool{}
		for it.Rewind(); it.Valid(); it.Next() {
			key := string(it.Item().Key())
			delete(s.latest, key)
			if id, ok := strings.CutPrefix(key, prefixRecord); ok && !met[key] { // the newest comes first
				s.sessions[dsh.SessionID(id)] = !it.Item().IsDeletedOrExpired()
			}
			met[key] = true
		}
		return nil
	})
}

// wanted leaves out what was removed: a session without a record and without a
// mark.
func (s *salvage) wanted(key string) bool {
	for _, prefix := range []string{prefixEvent, prefixBody} {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		if prefix == prefixBody {
			_, rest, _ = strings.Cut(rest, "|")
		}
		if len(rest) < 9 {
			return false
		}
		return s.sessions[dsh.SessionID(rest[:len(rest)-9])]
	}
	return true
}

// each reads a table as far as it can be read.
func (s *salvage) each(name string, f func(key string, ts uint64, gone bool, value []byte)) {
	if err := eachEntry(name, f); err != nil {
		if !s.damaged[name] {
			s.log.o.Warn(fmt.Errorf("%s cannot be read, or not to its end: %s", name, oneLine(err)))
		}
		s.damaged[name] = true
	}
}

// eachEntry reads a table block by block, so that a bad one costs what is in it.
func eachEntry(name string, f func(key string, ts uint64, gone bool, value []byte)) error {
	t, err := openTable(name)
	if err != nil {
		return err
	}
	n := uint64(0)
	blocks := t.KeySplits(int(t.KeyCount())+1, nil)
	for i := range blocks {
		read, failed := eachOfBlock(t, blocks, i, f)
		n += read
		err = errors.Join(err, failed)
	}
	if want := uint64(t.KeyCount()); n != want { // the iterator ends without a word
		return fmt.Errorf("%d of its %d entries can be read", n, want)
	}
	return err
}

// openTable reads the file of a table. Badger panics on some damages.
func openTable(name string) (t *table.Table, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = gaveUp(r)
		}
	}()
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return tableOf(b)
}

func tableOf(b []byte) (*table.Table, error) {
	return table.OpenInMemoryTable(b, 1, &table.Options{Compression: options.None, ChkMode: options.OnBlockRead})
}

// eachOfBlock reads the entries of the i-th block, which begins with the i-th of
// the keys.
func eachOfBlock(t *table.Table, blocks []string, i int, f func(key string, ts uint64, gone bool, value []byte)) (n uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = gaveUp(r)
		}
	}()
	it := t.NewIterator(0)
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Seek([]byte(blocks[i])); it.Valid(); it.Next() {
		if i+1 < len(blocks) && y.CompareKeys(it.Key(), []byte(blocks[i+1])) >= 0 {
			break
		}
		n++
		v := it.Value()
		if v.Meta&pointerBit != 0 { // into the value log, where nothing is
			continue
		}
		f(string(y.ParseKey(it.Key())), y.ParseTs(it.Key()), v.Meta&deletedBit != 0, append([]byte(nil), v.Value...))
	}
	return n, nil
}

// DamagedTables names the tables of a folder's database that cannot be read to
// their end. Badger opens over such a one, reads around it, and drops what is
// behind the damage where it merges it with others. The folder must not be open.
func DamagedTables(dir string) (names []string, err error) {
	dir, lock, err := lockAtRest(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	base := filepath.Join(dir, "log")
	tables, _, err := listDatabase(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return damagedOf(base, tables, math.MaxInt64), err
}

// damagedOf names those of the tables that are damaged. It reads the smallest
// first, as long as it is so many bytes in all.
func damagedOf(base string, tables map[string]int64, most int64) (names []string) {
	var buf []byte // for all: fresh memory costs more than to read it
	bySize := func(a, b string) int { return cmp.Or(cmp.Compare(tables[a], tables[b]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(tables), bySize) {
		if most -= tables[name]; most < 0 {
			break
		}
		buf = slices.Grow(buf[:0], int(tables[name]))[:tables[name]]
		if checkTable(filepath.Join(base, name), buf) != nil {
			names = append(names, name)
		}
	}
	return names
}

// checkTable fails where the checksum of a block, or more, is wrong. It reads the
// table into buf.
func checkTable(name string, buf []byte) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read
	if _, err := io.ReadFull(f, buf); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = gaveUp(r)
		}
	}()
	t, err := tableOf(buf)
	if err != nil {
		return err
	}
	return t.VerifyChecksum()
}

// Badger's marks of a key that was deleted, and of a value that is elsewhere.
const (
	deletedBit = 1
	pointerBit = 2
)
