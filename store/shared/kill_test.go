//go:build linux || darwin

package shared_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/shared"
)

// The tests start their own binary as other processes: the variable says that
// it is one, and the next ones what it does.
const (
	dirVar     = "DSH_SHARED_TEST_DIR"
	sessionVar = "DSH_SHARED_TEST_SESSION"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVar); dir != "" {
		os.Exit(childAppends(dir, dsh.SessionID(os.Getenv(sessionVar))))
	}
	os.Exit(m.Run())
}

// childAppends goes on with a session until its input ends, and prints what is
// acknowledged. It exits with 1 and a line where anything fails.
func childAppends(dir string, id dsh.SessionID) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // it ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	warn := func(err error) { fmt.Println("warning:", err) }
	log, err := shared.Open(ctx, shared.Options{Dir: dir, Warn: warn, Open: func() (dsh.Log, error) {
		log, err := badger.Open(dir, badger.Options{Warn: warn})
		if err != nil {
			return nil, err
		}
		return log, nil
	}})
	if err == nil {
		err = errors.Join(appends(ctx, log, id), log.Close())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Println("failed:", err)
		return 1
	}
	return 0
}

func appends(ctx context.Context, log dsh.Log, id dsh.SessionID) error {
	w, err := log.Acquire(ctx, id)
	if err != nil {
		return err
	}
	c := &chain{tail: w.Tail()}
	if c.tail.Seq == 0 {
		if err := w.Append(ctx, c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/"})); err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(c.tail.Seq, uint64(os.Getpid())))
	for {
		relaxed := random.IntN(3) > 0
		var events []dsh.Event
		for range 1 + random.IntN(3) {
			if relaxed {
				events = append(events, c.add(dsh.TypeAssistantChunk, dsh.AssistantChunk{Chunk: dsh.Chunk{Type: "text", Text: strings.Repeat("x", random.IntN(3000))}}))
			} else {
				events = append(events, c.add(dsh.TypeStepStart, dsh.StepStart{Turn: 1, Step: int(c.tail.Seq)}))
			}
		}
		err := w.Append(ctx, events...)
		switch {
		case errors.Is(err, context.Canceled):
			return w.Release(context.WithoutCancel(ctx))
		case err != nil:
			return err
		case !relaxed:
			fmt.Println("ack", c.tail.Seq, c.tail.Hash)
		}
	}
}

type chain struct{ tail dsh.Tail }

func (c *chain) add(typ dsh.EventType, data any) dsh.Event {
	e, err := c.tail.Seal(time.Now(), dsh.Draft{Type: typ, Data: data})
	if err != nil {
		panic(err)
	}
	c.tail = e.Tail()
	return e
}

// A client is a child that writes one session.
type client struct {
	t      *testing.T
	id     dsh.SessionID
	cmd    *exec.Cmd
	stdin  io.Closer
	killed bool
	wait   sync.WaitGroup

	mu    sync.Mutex
	acked []dsh.Tail
}

func (c *client) start(dir string) {
	c.t.Helper()
	c.killed = false
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(os.Environ(), dirVar+"="+dir, sessionVar+"="+string(c.id))
	in, err := c.cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.stdin, c.cmd.Stderr = in, os.Stderr
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.wait.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var tail dsh.Tail
			if n, _ := fmt.Sscanf(lines.Text(), "ack %d %s", &tail.Seq, &tail.Hash); n == 2 && len(tail.Hash) == 32 {
				c.mu.Lock()
				c.acked = append(c.acked, tail)
				c.mu.Unlock()
			} else if !strings.HasPrefix(lines.Text(), "ack") { // a kill may cut a line
				c.t.Errorf("%s: %s", c.id, lines.Text())
			}
		}
	})
}

// end waits for a child that was killed, or lets it end.
func (c *client) end() {
	c.t.Helper()
	_ = c.stdin.Close()
	c.wait.Wait()
	if err := c.cmd.Wait(); err != nil && !c.killed {
		c.t.Errorf("%s: %v", c.id, err)
	}
}

