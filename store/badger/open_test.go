package badger_test

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// fill makes a session with n events and a turn's end, and gives its chain.
func fill(t testing.TB, log dsh.Log, id dsh.SessionID, n int) *chain {
	t.Helper()
	w, err := log.Acquire(t.Context(), id)
	must(t, err)
	c := &chain{t: t}
	must(t, w.Append(t.Context(), c.start(id)))
	for c.tail.Seq < uint64(n-1) {
		must(t, w.Append(t.Context(), c.chunk("word")))
	}
	must(t, w.Append(t.Context(), c.end()))
	must(t, w.Release(t.Context()))
	return c
}

// count reads a session and gives the number of its events and the error at
// their end.
func count(t testing.TB, log dsh.Log, id dsh.SessionID) (n uint64, err error) {
	t.Helper()
	for e, err := range log.Read(t.Context(), id, 0) {
		if err != nil {
			return n, err
		}
		if n++; e.Seq != n {
			t.Fatalf("event %d of %s has seq %d", n, id, e.Seq)
		}
	}
	return n, nil
}

// whole checks that a session has n events.
func whole(t testing.TB, log dsh.Log, id dsh.SessionID, n uint64) {
	t.Helper()
	if got, err := count(t, log, id); got != n || err != nil {
		t.Fatalf("session %s has %d events, %v; want %d", id, got, err, n)
	}
}

// TestLocked opens a folder that another process has open, and then this one.
func TestLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := hold(t, dir)
	locked := func(pid int) {
		t.Helper()
		began := time.Now()
		_, err := badger.Open(dir, badger.Options{})
		var l *dsh.LockedError
		if !errors.As(err, &l) || l.PID != pid || l.Dir != dir {
			t.Fatalf("Open: %v, want a *dsh.LockedError that names process %d", err, pid)
		}
		if took := time.Since(began); took > time.Minute { // it is not waited for
			t.Errorf("it took %v to say so", took)
		}
	}
	locked(holder.Process.Pid)
	must(t, holder.Process.Kill())
	_ = holder.Wait()

	log := open(t, dir) // the text of the lock names a process that is gone
	locked(os.Getpid())
	must(t, log.Close())
	must(t, open(t, dir).Close())
}

// hold starts a process that has a folder open.
func hold(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := child("hold", dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "open\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	return cmd
}

// TestBadgerLocked: another program has the database open without our lock.
func TestBadgerLocked(t *testing.T) {
	dir := t.TempDir()
	must(t, open(t, dir).Close())
	other, err := db.Open(db.DefaultOptions(filepath.Join(dir, "log")).WithLogger(nil))
	must(t, err)
	defer func() { must(t, other.Close()) }()
	_, err = badger.Open(dir, badger.Options{})
	var l *dsh.LockedError
	if !errors.As(err, &l) || l.PID != os.Getpid() {
		t.Fatalf("Open: %v, want a *dsh.LockedError that names process %d", err, os.Getpid())
	}
}

func TestZeroLengthFiles(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	fill(t, log, "s", 10)
	must(t, log.Close())
	for _, name := range []string{"00001.mem", "00007.mem", "000009.vlog"} {
		must(t, os.WriteFile(filepath.Join(dir, "log", name), nil, 0o600))
	}
	log = open(t, dir)
	defer func() { must(t, log.Close()) }()
	whole(t, log, "s", 10)
	fill(t, log, "t", 10)
}

// openError checks that a folder is refused with one line that names it.
func openError(t *testing.T, dir string, kind error, says ...string) {
	t.Helper()
	log, err := badger.Open(dir, badger.Options{})
	if err == nil {
		_ = log.Close()
		t.Fatal("Open succeeded")
	}
	var o *badger.OpenError
	if !errors.As(err, &o) || !errors.Is(err, kind) {
		t.Fatalf("Open: %v (%T), want an *OpenError of kind %v", err, err, kind)
	}
	for _, s := range append(says, dir) {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\t") || o.Advice == "" {
		t.Errorf("%q is not one line with an advice", err)
	}
}

func TestManifestMissing(t *testing.T) {
	for _, k := range []struct {
		name   string
		closed bool // with what the folder held when it was closed
		advice string
	}{{"after a close", true, "copies it to log/MANIFEST"}, {"after a crash", false, "backup"}} {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			log := open(t, dir)
			fill(t, log, "s", 10)
			must(t, log.Close())
			manifest := filepath.Join(dir, "log", "MANIFEST")
			must(t, os.Remove(manifest))
			if !k.closed {
				must(t, os.Remove(filepath.Join(dir, "closed")))
			}
			for range 2 {
				openError(t, dir, badger.ErrNoManifest, "MANIFEST", k.advice)
				openError(t, dir, badger.ErrDamaged)
			}
			b, err := os.ReadFile(filepath.Join(dir, "manifest-copy")) // as the advice says
			must(t, err)
			must(t, os.WriteFile(manifest, b, 0o600))
			log = open(t, dir)
			defer func() { must(t, log.Close()) }()
			whole(t, log, "s", 10)
		})
	}
}

