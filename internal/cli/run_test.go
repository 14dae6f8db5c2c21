package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/loop"
)

func TestOnlyTheAnswerIsOnStdout(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500, "PARTIAL ", "text"), fails(dsh.CodeRateLimit, 429), answers("the ", "answer"))
	r := w.run("run", "q")
	if r.code != cli.ExitDone || r.out != "the answer\n" {
		t.Fatalf("exit %d, stdout %q, stderr %s", r.code, r.out, r.err)
	}
	want := "SERVER (HTTP 500): the message of SERVER; retry 1 of 3 in 1 ms, decided by retry\n" +
		"RATE_LIMIT (HTTP 429): the message of RATE_LIMIT; retry 2 of 3 in 1 ms, decided by retry\n"
	if r.err != want {
		t.Errorf("stderr has\n%s\nwant\n%s", r.err, want)
	}
	if r := w.run("run", "--quiet", "q"); r.code != 0 || r.err != "" {
		t.Errorf("--quiet: exit %d, stderr %q", r.code, r.err)
	}
}

func TestOnlyTheLastMessageIsInAPipe(t *testing.T) {
	w := newWorld(t, reply{pieces: []string{"first I look"}, tool: "look"}, answers("done\n"))
	r := w.run("run", "q")
	if r.code != 0 || r.out != "done\n" || !strings.Contains(r.err, "tool look {}") {
		t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.out, r.err)
	}
}

func TestExitCodes(t *testing.T) {
	over := fails(dsh.CodeRateLimit, 429)
	over.failure.RetryAfter = time.Hour
	for _, c := range []struct {
		name    string
		replies []reply
		args    []string
		code    int
		out     string
		err     []string
	}{
		{"key", []reply{fails(dsh.CodeAuth, 401)}, nil, 3, "", []string{"dsh: AUTH (HTTP 401)", "did not accept the key", "retry delegated (not mine)", "$FAKE_KEY", "after 1 attempt and 0 retries"}},
		{"used up", []reply{fails(dsh.CodeServer, 503)}, nil, 75, "", []string{"dsh: SERVER (HTTP 503)", "used up", "after 4 attempts and 3 retries", "come back later"}},
		{"over the cap", []reply{over}, nil, 75, "", []string{"dsh: RATE_LIMIT (HTTP 429)", "asked for a wait of 1 h", "the longest that is waited is 10 s", "come back at"}},
		{"length", []reply{{pieces: []string{"cut te"}, finish: dsh.FinishLength}}, nil, 5, "cut te\n", []string{"cut by the output limit", "--resume"}},
		{"max steps", []reply{{pieces: []string{"looking"}, tool: "look"}}, []string{"--max-steps", "2"}, 5, "looking\n", []string{"max_steps"}},
		{"max wait", []reply{fails(dsh.CodeServer, 500)}, []string{"--max-wait", "1ns"}, 75, "", []string{"max-wait", "SERVER"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.replies...)
			r := w.run(append([]string{"run", "q"}, c.args...)...)
			if r.code != c.code || r.out != c.out {
				t.Errorf("exit %d, want %d; stdout %q, want %q; stderr:\n%s", r.code, c.code, r.out, c.out, r.err)
			}
			for _, want := range c.err {
				if !strings.Contains(r.err, want) {
					t.Errorf("stderr lacks %q:\n%s", want, r.err)
				}
			}
		})
	}
}

func TestNobodyIsAsked(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500))
	w.policies = nil
	if r := w.run("run", "q"); r.code != cli.ExitTransient || !strings.Contains(r.err, "every failure is final") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

func TestOutputJSON(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500), answers("hello"))
	for _, args := range [][]string{{"run", "--output", "json", "q"}, {"--json", "run", "q"}} {
		w.provider.sent = 0
		r := w.run(args...)
		var got map[string]any
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || strings.Count(r.out, "\n") != 1 {
			t.Fatalf("%v: %q", err, r.out)
		}
		for k, want := range map[string]any{"status": "completed", "text": "hello", "turn": 1.0, "attempts": 2.0, "retries": 1.0} {
			if got[k] != want {
				t.Errorf("%s is %v, want %v", k, got[k], want)
			}
		}
		if got["failure"] != nil || got["retryAt"] != nil || got["usage"] == nil || got["session"] == "" {
			t.Errorf("got %v", got)
		}
	}
	w.provider.replies = []reply{fails(dsh.CodeQuota, 402)}
	r := w.run("run", "q", "--output=json")
	var got struct{ Failure struct{ Code string } }
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 3 || got.Failure.Code != "QUOTA" || !strings.Contains(r.err, "QUOTA") {
		t.Errorf("exit %d, %v, %q, %s", r.code, err, r.out, r.err)
	}
}

