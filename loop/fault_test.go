package loop_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/storetest"
)

var errDisk = errors.New("the disk said no")

// TestEveryAppendFails plays every story that nobody interferes with again and
// again, with another append failing each time, resumes as a supervisor would,
// and wants what the undisturbed story came to.
func TestEveryAppendFails(t *testing.T) {
	total := 0
	for _, s := range stories(t) {
		if slices.ContainsFunc(s.script, func(l string) bool {
			return strings.HasPrefix(l, "on ") || l == "resume" || strings.HasPrefix(l, "policies")
		}) {
			continue
		}
		if s.name() == "tools-many" {
			continue // hundreds of appends of one kind
		}
		t.Run(s.name(), func(t *testing.T) {
			for _, after := range []bool{false, true} {
				for n := 1; ; n++ {
					if !failOne(t, s, n, after) {
						break
					}
					total++
				}
			}
		})
	}
	if total < 300 {
		t.Errorf("only %d failed appends were tried", total)
	}
}

// failOne reports whether there was an n-th append.
func failOne(t *testing.T, s *story, n int, after bool) (tried bool) {
	t.Helper()
	name := fmt.Sprintf("append %d, after the write %v", n, after)
	synctest.Test(t, func(t *testing.T) {
		calm := s.play(newLog())
		calm.act(t)

		p := s.play(storetest.Faulty(newLog(), storetest.Fault{N: n, After: after, Passing: true, Err: errDisk}))
		p.resumes = true
		p.act(t)
		tried = slices.ContainsFunc(p.errs, func(err error) bool { return errors.Is(err, errDisk) })
		if !tried {
			return // there was no n-th append
		}
		if got, want := ending(p, t), ending(calm, t); got != want && !p.unknown(t) {
			t.Errorf("%s: %s: the resumed turn ended as\n%s\nwant\n%s\nlog\n%s", s.path, name, got, want, transcript(events(t, p.log)))
		}
		p.sound(t)
		p.noToolTwice(t, calm)
	})
	return tried
}

// finish does what a supervisor does after a crash: it resumes the open turn,
// or gives the prompt again where that was never stored.
func (p *play) finish(t *testing.T, line string) {
	t.Helper()
	_, err := p.log.Head(t.Context(), storyID)
	switch {
	case errors.Is(err, dsh.ErrNoSession):
		p.run(t, nil, promptText(line))
		return
	case strings.HasPrefix(line, "prompt") && prompted(p, t) < p.prompts:
		p.provider.asked = answered(p, t)
		p.run(t, nil, promptText(line))
	case line == "compact" && strings.Count(transcript(events(t, p.log)), `"manual":true`) < p.compacts:
		p.run(t, nil, compactWord) // its turn was never stored
	case p.open(t):
		p.provider.asked = answered(p, t)
		p.run(t, nil, "")
	default:
		return
	}
	if err := p.errs[len(p.errs)-1]; err != nil && !errors.Is(err, errBoom) {
		t.Errorf("%s: resume: %v", p.story.path, err)
	}
}

// prompted counts the prompts that are in the log.
func prompted(p *play, t *testing.T) int {
	n := 0
	for _, e := range events(t, p.log) {
		if e.Type == dsh.TypeUserMessage && e.Surface.Op == dsh.SurfaceAppend {
			n++
		}
	}
	return n
}

// answered counts the requests whose answer was stored. A provider that is
// asked the same again answers the same: so can the two runs be compared.
func answered(p *play, t *testing.T) int {
	n := 0
	for _, e := range events(t, p.log) {
		if e.Type != dsh.TypeAttemptEnd {
			continue
		}
		var d dsh.AttemptEnd
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		tooLong := d.Finish.Failure != nil && d.Finish.Failure.Message == limitMessage
		if d.Finish.Kind != dsh.FinishInterrupted && !tooLong {
			n++
		}
	}
	return n
}

func (p *play) open(t *testing.T) bool {
	all := events(t, p.log)
	return all[len(all)-1].Type != dsh.TypeTurnEnd
}

// ending is the last message of the surface and how the turn ended, from the
// log. A call of an unknown outcome may have changed neither.
func ending(p *play, t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events(t, p.log) {
		switch e.Type {
		case dsh.TypeAssistantMessage:
			var d dsh.AssistantMessage
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			content, _ := dsh.JSON(d.Content)
			fmt.Fprintf(&b, "message %s\n", content)
		case dsh.TypeTurnEnd:
			var d dsh.TurnEnd
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			code := dsh.Code("")
			if d.Reason.Failure != nil {
				code = d.Reason.Failure.Code
			}
			fmt.Fprintf(&b, "end %d %s %s\n", d.Turn, d.Reason.Kind, code)
		}
	}
	return b.String()
}

// unknown reports whether a tool that was under way answers so: the model
// then goes on from something else.
func (p *play) unknown(t *testing.T) bool {
	return strings.Contains(transcript(events(t, p.log)), "outcome of this call is unknown")
}

// noToolTwice wants no call to have run more often than in the calm play.
func (p *play) noToolTwice(t *testing.T, calm *play) {
	t.Helper()
	left := map[string]int{}
	for _, r := range p.runs {
		left[r] = 1 // it may have been reached only because another's outcome is unknown
	}
	for r, n := range counted(calm.runs) {
		left[r] = n
	}
	for _, r := range p.runs {
		if left[r]--; left[r] < 0 && !strings.HasPrefix(r, "again") {
			t.Errorf("%s: the tool call %s ran once more than it should", p.story.path, r)
		}
	}
}

func counted(runs []string) map[string]int {
	n := map[string]int{}
	for _, r := range runs {
		n[r]++
	}
	return n
}

func newLog() dsh.Log { return memory.New() }
