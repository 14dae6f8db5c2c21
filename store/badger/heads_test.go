package badger_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// openWarned opens a log and gives what it warns of.
func openWarned(t *testing.T, dir string) (*badger.Log, []string) {
	t.Helper()
	var warnings []string
	log, err := badger.Open(dir, badger.Options{Warn: func(err error) { warnings = append(warnings, err.Error()) }})
	must(t, err)
	return log, warnings
}

// heads collects the heads and the errors of a log.
func heads(t *testing.T, log dsh.Log) (ids []dsh.SessionID, errs []error) {
	t.Helper()
	for h, err := range log.Heads(t.Context()) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(errs) > 0 {
			t.Errorf("head of %s after an error", h.ID)
		}
		ids = append(ids, h.ID)
	}
	return ids, errs
}

// TestLostEvents takes the database back to an older state, which is whole in
// itself: the heads file knows better.
func TestLostEvents(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	c := fill(t, log, "s", 10)
	fill(t, log, "t", 10)
	must(t, log.Close())

	old := filepath.Join(t.TempDir(), "old")
	must(t, os.CopyFS(old, os.DirFS(dir)))
	log = open(t, dir)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	for range 9 {
		must(t, w.Append(t.Context(), c.chunk("lost")))
	}
	must(t, w.Append(t.Context(), c.end()))
	must(t, w.Release(t.Context()))
	fill(t, log, "new", 7)
	must(t, log.Close())

	b, err := os.ReadFile(filepath.Join(dir, "heads"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(old, "heads"), b, 0o600))
	for range 2 { // it does not heal
		log = open(t, old)
		n, err := count(t, log, "s")
		damagedAt(t, err, "s", 11, "events 11 to 20")
		if n != 10 {
			t.Errorf("%d events before the loss, want 10", n)
		}
		_, err = log.Head(t.Context(), "s")
		damagedAt(t, err, "s", 11, "events 11 to 20")
		_, err = log.Acquire(t.Context(), "s")
		damagedAt(t, err, "s", 11, "events 11 to 20")
		_, err = log.Acquire(t.Context(), "new")
		damagedAt(t, err, "new", 1, "events 1 to 7")
		_, err = count(t, log, "new")
		damagedAt(t, err, "new", 1, "events 1 to 7")
		whole(t, log, "t", 10)
		ids, errs := heads(t, log)
		if len(ids) != 3 || len(errs) != 2 {
			t.Fatalf("heads %v, errors %v; want 3 and 2", ids, errs)
		}
		damagedAt(t, errs[0], "new", 1, "")
		damagedAt(t, errs[1], "s", 11, "")
		fill(t, log, "u", 3)
		must(t, log.Remove(t.Context(), "u"))
		must(t, log.Close())
	}
	log = open(t, old)
	must(t, log.Remove(t.Context(), "s"))
	must(t, log.Remove(t.Context(), "new"))
	must(t, log.Close())
	log = open(t, old)
	defer func() { must(t, log.Close()) }()
	if ids, errs := heads(t, log); len(ids) != 1 || len(errs) != 0 {
		t.Errorf("heads %v, errors %v after removing the damaged sessions", ids, errs)
	}
	fill(t, log, "s", 4)
}

