package badger

import (
	"context"
	"errors"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// Remove deletes a session that nobody holds, its bodies with it. It fails
// with dsh.ErrNoSession and with a *dsh.HeldError. A damaged session can be
// removed. When ctx ends the removal may still go on.
func (l *Log) Remove(ctx context.Context, id dsh.SessionID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !validID(id) {
		return dsh.ErrNoSession
	}
	if err := l.hold(id, nil); err != nil {
		return err
	}
	err := l.submit(ctx, &request{barrier: true, urgent: true})
	if err == nil {
		err = l.view(func(txn *db.Txn) error {
			_, damage, err := l.rawRecord(txn, id)
			if damage != nil {
				return nil
			}
			return err
		})
	}
	r := &request{id: id, remove: true, urgent: true, done: make(chan error, 1)}
	if err == nil {
		err = l.enqueue(ctx, r)
	}
	if err != nil {
		l.letGo(id, nil)
		return err
	}
	select { // from here on it is the committer who lets go of the session
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeSession deletes all of a session, for the committer. The heads file
// goes first, so that a crash after it cannot make the removal look like a
// loss. The mark of the removal is deleted last: it is finished when the log is
// opened after a crash.
func (l *Log) removeSession(id dsh.SessionID) error {
	if err := errors.Join(l.heads.remove(id), l.snapshots.remove(id)); err != nil {
		return err
	}
	return l.eraseSession(id)
}

func (l *Log) eraseSession(id dsh.SessionID) error {
	err := l.update(func(txn *db.Txn) error {
		return errors.Join(txn.Set(removingKey(id), nil), txn.Delete(recordKey(id)))
	})
	for err == nil {
		var done bool
		if done, err = l.eraseSome(id); done {
			break
		}
	}
	if err != nil {
		return err
	}
	return l.update(func(txn *db.Txn) error { return txn.Delete(removingKey(id)) })
}

// eraseSome deletes as many events as go into one transaction.
func (l *Log) eraseSome(id dsh.SessionID) (done bool, err error) {
	var sums []string
	err = l.update(func(txn *db.Txn) error {
		keys, found, err := l.eventKeys(txn, id, maxBatchEntries/2)
		if err != nil {
			return err
		}
		done = len(keys) < maxBatchEntries/2
		for _, k := range append(keys, found.keys...) {
			if err := txn.Delete(k); err != nil {
				return err
			}
		}
		sums = found.sums
		return nil
	})
	if err != nil {
		return false, err
	}
	for _, sum := range sums {
		if err := l.dropBody(sum); err != nil {
			return false, err
		}
	}
	return done, nil
}

// bodiesOf are the bodies that some events name: the sums, and the keys that
// say who names them.
type bodiesOf struct {
	sums []string
	keys [][]byte
}

// eventKeys lists the first n keys of a session's events.
func (l *Log) eventKeys(txn *db.Txn, id dsh.SessionID, n int) (keys [][]byte, found bodiesOf, err error) {
	o := db.DefaultIteratorOptions
	o.PrefetchValues = false
	o.Prefix = eventPrefix(id)
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid() && len(keys) < n; it.Next() {
		item := it.Item()
		key := item.KeyCopy(nil)
		keys = append(keys, key)
		if n := item.ValueSize(); n != bodyRefSize && n != bodyRefSize+seal.Overhead {
			continue
		}
		value, err := item.ValueCopy(nil)
		if err != nil {
			return nil, bodiesOf{}, err
		}
		value, closed := l.box.Open(string(key), value)
		if sum, _, err := parseRef(value); err == nil && closed == nil {
			found.sums = append(found.sums, sum)
			found.keys = append(found.keys, append(append(bodyPrefix(sum), id...), key[len(key)-9:]...))
		}
	}
	return keys, found, nil
}

// dropBody deletes a body if no event names it.
func (l *Log) dropBody(sum string) error {
	named := false
	err := l.db.View(func(txn *db.Txn) error {
		o := db.DefaultIteratorOptions
		o.PrefetchValues = false
		o.Prefix = bodyPrefix(sum)
		it := txn.NewIterator(o)
		defer it.Close()
		it.Rewind()
		named = it.Valid()
		return nil
	})
	if err != nil || named {
		return err
	}
	return l.bodies.remove(sum)
}

// finishRemovals goes on with removals that a crash has cut.
func (l *Log) finishRemovals() error {
	var ids []dsh.SessionID
	err := l.db.View(func(txn *db.Txn) error {
		o := db.DefaultIteratorOptions
		o.PrefetchValues = false
		o.Prefix = []byte(prefixRemoving)
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			ids = append(ids, dsh.SessionID(it.Item().Key()[len(prefixRemoving):]))
		}
		return nil
	})
	for _, id := range ids {
		err = errors.Join(err, l.eraseSession(id))
	}
	return err
}
