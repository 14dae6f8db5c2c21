package badger_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// mend sets aside what is not whole of all sessions, and says how many events
// each has then.
func mend(t *testing.T, log *badger.Log) map[dsh.SessionID]uint64 {
	t.Helper()
	var ids []dsh.SessionID
	for h, err := range log.Heads(t.Context()) {
		var damage *dsh.DamageError
		if err != nil && !errors.As(err, &damage) {
			t.Fatal(err)
		}
		ids = append(ids, h.ID)
	}
	slices.Sort(ids)
	events := map[dsh.SessionID]uint64{}
	for _, id := range slices.Compact(ids) {
		n, err := count(t, log, id)
		if err != nil {
			done, err := log.SetAside(t.Context(), id, n)
			must(t, err)
			if done.Through != n {
				t.Errorf("%s ends at event %d, and %d were read", id, done.Through, n)
			}
		}
		if n > 0 {
			events[id] = n
			whole(t, log, id, n)
		}
	}
	return events
}

// tables are those of a database, of which there are several.
func tables(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "log", "*.sst"))
	if err != nil || len(names) < 2 {
		t.Fatalf("tables %v, %v", names, err)
	}
	return names
}

func TestSalvage(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		name   string
		make   func(testing.TB) string
		damage func(t *testing.T, dir string)
		all    bool // everything is there after it
	}{
		{"no list of tables", sample, func(t *testing.T, dir string) {
			for _, f := range []string{"manifest-copy", "closed", "log/MANIFEST"} {
				must(t, os.Remove(filepath.Join(dir, f)))
			}
		}, true},
		{"no list after a kill", killed, func(t *testing.T, dir string) {
			must(t, os.RemoveAll(filepath.Join(dir, "manifest-copy")))
			must(t, os.Remove(filepath.Join(dir, "log", "MANIFEST")))
		}, true},
		{"a table is cut", sample, func(t *testing.T, dir string) {
			must(t, os.Truncate(tables(t, dir)[0], 5000))
		}, false},
		{"a table is gone", sample, func(t *testing.T, dir string) { must(t, os.Remove(tables(t, dir)[1])) }, false},
		{"the first block of a table", sample, func(t *testing.T, dir string) {
			name := tables(t, dir)[0]
			b, err := os.ReadFile(name)
			must(t, err)
			clear(b[100:400])
			must(t, os.WriteFile(name, b, 0o600))
		}, false},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dir := k.make(t)
			want, code := verify(t, copied(t, dir))
			if code != 0 {
				t.Fatal(want)
			}
			k.damage(t, dir)
			s, err := badger.Salvage(dir, badger.Options{})
			must(t, err)
			log, err := badger.Open(dir, badger.Options{})
			must(t, err)
			events := mend(t, log)
			must(t, log.Close())
			t.Logf("%+v: %v", s, events)
			if len(events) < 2 {
				t.Errorf("%d sessions are left", len(events))
			}
			got, code := verify(t, dir)
			if code != 0 || k.all && digest(got) != digest(want) {
				t.Errorf("exit %d: %s, want %s", code, got, want)
			}
			if names, err := os.ReadDir(s.Aside); err != nil || len(names) == 0 {
				t.Errorf("the old database is not in %s: %v", s.Aside, err)
			}
			log, err = badger.Open(dir, badger.Options{})
			must(t, err)
			fill(t, log, "new", 5)
			must(t, log.Close())
		})
	}
}

// childSalvage makes a new database of what can be read of a damaged one.
func childSalvage(dir string) int {
	if _, err := badger.Salvage(dir, badger.Options{}); err != nil {
		fmt.Println(err)
		return exitLog
	}
	return 0
}

// repaired is what a repair makes of a folder that a repair may have been killed
// in: the events of each session, and a digest of all.
func repaired(t *testing.T, dir string) (map[dsh.SessionID]uint64, string) {
	t.Helper()
	log, err := badger.Open(dir, badger.Options{})
	if errors.Is(err, badger.ErrDamaged) {
		_, err = badger.Salvage(dir, badger.Options{})
		must(t, err)
		log, err = badger.Open(dir, badger.Options{})
	}
	must(t, err)
	events := mend(t, log)
	must(t, log.Close())
	out, code := verify(t, dir)
	if code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
	return events, digest(out)
}

