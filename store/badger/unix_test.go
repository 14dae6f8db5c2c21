//go:build linux

package badger_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

func moreRoles() map[string]func(dir string) int {
	return map[string]func(string) int{"modes": childModes, "fill": childFill}
}

// childModes makes a folder with everything in it, under a umask.
func childModes(dir string) int {
	mask, err := strconv.ParseUint(os.Getenv("DSH_STORE_TEST_UMASK"), 8, 32)
	if err != nil {
		return 99
	}
	syscall.Umask(int(mask))
	for _, events := range []int{36, 1} { // 36: more than a memtable
		if err := childSession(dir, events); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

func childSession(dir string, events int) error {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		return err
	}
	ctx := contextOf()
	w, err := log.Acquire(ctx, "s")
	if err != nil {
		return err
	}
	c := &chain{tail: w.Tail()}
	if c.tail.Seq == 0 {
		c.start("s")
		c.tail = dsh.Tail{}
		if err := w.Append(ctx, c.start("s")); err != nil {
			return err
		}
	}
	for range events {
		e := c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom-500)})
		if err := w.Append(ctx, e); err != nil {
			return err
		}
	}
	e := c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", badger.BodyFrom)})
	return errors.Join(w.Append(ctx, e, c.end()), w.Release(ctx), log.Close())
}

// TestModes: nobody but the owner can read what is made, whatever the umask.
func TestModes(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes many MB")
	}
	t.Parallel()
	for _, mask := range []string{"0", "0777"} {
		t.Run(mask, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "new", "data")
			out, err := child("modes", dir, "DSH_STORE_TEST_UMASK="+mask).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			n := 0
			must(t, filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := d.Info()
				want := fs.FileMode(0o600)
				if d.IsDir() {
					want = 0o700
				}
				if err != nil || info.Mode().Perm() != want {
					t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
				}
				n++
				return nil
			}))
			if n < 12 {
				t.Errorf("only %d files", n)
			}
		})
	}
}

// TestUnwritable opens folders that this user may not use.
func TestUnwritable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere: run as another user")
	}
	for name, mode := range map[string]fs.FileMode{"read only": 0o500, "closed": 0} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir := filepath.Join(base, "data")
			must(t, os.Mkdir(dir, mode))
			defer func() { must(t, os.Chmod(dir, 0o700)) }()
			openError(t, dir, badger.ErrFolder, "permission denied")
			openError(t, filepath.Join(dir, "below"), badger.ErrFolder, "permission denied")
		})
	}
}

// TestUnwritableAsNobody is TestUnwritable for root, who becomes nobody.
func TestUnwritableAsNobody(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	base, err := os.MkdirTemp("", "dsh")
	must(t, err)
	defer func() { must(t, os.RemoveAll(base)) }()
	must(t, os.Chmod(base, 0o755))
	binary := filepath.Join(base, "test")
	b, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(binary, b, 0o755))
	cmd := exec.Command(binary, "-test.run=TestUnwritable$")
	cmd.Dir = base
	cmd.Env = []string{"TMPDIR=/tmp"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}

// small mounts a file system of some MiB, or skips.
func small(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// childFill appends until the disk is full, then reads everything. It prints
// what is acknowledged.
func childFill(dir string) int {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		fmt.Println("open:", err)
		return exitLog
	}
	ctx := contextOf()
	w, err := log.Acquire(ctx, "s")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c := &chain{tail: w.Tail()}
	if c.tail.Seq == 0 {
		if err := w.Append(ctx, c.start("s")); err != nil {
			fmt.Println(err)
			return exitLog
		}
	}
	var full *dsh.SpaceError
	for n := 0; ; n++ {
		size := 20_000
		if n%50 == 49 {
			size = 400_000
		}
		err := w.Append(ctx, c.add(dsh.TypeToolResult, map[string]string{"callId": strings.Repeat("x", size)}))
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ack", 0, c.tail.Seq)
	}
	n := uint64(0)
	for _, err := range log.Read(ctx, "s", 0) {
		if err != nil {
			fmt.Println("read:", err)
			return 1
		}
		n++
	}
	fmt.Println("read", n, full)
	if err := errors.Join(w.Release(ctx), log.Close()); err != nil {
		fmt.Println("close:", err)
		return 1
	}
	return 0
}

