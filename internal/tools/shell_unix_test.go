//go:build unix

package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools"
)

func TestShell(t *testing.T) {
	b := newBox(t, map[string]string{"a.txt": "x\n", "d/b": "y\n"})
	for _, c := range []struct {
		command, want string
		failed        bool
	}{
		{"cat a.txt", "x\n", false},
		{"echo out; echo err >&2", "out\nerr\n", false},
		{"true", "[exit code 0, and no output]", false},
		{"printf half", "half", false},
		{"echo no; exit 3", "no\n[exit code 3]", true},
		{"kill -9 $$", "[ended by the signal KILL]", true},
		{"cat", "[exit code 0, and no output]", false}, // stdin is empty
		{"test -t 0 || test -t 1 || echo none", "none\n", false},
		{"(echo x > /dev/tty) 2>/dev/null || echo none", "none\n", false},
		{"pwd", b.dir + "\n", false},
		{"echo $PWD", b.dir + "\n", false},
		{"cd d && cat b", "y\n", false},
		{"no-such-program-at-all 2>/dev/null", "[exit code 127]", true},
		{"printf 'a\\000b\\377c'", "a\ufffdb\ufffdc", false},
		{"echo \"$TERM $PAGER\"", "dumb cat\n", false},
		{"ulimit -c", "0\n", false},
	} {
		r := b.call("shell", object("command", c.command))
		if got := dsh.Text(r.Content); got != c.want || r.IsError != c.failed {
			t.Errorf("%s: %v %q, want %q", c.command, r.IsError, got, c.want)
		}
	}
	b.bad("shell", object("command", " "), "The command is empty")
	b.bad("shell", object("command", "echo \x00"), "NUL byte")
	b.bad("shell", object("command", "echo "+strings.Repeat("x", 10<<20)), "at most 100 KiB are allowed")
	b.bad("shell", object("command", "true", "timeout", 100000), "from 1 to 600")
}

// alive are the processes that have a word among their arguments.
func alive(t *testing.T, word string) []int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,stat=,args=").Output()
	if err != nil {
		t.Skipf("no ps: %v", err)
	}
	var pids []int
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) > 2 && !strings.HasPrefix(f[1], "Z") && strings.Contains(line, word) {
			pid, _ := strconv.Atoi(f[0])
			pids = append(pids, pid)
		}
	}
	return pids
}