func TestStreamJSONIsTheExport(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500, "PARTIAL"), fails(dsh.CodeAuth, 401))
	stream := w.run("run", "--output", "stream-json", "q")
	export := w.run("log", "export")
	if stream.code != 3 || export.code != 0 || stream.out == "" || stream.out != export.out {
		t.Fatalf("exits %d and %d; the stream is\n%s\nthe export\n%s", stream.code, export.code, stream.out, export.out)
	}
	w.provider.replies, w.provider.sent = []reply{answers("x")}, 0
	resumed := w.run("run", "--output", "stream-json", "--resume", "last")
	whole := w.run("log", "export")
	first, _, _ := strings.Cut(export.out, "\n")
	if want := first + "\n" + strings.TrimPrefix(whole.out, export.out); resumed.code != 0 || resumed.out != want {
		t.Errorf("exit %d; the resumed stream is\n%s\nwant\n%s", resumed.code, resumed.out, want)
	}
}

// broken is a stdout whose reader went away after some bytes.
type broken struct {
	left int
	got  strings.Builder
	err  error
}

func (b *broken) Write(p []byte) (int, error) {
	n := min(b.left, len(p))
	b.left -= n
	b.got.Write(p[:n])
	if n < len(p) {
		return n, b.err
	}
	return n, nil
}

func TestAClosedStdoutLosesNothing(t *testing.T) {
	for _, c := range []struct {
		form string
		err  error
		says string
	}{
		{"text", syscall.EPIPE, "stdout was closed"},
		{"text", syscall.ENOSPC, "no space left"},
		{"stream-json", syscall.EPIPE, "stdout was closed"},
		{"stream-json", io.ErrClosedPipe, "stdout was closed"},
	} {
		w := newWorld(t, fails(dsh.CodeServer, 500), answers("the answer"))
		w.out = &broken{left: 5, err: c.err}
		r := w.run("run", "--output", c.form, "q")
		if r.code != cli.ExitError || strings.Count(r.err, "dsh: ") != 1 || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "nothing is lost") {
			t.Errorf("%s: exit %d, stderr %s", c.form, r.code, r.err)
		}
		w.out = nil
		if c.form != "text" && strings.Contains(r.err, "sessions show") { // the turn was faster than its stream
			if shown := w.run("sessions", "show", "last"); !strings.Contains(shown.out, "answer: the answer") {
				t.Errorf("%s: %s", c.form, shown.out)
			}
			continue
		}
		if r := w.run("run", "--resume", "last"); r.code != 0 || r.out != "the answer\n" {
			t.Errorf("%s, resumed: exit %d, %q, %s", c.form, r.code, r.out, r.err)
		}
		// A stream may break while a request is under way, which is then sent again.
		if n := w.provider.requests(); n != 2 && (c.form == "text" || n != 3) {
			t.Errorf("%s: %d requests, want 2", c.form, n)
		}
	}
	w := newWorld(t, answers("x"))
	w.run("run", "q")
	w.out = &broken{err: syscall.EPIPE}
	for _, args := range [][]string{{"sessions"}, {"log", "export"}, {"log", "show", "last"}, {"sessions", "show", "last"}, {"version"}, {"completion", "bash"}, {"--help"}} {
		if r := w.run(args...); r.code != cli.ExitError || !strings.Contains(r.err, "stdout was closed") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: exit %d, %q", args, r.code, r.err)
		}
	}
}

