package badger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
)

// repairedFolder holds what repairs have set aside. Nothing in it is ever
// deleted by this package.
const repairedFolder = "repaired"

// A SetAside says what a repair of a session did.
type SetAside struct {
	Session dsh.SessionID
	Through uint64 // the last event that the session has now; 0: it has none, and is gone from the log
	Moved   int    // entries that were moved
	Lost    uint64 // the last event that was known to be there; not above Through: none is known to be lost
	File    string // where what was moved is, a line of JSON each
}

// SetAside ends a session after an event: what follows is moved to a file of
// the folder "repaired", whole or not, and nothing is deleted. It ends earlier
// where the chain does. The session can be appended to again. A session of
// which nothing is proven is taken out of the log.
//
// It is for a log without writers: it fails with a *dsh.HeldError for a session
// that is being written.
func (l *Log) SetAside(ctx context.Context, id dsh.SessionID, after uint64) (SetAside, error) {
	if err := ctx.Err(); err != nil {
		return SetAside{}, err
	}
	if !validID(id) {
		return SetAside{}, dsh.ErrNoSession
	}
	if err := l.hold(id, nil); err != nil {
		return SetAside{}, err
	}
	defer l.letGo(id, nil)
	if err := l.submit(ctx, &request{barrier: true, urgent: true}); err != nil {
		return SetAside{}, err
	}
	r := repair{log: l, id: id}
	if err := l.view(func(txn *db.Txn) error { return r.look(txn, after) }); err != nil {
		return SetAside{}, err
	}
	return r.done, r.carryOut()
}

// A repair is the setting aside of the end of a session.
type repair struct {
	log    *Log
	id     dsh.SessionID
	record record // with which the session goes on
	keys   [][]byte
	aside  bytes.Buffer
	done   SetAside
}

// look folds what is proven, and takes all the rest.
func (r *repair) look(txn *db.Txn, after uint64) error {
	old, damage, err := r.log.rawRecord(txn, r.id)
	if err != nil && damage == nil {
		return err
	}
	known, _ := r.log.heads.get(r.id)
	r.done = SetAside{Session: r.id, Lost: max(old.head.Seq, known.seq)}
	r.record = record{epoch: old.epoch, order: old.order}
	r.fold(txn, after)
	head := r.record.head
	r.done.Through = head.Seq
	first := map[string]any{"session": r.id, "through": head.Seq, "record": old.head.Seq, "known": known.seq}
	if r.log.box == nil { // a hash tells who guesses whether the guess is right
		first["hash"], first["recordHash"], first["knownHash"] = head.Hash, old.head.Hash, known.hash
	}
	r.entry(first)
	return r.rest(txn)
}

// fold applies the session's events as long as they are a chain.
func (r *repair) fold(txn *db.Txn, after uint64) {
	head := &r.record.head
	for head.Seq < after {
		e, err := r.log.eventAt(txn, r.id, head.Seq+1)
		if err != nil || head.Tail().Check(e) != nil {
			return
		}
		next := *head
		if next.Apply(e) != nil {
			return
		}
		next.ID = r.id
		*head = next
	}
}

// rest takes the entries behind the fold.
func (r *repair) rest(txn *db.Txn) error {
	o := db.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Prefix = eventPrefix(r.id)
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().KeyCopy(nil)
		var seq uint64
		if len(key) == len(o.Prefix)+8 {
			seq = binary.BigEndian.Uint64(key[len(o.Prefix):])
		}
		if seq > 0 && seq <= r.record.head.Seq {
			continue
		}
		r.keys = append(r.keys, key)
		value, err := it.Item().ValueCopy(nil)
		r.take(string(key), seq, value, err)
	}
	return nil
}

