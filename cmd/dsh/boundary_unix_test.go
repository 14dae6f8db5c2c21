//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// dying is dsh that kills itself at its n-th append, before or after the
// write, as $DSH_TEST_DIE says: "before:7".
func dying() {
	when, n, _ := strings.Cut(os.Getenv("DSH_TEST_DIE"), ":")
	left, err := strconv.Atoi(n)
	if err != nil {
		panic(err)
	}
	os.Exit(run(program{env: os.LookupEnv, wrap: func(l dsh.Log) dsh.Log { return &mortal{Log: l, after: when == "after", left: left} }}))
}

// mortal is a log whose n-th append is the last thing that its process does.
type mortal struct {
	dsh.Log
	after bool
	left  int
}

func (m *mortal) Acquire(ctx context.Context, id dsh.SessionID) (dsh.Writer, error) {
	w, err := m.Log.Acquire(ctx, id)
	return &mortalWriter{w, m}, err
}

type mortalWriter struct {
	dsh.Writer
	log *mortal
}

func (w *mortalWriter) Append(ctx context.Context, events ...dsh.Event) error {
	w.log.left--
	if w.log.left == 0 && !w.log.after {
		die()
	}
	err := w.Writer.Append(ctx, events...)
	if w.log.left == 0 {
		die()
	}
	return err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it takes effect
}

// A playbook says how a provider answers requests that hold so many tool
// results: the first such request by the first word, and so on; the last one
// repeats. What was answered to a process that died is so not missed by the
// next.
type playbook [][]string

const finalText = "FINAL-OK the number is 42"

// serve answers until the test ends, and counts the requests.
func (b playbook) serve(t *testing.T) (url string, requests *atomic.Int64) {
	requests = new(atomic.Int64)
	asked := make([]atomic.Int64, len(b))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // its sender died
		}
		requests.Add(1)
		step := min(bytes.Count(body, []byte(`"role":"tool"`)), len(b)-1)
		n := int(asked[step].Add(1))
		respond(w, b[step][min(n, len(b[step]))-1])
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", requests
}