// TestDatabaseChanged changes the database while it is closed: it is refused
// before Badger touches it, and opens again when the change is taken back.
func TestDatabaseChanged(t *testing.T) {
	for _, k := range []struct {
		name   string
		change func(t *testing.T, base string)
		says   string
	}{
		{"MANIFEST cut by 3 bytes", func(t *testing.T, base string) {
			path := filepath.Join(base, "MANIFEST")
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()-3))
		}, "copies it to log/MANIFEST"},
		{"a table gone", func(t *testing.T, base string) { must(t, os.Remove(filepath.Join(base, "000001.sst"))) }, "000001.sst is missing"},
		{"a table cut", func(t *testing.T, base string) { must(t, os.Truncate(filepath.Join(base, "000001.sst"), 100)) }, "000001.sst has 100 bytes"},
		{"all gone", func(t *testing.T, base string) { must(t, os.RemoveAll(base)) }, "MANIFEST"},
	} {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			log := open(t, dir)
			fill(t, log, "s", 10)
			must(t, log.Close())
			saved := filepath.Join(t.TempDir(), "saved")
			must(t, os.CopyFS(saved, os.DirFS(filepath.Join(dir, "log"))))
			k.change(t, filepath.Join(dir, "log"))
			openError(t, dir, badger.ErrDamaged, k.says)
			must(t, os.RemoveAll(filepath.Join(dir, "log")))
			must(t, os.CopyFS(filepath.Join(dir, "log"), os.DirFS(saved)))
			log = open(t, dir)
			defer func() { must(t, log.Close()) }()
			whole(t, log, "s", 10)
		})
	}
}

func TestFolderErrors(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, []byte("x"), 0o600))
	inside := filepath.Join(base, "inside")
	must(t, os.Mkdir(inside, 0o700))
	must(t, os.WriteFile(filepath.Join(inside, "log"), []byte("x"), 0o600))
	dirs := map[string]string{"a file": file, "below a file": filepath.Join(file, "data"), "a file in the database's place": inside}
	if runtime.GOOS == "linux" {
		dirs["cannot be made"] = "/proc/dsh/data"
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) { openError(t, dir, badger.ErrFolder, "--data-dir") })
	}
	openError(t, "", badger.ErrFolder, "no name")
	if b, err := os.ReadFile(file); err != nil || string(b) != "x" {
		t.Errorf("the file was changed: %q, %v", b, err)
	}
}

// TestMakesFolders opens a folder whose parents do not exist, and one that is
// there with a mode of its own.
func TestMakesFolders(t *testing.T) {
	base := t.TempDir()
	must(t, os.Chmod(base, 0o755))
	dir := filepath.Join(base, "a", "b")
	must(t, open(t, dir).Close())
	for path, want := range map[string]fs.FileMode{base: 0o755, filepath.Join(base, "a"): 0o700, dir: 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestNewerFormat(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir)
	must(t, log.DB().Update(func(txn *db.Txn) error { return txn.Set(badger.SchemaKey(), []byte{9}) }))
	must(t, log.Close())
	_, err := badger.Open(dir, badger.Options{})
	var s *dsh.SchemaError
	if !errors.As(err, &s) || s.Have != 9 || s.Max != 1 {
		t.Fatalf("Open: %v, want a *dsh.SchemaError with 9 and 1", err)
	}
}

// TestManyShortRuns opens, appends and closes as often as a user runs a
// command: the tables of the runs are merged.
func TestManyShortRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const runs = 30
	for i := range runs {
		log := open(t, dir)
		fill(t, log, dsh.SessionID("s"+strconv.Itoa(i)), 5)
		must(t, log.Close())
	}
	tables, err := filepath.Glob(filepath.Join(dir, "log", "*.sst"))
	if err != nil || len(tables) > 12 {
		t.Errorf("%d tables after %d runs, %v", len(tables), runs, err)
	}
	log := open(t, dir)
	defer func() { must(t, log.Close()) }()
	for i := range runs {
		whole(t, log, dsh.SessionID("s"+strconv.Itoa(i)), 5)
	}
}
