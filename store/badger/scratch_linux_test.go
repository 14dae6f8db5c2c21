package badger_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// shm makes a folder in memory, or skips.
func shm(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dsh-test-")
	if err != nil {
		t.Skipf("there is no memory to make files in: %v", err)
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestScratch: the value log is in memory, and nothing of it is left there, so
// that nothing is after a kill.
func TestScratch(t *testing.T) {
	dir, root := t.TempDir(), shm(t)
	for round := range 3 {
		log, err := badger.Open(dir, badger.Options{Scratch: root, Warn: func(err error) { t.Error(err) }})
		must(t, err)
		fill(t, log, dsh.SessionID("s"+strconv.Itoa(round)), 10)
		if all := names(t, root); len(all) != 0 {
			t.Errorf("%v in memory", all)
		}
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil || !strings.Contains(string(maps), root) {
			t.Errorf("no value log in memory, %v", err)
		}
		must(t, log.Close())
		if all := names(t, root); len(all) != 0 {
			t.Errorf("%v is left in memory", all)
		}
		for _, name := range names(t, filepath.Join(dir, "log")) {
			if strings.HasSuffix(name, ".vlog") {
				t.Errorf("%s is in the data folder", name)
			}
		}
	}
	log := open(t, dir)
	defer func() { must(t, log.Close()) }()
	whole(t, log, "s0", 10)
	whole(t, log, "s2", 10)
}

// TestScratchFull: where memory is short, or is none, the log does without.
func TestScratchFull(t *testing.T) {
	full := shm(t)
	if err := syscall.Mount("tmpfs", full, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(full, 0)) })
	for _, root := range []string{full, t.TempDir(), "/nowhere"} {
		dir := t.TempDir()
		log, err := badger.Open(dir, badger.Options{Scratch: root})
		must(t, err)
		fill(t, log, "s", 10)
		if logs, err := filepath.Glob(filepath.Join(dir, "log", "*.vlog")); err != nil || len(logs) != 1 {
			t.Errorf("%s: value logs %v, %v; want one in the data folder", root, logs, err)
		}
		must(t, log.Close())
	}
}
