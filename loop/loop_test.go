package loop_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// TestStories plays every story under a clock of its own and holds the log,
// to the millisecond, and what was seen from outside to the file.
func TestStories(t *testing.T) {
	for _, s := range stories(t) {
		t.Run(s.name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := s.play(newLog())
				p.act(t)
				s.compare(t, "result", p.result())
				s.compare(t, "log", transcript(events(t, p.log)))
				p.sound(t)
			})
			s.save(t)
		})
	}
}

// sound checks what holds for every story: the chain and the invariants, and
// one body for all attempts of a step.
func (p *play) sound(t *testing.T) {
	t.Helper()
	if tail, err := loop.Verify(p.log.Read(context.Background(), storyID, 0)); err != nil {
		t.Errorf("%s: after event %d: %v", p.story.path, tail.Seq, err)
	}
	if err := loop.CheckSnapshots(events(t, p.log)); err != nil {
		t.Errorf("%s: %v", p.story.path, err)
	}
	type place struct {
		turn, step, generation int
		purpose                dsh.Purpose
	}
	generation := 0
	bodies := map[place]string{}
	for _, e := range events(t, p.log) {
		if e.Surface != nil && e.Surface.Op == dsh.SurfaceReplace {
			generation++
		}
		if e.Type != dsh.TypeAttemptStart {
			continue
		}
		var d dsh.AttemptStart
		if err := e.Decode(&d); err != nil {
			t.Fatal(err)
		}
		at := place{d.Turn, d.Step, generation, d.Purpose}
		if have, ok := bodies[at]; ok && have != d.RequestSHA256 {
			t.Errorf("%s: attempt %d of step %d sends another body than the first", p.story.path, d.Attempt, d.Step)
		}
		bodies[at] = d.RequestSHA256
	}
	for i, b := range p.provider.bodies {
		if !bytes.HasPrefix(b, []byte(`{"messages":`)) {
			t.Errorf("%s: request %d is not what Encode made: %s", p.story.path, i+1, b)
		}
	}
}