func TestResume(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeAuth, 401), answers("one"), answers("two"))
	w.run("run", "first")
	if r := w.run("run", "--resume", "last"); r.code != 0 || r.out != "one\n" {
		t.Fatalf("exit %d, %q, %s", r.code, r.out, r.err)
	}
	if r := w.run("run", "--resume", "last"); r.code != cli.ExitUsage || !strings.Contains(r.err, "is complete") {
		t.Errorf("a complete turn: exit %d, %s", r.code, r.err)
	}
	id := string(w.heads()[0].ID)
	if r := w.run("run", "--resume", id[:len(id)-3], "second"); r.code != 0 || r.out != "two\n" {
		t.Errorf("by a beginning: exit %d, %q, %s", r.code, r.out, r.err)
	}
	if n := len(w.heads()); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	if r := w.run("run", "--resume", "nowhere", "x"); r.code != cli.ExitUsage || !strings.Contains(r.err, "no session") {
		t.Errorf("an unknown id: exit %d, %s", r.code, r.err)
	}
	typo := "x" + id[1:]
	if r := w.run("sessions", "show", typo); r.code != cli.ExitUsage || !strings.Contains(r.err, "near to it") || !strings.Contains(r.err, id) {
		t.Errorf("a misspelt id: exit %d, %s", r.code, r.err)
	}
	w.run("run", "another")
	if r := w.run("sessions", "show", id[:4]); r.code != cli.ExitUsage || strings.Count(r.err, id[:4]) < 3 {
		t.Errorf("an ambiguous beginning: exit %d, %s", r.code, r.err)
	}
}

func TestAHeldSessionIsRefused(t *testing.T) {
	w := newWorld(t, answers("x"))
	w.run("run", "q")
	writer, err := w.log.Acquire(t.Context(), w.heads()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Release(t.Context())
	if r := w.run("run", "--resume", "last", "q"); r.code != cli.ExitUsage || !strings.Contains(r.err, "is held by process") {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestStopInAWait(t *testing.T) {
	for _, c := range []struct {
		cause error
		code  int
		says  string
		end   dsh.State
	}{
		{loop.ErrAbort, cli.ExitInterrupted, "stopped", dsh.StateDone},
		{loop.ErrSuspend, cli.ExitTerminated, "suspended", dsh.StateWaiting},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, fails(dsh.CodeServer, 500), answers("later"))
			w.policies = retries(3, 9*time.Second)
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(2*time.Second, func() { stop(c.cause) })
			began := time.Now()
			r := w.runCtx(ctx, "run", "--output", "stream-json", "q")
			if took := time.Since(began); r.code != c.code || took != 2*time.Second || !strings.Contains(r.err, c.says) {
				t.Errorf("exit %d after %v, %s", r.code, took, r.err)
			}
			if export := w.run("log", "export"); export.out != r.out {
				t.Errorf("the stream ends before the log does:\n%s\n%s", r.out, export.out)
			}
			if s := w.heads()[0].State; s != c.end {
				t.Errorf("the session is %s, want %s", s, c.end)
			}
			if c.end != dsh.StateWaiting {
				return
			}
			r = w.run("run", "--resume", "last")
			if took := time.Since(began); r.code != 0 || r.out != "later\n" || took < 9*time.Second || took > 9*time.Second+5*time.Millisecond {
				t.Errorf("resumed: exit %d after %v, %q", r.code, took, r.out)
			}
			if !strings.Contains(r.err, "SERVER (HTTP 500)") || !strings.Contains(r.err, "retry 1 of 3 in 7 s") {
				t.Errorf("the resumed wait does not show: %s", r.err)
			}
		})
	}
}

func TestOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t,
			reply{pieces: []string{"first I look"}, tool: "look"},
			fails(dsh.CodeServer, 500, "PARTIAL text that wraps more than once because it is long, ", "and\nhas lines"),
			answers("the ", "answer"))
		w.policies = retries(3, 3*time.Second)
		term := newTerminal(40, 30)
		w.out, w.err, w.size = term, term, term.size
		done := make(chan result)
		go func() { done <- w.run("run", "q") }()
		time.Sleep(time.Second)
		synctest.Wait()
		if got := term.text(); strings.Contains(got, "PARTIAL") || !strings.Contains(got, "waiting 2.0 s for retry 1 of 3") {
			t.Errorf("in the wait the screen shows\n%s", got)
		}
		if r := <-done; r.code != 0 {
			t.Errorf("exit %d", r.code)
		}
		want := []string{"first I look", "tool look {}", "SERVER (HTTP 500): the message of SERVER;", "retry 1 of 3 in 3 s, decided by retry", "the answer"}
		if got := term.text(); squeezed(got) != squeezed(strings.Join(want, "")) {
			t.Errorf("the screen shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}
	})
}

