package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	db "github.com/dgraph-io/badger/v4"
)

// What preflight found in a folder that is to be opened.
type findings struct {
	fresh       bool             // there is no database yet
	clean       bool             // it was closed, and is as it was then
	tight       bool             // there is no room to merge tables
	smallTables int              // tables of the first level
	unmerged    bool             // a table is damaged, and none is to be merged
	tables      map[string]int64 // with their sizes
}

func sizes(tables map[string]int64) (sum uint64) {
	for _, size := range tables {
		sum += uint64(size)
	}
	return sum
}

// preflight looks at the database's files before Badger does, which deletes
// what it does not understand.
func preflight(dir, base string) (findings, error) {
	if err := tighten(base); err != nil {
		return findings{}, err
	}
	if _, err := removeEmpty(base); err != nil {
		return findings{}, err
	}
	tables, logs, err := listDatabase(base)
	if err != nil {
		return findings{}, err
	}
	tight, err := roomToOpen(dir, sizes(tables), logs)
	if err != nil {
		return findings{}, err
	}
	closed, err := readClosed(dir)
	if err != nil {
		return findings{}, err
	}
	manifest, err := os.ReadFile(filepath.Join(base, db.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		if len(tables) > 0 || closed != nil {
			return findings{}, noManifest(dir, len(tables), closed)
		}
		return findings{fresh: true, clean: true}, nil
	}
	if err != nil {
		return findings{}, err
	}
	found, err := checkTables(dir, base, tables, manifest, closed)
	if err != nil {
		return findings{}, err
	}
	if !found.clean {
		if err := keepLogs(dir, base); err != nil {
			return findings{}, err
		}
	}
	found.tight, found.tables = tight, tables
	return found, errors.Join(keepManifest(dir, manifest), forgetClosed(dir))
}

// noManifest is the error of a database without the list of its tables.
func noManifest(dir string, tables int, closed *closedState) error {
	e := &OpenError{Dir: dir, Kind: ErrNoManifest,
		Detail: fmt.Sprintf("its database has %d tables, and log/%s, the list of them, is missing", tables, db.ManifestFilename),
		Advice: adviceDamaged}
	if copied, err := os.ReadFile(filepath.Join(dir, manifestCopy)); err == nil && closed != nil && sumOf(copied) == closed.manifest {
		e.Advice = fmt.Sprintf("%s is the list as it was when the database was last closed: dsh doctor --repair copies it to log/%s", manifestCopy, db.ManifestFilename)
	}
	return e
}

// checkTables compares the tables with the list of them, and with what there
// was when the database was closed. Tables that are not in the list, which
// Badger deletes on opening, are kept aside.
func checkTables(dir, base string, tables map[string]int64, manifest []byte, closed *closedState) (findings, error) {
	if closed != nil {
		if err := closed.compare(dir, tables, manifest); err != nil {
			return findings{}, err
		}
	}
	listed, small, err := readManifest(base)
	if err != nil {
		return findings{}, damaged(dir, err)
	}
	for name, size := range tables {
		if !listed[name] {
			if err := keepTable(dir, base, name); err != nil {
				return findings{}, err
			}
			continue
		}
		if err := checkFooter(filepath.Join(base, name), size); err != nil {
			return findings{}, damaged(dir, fmt.Errorf("table log/%s %w", name, err))
		}
	}
	return findings{clean: closed != nil, smallTables: small}, nil
}

// checkFooter checks that a table ends as one does: its index, four bytes with
// the length of that, a checksum, four bytes with its length. Badger panics in
// a goroutine of its own where it does not. The index has its checksum, which
// Badger looks at.
func checkFooter(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	number := func(at int64) (int64, error) {
		var b [4]byte
		if at < 0 {
			return 0, errors.New("is too short")
		}
		_, err := f.ReadAt(b[:], at)
		return int64(binary.BigEndian.Uint32(b[:])), err
	}
	const maxChecksum = 64 // it takes a dozen bytes
	sum, err := number(size - 4)
	if err != nil {
		return err
	}
	index, err := number(size - 8 - sum)
	if err != nil {
		return err
	}
	if sum == 0 || sum > maxChecksum || index == 0 || index > size-8-sum {
		return errors.New("is cut off")
	}
	return nil
}

// listDatabase gives the tables with their sizes, and the bytes in the logs.
func listDatabase(base string) (tables map[string]int64, logs uint64, err error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, 0, err
	}
	tables = map[string]int64{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".sst" && ext != ".mem" {
			continue
		}
		info, err := e.Info()
		switch {
		case errors.Is(err, fs.ErrNotExist): // Badger removes files when it likes
		case err != nil:
			return nil, 0, err
		case ext == ".sst":
			tables[e.Name()] = info.Size()
		default:
			logs += min(allocated(info), memtableSize)
		}
	}
	return tables, logs, nil
}

// readManifest gives the names of the tables in a MANIFEST, and how many of
// them are of level 0.
func readManifest(base string) (listed map[string]bool, small int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its MANIFEST cannot be read: %v", r)
		}
	}()
	f, err := os.Open(filepath.Join(base, db.ManifestFilename))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	m, _, err := db.ReplayManifestFile(f, 0, databaseOptions(base, findings{}))
	if err != nil {
		return nil, 0, err
	}
	listed = map[string]bool{}
	for id, table := range m.Tables {
		listed[fmt.Sprintf("%06d.sst", id)] = true
		if table.Level == 0 {
			small++
		}
	}
	return listed, small, nil
}

// manifestCopy is where the list of tables is kept outside of the database's
// folder.
const manifestCopy = "manifest-copy"

// keepManifest keeps the list of tables as it is before Badger touches it.
func keepManifest(dir string, manifest []byte) error {
	path := filepath.Join(dir, manifestCopy)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, manifest) {
		return nil
	}
	return replaceFile(path, manifest, false)
}

// removeEmpty deletes files without a byte, which a kill leaves behind and
// which hold nothing.
func removeEmpty(base string) (removed bool, err error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".mem" && ext != ".vlog" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return removed, err
		}
		if info.Size() == 0 {
			if err := os.Remove(filepath.Join(base, e.Name())); err != nil {
				return removed, err
			}
			removed = true
		}
	}
	return removed, nil
}
