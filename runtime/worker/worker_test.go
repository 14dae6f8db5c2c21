//go:build linux || darwin

package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
	"github.com/dsh-agent/dsh/runtime/worker"
)

// TestMain makes a worker of the test's own program.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == worker.Argument {
		engine := func() runtime.Engine {
			switch name := os.Args[2]; name {
			case native.Name:
				return native.New(native.Options{Logs: true})
			case extism.Name:
				return extism.New(extism.Options{Logs: true})
			default:
				return hostile(name)
			}
		}
		os.Exit(worker.Main(os.Args[3:], os.Stdin, os.Stdout, engine))
	}
	os.Exit(m.Run())
}

// engine runs guests in workers that have an engine of the name.
func engine(tb testing.TB, name string) runtime.Engine {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	return worker.New(worker.Options{Command: []string{self, worker.Argument, name}, Engine: name})
}

// TestSuite: what runs in a process of its own answers as what does not.
func TestSuite(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of processes")
	}
	runtimetest.Run(t, func(tb testing.TB) runtime.Engine { return engine(tb, native.Name) })
}

// hostile is an engine inside a worker that has been broken out of: its
// instances do what the name says.
type hostile string

func (h hostile) Name() string { return string(h) }

func (h hostile) Compile(context.Context, runtime.Module) (runtime.Program, error) {
	switch h {
	case "compile-exits":
		os.Exit(3)
	case "compile-hangs":
		select {}
	}
	return h, nil
}

func (h hostile) Instance(context.Context) (runtime.Instance, error) { return h, nil }

func (h hostile) Close() error { return nil }

func (h hostile) Call(_ context.Context, c runtime.Call) (runtime.Result, error) {
	switch h {
	case "probe":
		var from struct {
			Victim string
			Parent int
		}
		if err := json.Unmarshal(c.Input, &from); err != nil {
			return runtime.Result{}, err
		}
		raw, err := json.Marshal(see(from.Victim, from.Parent))
		return runtime.Result{Output: raw}, err
	case "hangs":
		for { //nolint:staticcheck // it spins
		}
	case "sleeps":
		time.Sleep(time.Hour)
	case "exits":
		fmt.Fprintln(os.Stderr, "its last words\nand more")
		os.Exit(7)
	case "panics":
		panic("broken")
	case "eats":
		var all [][]byte
		for {
			all = append(all, make([]byte, 64<<20))
			goruntime.KeepAlive(all)
		}
	case "no-thread": // as Go's runtime says it, with C and without
		fmt.Fprintln(os.Stderr, "runtime/cgo: pthread_create failed: Resource temporarily unavailable")
		os.Exit(2)
	case "no-go-thread":
		fmt.Fprintln(os.Stderr, "runtime: failed to create new OS thread (have 6 already; errno=11)")
		os.Exit(2)
	case "no-list", "null": // as the garbage collector says it, and as a guest's code would
		goroutine := map[hostile]int{"no-list": 0, "null": 7}[h]
		fmt.Fprintf(os.Stderr, "SIGSEGV: segmentation violation\nPC=0x4377dd m=6 sigcode=1 addr=0x0\n\ngoroutine %d gp=0x377027e16960 m=6 mp=0x377027d69008 [idle]:\n", goroutine)
		os.Exit(2)
	case "floods":
		for {
			os.Stdout.Write(make([]byte, 1<<16))
		}
	case "garbage":
		os.Stdout.WriteString(strings.Repeat("\xff", 100))
		time.Sleep(time.Hour)
	case "huge":
		return runtime.Result{Output: make([]byte, hostabi.MaxOutputBytes+1)}, nil
	case "lies":
		return runtime.Result{Logs: []runtime.LogLine{{Level: "\x1b", Text: "\x1b[2J" + strings.Repeat("x", 100)}}}, &dsh.Fault{Kind: "nonsense", Message: "\x1b[2J\n" + strings.Repeat("y", 5000)}
	case "logs":
		r := runtime.Result{Output: []byte("{}")}
		for range 1000 {
			r.Logs = append(r.Logs, runtime.LogLine{Level: "info", Text: strings.Repeat("z", 100)})
		}
		return r, nil
	}
	return runtime.Result{Output: []byte(h)}, nil
}

