package badger_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// sample makes a folder with three sessions, opened and closed as often.
func sample(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 3 {
		log := open(t, dir)
		id := dsh.SessionID("s" + strconv.Itoa(i))
		w, err := log.Acquire(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		c := &chain{}
		must(t, w.Append(t.Context(), c.start(id)))
		for j := range 300 {
			must(t, w.Append(t.Context(), c.chunk("word "+strconv.Itoa(j*7919))))
		}
		if i == 1 {
			must(t, w.Append(t.Context(), c.add(dsh.TypeToolResult, map[string]any{"callId": strings.Repeat("y", 300<<10)})))
		}
		must(t, w.Append(t.Context(), c.step(1), c.end()))
		must(t, w.Release(t.Context()))
		must(t, log.Close())
	}
	return dir
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// files are the regular files with anything in them, by their paths in dir.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 0 {
			rel, _ := filepath.Rel(dir, path)
			all = append(all, rel)
		}
		return err
	}))
	return all
}

// damage changes a file in one of the ways in which files are found damaged,
// and says how.
func damage(t testing.TB, path string, r *rand.Rand) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	how := ""
	used := len(bytes.TrimRight(b, "\x00")) // logs are made long and filled
	if used == 0 {
		used = len(b)
	}
	switch k := r.IntN(used); r.IntN(6) {
	case 0, 1:
		b[k] ^= 1 << r.IntN(8)
		how = fmt.Sprintf("bit of byte %d of %d flipped", k, len(b))
	case 2:
		k = used - 1 - r.IntN(min(used, 200))
		b[k] ^= 1 << r.IntN(8)
		how = fmt.Sprintf("bit of byte %d of %d flipped", k, len(b))
	case 3:
		how = fmt.Sprintf("cut from %d to %d bytes", len(b), k)
		b = b[:k]
	case 4:
		k -= k % 4096
		how = fmt.Sprintf("page at %d of %d zeroed", k, len(b))
		clear(b[k:min(len(b), k+4096)])
	case 5:
		must(t, os.Remove(path))
		return "deleted"
	}
	must(t, os.WriteFile(path, b, 0o600))
	return how
}

// killed makes a folder as a kill leaves it, at a moment when the heads file
// knows of everything.
func killed(t testing.TB) string {
	t.Helper()
	dir := sample(t)
	log := open(t, dir)
	for i := range 3 {
		id := dsh.SessionID("k" + strconv.Itoa(i))
		w, err := log.Acquire(t.Context(), id)
		must(t, err)
		c := &chain{}
		must(t, w.Append(t.Context(), c.start(id)))
		for j := range 100 {
			must(t, w.Append(t.Context(), c.chunk("word "+strconv.Itoa(j*7919))))
		}
		must(t, w.Append(t.Context(), c.end()))
		waitFor(t, func() bool {
			b, err := os.ReadFile(filepath.Join(dir, "heads"))
			return err == nil && bytes.Contains(b, []byte(c.tail.Hash))
		})
	}
	copied := filepath.Join(t.TempDir(), "killed")
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	must(t, log.Close())
	logs, err := filepath.Glob(filepath.Join(copied, "log", "*.mem"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	must(t, os.Truncate(logs[0], 128<<10)) // of 16 MiB, almost all empty: to be copied often
	return copied
}

// waitFor polls what another goroutine or process is about to make true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}

// TestDamage damages one file of a folder at a time: every event is read, or
// it is said that some are not.
func TestDamage(t *testing.T) {
	t.Parallel()
	t.Run("closed", func(t *testing.T) { t.Parallel(); testDamage(t, sample(t), 40) })
	t.Run("killed", func(t *testing.T) { t.Parallel(); testDamage(t, killed(t), 26) })
}

func testDamage(t *testing.T, dir string, rounds int) {
	if testing.Short() {
		rounds = 8
	}
	n, err := strconv.Atoi(os.Getenv("DSH_DAMAGE_ROUNDS"))
	thorough := err == nil
	if thorough {
		rounds = n
	}
	all := files(t, dir) // before anything opens it
	if !slices.ContainsFunc(all, func(f string) bool { return strings.HasSuffix(f, ".sst") }) {
		t.Fatalf("no table among %v", all)
	}
	r := rand.New(rand.NewPCG(7, uint64(rounds)))
	counts, want := map[string]int{}, ""
	for n := range rounds + 1 {
		copied := filepath.Join(t.TempDir(), "d")
		must(t, os.CopyFS(copied, os.DirFS(dir)))
		file := all[n%len(all)]
		how := "nothing"
		if n > 0 {
			how = damage(t, filepath.Join(copied, file), r)
		}
		out, code := verify(t, copied)
		switch {
		case n == 0 && (code != 0 || strings.Contains(out, "warning")):
			t.Fatalf("exit %d of an undamaged folder: %s", code, out)
		case n == 0:
			want = digest(out)
		case code == exitLog:
			counts["reported"]++
			if thorough {
				t.Logf("%s, %s: %s", file, how, out)
			}
		case code == 0 && digest(out) == want:
			counts["harmless"]++
		case code == 0:
			t.Errorf("%s, %s: exit 0 with other events: %s", file, how, out)
		default:
			t.Errorf("%s, %s: exit %d: %s", file, how, code, out)
		}
		must(t, os.RemoveAll(copied))
	}
	t.Logf("%d damages of %d files: %v", rounds, len(all), counts)
}

func digest(out string) string {
	_, d, _ := strings.Cut(out, "digest ")
	return d
}
