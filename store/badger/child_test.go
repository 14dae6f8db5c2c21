package badger_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// The tests start their own binary as another process: the variable says as
// what.
const roleVar = "DSH_STORE_TEST_ROLE"

func TestMain(m *testing.M) {
	role, dir := os.Getenv(roleVar), os.Getenv("DSH_STORE_TEST_DIR")
	switch role {
	case "":
		os.Exit(m.Run())
	case "verify":
		os.Exit(childVerify(dir))
	case "append":
		os.Exit(childAppend(dir))
	case "hold":
		os.Exit(childHold(dir))
	case "burst":
		os.Exit(childBurst(dir))
	case "salvage":
		os.Exit(childSalvage(dir))
	}
	if run := moreRoles()[role]; run != nil {
		os.Exit(run(dir))
	}
	os.Exit(99)
}

// readLines gives the lines of a child's output to f, until it ends.
func readLines(out io.Reader, f func(line string)) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		f(lines.Text())
	}
}

// child makes a command of this binary in a role.
func child(role, dir string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, "DSH_STORE_TEST_DIR="+dir)
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// exitLog is what the command exits with when the log cannot be read.
const exitLog = 4

// childVerify reads every session and prints a digest of it. It exits with
// exitLog and a line for each damage.
func childVerify(dir string) int {
	log, err := badger.Open(dir, badger.Options{Warn: func(err error) { fmt.Println("warning:", err) }})
	if err != nil {
		fmt.Println("open:", err)
		return exitLog
	}
	code := 0
	out := sha256.New()
	for h, err := range log.Heads(contextOf()) {
		if err != nil {
			fmt.Println("heads:", err)
			code = exitLog
			continue
		}
		fmt.Fprintln(out, h.ID, h.Seq, h.Hash, h.State, h.Title)
		for e, err := range log.Read(contextOf(), h.ID, 0) {
			if err != nil {
				fmt.Println("read:", err)
				code = exitLog
				break
			}
			_, _ = out.Write(e.Line())
		}
	}
	if err := log.Close(); err != nil {
		fmt.Println("close:", err)
		code = exitLog
	}
	fmt.Println("digest", hex.EncodeToString(out.Sum(nil)))
	return code
}

// childHold opens a folder, says so, and holds it until its input ends.
func childHold(dir string) int {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		fmt.Println("open:", err)
		return exitLog
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := log.Close(); err != nil {
		return exitLog
	}
	return 0
}

// verify runs the verifying child, and gives its output and exit code.
func verify(t testing.TB, dir string) (string, int) {
	t.Helper()
	cmd := child("verify", dir)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// seal is a chain of events for a session.
type chain struct {
	t    testing.TB
	tail dsh.Tail
	n    int64
}

func (c *chain) add(typ dsh.EventType, data any) dsh.Event {
	c.n++
	e, err := c.tail.Seal(time.UnixMilli(1_790_000_000_000+c.n), dsh.Draft{Type: typ, Data: data})
	if err != nil {
		panic(err)
	}
	c.tail = e.Tail()
	return e
}

func (c *chain) start(id dsh.SessionID) dsh.Event {
	return c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/work", Title: "a title"})
}

func (c *chain) chunk(text string) dsh.Event {
	return c.add(dsh.TypeAssistantChunk, dsh.AssistantChunk{Turn: 1, Step: 1, Attempt: 1, Chunk: dsh.Chunk{Type: "text", Text: text}})
}

func (c *chain) step(n int) dsh.Event {
	return c.add(dsh.TypeStepStart, dsh.StepStart{Turn: 1, Step: n})
}

func (c *chain) end() dsh.Event {
	return c.add(dsh.TypeTurnEnd, dsh.TurnEnd{Turn: 1, Reason: dsh.EndReason{Kind: dsh.EndCompleted}})
}
