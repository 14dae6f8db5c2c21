package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/store/badger"
)

// prepare makes a world with a provider that plays steps.
func prepare(t *testing.T, steps ...scripted.Step) *world {
	t.Helper()
	w, err := newWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, w.dir)
	t.Cleanup(w.close)
	if err := w.play(steps...); err != nil {
		t.Fatal(err)
	}
	return w
}

// patience is when a test gives up waiting: a machine that does much else may
// take long.
const patience = 3 * time.Minute

// command is a dsh in the world. A test that hangs kills it.
func (w *world) command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, "dsh", args...)
	c.Dir, c.Env = w.dir, append(os.Environ(), w.env...)
	return c
}

// A ran is what a dsh did.
type ran struct {
	code     int
	out, err string
}

func (w *world) run(t *testing.T, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	c := w.command(t, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// events are those of the session that was last written to.
func (w *world) events(t *testing.T) []dsh.Event {
	t.Helper()
	r := w.run(t, "log", "export", "last")
	if r.code != 0 {
		t.Fatalf("log export: exit %d, %s", r.code, r.err)
	}
	return parsed(t, r.out)
}

// stored are the events of all sessions; nil: there is none. They are read without
// a process, which takes half as long, so no dsh may be under way.
func (w *world) stored(t *testing.T) (events []dsh.Event) {
	t.Helper()
	log, err := badger.Open(filepath.Join(w.dir, "home", "data"), badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // nothing was written
	for h, err := range log.Heads(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range log.Read(t.Context(), h.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
		}
	}
	return events
}

// parsed reads an export.
func parsed(t *testing.T, lines string) []dsh.Event {
	t.Helper()
	var events []dsh.Event
	for l := range strings.Lines(lines) {
		e, err := dsh.ParseEvent([]byte(l))
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func ofType(events []dsh.Event, t dsh.EventType) []dsh.Event {
	var list []dsh.Event
	for _, e := range events {
		if e.Type == t {
			list = append(list, e)
		}
	}
	return list
}

func rateLimit(seconds string) scripted.Step {
	return scripted.Step{Do: scripted.Status, Status: 429, Headers: map[string]string{"Retry-After": seconds}}
}

func answer(text string) scripted.Step { return scripted.Step{Do: scripted.Text, Text: text} }
