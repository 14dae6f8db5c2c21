package badger

import (
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
		if _, err := os.Stat(filepath.Join(base, db.ManifestFilename)); err == nil {
			return l.keyError("it is not encrypted, or its file "+sealedFile+" is missing, and a key is named",
				"leave the key out; to encrypt what is in it, export it and import that into a new data folder with the key", nil)
		}
		if err := writeFile(path, box.Seal(sealedFile, []byte(sealedWord))); err != nil {
			return err
		}
	}
	l.box, l.bodies.box, l.snapshots.box = box, box, box
	return nil
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