// squeezed is a text without blanks, since a terminal wraps where it likes.
func squeezed(s string) string { return strings.Join(strings.Fields(s), "") }

func TestAnAttemptThatWasStoppedIsTakenBack(t *testing.T) {
	for _, cause := range []error{loop.ErrAbort, loop.ErrSuspend} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, reply{pieces: []string{"PARTIAL"}, hang: true})
			term := newTerminal(80, 24)
			w.out, w.err, w.size = term, term, term.size
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() {
				if got := term.text(); got != "PARTIAL" {
					t.Errorf("the text does not stream: %q", got)
				}
				stop(cause)
			})
			w.runCtx(ctx, "run", "q")
			if got := term.text(); strings.Contains(got, "PARTIAL") || !strings.Contains(got, "--resume") {
				t.Errorf("the screen shows %q", got)
			}
		})
	}
}

func TestATerminalThatGoesAwaySuspends(t *testing.T) {
	w := newWorld(t, answers("the answer"))
	term := newTerminal(80, 24)
	w.out, w.err, w.size = failing{syscall.EIO}, term, term.size
	if r := w.run("run", "q"); r.code != cli.ExitTerminated {
		t.Errorf("exit %d: %s", r.code, term.text())
	}
	w.out, w.err, w.size = nil, nil, nil
	if r := w.run("run", "--resume", "last"); r.code != 0 || r.out != "the answer\n" {
		t.Errorf("resumed: exit %d, %q, %s", r.code, r.out, r.err)
	}
}

func TestForeignTextIsClean(t *testing.T) {
	bad := fails(dsh.CodeServer, 500)
	bad.failure.Message = "\x1b]52;c;ZXZpbA==\x07 and\nlines"
	final := fails(dsh.CodeAuth, 401)
	final.failure.Message, final.failure.RequestID = "\u009b2J", "\x1b[31m"
	w := newWorld(t, reply{pieces: []string{"x"}, tool: "no\x1b[2Jsuch"}, bad, final)
	r := w.run("run", "--verbose", "\x1b[31mred")
	for _, out := range []string{r.err, w.run("sessions").out, w.run("sessions", "show", "last").out, w.run("log", "show", "last").out} {
		if out == "" || strings.ContainsAny(out, "\x1b\x07\u009b") {
			t.Errorf("raw control characters, or nothing: %q", out)
		}
	}
	if n := strings.Count(r.err, "retry 1 of 3"); n != 1 {
		t.Errorf("stderr: %s", r.err)
	}
}

func TestPrompts(t *testing.T) {
	for _, c := range []struct {
		name  string
		stdin io.Reader // nil: a keyboard
		args  []string
		code  int
		says  string
		title string
	}{
		{"argument", nil, []string{"hello"}, 0, "", "hello"},
		{"argument and a pipe", strings.NewReader("ignored"), []string{"hello"}, 0, "", "hello"},
		{"a pipe", strings.NewReader("\ufeffpiped\n\n"), nil, 0, "", "piped"},
		{"a dash", strings.NewReader("dashed"), []string{"-"}, 0, "", "dashed"},
		{"like a flag", nil, []string{"--", "--help"}, 0, "", "--help"},
		{"none", nil, nil, 2, "needs a prompt", ""},
		{"an empty pipe", strings.NewReader(""), nil, 2, "is empty", ""},
		{"blank", nil, []string{" \n "}, 2, "is empty", ""},
		{"binary", strings.NewReader("\x7fELF\x00"), []string{"-"}, 2, "NUL", ""},
		{"no UTF-8", strings.NewReader("\xff\xfea"), []string{"-"}, 2, "not valid UTF-8", ""},
		{"endless", endless{}, []string{"-"}, 2, "longer than 10 MiB", ""},
		{"broken", broke{}, []string{"-"}, 2, "could not be read", ""},
		{"two", nil, []string{"one", "two"}, 2, "quote it", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, answers("x"))
			w.in = c.stdin
			r := w.run(append([]string{"run"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.err, c.says) {
				t.Fatalf("exit %d, stderr %s", r.code, r.err)
			}
			switch heads := w.heads(); {
			case c.code == 0 && (len(heads) != 1 || heads[0].Title != c.title):
				t.Errorf("sessions %v", heads)
			case c.code != 0 && (len(heads) != 0 || w.setups != 0 || w.provider.requests() != 0 || strings.Count(r.err, "\n") != 1):
				t.Errorf("%d sessions, %d setups, stderr %q", len(heads), w.setups, r.err)
			}
		})
	}
}

