package transfer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/transfer"
)

// session appends a session of n events, some of them unknown and large.
func session(t testing.TB, log dsh.Log, id dsh.SessionID, n int) {
	t.Helper()
	w, err := log.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	tail := w.Tail()
	for i := tail.Seq; i < uint64(n); i++ {
		d := dsh.Draft{Type: "future/kind", Data: map[string]any{"i": i, "text": strings.Repeat("<é>\u2028", 40)}}
		switch {
		case i == 0:
			d = dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/"}}
		case i%400 == 7:
			d.Data = map[string]any{"big": strings.Repeat("x", 500<<10)}
		case i%3 == 0:
			d = dsh.Draft{Type: dsh.TypeAssistantChunk, Data: dsh.AssistantChunk{Chunk: dsh.Chunk{Type: "text", Text: fmt.Sprint(i)}}}
		}
		e, err := tail.Seal(time.UnixMilli(1_790_000_000_000+int64(i)), d)
		if err == nil {
			err = w.Append(t.Context(), e)
		}
		if err != nil {
			t.Fatal(err)
		}
		tail = e.Tail()
	}
	if err := w.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// dump is all that a log holds.
func dump(t testing.TB, log dsh.Log) string {
	t.Helper()
	var b strings.Builder
	for h, err := range log.Heads(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range log.Read(t.Context(), h.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			b.Write(e.Line())
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func entries(text string) func(func(transfer.Entry, error) bool) {
	return transfer.Sessions(transfer.Lines(strings.NewReader(text)))
}

func TestLinesComeInAsTheyAre(t *testing.T) {
	from, to := memory.New(), memory.New()
	for i := range 4 {
		session(t, from, dsh.SessionID(fmt.Sprint("s", i)), 1+i*200)
	}
	text := dump(t, from)
	// The log lists the last one first; what comes in last is the last again.
	var lines []string
	for _, l := range strings.SplitAfter(text, "\n") {
		if strings.Contains(l, `"session/start"`) {
			lines = append(lines, "")
		}
		if len(lines) > 0 {
			lines[len(lines)-1] += l
		}
	}
	in := lines[3] + "\n\r\n" + lines[2] + lines[1] + lines[0]
	report, err := transfer.Check(t.Context(), to, entries(in))
	if err != nil || report.Sessions != 4 || report.Added != report.Events || report.Events != 1+201+401+601 {
		t.Fatalf("Check: %+v, %v", report, err)
	}
	for range 2 { // the second time nothing is new
		if err := transfer.Write(t.Context(), to, entries(in)); err != nil {
			t.Fatal(err)
		}
		if dump(t, to) != text {
			t.Error("other bytes came in")
		}
	}
	if report, err := transfer.Check(t.Context(), to, entries(in)); err != nil || report.Added != 0 {
		t.Errorf("Check of what is there: %+v, %v", report, err)
	}
}

func TestRefusedLines(t *testing.T) {
	log := memory.New()
	session(t, log, "s", 5)
	good := dump(t, log)
	lines := strings.SplitAfter(good, "\n")
	for _, k := range []struct{ name, in, want string }{
		{"no start", strings.Join(lines[1:], ""), "line 1: an event before the first session/start"},
		{"a line is missing", lines[0] + lines[2], "line 2: session s is damaged at event 2"},
		{"another byte", strings.Replace(good, `"i":2`, `"i":3`, 1), "line 3: session s is damaged at event 3"},
		{"twice", good + good, "line 6: session s begins a second time"},
		{"cut", good[:len(good)-30], "line 5: not an event"},
		{"no json", good + "{}", "line 6: not an event"},
		{"a page", "<html>", "line 1: not an event"},
	} {
		t.Run(k.name, func(t *testing.T) {
			to := memory.New()
			_, err := transfer.Check(t.Context(), to, entries(k.in))
			var line *transfer.LineError
			if !errors.As(err, &line) || !strings.HasPrefix(err.Error(), k.want) {
				t.Errorf("%v, want %s", err, k.want)
			}
		})
	}
}

func TestSessionsThatClash(t *testing.T) {
	ours := memory.New()
	session(t, ours, "s", 5)
	text := dump(t, ours)
	for _, k := range []struct {
		name  string
		there int // events of the session in the log that it comes into
		same  bool
		added uint64
	}{{"a part is there", 3, true, 2}, {"all is there", 5, true, 0}, {"more is there", 9, true, 0}, {"another of that length", 5, false, 0}, {"a longer one", 9, false, 0}, {"a shorter one", 3, false, 0}} {
		t.Run(k.name, func(t *testing.T) {
			to := memory.New()
			if k.same {
				session(t, to, "s", k.there)
			} else {
				other(t, to, k.there)
			}
			report, err := transfer.Check(t.Context(), to, entries(text))
			var clash *transfer.ClashError
			if k.same && (err != nil || report.Added != k.added) || !k.same && !errors.As(err, &clash) {
				t.Errorf("Check: %+v, %v", report, err)
			}
			if err := transfer.Write(t.Context(), to, entries(text)); !k.same && !errors.As(err, &clash) || k.same && err != nil {
				t.Errorf("Write: %v", err)
			}
		})
	}
}

// other appends another session of the same name.
func other(t *testing.T, log dsh.Log, n int) {
	t.Helper()
	w, err := log.Acquire(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	drafts := []dsh.Draft{{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: "s", Cwd: "/other"}}}
	for range n - 1 {
		drafts = append(drafts, dsh.Draft{Type: "x", Data: map[string]any{}})
	}
	events, err := w.Tail().SealAll(time.UnixMilli(1), drafts...)
	if err == nil {
		err = errors.Join(w.Append(t.Context(), events...), w.Release(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func opener(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

func TestBackup(t *testing.T) {
	from, to := memory.New(), memory.New()
	for i := range 3 {
		session(t, from, dsh.SessionID(fmt.Sprint("s", 2-i)), 1+i*2500)
	}
	modules, restored := filepath.Join(t.TempDir(), "m"), filepath.Join(t.TempDir(), "r")
	if err := os.MkdirAll(filepath.Join(modules, "deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.wasm", "deep/b.wasm"} {
		if err := os.WriteFile(filepath.Join(modules, name), []byte("content of "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	c, err := transfer.Backup(t.Context(), from, map[string]string{"modules": modules, "none": "/no/such/folder"}, &file)
	if err != nil || c.Sessions != 3 || c.Events != 1+2501+5001 || c.Files != 2 {
		t.Fatalf("Backup: %+v, %v", c, err)
	}
	folders := map[string]string{"modules": restored}
	for range 2 {
		c, err := transfer.Restore(t.Context(), to, folders, opener(file.Bytes()))
		if err != nil || c.Sessions != 3 || c.Files != 2 {
			t.Fatalf("Restore: %+v, %v", c, err)
		}
		if dump(t, to) != dump(t, from) {
			t.Error("other sessions were restored, or in another order")
		}
		if b, err := os.ReadFile(filepath.Join(restored, "deep", "b.wasm")); err != nil || string(b) != "content of deep/b.wasm" {
			t.Errorf("%q, %v", b, err)
		}
	}
}

// A backup that was cut or changed anywhere is refused, and nothing of it is
// restored.
func TestADamagedBackup(t *testing.T) {
	from := memory.New()
	session(t, from, "s", 7)
	var file bytes.Buffer
	if _, err := transfer.Backup(t.Context(), from, nil, &file); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	refused := func(what string, b []byte) {
		t.Helper()
		to := memory.New()
		if _, err := transfer.Restore(t.Context(), to, nil, opener(b)); err == nil && dump(t, to) != dump(t, from) {
			t.Errorf("%s: other sessions are restored", what)
		} else if err != nil && dump(t, to) != "" {
			t.Errorf("%s: a part is restored, and %v", what, err)
		}
	}
	errs := 0
	for i := 0; i < len(whole); i += 1 + len(whole)/150 {
		b := bytes.Clone(whole)
		b[i] ^= 0x10
		refused(fmt.Sprint("byte ", i), b)
		refused(fmt.Sprint("cut at ", i), whole[:i])
		if _, err := transfer.Verify(t.Context(), memory.New(), opener(whole[:i])); err != nil {
			errs++
		} else {
			t.Errorf("cut at %d of %d: good", i, len(whole))
		}
	}
	if errs < 100 {
		t.Errorf("%d errors", errs)
	}
}

func FuzzLines(f *testing.F) {
	log := memory.New()
	session(f, log, "s", 6)
	f.Add([]byte(dump(f, log)))
	f.Add([]byte("\n\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		to := memory.New()
		if _, err := transfer.Check(t.Context(), to, entries(string(b))); err != nil {
			return
		}
		if err := transfer.Write(t.Context(), to, entries(string(b))); err != nil {
			t.Errorf("what is good cannot be written: %v", err)
		}
		if report, err := transfer.Check(t.Context(), to, entries(string(b))); err != nil || report.Added != 0 {
			t.Errorf("what was written: %+v, %v", report, err)
		}
	})
}

// A backup that is taken while sessions are written has a beginning of each.
func TestABackupUnderLoad(t *testing.T) {
	log := memory.New()
	var running sync.WaitGroup
	for i := range 4 {
		id := dsh.SessionID(fmt.Sprint("s", i))
		session(t, log, id, 20)
		running.Go(func() {
			for n := 21; n < 300; n++ {
				session(t, log, id, n)
			}
		})
	}
	for range 5 {
		var file bytes.Buffer
		c, err := transfer.Backup(t.Context(), log, nil, &file)
		if err != nil || c.Sessions != 4 || len(c.Damaged) > 0 {
			t.Fatalf("Backup: %+v, %v", c, err)
		}
		to := memory.New()
		restored, err := transfer.Restore(t.Context(), to, nil, opener(file.Bytes()))
		if err != nil || restored.Events != c.Events || restored.Added != c.Events {
			t.Fatalf("Restore: %+v of %+v, %v", restored, c, err)
		}
		if _, err := transfer.Verify(t.Context(), log, opener(file.Bytes())); err != nil {
			t.Errorf("the log has other events than its backup: %v", err)
		}
	}
	running.Wait()
}