// TestHeadsFile damages the heads file itself: nothing is refused, it is said,
// and the file is good again.
func TestHeadsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "heads")
	log := open(t, dir)
	for _, id := range []dsh.SessionID{"s", "t", "u"} {
		fill(t, log, id, 10)
	}
	must(t, log.Close())
	good, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(good), "\nu 10 ") && !strings.HasPrefix(string(good), "u 10 ") {
		t.Fatalf("heads file %q", good)
	}
	first := strings.Index(string(good), "\n") + 1
	flipped := []byte(string(good))
	flipped[3] ^= 1
	for _, k := range []struct {
		name    string
		content []byte
		warning string
	}{
		{"whole", good, ""},
		{"a torn end", good[:len(good)-5], ""},
		{"a torn line", append([]byte(string(good)), "s 11 abc"...), ""},
		{"a damaged line", flipped, "1 damaged lines"},
		{"garbage", []byte("\x00\x00\n\xff\n\n"), "3 damaged lines"},
		{"empty", []byte{}, ""},
		{"missing", nil, "missing"},
		{"many old lines", []byte(strings.Repeat(string(good[:first]), 3000) + string(good[first:])), ""},
	} {
		t.Run(k.name, func(t *testing.T) {
			must(t, os.Remove(path))
			if k.content != nil {
				must(t, os.WriteFile(path, k.content, 0o600))
			}
			log, warnings := openWarned(t, dir)
			if k.warning == "" && len(warnings) > 0 || k.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], k.warning)) {
				t.Errorf("warnings %q, want %q", warnings, k.warning)
			}
			for _, id := range []dsh.SessionID{"s", "t", "u"} {
				whole(t, log, id, 10)
			}
			must(t, log.Close())
			log, warnings = openWarned(t, dir)
			if len(warnings) > 0 {
				t.Errorf("warned again: %q", warnings)
			}
			must(t, log.Close())
			b, err := os.ReadFile(path)
			must(t, err)
			if k.warning != "" || k.name == "many old lines" {
				for _, id := range []string{"s 10 ", "t 10 ", "u 10 "} {
					if strings.Count(string(b), id) != 1 {
						t.Errorf("heads file %q has not one line %q", b, id)
					}
				}
			}
		})
	}
}

// TestHeadsBehind: what was written after the last mark is no loss.
func TestHeadsBehind(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	fill(t, log, "s", 10)
	must(t, log.Close())
	old, err := os.ReadFile(filepath.Join(dir, "heads"))
	must(t, err)
	log = open(t, dir)
	w, err := log.Acquire(t.Context(), "s")
	must(t, err)
	c := &chain{t: t, tail: w.Tail()}
	must(t, w.Append(t.Context(), c.step(1), c.end()))
	must(t, w.Release(t.Context()))
	fill(t, log, "t", 5)
	must(t, log.Close())
	must(t, os.WriteFile(filepath.Join(dir, "heads"), old, 0o600))
	log = open(t, dir)
	defer func() { must(t, log.Close()) }()
	whole(t, log, "s", 12)
	whole(t, log, "t", 5)
	if ids, errs := heads(t, log); len(ids) != 2 || len(errs) != 0 {
		t.Errorf("heads %v, errors %v", ids, errs)
	}
}

// TestAside: after a crash tables and logs that Badger would delete are kept
// where events are lost, and not where none are.
func TestAside(t *testing.T) {
	dir := killed(t)
	aside := func(dir string) int {
		all, err := filepath.Glob(filepath.Join(dir, "aside", "*"))
		must(t, err)
		return len(all)
	}
	good := filepath.Join(t.TempDir(), "good")
	must(t, os.CopyFS(good, os.DirFS(dir)))
	must(t, open(t, good).Close())
	if n := aside(good); n != 0 {
		t.Errorf("%d files aside of an undamaged folder", n)
	}

	manifest := filepath.Join(dir, "log", "MANIFEST")
	info, err := os.Stat(manifest)
	must(t, err)
	must(t, os.Truncate(manifest, info.Size()-3))
	table := filepath.Join(dir, "log", "000003.sst") // the last in the list
	b, err := os.ReadFile(table)
	must(t, err)
	log, warnings := openWarned(t, dir)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "lost") {
		t.Errorf("warnings %q", warnings)
	}
	_, err = count(t, log, "s2")
	damagedAt(t, err, "s2", 1, "lost")
	whole(t, log, "k0", 102)
	must(t, log.Close())
	found := false
	all, _ := filepath.Glob(filepath.Join(dir, "aside", "*.sst"))
	for _, path := range all {
		kept, err := os.ReadFile(path)
		found = found || err == nil && string(kept) == string(b)
	}
	if !found || aside(dir) < 2 {
		t.Errorf("%d files aside, and the lost table is among them: %v", aside(dir), found)
	}
}