// sight is what a worker sees of the world, and what of it it reaches.
type sight struct {
	PID        int
	Env        []string
	Inherited  []int // descriptors that came with the process
	Core, Data uint64
	CPU, Size  uint64
	Reached    []string
}

func see(victim string, parent int) sight {
	s := sight{PID: os.Getpid(), Env: os.Environ()}
	for fd := 3; fd < 64; fd++ {
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			s.Inherited = append(s.Inherited, fd)
		}
	}
	for resource, value := range map[int]*uint64{syscall.RLIMIT_CORE: &s.Core, syscall.RLIMIT_DATA: &s.Data, syscall.RLIMIT_CPU: &s.CPU, syscall.RLIMIT_FSIZE: &s.Size} {
		var l syscall.Rlimit
		_ = syscall.Getrlimit(resource, &l)
		*value = l.Max
	}
	for name, try := range map[string]func() error{
		"read a file":     func() error { _, err := os.ReadFile(os.Args[0]); return err },
		"make a file":     func() error { return os.WriteFile(victim+".new", nil, 0o600) },
		"remove a file":   func() error { return os.Remove(victim) },
		"start a program": func() error { return exec.Command("/bin/true").Run() },
		"open a socket":   func() error { _, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0); return err },
		"signal another":  func() error { return syscall.Kill(parent, 0) },
		"limit another": func() error {
			var l syscall.Rlimit
			_, _, errno := syscall.Syscall6(sysPrlimit, uintptr(parent), syscall.RLIMIT_CORE, 0, uintptr(unsafe.Pointer(&l)), 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		},
	} {
		if try() == nil {
			s.Reached = append(s.Reached, name)
		}
	}
	slices.Sort(s.Reached)
	return s
}