// TestFullDisk fills a small file system by appending: the process ends in
// order, everything acknowledged is there, and it goes on when there is room.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes many MB")
	}
	t.Parallel()
	dir := small(t, 56)
	fillUp := func() uint64 {
		t.Helper()
		b, err := child("fill", filepath.Join(dir, "data")).CombinedOutput()
		out := string(b)
		if err != nil {
			t.Fatalf("%v: %s", err, out[max(0, len(out)-600):])
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var acked, read uint64
		for _, line := range lines {
			_, _ = fmt.Sscanf(line, "ack 0 %d", &acked)
			_, _ = fmt.Sscanf(line, "read %d", &read)
		}
		if read == 0 || read < acked {
			t.Fatalf("%d events read, %d acknowledged: %s", read, acked, lines[len(lines)-1])
		}
		return read
	}
	first := fillUp()
	if again := fillUp(); again < first {
		t.Errorf("%d events after opening again, were %d", again, first)
	}
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=76m"))
	if more := fillUp(); more <= first {
		t.Errorf("%d events with more room, were %d", more, first)
	}
}

// TestDiskFilledByOthers takes all the space away from a process that appends,
// which the reserve cannot help. The process may die of it; nothing that was
// acknowledged is lost.
func TestDiskFilledByOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes many MB")
	}
	t.Parallel()
	dir := small(t, 64)
	data := filepath.Join(dir, "data")
	var acked [killSessions]uint64
	for round := range 4 {
		cmd := child("append", data)
		fillBehind(t, cmd, dir, &acked)
		must(t, os.Remove(filepath.Join(dir, "filler")))
		log := open(t, data)
		for i, want := range acked {
			n, err := count(t, log, killID(i))
			if want > 0 && (err != nil || n < want) {
				t.Fatalf("round %d: session %d has %d events, %v; %d were acknowledged", round, i, n, err, want)
			}
			acked[i] = max(n, want)
		}
		must(t, log.Close())
		if round == 0 && acked[0] == 0 {
			t.Fatal("nothing was appended")
		}
		for i := range acked { // room for the next round
			must(t, errors.Join(os.WriteFile(filepath.Join(dir, "note"), nil, 0o600), removeSession(t, data, killID(i))))
			acked[i] = 0
		}
	}
}

func removeSession(t *testing.T, dir string, id dsh.SessionID) error {
	log := open(t, dir)
	err := log.Remove(t.Context(), id)
	if errors.Is(err, dsh.ErrNoSession) {
		err = nil
	}
	return errors.Join(err, log.Close())
}

// fillBehind runs the appending child, and after some of its answers writes
// the file system full.
func fillBehind(t *testing.T, cmd *exec.Cmd, dir string, acked *[killSessions]uint64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	filled := false
	acks := 0
	readLines(out, func(line string) {
		var i int
		var seq uint64
		if n, _ := fmt.Sscanf(line, "ack %d %d", &i, &seq); n == 2 {
			acked[i] = max(acked[i], seq)
			acks++
		}
		if acks > 60 && !filled {
			filled = true
			f, err := os.Create(filepath.Join(dir, "filler"))
			if err != nil {
				t.Error(err)
				return
			}
			block := make([]byte, 1<<20)
			for size := len(block); size >= 512; {
				if _, err := f.Write(block[:size]); err != nil {
					size /= 2
				}
			}
			_ = f.Close()
		}
	})
	_ = cmd.Wait()
	if !filled {
		t.Fatal("the child ended before the disk was full")
	}
}

// The database makes its logs long and fills them later: a disk that is nearly
// full need not have the room for what is not in them.
func TestALogTakesWhatIsInIt(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "00001.mem"))
	must(t, err)
	must(t, f.Truncate(16<<20))
	_, err = f.Write(make([]byte, 100_000))
	must(t, err)
	must(t, errors.Join(f.Sync(), f.Close()))
	n, err := badger.LogBytes(dir)
	must(t, err)
	if n < 100_000 || n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
}

// A link to a folder that is not there is no new data folder: its disk may not
// be mounted.
func TestALinkToNowhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink("/nowhere/at/all", dir))
	_, err := badger.Open(dir, badger.Options{})
	if !errors.Is(err, badger.ErrFolder) || !strings.Contains(err.Error(), "it is a link to /nowhere/at/all, which is not there") {
		t.Errorf("%v", err)
	}
}
