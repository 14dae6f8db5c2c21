package badger_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// damageIt changes a value in the database under a log.
func damageIt(t *testing.T, log *badger.Log, f func(txn *db.Txn) error) {
	t.Helper()
	must(t, log.DB().Update(f))
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	const n = 20 // events of a session, of which the last is a body
	replace := func(seq uint64, change func([]byte) []byte) func(*db.Txn) error {
		return func(txn *db.Txn) error {
			item, err := txn.Get(badger.EventKey("s", seq))
			if err != nil {
				return err
			}
			value, err := item.ValueCopy(nil)
			if err != nil {
				return err
			}
			return txn.Set(badger.EventKey("s", seq), change(value))
		}
	}
	for _, k := range []struct {
		name    string
		damage  func(*db.Txn) error
		through uint64
		moved   int
	}{
		{"a byte", replace(12, func(b []byte) []byte { b[20] ^= 1; return b }), 11, n - 11},
		{"no text", replace(12, func([]byte) []byte { return []byte{0xff, 0} }), 11, n - 11},
		{"an event is gone", func(txn *db.Txn) error { return txn.Delete(badger.EventKey("s", 12)) }, 11, n - 12},
		{"the end is gone", func(txn *db.Txn) error {
			return errors.Join(txn.Delete(badger.EventKey("s", n)), txn.Delete(badger.EventKey("s", n-1)))
		}, n - 2, 0},
		{"the first event", replace(1, func(b []byte) []byte { b[20] ^= 1; return b }), 0, n},
		{"the record", func(txn *db.Txn) error { return txn.Set(badger.RecordKey("s"), []byte("nothing")) }, n, 0},
		{"the record is gone", func(txn *db.Txn) error { return txn.Delete(badger.RecordKey("s")) }, n, 0},
		{"an event too many", func(txn *db.Txn) error { return txn.Set(badger.EventKey("s", n+1), []byte(`{"what":"is this"}`)) }, n, 1},
		{"another key", func(txn *db.Txn) error { return txn.Set(append(badger.EventKey("s", 3), 'x'), []byte("y")) }, n, 1},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			log := open(t, dir)
			fill(t, log, "other", 5)
			c := fill(t, log, "s", n-1)
			w, err := log.Acquire(t.Context(), "s")
			must(t, err)
			big := c.add(dsh.TypeToolResult, map[string]any{"callId": strings.Repeat("y", badger.BodyFrom)})
			must(t, w.Append(t.Context(), big))
			must(t, w.Release(t.Context()))
			must(t, log.Close())
			log = open(t, dir) // the heads file knows of all
			damageIt(t, log, k.damage)
			done, err := log.SetAside(t.Context(), "s", n)
			if err != nil || done.Through != k.through || done.Moved != k.moved || done.Lost < n && k.name != "the record" && k.name != "the record is gone" {
				t.Fatalf("SetAside: %+v, %v; want through %d, %d moved", done, err, k.through, k.moved)
			}
			for range 2 {
				whole(t, log, "other", 5)
				if k.through == 0 {
					if _, err := log.Head(t.Context(), "s"); !errors.Is(err, dsh.ErrNoSession) {
						t.Errorf("Head: %v", err)
					}
				} else {
					whole(t, log, "s", k.through)
				}
				must(t, log.Close())
				log = open(t, dir)
			}
			b, err := os.ReadFile(done.File)
			if err != nil || bytes.Count(b, []byte("\n")) != 1+k.moved {
				t.Errorf("%s: %d lines, %v", done.File, bytes.Count(b, []byte("\n")), err)
			}
			if kept := strings.Contains(string(b), strings.Repeat("y", badger.BodyFrom)); kept != (k.through < n && k.name != "the end is gone") {
				t.Errorf("the body is in the file: %v", kept)
			}
			w, err = log.Acquire(t.Context(), "s")
			must(t, err)
			rest := &chain{t: t, tail: w.Tail()}
			if k.through == 0 {
				must(t, w.Append(t.Context(), rest.start("s")))
			}
			must(t, w.Append(t.Context(), rest.step(1)))
			must(t, w.Release(t.Context()))
			whole(t, log, "s", max(k.through+1, 2))
			must(t, log.Close())
		})
	}
}

// A session that breaks a rule of the loop is cut where the caller says.
func TestSetAsideOfAnEndThatIsWhole(t *testing.T) {
	t.Parallel()
	log := open(t, t.TempDir())
	fill(t, log, "s", 9)
	done, err := log.SetAside(t.Context(), "s", 4)
	if err != nil || done.Through != 4 || done.Moved != 5 {
		t.Fatalf("SetAside: %+v, %v", done, err)
	}
	whole(t, log, "s", 4)
	if _, err := log.SetAside(t.Context(), "none", 4); !errors.Is(err, dsh.ErrNoSession) {
		t.Errorf("SetAside of no session: %v", err)
	}
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	var held *dsh.HeldError
	if _, err := log.SetAside(t.Context(), "s", 2); !errors.As(err, &held) {
		t.Errorf("SetAside of a held session: %v", err)
	}
	must(t, w.Release(t.Context()))
	must(t, log.Close())
}

func TestRestoreManifest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"missing", "cut", "whole", "never closed"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			log := open(t, dir)
			fill(t, log, "s", 9)
			must(t, log.Close())
			path := filepath.Join(dir, "log", "MANIFEST")
			b, err := os.ReadFile(path)
			must(t, err)
			switch how {
			case "missing":
				must(t, os.Remove(path))
			case "cut":
				must(t, os.WriteFile(path, b[:len(b)-3], 0o600))
			case "never closed":
				must(t, os.Remove(filepath.Join(dir, "closed")))
				must(t, os.Remove(path))
			}
			done, err := badger.RestoreManifest(dir)
			if err != nil || done != (how == "missing" || how == "cut") {
				t.Fatalf("RestoreManifest: %v, %v", done, err)
			}
			if how == "never closed" {
				return
			}
			log = open(t, dir)
			whole(t, log, "s", 9)
			must(t, log.Close())
			if kept, _ := filepath.Glob(filepath.Join(dir, "repaired", "MANIFEST.*")); len(kept) != map[string]int{"cut": 1}[how] {
				t.Errorf("set aside: %v", kept)
			}
		})
	}
}