// endless is a stdin that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

type broke struct{}

func (broke) Read([]byte) (int, error) { return 0, errors.New("is a directory") }

func TestAReadOfStdinCanBeStopped(t *testing.T) {
	r, stdin := io.Pipe()
	defer stdin.Close()
	w := newWorld(t, answers("x"))
	w.in = r
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { stop(loop.ErrAbort) })
	if r := w.runCtx(ctx, "run", "-"); r.code != cli.ExitInterrupted {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t, answers("x"))
	for _, c := range []struct{ args, says string }{
		{"rnu q", "did you mean run?"},
		{"xyzzy", "the commands are"},
		{"log", "needs one of: backup, export, import, restore, show, verify"},
		{"log shwo last", "did you mean show?"},
		{"log show", "needs one session"},
		{"log show a b", "too much"},
		{"sessions foo", "unknown command"},
		{"run q --outptu json", "did you mean --output?"},
		{"run q --output yaml", "text, json or stream-json"},
		{"run q --json --output text", "exclude each other"},
		{"run q --max-steps 0", "not positive"},
		{"run q --max-steps many", "it takes a whole number"},
		{"run q --max-wait -3s", "not positive"},
		{"run q --resume=", "needs a session's id"},
		{"run q --cwd /no/such/folder", "no such folder"},
		{"run q --cwd /dev/null", "is no folder"},
		{"chat", "dsh chat is not yet supported"},
		{"policy simulate x.wasm", "needs --session ID or --all"},
		{"log tail", "needs one session"},
		{"log export --format xml", "is not known: jsonl or sqlite"},
		{"classify", "needs --adapter"},
		{"classify --adapter nothing -", "openai-chat"},
		{"classify --adapter openai-chat --status 42 -", "100 to 599"},
		{"classify --adapter openai-chat --header nope -", "K:V"},
		{"completion tcsh", "bash, zsh, fish, powershell"},
		{"sessions show last", "no session yet"},
		{"sessions rm last", "no session yet"},
	} {
		r := w.run(strings.Fields(c.args)...)
		if r.code != cli.ExitUsage || !strings.Contains(r.err, c.says) || strings.Count(r.err, "\n") != 1 || r.out != "" || !strings.HasPrefix(r.err, "dsh: ") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q, want %q", c.args, r.code, r.out, r.err, c.says)
		}
	}
	if w.setups != 0 {
		t.Errorf("%d setups for words that do not hold", w.setups)
	}
}

func TestAPanicIsOneLine(t *testing.T) {
	w := newWorld(t, answers("x"))
	w.log = nil
	r := w.run("sessions")
	if r.code != cli.ExitError || strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "goroutine") {
		t.Errorf("exit %d, %q", r.code, r.err)
	}
}

