package cli_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh/internal/cli"
)

func TestTakeBackLeavesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("ab  \n\twörld世界é́🙂")
	for range 3000 {
		term := newTerminal(6+r.IntN(30), 40)
		s := cli.NewScreen(term, term, term.size, term.size)
		s.Line("before")
		want := term.text()
		for range r.IntN(3) { // earlier attempts
			s.Write(randomText(r, alphabet))
			if err := s.TakeBack(); err != nil {
				t.Fatal(err)
			}
		}
		text := randomText(r, alphabet)
		for len(text) > 0 {
			n := min(len(text), 1+r.IntN(9))
			for n < len(text) && text[n]&0xc0 == 0x80 {
				n++
			}
			s.Write(text[:n])
			text = text[n:]
		}
		if err := s.TakeBack(); err != nil {
			t.Fatal(err)
		}
		if got := term.text(); got != want {
			t.Fatalf("columns %d: the screen shows\n%q\nwant\n%q", term.columns, got, want)
		}
		s.Write("after")
		s.Keep()
		if got := term.text(); got != want+"\nafter" {
			t.Fatalf("after it: %q", got)
		}
		s.Close()
	}
}

func randomText(r *rand.Rand, alphabet []rune) string {
	var b strings.Builder
	for range r.IntN(60) {
		b.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

func TestTakeBackOfWhatHasLeftTheScreen(t *testing.T) {
	term := newTerminal(20, 5)
	s := cli.NewScreen(term, term, term.size, term.size)
	s.Write(strings.Repeat("a line\n", 9))
	if err := s.TakeBack(); err != nil {
		t.Fatal(err)
	}
	if got := term.all(); !strings.Contains(strings.Join(strings.Fields(got), " "), "the text above this line is of a failed attempt") {
		t.Errorf("nothing says that the text does not count:\n%s", got)
	}
	if n := strings.Count(term.text(), "a line"); n != 0 {
		t.Errorf("%d lines are still on the screen", n)
	}
}

// A terminal that became narrower has wrapped what it shows anew.
func TestTakeBackAfterAResize(t *testing.T) {
	columns := 40
	size := func() (int, int) { return columns, 20 }
	wide := newTerminal(40, 20)
	s := cli.NewScreen(wide, wide, size, size)
	s.Write(strings.Repeat("x", 35))
	columns = 10
	var sent bytes.Buffer
	narrow := cli.NewScreen(&sent, &sent, size, size)
	narrow.Write(strings.Repeat("x", 35))
	sent.Reset()
	if err := narrow.TakeBack(); err != nil {
		t.Fatal(err)
	}
	if got := sent.String(); got != "\x1b[3A\r\x1b[J" {
		t.Errorf("took back by %q, want four rows", got)
	}
}

func TestLinesWaitForText(t *testing.T) {
	term := newTerminal(40, 10)
	s := cli.NewScreen(term, term, term.size, term.size)
	s.Write("an answer")
	s.Line("a line of progress")
	if got := term.text(); got != "an answer" {
		t.Errorf("the line was drawn into the text: %q", got)
	}
	s.Keep()
	if got := term.text(); got != "an answer\na line of progress" {
		t.Errorf("got %q", got)
	}
}

func TestStatusCountsDownAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := newTerminal(40, 10)
		s := cli.NewScreen(term, term, term.size, term.size)
		end := time.Now().Add(3 * time.Second)
		s.Line("it failed")
		s.Status(func(now time.Time) string { return "waiting " + cli.Countdown(end.Sub(now)) })
		for _, want := range []string{"3.0 s", "2.0 s", "1.0 s"} {
			if got := term.text(); got != "it failed\nwaiting "+want {
				t.Errorf("the screen shows %q, want %s", got, want)
			}
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
		}
		s.Line("it goes on")
		time.Sleep(tick)
		synctest.Wait()
		if got := term.text(); got != "it failed\nit goes on\nwaiting 0.0 s" {
			t.Errorf("the screen shows %q", got)
		}
		s.Status(nil)
		if got := term.text(); got != "it failed\nit goes on" {
			t.Errorf("a status is left: %q", got)
		}
		s.Close()
	})
}

const tick = 150 * time.Millisecond

func TestNothingIsDrawnOffATerminal(t *testing.T) {
	var out, err bytes.Buffer
	s := cli.NewScreen(&out, &err, nil, nil)
	s.Status(func(time.Time) string { return "waiting" })
	s.Line("one\x1b[31m line\x07\r")
	s.Close()
	if got, want := err.String(), "one\uFFFD[31m line\uFFFD\n"; got != want {
		t.Errorf("stderr has %q, want %q", got, want)
	}
}

func TestTheFirstErrorOfStdoutStays(t *testing.T) {
	term := newTerminal(10, 3)
	s := cli.NewScreen(failing{syscall.EIO}, term, term.size, term.size)
	for range 2 {
		if err := s.Write("text"); !errors.Is(err, syscall.EIO) {
			t.Errorf("Write: %v", err)
		}
	}
	if err := s.TakeBack(); !errors.Is(err, syscall.EIO) {
		t.Errorf("TakeBack: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
