//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/loop"
	guest "github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/store/badger"
)

// herdWait is what the provider asks for: longer than it takes until all wait.
const herdWait = 30 * time.Second

// A limited provider holds all first requests until it fails, then it refuses
// them all, and those after them, until it is opened.
type limited struct {
	asked sync.WaitGroup // by all sessions, once each
	fails chan struct{}  // closed: it does
	open  atomic.Bool
}

func (*limited) Encode(r dsh.Request) ([]byte, error) { return json.Marshal(r) }

func (p *limited) Send(context.Context, []byte) iter.Seq2[dsh.Chunk, error] {
	return func(yield func(dsh.Chunk, error) bool) {
		select {
		case <-p.fails:
		default:
			p.asked.Done()
			<-p.fails
		}
		if !p.open.Load() {
			yield(dsh.Chunk{}, &dsh.Failure{Code: dsh.CodeRateLimit, Status: 429, Message: "slow down", RetryAfter: herdWait})
			return
		}
		_ = yield(dsh.Chunk{Type: dsh.ChunkText, Text: "the answer"}, nil) && yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: dsh.FinishStop}}, nil)
	}
}

// BenchmarkHerd is a process with 10,000 sessions whose provider fails for all
// of them at the same moment, with the real log and the built-in policy: how
// long from then until all waits are decided and durable, and how long it took
// until all had asked, what a waiting session takes of memory, how long until all are suspended, and until all have gone on. What a
// session takes is the heap and the stacks in use after a collection.
func BenchmarkHerd(b *testing.B) {
	const sessions = 10_000
	for b.Loop() {
		h := newHerd(b, sessions)
		before, began := heap(), time.Now()
		suspend := h.start(b)
		h.provider.asked.Wait()
		asked := time.Since(began)
		spent := cpuTime(b)
		began, h.began = time.Now(), time.Now()
		close(h.provider.fails)
		h.waiting.Wait()
		h.check(b)
		waiting := time.Since(began)
		spent = cpuTime(b) - spent
		each := float64(heap()-before) / sessions / 1024
		began = time.Now()
		suspend(loop.ErrSuspend)
		h.done.Wait()
		suspended := time.Since(began)
		h.provider.open.Store(true)
		resumed := h.resume(b)
		h.close(b)
		b.ReportMetric(asked.Seconds()*1000, "ms-to-ask")
		b.ReportMetric(waiting.Seconds()*1000, "ms-to-wait")
		b.ReportMetric(spent.Seconds()*1000, "ms-cpu-to-wait")
		b.ReportMetric(suspended.Seconds()*1000, "ms-to-suspend")
		b.ReportMetric(resumed.Seconds()*1000, "ms-to-resume")
		b.ReportMetric(each, "KiB/session")
	}
}

// cpuTime is what the process has spent, of the user's and the system's.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// heap is what is in use of the heap and of stacks once the database is at rest,
// and garbage is gone. A stack that was deep shrinks by half in a collection.
func heap() uint64 {
	var least uint64
	for range 6 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := m.HeapInuse + m.StackInuse
		if least != 0 && now > least-least/100 {
			return min(now, least)
		}
		least = now
		time.Sleep(250 * time.Millisecond)
	}
	return least
}

type herd struct {
	n        int
	log      *badger.Log
	policies *guest.Set
	provider *limited
	waiting  sync.WaitGroup // for every session's llm/retry
	done     sync.WaitGroup
	failed   atomic.Pointer[error]
	began    time.Time // when the provider failed
}

func newHerd(b *testing.B, n int) *herd {
	log, err := badger.Open(b.TempDir(), badger.Options{})
	if err != nil {
		b.Fatal(err)
	}
	set, err := guest.Open(b.Context(), []guest.Spec{{Name: "retry", Module: "builtin:retry"}}, guest.Options{
		Engine: native.New(native.Options{}), Builtin: guests.Builtin,
	})
	if err != nil {
		b.Fatal(err)
	}
	h := &herd{n: n, log: log, policies: set, provider: &limited{fails: make(chan struct{})}}
	h.provider.asked.Add(n)
	return h
}

func (h *herd) id(i int) dsh.SessionID { return dsh.SessionID(fmt.Sprintf("herd-%05d", i)) }

func (h *herd) config(front loop.Front) loop.Config {
	retry := dsh.DefaultRetryPolicy()
	retry.MaxDelayMs = 2 * dsh.Millis(herdWait)
	return loop.Config{
		Provider: "p", Model: "m", Policies: h.policies, Front: front,
		Providers: func(string) (loop.Provider, error) { return loop.Provider{Adapter: h.provider, Retry: retry}, nil },
	}
}

func (h *herd) fail(err error) { h.failed.CompareAndSwap(nil, &err) }

func (h *herd) check(b *testing.B) {
	if err := h.failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// start prompts every session at once.
func (h *herd) start(b *testing.B) context.CancelCauseFunc {
	ctx, cancel := context.WithCancelCause(b.Context())
	h.waiting.Add(h.n)
	for i := range h.n {
		h.done.Go(func() { h.one(ctx, i) })
	}
	return cancel
}

// one is a session from its prompt to its suspension. What a goroutine holds on
// its stack while its session waits is a part of what is measured: it holds no
// more than it has to.
func (h *herd) one(ctx context.Context, i int) {
	told := false // on a slow machine the first wait may end before the last begins
	tell := func() {
		if !told {
			told = true
			h.waiting.Done()
		}
	}
	defer tell()
	s := h.create(ctx, i, tell)
	if s == nil {
		return
	}
	h.prompt(ctx, s, i)
	if err := s.Close(context.WithoutCancel(ctx)); err != nil {
		h.fail(err)
	}
}

func (h *herd) create(ctx context.Context, i int, tell func()) *loop.Session {
	s, err := loop.Create(ctx, h.log, dsh.SessionStart{ID: h.id(i), Cwd: "/w"}, h.config(loop.Front{Event: func(e dsh.Event) error {
		if e.Type == dsh.TypeRetry {
			tell()
		}
		return nil
	}}))
	if err != nil {
		h.fail(err)
		h.provider.asked.Done() // it never will
	}
	return s
}

func (h *herd) prompt(ctx context.Context, s *loop.Session, i int) {
	if o, err := s.Prompt(ctx, []dsh.Block{dsh.TextBlock("what is the answer?")}); !errors.Is(err, loop.ErrSuspend) {
		h.fail(fmt.Errorf("session %d did not wait: %+v, %w", i, o, err))
	}
}

// resume opens every session again once the waits are over, and lets it go on,
// as a process that comes back later does.
func (h *herd) resume(b *testing.B) time.Duration {
	h.check(b)
	time.Sleep(time.Until(h.began.Add(herdWait + 2*time.Second)))
	began := time.Now()
	var all sync.WaitGroup
	for i := range h.n {
		all.Go(func() {
			s, err := loop.Open(b.Context(), h.log, h.id(i), h.config(loop.Front{}))
			if err != nil {
				h.fail(err)
				return
			}
			o, err := s.Resume(b.Context())
			if err != nil || o.Status != dsh.EndCompleted || o.Retries == 0 {
				h.fail(fmt.Errorf("session %d: %+v, %w", i, o, err))
			}
			if err := s.Close(b.Context()); err != nil {
				h.fail(err)
			}
		})
	}
	all.Wait()
	h.check(b)
	return time.Since(began)
}

func (h *herd) close(b *testing.B) {
	if err := errors.Join(h.policies.Close(), h.log.Close()); err != nil {
		b.Fatal(err)
	}
}