// gone waits until no process with a word is left.
func gone(t *testing.T, word string) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for len(alive(t, word)) > 0 {
		if time.Now().After(end) {
			t.Fatalf("%s runs on: %v", word, alive(t, word))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sleeper is a command that runs for longer than any test, under a number of
// its own.
func sleeper(n int) string { return fmt.Sprintf("sleep %d", 7000000+os.Getpid()%100000*10+n) }

// TestShellLeavesNothing holds that nothing of a command is left when it has
// ended, whatever it did to stay.
func TestShellLeavesNothing(t *testing.T) {
	b := newBox(t, nil)
	for i, c := range []string{
		"%s & echo started",
		"nohup %s >/dev/null 2>&1 & echo started",
		"(%s &) ; (%[1]s &) ; echo started",
		"setsid %s >/dev/null 2>&1 & echo started",
		"env -i setsid sh -c 'setsid %s & %[1]s' >/dev/null 2>&1 & sleep 0.2; echo started",
		"sh -c 'trap \"\" TERM HUP INT; %s; true' & sleep 0.2; echo started",
	} {
		if runtime.GOOS != "linux" && strings.Contains(c, "setsid") {
			continue
		}
		s := sleeper(i)
		began := time.Now()
		if got := b.good("shell", object("command", fmt.Sprintf(c, s))); !strings.HasPrefix(got, "started\n[") || !strings.Contains(got, "left running in the background") {
			t.Errorf("%s: %q", c, got)
		}
		if d := time.Since(began); d > 8*time.Second {
			t.Errorf("%s took %v", c, d)
		}
		gone(t, s)
	}
}

func TestShellTimeout(t *testing.T) {
	b := newBox(t, nil)
	s := sleeper(20)
	began := time.Now()
	r := b.call("shell", object("command", "echo before; "+s+" & "+s, "timeout", 1))
	if got := dsh.Text(r.Content); !r.IsError || !strings.HasPrefix(got, "before\n[ended by dsh: its 1s were up") {
		t.Errorf("%v %q", r.IsError, got)
	}
	if d := time.Since(began); d < time.Second || d > 8*time.Second {
		t.Errorf("it took %v", d)
	}
	gone(t, s)
}

func TestShellCancel(t *testing.T) {
	b := newBox(t, nil)
	s := sleeper(21)
	why := errors.New("stopped by a test")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for len(alive(t, s)) == 0 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(why)
	}()
	_, err := b.tools["shell"].Run(ctx, json.RawMessage(object("command", s)))
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	gone(t, s)
}

// TestShellOutput holds that a flood takes no memory, and that its beginning
// and its end are kept.
func TestShellOutput(t *testing.T) {
	b := newBox(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := b.good("shell", object("command", "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"))
	runtime.ReadMemStats(&after)
	if !strings.HasPrefix(got, "first\nxxx") || !strings.HasSuffix(got, "xxx\nlast\n") || !strings.Contains(got, "of the output are left out here") {
		t.Errorf("%.60q … %.60q", got, got[len(got)-60:])
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	if got := b.good("shell", object("command", "head -c 61000 /dev/zero")); len(got) > tools.MaxResult {
		t.Errorf("%d bytes", len(got))
	}
	lines := b.good("shell", object("command", "seq 1 100000"))
	if !strings.HasPrefix(lines, "1\n2\n3\n") || !strings.HasSuffix(lines, "\n99999\n100000\n") {
		t.Errorf("%.60q … %.60q", lines, lines[len(lines)-60:])
	}
}

// TestShellEnvironment holds that a command is not told what is secret.
func TestShellEnvironment(t *testing.T) {
	b := newBox(t, nil)
	s := shell()
	s.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/home/x", "PLAIN=plain", "KEYBOARD=us", "OLDPWD=/",
		"NAMED=canary-named-value", "COPY=has canary-named-value in it", "OPENAI_API_KEY=canary1", "github_token=canary2", "DB_PASSWORD=canary3",
		"MYSQL_PWD=canary4", "INNOCENT=sk-proj-canary567890", "URL=postgres://me:canary8@host/db", "SSH_AUTH_SOCK=/tmp/canary9", "PASSED_KEY=given",
		"PROXY=http://host:80", "EMPTY_KEY=",
	}
	s.Secrets, s.Pass = []string{"NAMED"}, []string{"PASSED_KEY", "NAMED"}
	f, err := tools.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := f.Shell(s).Run(t.Context(), json.RawMessage(object("command", "env; cat /proc/self/environ /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n'")))
	got := dsh.Text(r.Content)
	if err != nil || strings.Contains(got, "canary") {
		t.Errorf("%v %s", err, got)
	}
	for _, want := range []string{"PLAIN=plain\n", "KEYBOARD=us\n", "PASSED_KEY=given\n", "PROXY=http://host:80\n", "HOME=/home/x\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// TestShellDies holds that a command ends with the process that runs the tool,
// however that ends, with all that it started.
func TestShellDies(t *testing.T) {
	if os.Getenv("DSH_TEST_SHELL_DIES") != "" {
		f, err := tools.Open(os.Getenv("DSH_TEST_SHELL_DIES"))
		if err != nil {
			t.Fatal(err)
		}
		f.Shell(shell()).Run(t.Context(), json.RawMessage(object("command", os.Getenv("DSH_TEST_COMMAND")))) //nolint:errcheck // it is killed
		return
	}
	b := newBox(t, nil)
	s := sleeper(30)
	cmd := exec.Command(os.Args[0], "-test.run=^TestShellDies$")
	cmd.Env = append(os.Environ(), "DSH_TEST_SHELL_DIES="+b.dir, "DSH_TEST_COMMAND=trap '' TERM HUP; "+s+" & (setsid "+s+" &); touch ready; "+s)
	if runtime.GOOS != "linux" {
		cmd.Env[len(cmd.Env)-1] = "DSH_TEST_COMMAND=" + s + " & touch ready; " + s
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(b.dir, "ready")); err == nil && len(alive(t, s)) > 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the command did not begin")
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	gone(t, s)
}

// TestShellKillsSupervisor holds that a command which ends its supervisor gets
// an answer all the same, and is ended.
func TestShellKillsSupervisor(t *testing.T) {
	b := newBox(t, nil)
	s := sleeper(31)
	r := b.call("shell", object("command", s+" & echo x; kill -9 $PPID; "+s, "timeout", 20))
	if got := dsh.Text(r.Content); !r.IsError || !strings.Contains(got, "its supervisor was killed") {
		t.Errorf("%v %q", r.IsError, got)
	}
	gone(t, s)
}

// TestShellForkBomb holds that a command which runs more and more processes is
// ended. The number is small: the test is not the bomb.
func TestShellForkBomb(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are counted on Linux only")
	}
	b := newBox(t, nil)
	f, err := tools.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := shell()
	s.Processes = 50
	sleep := sleeper(32)
	for _, command := range []string{
		"i=0; while [ $i -lt 300 ]; do " + sleep + " & i=$((i+1)); done; wait",
		"f() { f | f & }; f; " + sleep,
		"setsid -w bash -c 'f() { f | f & }; f; " + sleep + "'",
	} {
		began := time.Now()
		r, err := f.Shell(s).Run(t.Context(), json.RawMessage(object("command", command, "timeout", 60)))
		if got := dsh.Text(r.Content); err != nil || !r.IsError || !strings.Contains(got, "processes at a time, and 50 are allowed") || strings.Contains(got, "could not be ended") {
			t.Errorf("%s: %v %.300q", command, err, got)
		}
		gone(t, sleep)
		t.Logf("%v %.300q", time.Since(began), dsh.Text(r.Content))
	}
}

func TestShellHugeFile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits are for Linux")
	}
	b := newBox(t, nil)
	r := b.call("shell", object("command", "truncate -s 9G big || dd if=/dev/zero of=big bs=1 count=1 seek=9G"))
	if info, err := os.Stat(filepath.Join(b.dir, "big")); !r.IsError || err == nil && info.Size() > 8<<30 {
		t.Errorf("%q", dsh.Text(r.Content))
	}
}

// TestShellMovedFolder holds that a command starts in the folder itself.
func TestShellMovedFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can start a process in an open folder")
	}
	outer := newBox(t, map[string]string{"in/a": "inside\n", "other/a": "other\n"})
	b := openBox(t, filepath.Join(outer.dir, "in"))
	if err := errors.Join(os.Rename(b.dir, b.dir+"-moved"), os.Rename(filepath.Join(outer.dir, "other"), b.dir)); err != nil {
		t.Fatal(err)
	}
	if got := b.good("shell", object("command", "cat a")); got != "inside\n" {
		t.Errorf("%q", got)
	}
}

func TestWritePipe(t *testing.T) {
	b := newBox(t, nil)
	if err := syscall.Mkfifo(filepath.Join(b.dir, "pipe"), 0o644); err != nil {
		t.Skip(err)
	}
	b.bad("write", object("path", "pipe", "content", "x"), "no regular file (its kind: fifo)")
	b.bad("edit", object("path", "pipe", "old", "x", "new", "y"), "no regular file (its kind: fifo)")
}
