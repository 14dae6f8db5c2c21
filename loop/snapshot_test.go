package loop_test

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
)

// watchedLog tells after which events it was read, and can hand out another
// snapshot than it has.
type watchedLog struct {
	dsh.Log
	after []uint64
	twist func(dsh.Snapshot) dsh.Snapshot
}

func (l *watchedLog) Read(ctx context.Context, id dsh.SessionID, after uint64) iter.Seq2[dsh.Event, error] {
	l.after = append(l.after, after)
	return l.Log.Read(ctx, id, after)
}

func (l *watchedLog) Snapshot(ctx context.Context, id dsh.SessionID) (dsh.Snapshot, error) {
	s, err := l.Log.Snapshot(ctx, id)
	if err == nil && l.twist != nil {
		s.Data = bytes.Clone(s.Data)
		s = l.twist(s)
	}
	return s, err
}

// A long session is opened by its snapshot, and by its log alone where there is
// any doubt; what comes of it is the same.
func TestSnapshot(t *testing.T) {
	log := &watchedLog{Log: memory.New()}
	st := &story{steps: []reply{{Text: []string{strings.Repeat("a long answer ", 10_000)}}}}
	p := st.play(log)
	turn := func(first bool) string {
		t.Helper()
		open := func() (*loop.Session, error) {
			if first {
				return loop.Create(t.Context(), log, dsh.SessionStart{ID: storyID, Cwd: "/w"}, p.config(loop.Front{}))
			}
			return loop.Open(t.Context(), log, storyID, p.config(loop.Front{}))
		}
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prompt(t.Context(), []dsh.Block{dsh.TextBlock("go on")}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return string(p.provider.bodies[len(p.provider.bodies)-1])
	}
	turn(true)
	kept, err := log.Snapshot(t.Context(), storyID)
	if err != nil || kept.Tail.Seq == 0 {
		t.Fatalf("no snapshot after a long turn: %+v, %v", kept.Tail, err)
	}
	for _, c := range []struct {
		name  string
		twist func(dsh.Snapshot) dsh.Snapshot
		used  bool
	}{
		{"as it is", nil, true},
		{"none", func(dsh.Snapshot) dsh.Snapshot { return dsh.Snapshot{} }, false},
		{"of another log", func(s dsh.Snapshot) dsh.Snapshot { s.Tail.Hash = strings.Repeat("0", 32); return s }, false},
		{"of a log that was longer", func(s dsh.Snapshot) dsh.Snapshot { s.Tail.Seq += 1 << 20; return s }, false},
		{"cut", func(s dsh.Snapshot) dsh.Snapshot { s.Data = s.Data[:len(s.Data)-1]; return s }, false},
		{"with something behind it", func(s dsh.Snapshot) dsh.Snapshot { s.Data = append(s.Data, 0); return s }, false},
		{"of a later version", func(s dsh.Snapshot) dsh.Snapshot {
			s.Data = bytes.Replace(s.Data, []byte(`{"version":`), []byte(`{"version":9`), 1)
			s.Data[0]++ // the length of the head, which has two bytes
			return s
		}, false},
	} {
		log.twist, log.after = c.twist, nil
		body := turn(false)
		last := log.after[len(log.after)-1]
		if used := last > 0; used != c.used {
			t.Errorf("%s: the log was read after %v", c.name, log.after)
		}
		if n := strings.Count(body, `"go on"`); n != len(p.provider.bodies) {
			t.Errorf("%s: the request has %d of %d prompts", c.name, n, len(p.provider.bodies))
		}
	}
}
