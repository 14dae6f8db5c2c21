package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/store/badger"
)

// append puts events into the world's log, as another version might have.
func (w *world) append(t *testing.T, id dsh.SessionID, drafts ...dsh.Draft) {
	t.Helper()
	log, err := badger.Open(filepath.Join(w.dir, "home", "data"), badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	writer, err := log.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	events, err := writer.Tail().SealAll(time.UnixMilli(1700000000000), drafts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Append(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	if err := writer.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What a newer version wrote is kept, shown and exported.
func TestEventsOfANewerVersion(t *testing.T) {
	t.Parallel()
	w := prepare(t, answer("the answer"))
	if r := w.run(t, "run", "q"); r.code != 0 {
		t.Fatal(r.err)
	}
	id := w.events(t)[0]
	var start dsh.SessionStart
	if err := id.Decode(&start); err != nil {
		t.Fatal(err)
	}
	w.append(t, start.ID, dsh.Draft{Type: "later/kind", Data: map[string]any{"some": "thing \x1b[31m new"}})
	for _, args := range [][]string{{"log", "show", "last"}, {"log", "export"}, {"log", "verify"}, {"sessions", "show", "last"}} {
		if r := w.run(t, args...); r.code != 0 || strings.Contains(r.out, "\x1b") {
			t.Errorf("%v: exit %d, %s", args, r.code, r.err)
		}
	}
	if r := w.run(t, "log", "show", "last"); !strings.Contains(r.out, `later/kind             {"some":"thing`) {
		t.Errorf("log show: %s", r.out)
	}
	if r := w.run(t, "log", "export"); !strings.Contains(r.out, `"type":"later/kind","data":{"some":"thing \u001b[31m new"}`) {
		t.Errorf("log export: %s", r.out)
	}
}

// A log whose newest bytes were cut off is told, by verify and by export, and
// what is proven is still there.
func TestADamagedLog(t *testing.T) {
	t.Parallel()
	w := prepare(t, answer("one"), answer("two"), answer("three"))
	w.run(t, "run", "first")
	whole := w.run(t, "log", "export").out
	data := filepath.Join(w.dir, "home", "data")
	old := filepath.Join(w.dir, "old")
	if err := os.CopyFS(old, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	w.run(t, "run", "--resume", "last", "second")
	heads, err := os.ReadFile(filepath.Join(data, "heads"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, data); err != nil { // the database as it was before the second turn
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "heads"), heads, 0o600); err != nil {
		t.Fatal(err)
	}
	verify := w.run(t, "log", "verify")
	if verify.code != cli.ExitLog || !strings.Contains(verify.out, "damaged: proven through event") || !strings.Contains(verify.err, "damaged: 1 session") {
		t.Errorf("verify: exit %d, %q, %s", verify.code, verify.out, verify.err)
	}
	export := w.run(t, "log", "export")
	if export.code != cli.ExitLog || export.out != whole || !strings.Contains(export.err, "the export is not whole") {
		t.Errorf("export: exit %d, %d bytes of %d, %s", export.code, len(export.out), len(whole), export.err)
	}
	if r := w.run(t, "run", "--resume", "last", "third"); r.code != cli.ExitLog || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, "log verify") {
		t.Errorf("run: exit %d, %s", r.code, r.err)
	}
	if r := w.run(t, "run", "a new one"); r.code != 0 {
		t.Errorf("another session: exit %d, %s", r.code, r.err)
	}
}

// A damaged session goes on from where it is proven, after a repair that sets
// the rest aside; the other sessions go on before it, too.
func TestRepair(t *testing.T) {
	t.Parallel()
	w := prepare(t, answer("one"), answer("two"), answer("three"))
	w.run(t, "run", "first")
	w.run(t, "run", "second")
	before := w.run(t, "log", "export").out
	data := filepath.Join(w.dir, "home", "data")
	id := w.events(t)[0]
	var start dsh.SessionStart
	if err := id.Decode(&start); err != nil {
		t.Fatal(err)
	}
	heads := filepath.Join(data, "heads")
	b, err := os.ReadFile(heads)
	if err != nil {
		t.Fatal(err)
	}
	// The heads file proves that there were more events.
	line := fmt.Sprintf("%s 99 %s 1790000000000", start.ID, strings.Repeat("a", 32))
	line = fmt.Sprintf("%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
	if err := os.WriteFile(heads, append(b, line...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.run(t, "doctor"); r.code != cli.ExitError || !strings.Contains(r.out, "bad   session") || !strings.Contains(r.out, "--repair") {
		t.Errorf("doctor: exit %d, %s", r.code, r.out)
	}
	if r := w.run(t, "run", "--resume", string(start.ID), "third"); r.code != cli.ExitLog || !strings.Contains(r.err, "doctor --repair") {
		t.Errorf("run: exit %d, %s", r.code, r.err)
	}
	r := w.run(t, "doctor", "--repair")
	if r.code != 0 || strings.Count(r.out, "note  session") != 1 || !strings.Contains(r.out, "it had 99 events") {
		t.Errorf("repair: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if r := w.run(t, "log", "verify"); r.code != 0 {
		t.Errorf("verify: exit %d, %s", r.code, r.out)
	}
	if r := w.run(t, "log", "export"); r.code != 0 || r.out != before {
		t.Errorf("export: exit %d, %d bytes of %d", r.code, len(r.out), len(before))
	}
	if r := w.run(t, "run", "--resume", string(start.ID), "third"); r.code != 0 || r.out != "three\n" {
		t.Errorf("run: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if kept, _ := filepath.Glob(filepath.Join(data, "repaired", string(start.ID)+".*.jsonl")); len(kept) != 1 {
		t.Errorf("set aside: %v", kept)
	}
}

// A database that cannot be opened is put aside, and a new one made of all that
// can be read of it.
func TestRepairOfADatabase(t *testing.T) {
	t.Parallel()
	w := prepare(t, answer("one"), answer("two"), answer("three"))
	w.run(t, "run", "first")
	w.run(t, "run", "second")
	before := w.run(t, "log", "export").out
	data := filepath.Join(w.dir, "home", "data")
	for _, f := range []string{"manifest-copy", "closed", "log/MANIFEST"} {
		if err := os.Remove(filepath.Join(data, f)); err != nil {
			t.Fatal(err)
		}
	}
	if r := w.run(t, "doctor"); r.code != cli.ExitError || !strings.Contains(r.out, "bad   log") || !strings.Contains(r.out, "doctor --repair") {
		t.Errorf("doctor: exit %d, %s", r.code, r.out)
	}
	if r := w.run(t, "run", "third"); r.code != cli.ExitLog || !strings.Contains(r.err, "doctor --repair") {
		t.Errorf("run: exit %d, %s", r.code, r.err)
	}
	if r := w.run(t, "doctor", "--repair"); r.code != 0 || !strings.Contains(r.out, "the old one is in ") {
		t.Errorf("repair: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if r := w.run(t, "log", "export"); r.code != 0 || r.out != before {
		t.Errorf("export: exit %d, %d bytes of %d, %s", r.code, len(r.out), len(before), r.err)
	}
	if r := w.run(t, "run", "--resume", "last", "third"); r.code != 0 || r.out != "three\n" {
		t.Errorf("run: exit %d, %s, %s", r.code, r.out, r.err)
	}
}
