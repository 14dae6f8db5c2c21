package badger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

func contextOf() context.Context { return context.Background() }

const killSessions = 16

func killID(i int) dsh.SessionID { return dsh.SessionID("s" + strconv.Itoa(i)) }

// childAppend goes on with sessions for ever, and prints what is acknowledged:
// session and seq.
func childAppend(dir string) int {
	log, err := badger.Open(dir, badger.Options{Warn: func(err error) { fmt.Println("warning:", err) }})
	if err != nil {
		fmt.Println("open:", err)
		return exitLog
	}
	fmt.Println("opened")
	fail := make(chan error)
	for i := range killSessions {
		go func() { fail <- appendForever(log, i) }()
	}
	fmt.Println("append:", <-fail)
	return exitLog
}

func appendForever(log dsh.Log, i int) error {
	ctx, id := contextOf(), killID(i)
	w, err := log.Acquire(ctx, id)
	if err != nil {
		return err
	}
	c := &chain{tail: w.Tail()}
	if c.tail.Seq == 0 {
		if err := w.Append(ctx, c.start(id)); err != nil {
			return err
		}
		fmt.Println("ack", i, c.tail.Seq)
	}
	random := rand.New(rand.NewPCG(uint64(i), c.tail.Seq))
	for {
		var err error
		switch random.IntN(8) {
		case 0, 1:
			err = w.Append(ctx, c.chunk("part"))
			if err == nil {
				continue // not acknowledged as durable
			}
		case 2:
			err = w.Append(ctx, c.step(1), c.chunk(strings.Repeat("x", random.IntN(4000))), c.step(2))
		case 3:
			err = w.Append(ctx, c.step(1), c.end())
		case 4:
			if random.IntN(8) > 0 {
				continue
			}
			err = w.Append(ctx, c.add(dsh.TypeToolResult, map[string]any{"callId": strings.Repeat("y", 300<<10)}))
		default:
			err = w.Append(ctx, c.step(3))
		}
		if err != nil {
			return err
		}
		fmt.Println("ack", i, c.tail.Seq)
	}
}

// killsOfOne is how many kills one log is read after, each time from its
// beginning: it becomes longer with each.
const killsOfOne = 20

// TestKill kills a process that appends, again and again. Every open succeeds,
// what was acknowledged is there, and every session is an unbroken chain.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 10 // make kill does 200
	if testing.Short() {
		rounds = 4
	}
	rounds = killRounds(rounds)
	random := rand.New(rand.NewPCG(1, 2))
	total := uint64(0)
	for done := 0; done < rounds; done += killsOfOne {
		total += killAll(t, min(killsOfOne, rounds-done), random)
	}
	t.Logf("%d kills, %d events, none lost", rounds, total)
}

// killAll makes a log that a process appends to until it is killed, so many
// times, and counts its events.
func killAll(t *testing.T, rounds int, random *rand.Rand) (total uint64) {
	t.Helper()
	dir := t.TempDir()
	var acked [killSessions]uint64
	for round := range rounds {
		killOnce(t, dir, &acked, time.Duration(random.IntN(150))*time.Millisecond)
		log := open(t, dir)
		for i, want := range acked {
			if want == 0 {
				continue
			}
			var last uint64
			for e, err := range log.Read(t.Context(), killID(i), 0) {
				if err != nil {
					t.Fatalf("round %d: session %d: %v", round, i, err)
				}
				last = e.Seq
			}
			if last < want {
				t.Fatalf("round %d: session %d ends at event %d, and %d was acknowledged", round, i, last, want)
			}
			acked[i] = last
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range acked {
		total += n
	}
	return total
}

// killOnce runs the appending child for a while after it has opened, kills it,
// and notes what it acknowledged.
func killOnce(t *testing.T, dir string, acked *[killSessions]uint64, after time.Duration) {
	t.Helper()
	cmd := child("append", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	readLines(out, func(line string) {
		var i int
		var seq uint64
		switch {
		case line == "opened":
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		case strings.HasPrefix(line, "ack "):
			if n, _ := fmt.Sscanf(line, "ack %d %d", &i, &seq); n == 2 {
				acked[i] = max(acked[i], seq)
			}
		default:
			t.Errorf("child: %s", line)
			_ = cmd.Process.Kill()
		}
	})
	_ = cmd.Wait()
}

// killRounds is how often to kill: as often as is asked for, or usual times.
func killRounds(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("DSH_KILL_ROUNDS")); err == nil {
		return n
	}
	return usual
}
