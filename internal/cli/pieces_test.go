package cli_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/loop"
)

func TestReorder(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"run q", "run q"},
		{"--config x run q", "run q --config x"},
		{"--output json run q", "run q --output json"},
		{"--output=json run q", "run q --output=json"},
		{"--quiet run --max-steps -1 q", "run q --quiet --max-steps -1"},
		{"--follow log show last", "log show last --follow"},
		{"run --resume last -", "run - --resume last"},
		{"run --tools none -- --quiet", "run --tools none -- --quiet"},
		{"--unknown run q", "run q --unknown"},
		{"run --config", "run --config"},
		{"__complete --conf", "__complete --conf"},
	} {
		if got := strings.Join(cli.Reorder(strings.Fields(c.in)...), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.in, got, c.want)
		}
	}
}

func TestClean(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"\x1b]0;title\x07", "\uFFFD]0;title\uFFFD"},
		{"a\r\nb", "a\nb"},
		{"\u009b31m", "\uFFFD31m"},
		{"\x7f", "\uFFFD"},
		{"right \u202e left", "right \uFFFD left"},
		{"bad \xff byte", "bad \uFFFD byte"},
		{"\ufeffmark", "mark"},
		{"wörld 世界 🙂", "wörld 世界 🙂"},
	} {
		if got := cli.Clean(c.in); got != c.want {
			t.Errorf("Clean(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzOneLine(f *testing.F) {
	f.Add("a\x1b[2J b\n c", 5)
	f.Add(strings.Repeat("世", 300), 20)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = 1 + (n&0xff+256)%256
		got := cli.OneLine(s, n)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > n {
			t.Errorf("OneLine(%q, %d) = %q", s, n, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) {
				t.Errorf("OneLine(%q) holds %q", s, r)
			}
		}
	})
}

func TestCells(t *testing.T) {
	for r, want := range map[rune]int{'a': 1, 'é': 1, '\u0301': 0, '世': 2, '가': 2, '🙂': 2, '…': 1, 'ｆ': 2, '\u200d': 0, '─': 1, '\U0003fffd': 2, '\u1100': 2, '\u10ff': 1, '\u115f': 2, '\u1160': 1} {
		if got := cli.Cells(r); got != want {
			t.Errorf("Cells(%q) = %d, want %d", r, got, want)
		}
	}
}

func TestNear(t *testing.T) {
	commands := []string{"demo", "run", "sessions", "log", "policy", "classify", "config", "version", "completion"}
	for _, c := range []struct{ word, want string }{
		{"rnu", "run"}, {"session", "sessions"}, {"polciy", "policy"}, {"conf", "config"}, {"verison", "version"}, {"xyzzy", ""},
	} {
		if got := strings.Join(cli.Near(c.word, commands), " "); got != c.want {
			t.Errorf("Near(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}

func TestCheckPrompt(t *testing.T) {
	for _, c := range []struct{ prompt, want string }{
		{"hello", ""},
		{"", "is empty"},
		{" \n\t", "is empty"},
		{"a\x00b", "NUL"},
		{"\xff\xfe", "not valid UTF-8"},
		{strings.Repeat("a", cli.MaxPrompt), ""},
		{strings.Repeat("a", cli.MaxPrompt+1), "longer than 10 MiB"},
	} {
		err := cli.CheckPrompt(c.prompt)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.10q: %v, want %q", c.prompt, err, c.want)
		}
	}
}

func TestSessionIDs(t *testing.T) {
	form := regexp.MustCompile(`^[0-9]{8}-[0-9]{9}-[0-9a-hjkmnp-tv-z]{6}$`)
	var ids []string
	at := time.Date(2025, 12, 31, 23, 59, 59, 998e6, time.UTC)
	for i := range 1000 {
		id := string(cli.NewSessionID(at.Add(time.Duration(i) * time.Millisecond)))
		if !form.MatchString(id) {
			t.Fatalf("id %q", id)
		}
		ids = append(ids, id)
	}
	if !slices.IsSorted(ids) {
		t.Error("ids do not sort by time")
	}
	if a, b := cli.NewSessionID(at), cli.NewSessionID(at); a == b {
		t.Errorf("the same id twice: %s", a)
	}
}

func TestTitleOf(t *testing.T) {
	for in, want := range map[string]string{
		"one\ntwo": "one", "\n\n  spaced   out \n": "spaced out", "\x1b[31mred": "\uFFFD[31mred",
		strings.Repeat("x", 100): strings.Repeat("x", 79) + "…",
	} {
		if got := cli.TitleOf(in); got != want {
			t.Errorf("TitleOf(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", time.Millisecond: "1 ms", 500 * time.Millisecond: "0.5 s", 1234 * time.Millisecond: "1.23 s",
		12 * time.Second: "12 s", 65 * time.Second: "1 min 5 s", time.Hour: "1 h", 3605 * time.Second: "1 h 5 s",
	} {
		if got := cli.Seconds(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	aborted, stop := context.WithCancelCause(t.Context())
	stop(loop.ErrAbort)
	suspended, stop := context.WithCancelCause(t.Context())
	stop(loop.ErrSuspend)
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), errors.New("something"), cli.ExitError},
		{t.Context(), cli.Usagef("wrong"), cli.ExitUsage},
		{t.Context(), cli.Mark(errors.New("a store's own")), cli.ExitLog},
		{t.Context(), cli.Mark(&dsh.HeldError{Session: "s", PID: 1}), cli.ExitUsage},
		{t.Context(), &dsh.LockedError{Dir: "d", PID: 1}, cli.ExitLog},
		{t.Context(), fmt.Errorf("x: %w", &dsh.SpaceError{}), cli.ExitLog},
		{t.Context(), &dsh.SchemaError{Have: 2, Max: 1}, cli.ExitLog},
		{t.Context(), loop.ErrNothingOpen, cli.ExitUsage},
		{t.Context(), &loop.ReservedError{Session: dsh.SharedState("p")}, cli.ExitUsage},
		{aborted, context.Canceled, cli.ExitInterrupted},
		{aborted, cli.Mark(context.Canceled), cli.ExitInterrupted},
		{suspended, loop.ErrSuspend, cli.ExitTerminated},
		{suspended, errors.New("something else"), cli.ExitError},
	} {
		if got := cli.ExitCode(c.ctx, c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestEveryCodeHasWords(t *testing.T) {
	seen := map[string]dsh.Code{}
	for _, c := range dsh.Codes() {
		advice := cli.Advice(dsh.Failure{Code: c}, cli.ProviderFacts{KeyVariable: "KEY", BaseURL: "http://x"})
		if !strings.Contains(advice, "dsh run --resume ID") {
			t.Errorf("%s: the advice does not say how to go on: %s", c, advice)
		}
		words := cli.Meaning(c)
		if other, twice := seen[words]; twice {
			t.Errorf("%s and %s have the same words", c, other)
		}
		seen[words] = c
	}
}