func respond(w http.ResponseWriter, word string) {
	delta := func(json, finish string) {
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", json, finish)
		_ = http.NewResponseController(w).Flush()
	}
	switch word {
	case "500":
		http.Error(w, `{"error":{"message":"backend down","type":"server_error"}}`, http.StatusInternalServerError)
		return
	case "429":
		w.Header().Set("Retry-After-Ms", "40")
		http.Error(w, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`, http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	switch word {
	case "drop":
		delta(`{"content":"PARTIAL "}`, "null")
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		return
	case "read", "list":
		delta(fmt.Sprintf(`{"tool_calls":[{"index":0,"id":"call_%s","type":"function","function":{"name":%q,"arguments":"{\"path\":\"%s\"}"}}]}`, word, word, map[string]string{"read": "note.txt", "list": "."}[word]), "null")
		delta("{}", `"tool_calls"`)
	case "read both":
		delta(`{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":"{\"path\":\"f1.txt\"}"}},`+
			`{"index":1,"id":"call_2","type":"function","function":{"name":"read","arguments":"{\"path\":\"f2.txt\"}"}}]}`, "null")
		delta("{}", `"tool_calls"`)
	case "summary":
		delta(`{"content":"They talked of words."}`, "null")
		delta("{}", `"stop"`)
	case "answer":
		for _, s := range strings.SplitAfter(finalText, " ") {
			delta(fmt.Sprintf(`{"content":%q}`, s), "null")
		}
		delta("{}", `"stop"`)
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// TestEveryBoundary kills a turn before and after each of its appends, resumes
// it, and wants what the undisturbed turn came to.
func TestEveryBoundary(t *testing.T) {
	books := map[string]playbook{
		"one tool, a 500 and a drop": {{"read"}, {"500", "drop", "answer"}},
		"two steps and a rate limit": {{"list"}, {"429", "500", "read"}, {"answer"}},
	}
	kills := new(atomic.Int64)
	t.Run("stories", func(t *testing.T) {
		for name, book := range books {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				killEverywhere(t, book, kills)
			})
		}
	})
	t.Logf("%d kills", kills.Load())
	if want := int64(101); !testing.Short() && kills.Load() < want {
		t.Errorf("%d kills, want over %d", kills.Load(), want)
	}
}

func killEverywhere(t *testing.T, book playbook, kills *atomic.Int64) {
	calm := newDeath(t, book, "after:100000")
	if r := calm.die(t); r.code != 0 {
		t.Fatalf("undisturbed: exit %d, %s", r.code, r.err)
	}
	want := endingOf(calm.events(t))
	step := 1
	if testing.Short() {
		step = 5
	}
	for _, when := range []string{"before", "after"} {
		for n := 1; ; n += step {
			d := newDeath(t, book, fmt.Sprintf("%s:%d", when, n))
			if r := d.die(t); r.code == 0 {
				break // it had fewer appends
			}
			kills.Add(1)
			d.resume(t, want)
		}
	}
}

// A death is one run that is to be killed, and its world.
type death struct {
	*world
	when     string
	requests *atomic.Int64
}

func newDeath(t *testing.T, book playbook, when string) death {
	t.Helper()
	w, err := newWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, w.dir)
	if err := os.WriteFile(filepath.Join(w.dir, "note.txt"), []byte("the number is 42\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, requests := book.serve(t)
	if err := w.configure(url); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(w.config, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // the write below is checked
	if _, err := f.WriteString("[providers.test.retry_policy]\nmode = \"normal\"\nbackoff = { initial_delay_ms = 20, max_delay_ms = 100, jitter_ratio = 0.0 }\n"); err != nil {
		t.Fatal(err)
	}
	return death{w, when, requests}
}

// die runs the turn until its process is dead, or it is done.
func (d death) die(t *testing.T) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	c := exec.CommandContext(ctx, "dsh-dying", "run", "read the note")
	c.Dir, c.Env = d.dir, append(append(os.Environ(), d.env...), "DSH_TEST_DIE="+d.when)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// resume does what a supervisor does, and holds the session to what the
// undisturbed one came to.
func (d death) resume(t *testing.T, want string) {
	t.Helper()
	args := []string{"run", "--resume", "last"}
	before := d.stored(t)
	if before == nil {
		args = []string{"run", "read the note"} // the prompt was never stored
	}
	done := len(ofType(before, dsh.TypeTurnEnd)) > 0
	r := d.run(t, args...)
	after := d.stored(t)
	underWay := len(ofType(before, dsh.TypeToolCall)) > len(ofType(before, dsh.TypeToolResult))
	switch got := endingOf(after); {
	case done && r.code != 2, !done && r.code != 0:
		t.Errorf("%s: resume: exit %d, %s", d.when, r.code, r.err)
	case got != want && (!underWay || !strings.Contains(got, "unknown")):
		t.Errorf("%s: the resumed turn ended as\n%s\nwant\n%s", d.when, got, want)
	case underWay && !strings.Contains(got, "unknown"):
		t.Errorf("%s: a tool was under way, and its outcome is not said to be unknown:\n%s", d.when, got)
	case !done && !strings.Contains(r.out, finalText):
		t.Errorf("%s: the answer is not on stdout: %q", d.when, r.out)
	}
	d.sound(t, before, after)
}

// sound checks what holds whatever happened.
func (d death) sound(t *testing.T, before, after []dsh.Event) {
	t.Helper()
	for i, e := range before {
		if !bytes.Equal(e.Line(), after[i].Line()) {
			t.Errorf("%s: event %d changed", d.when, e.Seq)
		}
	}
	calls := map[string]int{}
	for _, e := range ofType(after, dsh.TypeToolCall) {
		var c dsh.ToolCall
		if err := e.Decode(&c); err != nil {
			t.Fatal(err)
		}
		if calls[c.CallID]++; calls[c.CallID] > 1 {
			t.Errorf("%s: call %s was made twice", d.when, c.CallID)
		}
	}
	// An attempt is in the log before its request is on the wire; a process
	// that dies in between has sent none.
	attempts, interrupted := int64(len(ofType(after, dsh.TypeAttemptStart))), int64(0)
	for _, e := range ofType(after, dsh.TypeAttemptEnd) {
		var end dsh.AttemptEnd
		if err := e.Decode(&end); err != nil {
			t.Fatal(err)
		}
		if end.Finish.Kind == dsh.FinishInterrupted {
			interrupted++
		}
	}
	if n := d.requests.Load(); n > attempts || n < attempts-interrupted {
		t.Errorf("%s: %d requests on the wire, and %d attempts in the log, of which %d were interrupted", d.when, n, attempts, interrupted)
	}
	if tail, err := loop.Verify(each(after)); err != nil {
		t.Errorf("%s: after event %d: %v", d.when, tail.Seq, err)
	}
}

func each(events []dsh.Event) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// endingOf is what a session came to: its messages, the results of its tools
// and how its turns ended.
func endingOf(events []dsh.Event) string {
	var b strings.Builder
	for _, e := range events {
		switch e.Type {
		case dsh.TypeAssistantMessage:
			var d dsh.AssistantMessage
			_ = e.Decode(&d)
			content, _ := dsh.JSON(d.Content)
			fmt.Fprintf(&b, "message %s\n", content)
		case dsh.TypeToolResult:
			var d dsh.ToolResultEvent
			_ = e.Decode(&d)
			fmt.Fprintf(&b, "result %s %s\n", d.CallID, dsh.Text(d.Content))
		case dsh.TypeTurnEnd:
			var d dsh.TurnEnd
			_ = e.Decode(&d)
			fmt.Fprintf(&b, "end %s\n", d.Reason.Kind)
		}
	}
	return b.String()
}
