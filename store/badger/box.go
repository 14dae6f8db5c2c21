package badger

import (
	"bufio"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// sealedFile shows whether a key is the one with which a folder is encrypted,
// before anything else is read with it.
const sealedFile = "sealed"

// sealedWord is what stands in it, sealed for the place of its own name.
const sealedWord = "dsh"

// openBox makes the box of the log's key, and holds it to the folder.
func (l *Log) openBox(base string) error {
	path := filepath.Join(l.dir, sealedFile)
	word, err := os.ReadFile(path)
	encrypted := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if l.o.Key == nil {
		if encrypted {
			return l.keyError("it is encrypted, and no key is named", "name the variable or the file of its key with store.key_env or store.key_file", seal.ErrSealed)
		}
		if headsSealed(filepath.Join(l.dir, "heads")) {
			return l.noKeyFile()
		}
		return nil
	}
	box, err := seal.New(l.o.Key)
	if err != nil {
		return l.keyError("its key is none: "+err.Error(), "name one of that form", err)
	}
	if encrypted {
		if plain, err := box.Open(sealedFile, word); err != nil || string(plain) != sealedWord {
			return l.keyError("it is encrypted with another key, or its file "+sealedFile+" is damaged", "name the key with which it was made", seal.ErrOpen)
		}
	} else {
		if used(base) && !headsOpen(filepath.Join(l.dir, "heads"), box) {
			return l.keyError("it is not encrypted, or with another key and its file "+sealedFile+" is missing, and a key is named",
				"name the key with which it was made, or leave the key out if there was none; to encrypt what is in it, export it and import that into a new data folder with the key", nil)
		}
		if err := writeFile(path, box.Seal(sealedFile, []byte(sealedWord))); err != nil {
			return err
		}
	}
	l.box, l.bodies.box, l.snapshots.box = box, box, box
	return nil
}

// used reports whether a folder has a database, or parts of one.
func used(base string) bool {
	tables, logs, err := listDatabase(base)
	if err == nil && (len(tables) > 0 || logs > 0) {
		return true
	}
	_, err = os.Stat(filepath.Join(base, db.ManifestFilename))
	return err == nil
}

// headsOpen reports whether a heads file has a line that was sealed with a key.
func headsOpen(path string, box *seal.Box) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it was read
	h := heads{box: box}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, _, ok := h.parseLine(lines.Bytes(), lines.Text()); ok {
			return true
		}
	}
	return false
}

// headsSealed reports whether a heads file begins with a line that is sealed.
func headsSealed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it was read
	lines := bufio.NewScanner(f)
	lines.Scan()
	sealed, err := base64.RawStdEncoding.DecodeString(lines.Text())
	if err != nil {
		return false
	}
	_, err = (*seal.Box)(nil).Open(headsPlace, sealed)
	return errors.Is(err, seal.ErrSealed)
}

// noKeyFile is the error of a log that is encrypted although nothing says so.
func (l *Log) noKeyFile() error {
	return l.keyError("it is encrypted, and no key is named; its file "+sealedFile+" is missing",
		"name the variable or the file of its key with store.key_env or store.key_file", seal.ErrSealed)
}

// checkPlain fails where the first event of a log without a key is sealed: the
// log would look damaged, all of it.
func (l *Log) checkPlain() error {
	if l.box != nil {
		return nil
	}
	return l.db.View(func(txn *db.Txn) error {
		o := db.DefaultIteratorOptions
		o.Prefix, o.PrefetchValues = []byte(prefixEvent), false
		it := txn.NewIterator(o)
		defer it.Close()
		if it.Rewind(); !it.Valid() {
			return nil
		}
		value, err := it.Item().ValueCopy(nil)
		if err != nil {
			return nil // a damage, which is met where it is read
		}
		if _, err := l.box.Open(string(it.Item().Key()), value); err != nil {
			return l.noKeyFile()
		}
		return nil
	})
}

func (l *Log) keyError(detail, advice string, err error) error {
	return &OpenError{Dir: l.dir, Kind: ErrNoKey, Detail: detail, Advice: advice, Err: err}
}

// sealRecord is what the database holds of a record.
func (l *Log) sealRecord(id dsh.SessionID, r *record) []byte {
	return l.box.Seal(string(recordKey(id)), r.encode(id))
}

// openRecord reads what sealRecord wrote.
func (l *Log) openRecord(id dsh.SessionID, value []byte) (record, error) {
	if l.box == nil {
		return decodeRecord(id, value)
	}
	plain, err := l.box.Open(string(recordKey(id)), value)
	if err != nil {
		return record{}, errRecord
	}
	return decodeRecord(id, plain)
}
