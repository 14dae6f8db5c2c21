package badger_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/storetest"
)

func openSealed(t testing.TB, dir string, key []byte) *badger.Log {
	t.Helper()
	log, err := badger.Open(dir, badger.Options{Key: key, Warn: func(err error) { t.Errorf("warning: %v", err) }})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return log
}

func TestSealedLog(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte{9}, 32)
	storetest.Run(t, func(t *testing.T) storetest.Store {
		dir := t.TempDir()
		return storetest.Store{Persists: true, Open: func(t testing.TB) dsh.Log { return openSealed(t, dir, key) }}
	})
}

// Nothing of a session but its id is in any file, also while the log is open,
// and after a repair.
func TestNothingIsPlain(t *testing.T) {
	t.Parallel()
	const canary = "the-canary-sings"
	dir, key := t.TempDir(), bytes.Repeat([]byte{9}, 32)
	log := openSealed(t, dir, key)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	c := &chain{t: t}
	must(t, w.Append(t.Context(), c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: "s", Cwd: "/" + canary, Title: canary})))
	must(t, w.Append(t.Context(), c.chunk(canary)))
	must(t, w.Append(t.Context(), c.add(dsh.TypeToolResult, map[string]any{"callId": strings.Repeat(canary, badger.BodyFrom/8)})))
	must(t, w.Append(t.Context(), c.step(1), c.end()))
	must(t, w.KeepSnapshot(t.Context(), dsh.Snapshot{Tail: c.tail, Data: []byte(canary)}))
	must(t, w.Release(t.Context()))
	hidden := func(when string) {
		t.Helper()
		hash := c.tail.Hash
		for _, f := range files(t, dir) {
			b, err := os.ReadFile(filepath.Join(dir, f))
			must(t, err)
			for _, word := range []string{canary, hash, "session/start"} {
				if bytes.Contains(b, []byte(word)) {
					t.Errorf("%s: %s holds %s", when, f, word)
				}
			}
		}
	}
	hidden("open")
	must(t, log.Close())
	hidden("closed")
	log = openSealed(t, dir, key)
	whole(t, log, "s", 5)
	done, err := log.SetAside(t.Context(), "s", 1)
	if err != nil || done.Moved != 4 {
		t.Fatalf("SetAside: %+v, %v", done, err)
	}
	whole(t, log, "s", 1)
	must(t, log.Close())
	hidden("repaired")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{9}, 32), bytes.Repeat([]byte{8}, 32)
	sealed, plain := t.TempDir(), t.TempDir()
	log := openSealed(t, sealed, key)
	fill(t, log, "s", 5)
	must(t, log.Close())
	log = open(t, plain)
	fill(t, log, "s", 5)
	must(t, log.Close())
	for _, k := range []struct {
		name, dir string
		key       []byte
	}{{"no key", sealed, nil}, {"another key", sealed, other}, {"a short key", sealed, key[:16]}, {"a key for what is plain", plain, key}} {
		_, err := badger.Open(k.dir, badger.Options{Key: k.key, Warn: func(err error) { t.Errorf("warning: %v", err) }})
		if !errors.Is(err, badger.ErrNoKey) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want badger.ErrNoKey", k.name, err)
		}
	}
	log = openSealed(t, sealed, key) // nothing was changed by it
	whole(t, log, "s", 5)
	must(t, log.Close())
	log = open(t, plain)
	whole(t, log, "s", 5)
	must(t, log.Close())
}