// TestSalvageIsKilled: a repair that is killed at any moment leaves the old
// database or the new one, and the next one comes to the same.
func TestSalvageIsKilled(t *testing.T) {
	t.Parallel()
	broken := killed(t)
	must(t, os.Truncate(tables(t, broken)[0], 5000))
	calm := copied(t, broken)
	began := time.Now()
	if out, err := child("salvage", calm).Output(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	took := time.Since(began)
	want, sum := repaired(t, calm)
	if len(want) < 4 {
		t.Fatalf("%d sessions are left of the undisturbed one", len(want))
	}
	random, early, late := rand.New(rand.NewPCG(1, 2)), 0, 0
	for range killRounds(8) {
		dir := copied(t, broken)
		c := child("salvage", dir)
		must(t, c.Start())
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(took))), func() { _ = c.Process.Kill() })
		if c.Wait() == nil {
			late++
		}
		timer.Stop()
		if asides, err := filepath.Glob(filepath.Join(dir, "repaired", "log.*")); err == nil && len(asides) == 0 {
			early++
		}
		if got, now := repaired(t, dir); !maps.Equal(got, want) || now != sum {
			t.Fatalf("after a kill: %v, want %v", got, want)
		}
		must(t, os.RemoveAll(dir))
	}
	t.Logf("%v for all; killed before the old database was moved: %d; not killed: %d", took.Round(time.Millisecond), early, late)
}

// TestSalvageIsFinished: whoever opens the folder does what a kill has left to be
// done, whatever that is.
func TestSalvageIsFinished(t *testing.T) {
	t.Parallel()
	broken := sample(t)
	must(t, os.Truncate(tables(t, broken)[0], 5000))
	calm := copied(t, broken)
	s, err := badger.Salvage(calm, badger.Options{})
	must(t, err)
	move := func(from, to string) func(dir string) {
		return func(dir string) { must(t, os.Rename(filepath.Join(dir, from), filepath.Join(dir, to))) }
	}
	aside := filepath.Join("repaired", filepath.Base(s.Aside))
	undo := []func(dir string){
		func(dir string) { // the last step, the new one in place
			must(t, os.WriteFile(filepath.Join(dir, "log", "complete"), []byte(filepath.Base(s.Aside)), 0o600))
			move("log", "log.new")(dir)
		},
		func(dir string) { must(t, os.RemoveAll(filepath.Join(dir, aside, "bodies"))) },
		move(filepath.Join(aside, "manifest-copy"), "manifest-copy"),
		move(filepath.Join(aside, "closed"), "closed"),
		move(aside, "log"), // the first
	}
	want, sum := repaired(t, copied(t, calm))
	for n := range undo {
		dir := copied(t, calm)
		for _, step := range undo[:n+1] {
			step(dir)
		}
		if got, now := repaired(t, dir); !maps.Equal(got, want) || now != sum {
			t.Errorf("with %d steps to do: %v, want %v", n+1, got, want)
		}
		for _, name := range []string{"log.new", filepath.Join("log", "complete")} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("with %d steps to do: %s is left", n+1, name)
			}
		}
		old, err := os.ReadDir(filepath.Join(dir, aside))
		if err != nil || !slices.ContainsFunc(old, func(e os.DirEntry) bool { return e.Name() == "closed" }) {
			t.Errorf("with %d steps to do: the old database is not aside: %v, %v", n+1, old, err)
		}
	}
}

// blank zeroes a page of a file.
func blank(t *testing.T, name string, page int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, 4096), page*4096)
	must(t, errors.Join(err, f.Close()))
}

