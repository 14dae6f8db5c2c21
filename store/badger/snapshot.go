package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// A file of a snapshot: the mark, the sum of what follows, the seq, the hash
// in hex, the data.
const (
	snapshotMark = "dsh-snapshot-1\n"
	hashDigits   = 32 // of an event's hash, in hex
	snapshotHead = len(snapshotMark) + sha256.Size + 8 + hashDigits
)

// snapshots is the folder of what is derived of sessions, a file each. All of
// it may be deleted at any time. It is no part of the database, since nothing
// of it has to be durable: writing it waits for no disk.
type snapshots struct {
	dir string
	box *seal.Box
}

func (s snapshots) path(id dsh.SessionID) string { return filepath.Join(s.dir, string(id)) }

// get reads a snapshot; the zero value where there is none, or a damaged one.
func (s snapshots) get(id dsh.SessionID) (dsh.Snapshot, error) {
	raw, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return dsh.Snapshot{}, nil
	} else if err != nil {
		return dsh.Snapshot{}, err
	}
	if raw, err = s.box.Open("snapshot|"+string(id), raw); err != nil {
		return dsh.Snapshot{}, nil
	}
	if len(raw) < snapshotHead || string(raw[:len(snapshotMark)]) != snapshotMark {
		return dsh.Snapshot{}, nil
	}
	sum, rest := raw[len(snapshotMark):len(snapshotMark)+sha256.Size], raw[len(snapshotMark)+sha256.Size:]
	if have := sha256.Sum256(rest); !bytes.Equal(have[:], sum) {
		return dsh.Snapshot{}, nil
	}
	tail := dsh.Tail{Seq: binary.BigEndian.Uint64(rest), Hash: string(rest[8 : 8+hashDigits])}
	return dsh.Snapshot{Tail: tail, Data: rest[8+hashDigits:]}, nil
}

// put writes a snapshot, without a sync: after a power cut it may be gone, or
// damaged, which get sees.
func (s snapshots) put(id dsh.SessionID, snapshot dsh.Snapshot) error {
	if len(snapshot.Tail.Hash) != hashDigits {
		return errors.New("a snapshot of no place")
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	rest := binary.BigEndian.AppendUint64(make([]byte, 0, 8+hashDigits+len(snapshot.Data)), snapshot.Tail.Seq)
	rest = append(append(rest, snapshot.Tail.Hash...), snapshot.Data...)
	sum := sha256.Sum256(rest)
	whole := append(append([]byte(snapshotMark), sum[:]...), rest...)
	return replaceFile(s.path(id), s.box.Seal("snapshot|"+string(id), whole), false)
}

func (s snapshots) remove(id dsh.SessionID) error {
	err := os.Remove(s.path(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Snapshot returns what the last writer of a session kept, if it is whole.
func (l *Log) Snapshot(ctx context.Context, id dsh.SessionID) (dsh.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return dsh.Snapshot{}, err
	}
	if !validID(id) {
		return dsh.Snapshot{}, nil
	}
	return l.snapshots.get(id)
}

// KeepSnapshot puts a snapshot in the place of the one before.
func (w *Writer) KeepSnapshot(ctx context.Context, s dsh.Snapshot) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	free, err := w.log.free(w.log.dir)
	if need := w.log.o.Reserve + uint64(len(s.Data)); err == nil && free < need {
		err = tooFull(w.log.dir, free, need)
	}
	if err != nil {
		return err
	}
	return w.log.snapshots.put(w.id, s)
}