func (c *client) acks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// keeperOf is the process that has a data folder open.
func keeperOf(dir string) int {
	b, _ := os.ReadFile(filepath.Join(dir, "lock"))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return pid
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestTheKeeperIsKilled kills the process that keeps the log while others
// append, again and again: nobody fails, and nothing that was acknowledged is
// lost.
func TestTheKeeperIsKilled(t *testing.T) {
	t.Parallel()
	rounds := 6 // make kill does 50
	if testing.Short() {
		rounds = 2
	}
	if n, err := strconv.Atoi(os.Getenv("DSH_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	clients := make([]*client, 3)
	for i := range clients {
		clients[i] = &client{t: t, id: dsh.SessionID("s" + strconv.Itoa(i))}
		clients[i].start(dir)
	}
	follower := following(t, dir, clients[1].id)
	random := rand.New(rand.NewPCG(3, 4))
	var longest time.Duration
	for round := range rounds {
		before := make([]int, len(clients))
		for i, c := range clients {
			before[i] = c.acks()
		}
		began := time.Now()
		waitFor(t, "an acknowledgment of each", func() bool {
			for i, c := range clients {
				if c.acks() == before[i] {
					return false
				}
			}
			return true
		})
		longest = max(longest, time.Since(began))
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond) // any moment
		for _, c := range clients {
			if c.cmd.Process.Pid == keeperOf(dir) {
				c.killed = round%4 != 3 // now and then it ends as it should
				if c.killed {
					_ = c.cmd.Process.Kill()
				}
				c.end()
				c.start(dir)
				break
			}
		}
	}
	total := 0
	for _, c := range clients {
		c.end()
		total += c.acks()
	}
	last := clients[1].acked[len(clients[1].acked)-1].Seq
	log, err := shared.Open(t.Context(), options(t, dir)) // the follower goes on through this
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, log)
	waitFor(t, "the follower", func() bool { return follower() >= last })
	for _, c := range clients {
		hashes := map[uint64]string{}
		for e, err := range log.Read(t.Context(), c.id, 0) {
			if err != nil {
				t.Fatalf("%s: %v", c.id, err)
			}
			hashes[e.Seq] = e.Hash
		}
		for _, a := range c.acked {
			if hashes[a.Seq] != a.Hash {
				t.Fatalf("%s: event %d was acknowledged and is lost or another", c.id, a.Seq)
			}
		}
	}
	t.Logf("%d times another keeper, %d acknowledgments, none lost; the longest pause was %v at most", rounds, total, longest)
}

// following follows a session through whoever keeps the log, holds what it is
// given to the chain, and says how far it has come.
func following(t *testing.T, dir string, id dsh.SessionID) (seq func() uint64) {
	log, err := shared.Open(t.Context(), neverKeeps(options(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	var at atomic.Uint64
	var running sync.WaitGroup
	running.Go(func() {
		var tail dsh.Tail
		for e, err := range log.Follow(t.Context(), id, 0) {
			if err == nil {
				err = tail.Check(e)
			}
			if err != nil {
				if !errors.Is(err, dsh.ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("following after event %d: %v", tail.Seq, err)
				}
				return
			}
			tail = e.Tail()
			at.Store(tail.Seq)
		}
	})
	t.Cleanup(func() {
		closed(t, log)
		running.Wait()
	})
	return at.Load
}

// A second writer is told which process has the session, whoever keeps the
// log; a writer's kill gives it up.
func TestOneWriterOfManyProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keeper, writer := &client{t: t, id: "a"}, &client{t: t, id: "b"}
	keeper.start(dir)
	waitFor(t, "the keeper", func() bool { return keeper.acks() > 0 })
	writer.start(dir)
	waitFor(t, "the writer", func() bool { return writer.acks() > 0 })
	log := open(t, options(t, dir))
	defer closed(t, log)
	refused := func() {
		t.Helper()
		for _, c := range []*client{keeper, writer} {
			_, err := log.Acquire(t.Context(), c.id)
			var held *dsh.HeldError
			if !c.killed && (!errors.As(err, &held) || held.PID != c.cmd.Process.Pid) {
				t.Errorf("Acquire of %s: %v, want process %d", c.id, err, c.cmd.Process.Pid)
			}
			if err := log.Remove(t.Context(), c.id); !c.killed && !errors.As(err, &held) {
				t.Errorf("Remove of %s: %v", c.id, err)
			}
		}
	}
	refused()
	keeper.killed = true
	_ = keeper.cmd.Process.Kill()
	refused()
	keeper.end()
	refused()
	writer.killed = true
	_ = writer.cmd.Process.Kill()
	writer.end()
	w, err := log.Acquire(t.Context(), "b")
	if err != nil {
		t.Fatalf("Acquire of a killed writer's session: %v", err)
	}
	if n := writer.acked[len(writer.acked)-1].Seq; w.Tail().Seq < n {
		t.Errorf("the session ends at event %d, and %d was acknowledged", w.Tail().Seq, n)
	}
	if err := w.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