// TestDamagedBlock: what is behind a bad block of a table is not lost when tables
// are merged, and is in the database that a repair makes.
func TestDamagedBlock(t *testing.T) {
	t.Parallel()
	dir := sample(t)
	blank(t, tables(t, dir)[0], 1)
	bad, err := badger.DamagedTables(dir)
	if err != nil || len(bad) != 1 || bad[0] != filepath.Base(tables(t, dir)[0]) {
		t.Fatalf("damaged are %v, %v", bad, err)
	}
	warned := false
	var before uint64
	for i := range 12 { // more tables than there may be
		log, err := badger.Open(dir, badger.Options{Warn: func(err error) { warned = warned || strings.Contains(err.Error(), "not merged until") }})
		must(t, err)
		fill(t, log, dsh.SessionID(fmt.Sprintf("new%d", i)), 3)
		n, err := count(t, log, "s2")
		if i == 0 {
			before = n
		}
		if err != nil || n != before || n == 0 {
			t.Fatalf("after %d runs s2 has %d events, %v; it had %d", i, n, err, before)
		}
		must(t, log.Close())
	}
	if !warned {
		t.Error("nobody is told that tables are not merged")
	}
	s, err := badger.Salvage(dir, badger.Options{})
	must(t, err)
	log, err := badger.Open(dir, badger.Options{})
	must(t, err)
	events := mend(t, log)
	must(t, log.Close())
	if s.Damaged != 1 || len(events) < 14 || events["s2"] != before {
		t.Errorf("%+v: %v", s, events)
	}
	if bad, err := badger.DamagedTables(dir); err != nil || len(bad) > 0 {
		t.Errorf("damaged are %v, %v", bad, err)
	}
}

// TestFirstPage: a table on which Badger panics is a damage, with the advice that
// goes with it.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		dir := sample(t)
		blank(t, tables(t, dir)[i], 0)
		log, err := badger.Open(dir, badger.Options{})
		if err == nil {
			must(t, log.Close())
		} else if !errors.Is(err, badger.ErrDamaged) || !strings.Contains(err.Error(), "doctor --repair") {
			t.Errorf("table %d: %v", i, err)
		}
		if bad, err := badger.DamagedTables(dir); err != nil || len(bad) != 1 {
			t.Errorf("table %d: damaged are %v, %v", i, bad, err)
		}
	}
}

// TestNoSealedFile: without the file that says that a log is encrypted nothing of
// it is taken for damaged, and its own key brings the file back.
func TestNoSealedFile(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), bytes.Repeat([]byte{9}, 32)
	log := openSealed(t, dir, key)
	fill(t, log, "a", 40)
	must(t, log.Close())
	must(t, os.Remove(filepath.Join(dir, "sealed")))
	refuses := func(what string, o badger.Options) {
		t.Helper()
		for range 2 {
			log, err := badger.Open(dir, o)
			if !errors.Is(err, badger.ErrNoKey) {
				t.Fatalf("%s: %v, %v", what, log, err)
			}
		}
	}
	heads, err := os.ReadFile(filepath.Join(dir, "heads"))
	must(t, err)
	refuses("no key", badger.Options{})
	refuses("another key", badger.Options{Key: bytes.Repeat([]byte{8}, 32)})
	must(t, os.Remove(filepath.Join(dir, "heads")))
	refuses("no key, no heads", badger.Options{})
	must(t, os.WriteFile(filepath.Join(dir, "heads"), heads, 0o600))
	log = openSealed(t, dir, key)
	whole(t, log, "a", 40)
	must(t, log.Close())
	if _, err := os.Stat(filepath.Join(dir, "sealed")); err != nil {
		t.Error(err)
	}
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// What was removed does not come back, and what was sealed stays so.
func TestSalvageOfASealedLog(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), bytes.Repeat([]byte{9}, 32)
	for _, id := range []dsh.SessionID{"a", "b", "c"} {
		log := openSealed(t, dir, key)
		fill(t, log, id, 40)
		if id == "c" {
			must(t, log.Remove(t.Context(), "a"))
		}
		must(t, log.Close())
	}
	for _, f := range []string{"manifest-copy", "closed", "log/MANIFEST"} {
		must(t, os.Remove(filepath.Join(dir, f)))
	}
	_, err := badger.Salvage(dir, badger.Options{Key: key})
	must(t, err)
	log := openSealed(t, dir, key)
	if events := mend(t, log); len(events) != 2 || events["b"] != 40 || events["c"] != 40 {
		t.Errorf("events %v", events)
	}
	must(t, log.Close())
	for _, f := range files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, f))
		must(t, err)
		if bytes.Contains(b, []byte("session/start")) || !strings.Contains(f, "aside") && bytes.Contains(b, []byte("word")) {
			t.Errorf("%s is plain", f)
		}
	}
}
