//go:build linux

package badger_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPowerCut appends on a file system of its own, stops the process at a
// random moment and copies the image of the device: what is in the copy is what
// a power cut would have left. Everything acknowledged is there, every session
// is an unbroken chain, and the log goes on from there to the next cut.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("it copies file systems")
	}
	t.Parallel()
	rounds := 6
	if n, err := strconv.Atoi(os.Getenv("DSH_POWER_ROUNDS")); err == nil {
		rounds = n
	}
	d := newDevice(t)
	var acked [killSessions]uint64
	random := rand.New(rand.NewPCG(3, 4))
	for round := range rounds {
		d.mount(t)
		cutPower(t, d, &acked, time.Duration(100+random.IntN(400))*time.Millisecond)
		d.mount(t)
		checkCut(t, d, &acked, round)
		d.unmount(t)
	}
	total := uint64(0)
	for _, n := range acked {
		total += n
	}
	t.Logf("%d power cuts, %d events, none lost", rounds, total)
}

// checkCut opens the log after a cut, and looks for what was acknowledged.
func checkCut(t *testing.T, d *device, acked *[killSessions]uint64, round int) {
	t.Helper()
	log := open(t, filepath.Join(d.dir, "data"))
	defer func() { must(t, log.Close()) }()
	for i, want := range acked {
		if want == 0 {
			continue
		}
		n, err := count(t, log, killID(i))
		if err != nil || n < want {
			t.Fatalf("round %d: session %d has %d events, %v; %d were acknowledged", round, i, n, err, want)
		}
		acked[i] = n
	}
}

// cutPower runs the appending child on a device for a while, and puts the copy
// of its image in its place.
func cutPower(t *testing.T, d *device, acked *[killSessions]uint64, after time.Duration) {
	t.Helper()
	cmd := child("append", filepath.Join(d.dir, "data"))
	out, err := cmd.StdoutPipe()
	must(t, err)
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	cut := make(chan error, 1)
	started := false
	readLines(out, func(line string) {
		var i int
		var seq uint64
		switch n, _ := fmt.Sscanf(line, "ack %d %d", &i, &seq); {
		case n == 2:
			acked[i] = max(acked[i], seq)
		case line == "opened":
			started = true
			time.AfterFunc(after, func() {
				cut <- d.copyWhileStopped(cmd.Process.Pid)
				_ = cmd.Process.Kill()
			})
		default:
			t.Errorf("child: %s", line)
			_ = cmd.Process.Kill()
		}
	})
	_ = cmd.Wait()
	if !started {
		t.Fatal("the child did not open the log")
	}
	must(t, <-cut)
	d.unmount(t)
	must(t, os.Rename(d.image+".cut", d.image))
}

// A device is a file system in a file.
type device struct {
	image, dir string
	mounted    bool
}

func newDevice(t *testing.T) *device {
	t.Helper()
	base := t.TempDir()
	d := &device{image: filepath.Join(base, "image"), dir: filepath.Join(base, "mnt")}
	must(t, os.WriteFile(d.image, nil, 0o600))
	must(t, os.Truncate(d.image, 1<<30)) // what nobody has written takes nothing
	must(t, os.Mkdir(d.dir, 0o700))
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("no file system can be made here: %v %s", err, out)
	}
	t.Cleanup(func() {
		if d.mounted {
			d.unmount(t)
		}
	})
	return d
}

// mount mounts the device, with a journal that is written by syncs alone.
func (d *device) mount(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,commit=300", d.image, d.dir).CombinedOutput(); err != nil {
		t.Skipf("nothing can be mounted here: %v %s", err, out)
	}
	d.mounted = true
}

func (d *device) unmount(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
		t.Fatalf("umount: %v %s", err, out)
	}
	d.mounted = false
}

// copyWhileStopped stops a process, waits until none of its threads is in the
// kernel, and copies the image.
func (d *device) copyWhileStopped(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); !stopped(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not stop", pid)
		}
	}
	out, err := exec.Command("cp", "--sparse=always", d.image, d.image+".cut").CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w %s", err, out)
	}
	return nil
}

// stopped reports whether all threads of a process are.
func stopped(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(tasks) == 0 {
		return false
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		_, rest, _ := bytes.Cut(b, []byte(") "))
		if err != nil || !strings.HasPrefix(string(rest), "T") {
			return false
		}
	}
	return true
}
