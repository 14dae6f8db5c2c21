//go:build linux || darwin

package shared_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
)

// What sharing costs a process that is alone: open and close, with a socket and
// without.
func BenchmarkOpen(b *testing.B) {
	b.Run("store", func(b *testing.B) {
		dir := b.TempDir()
		for b.Loop() {
			log, err := openBadger(b, dir)
			if err != nil {
				b.Fatal(err)
			}
			closed(b, log)
		}
	})
	b.Run("shared", func(b *testing.B) {
		o := options(b, b.TempDir())
		for b.Loop() {
			closed(b, open(b, o))
		}
	})
}

// A durable append: by the store, by the process that keeps it, and by another
// one through the socket.
func BenchmarkAppend(b *testing.B) {
	run := func(b *testing.B, log dsh.Log, id dsh.SessionID) {
		w, err := log.Acquire(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		c := &chain{}
		e := c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/"})
		for b.Loop() {
			if err := w.Append(b.Context(), e); err != nil {
				b.Fatal(err)
			}
			e = c.add(dsh.TypeStepStart, dsh.StepStart{Turn: 1, Step: int(c.tail.Seq)})
		}
		if err := w.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	o := options(b, b.TempDir())
	store, err := openBadger(b, o.Dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("store", func(b *testing.B) { run(b, store, "a") })
	closed(b, store)
	keeper := open(b, o)
	defer closed(b, keeper)
	b.Run("keeper", func(b *testing.B) { run(b, keeper, "b") })
	client := open(b, neverKeeps(o))
	defer closed(b, client)
	b.Run("client", func(b *testing.B) { run(b, client, "c") })
}

// BenchmarkHeads lists 20,000 sessions, by the keeper and through the socket.
func BenchmarkHeads(b *testing.B) {
	store := memory.New()
	for i := range 20_000 {
		id := dsh.SessionID(fmt.Sprintf("20261130-120000000-%06d", i))
		w, err := store.Acquire(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		c := &chain{}
		e := c.add(dsh.TypeSessionStart, dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/some/folder", Title: "a title of some words"})
		if err := errors.Join(w.Append(b.Context(), e), w.Release(b.Context())); err != nil {
			b.Fatal(err)
		}
	}
	o := options(b, b.TempDir())
	o.Open = func() (dsh.Log, error) { return store, nil }
	keeper := open(b, o)
	defer closed(b, keeper)
	client := open(b, neverKeeps(o))
	defer closed(b, client)
	for name, log := range map[string]dsh.Log{"keeper": keeper, "client": client} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range log.Heads(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if n != 20_000 {
					b.Fatal(n)
				}
			}
		})
	}
}
