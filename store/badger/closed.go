package badger

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	db "github.com/dgraph-io/badger/v4"
)

// A closedState is what the database's folder held when it was closed, kept in
// the file "closed" while nobody has the log open. A folder that differs from it
// was changed by something else, and is refused before Badger deletes the
// tables that it cannot place.
//
// The file has a line for MANIFEST with its SHA-256, one for each table with
// its size, and a CRC-32 of all that.
type closedState struct {
	manifest string // SHA-256, hex
	tables   map[string]int64
}

const closedFile = "closed"

// readClosed reads the file. It gives nil where there is none: after a crash,
// or where a power cut tore it.
func readClosed(dir string) (*closedState, error) {
	b, err := os.ReadFile(filepath.Join(dir, closedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseClosed(string(b)), nil
}

func parseClosed(text string) *closedState {
	k := strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')
	if k < 0 || text[k+1:] != fmt.Sprintf("%08x\n", crc32.ChecksumIEEE([]byte(text[:k+1]))) {
		return nil
	}
	c := &closedState{tables: map[string]int64{}}
	for line := range strings.Lines(text[:k+1]) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if name == db.ManifestFilename {
			c.manifest = value
			continue
		}
		size, err := strconv.ParseInt(value, 10, 64)
		if !ok || err != nil {
			return nil
		}
		c.tables[name] = size
	}
	return c
}

// writeClosed notes what the closed database consists of. It is not synced: a
// file that is missing says nothing.
func writeClosed(dir string) error {
	base := filepath.Join(dir, "log")
	manifest, err := os.ReadFile(filepath.Join(base, db.ManifestFilename))
	if err != nil {
		return err
	}
	tables, logs, err := listDatabase(base)
	if err != nil {
		return err
	}
	if logs > 0 {
		return nil // Badger kept a log, so that it is not closed
	}
	text := db.ManifestFilename + " " + sumOf(manifest) + "\n"
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		text += name + " " + strconv.FormatInt(tables[name], 10) + "\n"
	}
	text += fmt.Sprintf("%08x\n", crc32.ChecksumIEEE([]byte(text)))
	return errors.Join(keepManifest(dir, manifest), replaceFile(filepath.Join(dir, closedFile), []byte(text), false))
}

// forgetClosed takes the file away, durably, before the database is changed.
func forgetClosed(dir string) error {
	err := os.Remove(filepath.Join(dir, closedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// compare fails where the database is not what it was.
func (c *closedState) compare(dir string, tables map[string]int64, manifest []byte) error {
	what := ""
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		size, there := tables[name]
		switch {
		case !there:
			what = fmt.Sprintf("table log/%s is missing", name)
		case size != c.tables[name]:
			what = fmt.Sprintf("table log/%s has %d bytes and had %d when it was closed", name, size, c.tables[name])
		}
		if what != "" {
			break
		}
	}
	advice := adviceDamaged
	if what == "" && sumOf(manifest) != c.manifest {
		what = "log/" + db.ManifestFilename + ", the list of its tables, is not what it was when it was closed"
		if copied, err := os.ReadFile(filepath.Join(dir, manifestCopy)); err == nil && sumOf(copied) == c.manifest {
			advice = fmt.Sprintf("%s is the list as it was: dsh doctor --repair copies it to log/%s", manifestCopy, db.ManifestFilename)
		}
	}
	if what == "" {
		return nil
	}
	return &OpenError{Dir: dir, Kind: ErrDamaged, Detail: "the database in it is damaged (" + what + ")", Advice: advice}
}