// run makes one call in a fresh program.
func run(t *testing.T, name string, timeout time.Duration, input string) (runtime.Result, error) {
	t.Helper()
	m, err := runtime.Prepare(runtimetest.Guest(t, "delegate"), runtime.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine(t, name).Compile(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	i, err := p.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, callErr := i.Call(ctx, runtime.Call{Export: hostabi.ExportRecover, Input: []byte(input)})
	if err := i.Close(); err != nil {
		t.Error(err)
	}
	// Whatever became of this one, there is a next one.
	if i, err = p.Instance(t.Context()); err != nil {
		t.Errorf("%s: no instance after it: %v", name, err)
	} else if err := i.Close(); err != nil {
		t.Error(err)
	}
	return r, callErr
}

// TestConfined: a worker has nothing that is not its own, and reaches nothing.
func TestConfined(t *testing.T) {
	t.Setenv("SECRET_KEY", "x")
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	f, err := os.Create(victim)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// A descriptor that whoever started this program has passed on.
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
	m, err := runtime.Prepare(runtimetest.Guest(t, "delegate"), runtime.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine(t, "probe").Compile(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	i, err := p.Instance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	input := fmt.Sprintf(`{"victim":%q,"parent":%d}`, victim, os.Getpid())
	r, err := i.Call(t.Context(), runtime.Call{Export: hostabi.ExportRecover, Input: []byte(input)})
	if err != nil {
		t.Fatal(err)
	}
	var s sight
	if err := json.Unmarshal(r.Output, &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Env) > 0 || s.Core != 0 || s.Size != 0 || s.Data == 0 || s.Data > 2<<30 || s.CPU == 0 || s.CPU > 600 {
		t.Errorf("%+v", s)
	}
	if goruntime.GOOS != "linux" {
		return
	}
	if len(s.Inherited) > 0 {
		t.Errorf("it has the descriptors %v", s.Inherited)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Error("it can gain rights")
	}
	if !strings.Contains(string(status), "Seccomp:\t2") {
		t.Skip("this system has no filters for system calls")
	}
	if len(s.Reached) > 0 {
		t.Errorf("it could %s", strings.Join(s.Reached, ", "))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the folder is now %v, %v", left, err)
	}
}

// TestBroken: whatever a worker does, the call ends in a fault, in time.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		kind dsh.FaultKind
		text string
	}{
		"hangs":   {dsh.FaultDeadline, "killed"},
		"sleeps":  {dsh.FaultDeadline, "killed"},
		"exits":   {dsh.FaultUnavailable, "exit status 7: its last words"},
		"panics":  {dsh.FaultUnavailable, "broken"},
		"floods":  {dsh.FaultUnavailable, "no answer"},
		"garbage": {dsh.FaultUnavailable, "no answer"},
		"huge":    {dsh.FaultOutput, "65537"},
		"lies":    {dsh.FaultTrap, "[2J yyy"},
	} {
		timeout := 20 * time.Second
		if c.kind == dsh.FaultDeadline {
			timeout = 100 * time.Millisecond
		}
		start := time.Now()
		r, err := run(t, name, timeout, "")
		var f *dsh.Fault
		if !errors.As(err, &f) || f.Kind != c.kind || !strings.Contains(f.Message, c.text) || strings.ContainsAny(f.Message, "\n\x1b") || len(f.Message) > 1100 {
			t.Errorf("%s: %v; want a fault of kind %s with %q", name, err, c.kind, c.text)
		}
		for _, l := range r.Logs {
			if strings.ContainsAny(l.Text+l.Level, "\x1b") {
				t.Errorf("%s: logs %+v", name, l)
			}
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
	if r, err := run(t, "logs", time.Minute, ""); err != nil || len(r.Logs) > hostabi.MaxLogLines+1 {
		t.Errorf("%d lines of a log, %v", len(r.Logs), err)
	}
}

// TestMemoryLimit: the system stops what eats memory, and not this process.
func TestMemoryLimit(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("the limit on a process's data does not hold here")
	}
	if raced {
		t.Skip("the race detector's own memory is what fails first")
	}
	_, err := run(t, "eats", time.Minute, "")
	var f *dsh.Fault
	if !errors.As(err, &f) || f.Kind != dsh.FaultMemory {
		t.Error(err)
	}
}

// TestLastWords: the limit may also be met by the stack of one more thread, and by
// the garbage collector; not every fault is one of memory.
func TestLastWords(t *testing.T) {
	for does, want := range map[string]dsh.FaultKind{
		"no-thread": dsh.FaultMemory, "no-go-thread": dsh.FaultMemory, "no-list": dsh.FaultMemory, "null": dsh.FaultUnavailable,
	} {
		_, err := run(t, does, time.Minute, "")
		var f *dsh.Fault
		if !errors.As(err, &f) || f.Kind != want {
			t.Errorf("%s: %v, want %s", does, err, want)
		}
	}
}

// TestCompile: a module that takes the worker with it, or that is never ready,
// is refused in words.
func TestCompile(t *testing.T) {
	m, err := runtime.Prepare(runtimetest.Guest(t, "delegate"), runtime.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine(t, "compile-exits").Compile(t.Context(), m); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := engine(t, "compile-hangs").Compile(ctx, m); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
	for _, command := range [][]string{nil, {filepath.Join(t.TempDir(), "no-such-program")}, {"/bin/true"}} {
		if _, err := worker.New(worker.Options{Command: command}).Compile(t.Context(), m); err == nil {
			t.Errorf("%v was a worker", command)
		}
	}
}

// TestReuse: a process serves one decision after the other, until one of them
// goes wrong.
func TestReuse(t *testing.T) {
	m, err := runtime.Prepare(runtimetest.Guest(t, "delegate"), runtime.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine(t, native.Name).Compile(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	start := time.Now()
	const rounds = 200
	for range rounds {
		i, err := p.Instance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r, err := i.Call(t.Context(), runtime.Call{Export: hostabi.ExportRecover, Input: []byte("{}")}); err != nil || len(r.Output) == 0 {
			t.Fatalf("%s, %v", r.Output, err)
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%v a decision", time.Since(start)/rounds)
}