// take notes one entry, with as much as can be read of it. What is sealed stays
// so.
func (r *repair) take(key string, seq uint64, value []byte, err error) {
	entry := map[string]any{"seq": seq}
	plain, closed := r.log.box.Open(key, value)
	if err != nil {
		entry["error"] = oneLine(err)
	} else if sum, _, bad := parseRef(plain); bad == nil && closed == nil {
		entry["body"] = sum
		r.keys = append(r.keys, bodyKey(sum, r.id, seq))
		if value, err = os.ReadFile(filepath.Join(r.log.bodies.dir, sum)); err != nil {
			entry["error"] = err.Error()
		}
	}
	switch {
	case len(value) == 0:
	case utf8.Valid(value):
		entry["line"] = string(value)
	default:
		entry["base64"] = value
	}
	r.done.Moved++
	r.entry(entry)
}

func (r *repair) entry(v any) {
	b, err := dsh.JSON(v)
	if err != nil { // never: it is made of texts and numbers
		b = []byte(`{}`)
	}
	r.aside.Write(b)
	r.aside.WriteByte('\n')
}

// carryOut makes what was taken durable in its file, and only then takes it out
// of the database. The record comes last, and the heads file after it: until
// then the session is as damaged as before.
func (r *repair) carryOut() error {
	l := r.log
	dir := filepath.Join(l.dir, repairedFolder)
	if err := makeFolder(dir); err != nil {
		return err
	}
	r.done.File = filepath.Join(dir, fmt.Sprintf("%s.%s.jsonl", r.id, stamp()))
	if err := l.space(uint64(r.aside.Len())); err != nil {
		return err
	}
	if err := errors.Join(writeFile(r.done.File, r.aside.Bytes()), syncDir(l.dir)); err != nil {
		return err
	}
	return errors.Join(l.guard(r.cut), l.snapshots.remove(r.id), r.heads())
}

func (r *repair) cut() error {
	for rest := r.keys; len(rest) > 0; {
		n := min(len(rest), maxBatchEntries/2)
		err := r.log.update(func(txn *db.Txn) error {
			for _, k := range rest[:n] {
				if err := txn.Delete(k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return r.log.update(func(txn *db.Txn) error {
		if r.record.head.Seq == 0 {
			return txn.Delete(recordKey(r.id))
		}
		return txn.Set(recordKey(r.id), r.log.sealRecord(r.id, &r.record))
	})
}

// heads brings the heads file down to what the session has now.
func (r *repair) heads() error {
	if err := r.log.heads.remove(r.id); err != nil || r.record.head.Seq == 0 {
		return err
	}
	h := r.record.head
	r.log.heads.mark(r.id, mark{seq: h.Seq, hash: h.Hash, at: h.UpdatedAt}, true)
	return nil
}

// RestoreManifest puts the copy of the database's list of tables in the place
// of one that is missing or damaged, which is set aside. It reports false where
// there is nothing to do, or where the copy is not the list of a closed
// database: then it might name tables that are not there. The folder must not
// be open.
func RestoreManifest(dir string) (done bool, err error) {
	dir, lock, err := lockAtRest(dir)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	closed, err := readClosed(dir)
	if err != nil || closed == nil {
		return false, err
	}
	tables, _, err := listDatabase(filepath.Join(dir, "log"))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(tables) < len(closed.tables) {
		return false, nil // a list would not bring them back
	} else if err != nil {
		return false, err
	}
	path := filepath.Join(dir, "log", db.ManifestFilename)
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	copied, err := os.ReadFile(filepath.Join(dir, manifestCopy))
	if err != nil || sumOf(copied) != closed.manifest || sumOf(have) == closed.manifest {
		return false, nil
	}
	if len(have) > 0 {
		if err := makeFolder(filepath.Join(dir, repairedFolder)); err != nil {
			return false, err
		}
		name := "MANIFEST." + stamp()
		if err := writeFile(filepath.Join(dir, repairedFolder, name), have); err != nil {
			return false, err
		}
	}
	return true, writeFile(path, copied)
}

// Room is the free space of a data folder's disk, and what an append leaves
// free.
func Room(dir string) (free, reserve uint64, err error) {
	free, err = freeBytes(dir)
	return free, defaultReserve, err
}