func TestListings(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500), answers("one"), fails(dsh.CodeAuth, 401))
	w.run("run", "the first")
	w.run("run", "the second")
	list := w.run("sessions", "list", "--json")
	var first struct {
		ID, Title, State, LastFailure string
		Turns, Attempts, Retries      int
		UpdatedAt                     int64
	}
	lines := strings.Split(strings.TrimSpace(list.out), "\n")
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil || len(lines) != 2 || first.Title != "the second" || first.State != "failed" || first.LastFailure != "AUTH" || first.Attempts != 1 {
		t.Errorf("%v: %s", err, list.out)
	}
	human := w.run("sessions")
	if lines := strings.Split(human.out, "\n"); len(lines) != 4 || !strings.Contains(lines[2], "the first") || !strings.Contains(lines[2], "SERVER") {
		t.Errorf("%s", human.out)
	}
	shown := w.run("sessions", "show", string(w.heads()[1].ID))
	for _, want := range []string{"title     the first", "): SERVER (HTTP 500)", "wait 1 ms before retry 1 of 3, decided by retry", "attempt 2 (", "answer: one", "turn 1 completed"} {
		if !strings.Contains(shown.out, want) {
			t.Errorf("sessions show lacks %q:\n%s", want, shown.out)
		}
	}
	if r := w.run("sessions", "show", "last", "--json"); !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"timeline":[{`) {
		t.Errorf("%s", r.out)
	}
	if r := w.run("policy", "list", "--json"); !strings.Contains(r.out, `"calls":2`) || !strings.Contains(r.out, `"faults":0`) {
		t.Errorf("%s", r.out)
	}
	if r := w.run("log", "verify"); r.code != 0 || strings.Count(r.out, "whole:") != 2 {
		t.Errorf("exit %d, %s", r.code, r.out)
	}
	export := w.run("log", "export")
	if a, b := strings.Index(export.out, "the first"), strings.Index(export.out, "the second"); a < 0 || b < a {
		t.Error("the export does not have the oldest first")
	}
	if r := w.run("log", "show", "last", "--json"); !strings.HasSuffix(export.out, r.out) || r.out == "" {
		t.Errorf("log show --json is not the log's lines: %s", r.out)
	}
	if r := w.run("sessions", "rm", "last", "--json"); r.code != 0 || len(w.heads()) != 1 || w.heads()[0].Title != "the first" {
		t.Errorf("exit %d, %s", r.code, r.err)
	}
}

func TestFollowGoesOnUntilItIsStopped(t *testing.T) {
	for _, command := range []string{"log show last --follow --json", "log tail last --json"} {
		t.Run(command, func(t *testing.T) { testFollow(t, strings.Fields(command)) })
	}
}

func testFollow(t *testing.T, command []string) {
	w := newWorld(t, answers("one"), answers("two"))
	w.run("run", "q")
	ctx, stop := context.WithCancelCause(t.Context())
	r, out := io.Pipe()
	w.out = out
	done := make(chan result)
	go func() { done <- w.runCtx(ctx, command...); out.Close() }()
	seen := make(chan string)
	go func() {
		b := make([]byte, 1<<16)
		all := ""
		for {
			n, err := r.Read(b)
			all += string(b[:n])
			if strings.Count(all, `"type":"turn/end"`) == 2 || err != nil {
				break
			}
		}
		seen <- all
		io.Copy(io.Discard, r)
	}()
	other := newWorld(t, answers("two"))
	other.log = w.log
	other.run("run", "--resume", "last", "again")
	if all := <-seen; !strings.Contains(all, "two") {
		t.Errorf("%s", all)
	}
	stop(loop.ErrAbort)
	if r := <-done; r.code != cli.ExitInterrupted {
		t.Errorf("exit %d", r.code)
	}
}

func TestClassify(t *testing.T) {
	w := newWorld(t, answers("x"))
	w.in = strings.NewReader("a body")
	r := w.run("classify", "--adapter", "openai-chat", "--status", "500", "--explain", "-")
	if r.code != 0 || r.out != `{"message":"a body","code":"SERVER","status":500}`+"\n" || r.err != "openai-chat: the status\n" {
		t.Errorf("exit %d, %q, %q", r.code, r.out, r.err)
	}
	w.in = strings.NewReader("")
	if r := w.run("classify", "--adapter", "openai-chat"); r.out != "{}\n" {
		t.Errorf("%q", r.out)
	}
}

func TestVersionAndHelp(t *testing.T) {
	w := newWorld(t, answers("x"))
	if r := w.run("version", "--json"); !json.Valid([]byte(r.out)) || !strings.Contains(r.out, `"version":"v1.2.3"`) {
		t.Errorf("%q", r.out)
	}
	for _, args := range [][]string{{}, {"--help"}, {"run", "--help"}, {"--help", "run"}, {"help", "run"}} {
		if r := w.run(args...); r.code != 0 || !strings.Contains(r.out, "Usage:") || r.err != "" {
			t.Errorf("%v: exit %d, %q", args, r.code, r.err)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := w.run("completion", shell); r.code != 0 || !strings.Contains(r.out, "dsh") {
			t.Errorf("%s: exit %d", shell, r.code)
		}
	}
	if r := w.run("policy", "inspect", "x.wasm"); !strings.Contains(r.out, "problem") || strings.Contains(r.out, "\x1b") {
		t.Errorf("%q", r.out)
	}
}
