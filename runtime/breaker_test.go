package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// Five faults within a minute trip a policy: it is not asked any more, which
// is said once, until it is reset.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, asked := true, 0
		var warned []string
		opts := options(t)
		opts.Warn = func(s string) { warned = append(warned, s) }
		opts.Engine = &fake{call: func(context.Context, runtime.Call) (runtime.Result, error) {
			if asked++; broken {
				return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultTrap, Message: "broken"}
			}
			return runtime.Result{Output: []byte(delegates)}, nil
		}}
		p := open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, "delegate")})[0]
		ask := func() error {
			_, err := decide(t, p, runtimetest.Input("p"))
			return err
		}
		var f *dsh.Fault
		for i := range 8 { // 15 s apart: never five within a minute
			if err := ask(); !errors.As(err, &f) || f.Kind != dsh.FaultTrap {
				t.Fatalf("fault %d: %v", i, err)
			}
			time.Sleep(15 * time.Second)
		}
		if s := runtime.StatusOf(p); s.Tripped || s.Calls != 8 || s.Faults != 8 || s.State() != "failing" {
			t.Fatalf("%+v", s)
		}
		time.Sleep(time.Minute)
		for range 5 {
			if err := ask(); errors.Is(err, dsh.ErrTripped) {
				t.Fatal(err)
			}
		}
		before := asked
		for range 3 {
			err := ask()
			if !errors.Is(err, dsh.ErrTripped) || !errors.As(err, &f) || f.Kind != dsh.FaultUnavailable || !strings.Contains(f.Message, "trap (broken)") {
				t.Errorf("%v", err)
			}
		}
		if s := runtime.StatusOf(p); asked != before || !s.Tripped || s.State() != "tripped" || s.Calls != 13 || s.Faults != 13 || s.LastFault != dsh.FaultTrap || s.LastAt.IsZero() {
			t.Errorf("asked %d times more, %+v", asked-before, s)
		}
		if len(warned) != 1 || !strings.Contains(warned[0], `"p" has tripped`) {
			t.Errorf("warned %q", warned)
		}
		broken = false
		if !runtime.Reset(p) || runtime.Reset(p) {
			t.Error("reset")
		}
		for range 10 {
			if err := ask(); err != nil {
				t.Error(err)
			}
		}
		if s := runtime.StatusOf(p); s.State() != "ready" {
			t.Errorf("%+v", s)
		}
	})
}

// What the caller stops is no fault of the policy's.
func TestBreakerIgnoresStops(t *testing.T) {
	p := guest(t, nil, func(ctx context.Context, _ runtime.Call) (runtime.Result, error) {
		<-ctx.Done()
		return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "stopped"}
	})
	for range 10 {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := ask(ctx, t, p, nil); err == nil || errors.Is(err, dsh.ErrTripped) {
			t.Fatal(err)
		}
	}
	if s := runtime.StatusOf(p); s.Faults != 0 || s.Calls != 10 {
		t.Errorf("%+v", s)
	}
}

// However many decisions log, what comes of it over time is bounded, and what
// is dropped is said.
func TestLogFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, bytes := 0, 0
		var notices []string
		opts := options(t)
		opts.Logged = func(_ string, l runtime.LogLine) {
			lines++
			bytes += len(l.Text)
			if l.Level == "warn" {
				notices = append(notices, l.Text)
			}
		}
		flood := 60
		opts.Engine = &fake{call: func(context.Context, runtime.Call) (runtime.Result, error) {
			r := runtime.Result{Output: []byte(delegates)}
			for i := range flood {
				r.Logs = append(r.Logs, runtime.LogLine{Level: "info", Text: fmt.Sprint("line ", i, strings.Repeat(".", 200))})
			}
			return r, nil
		}}
		p := open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: runtimetest.Guest(t, "delegate")})[0]
		ask := func() {
			t.Helper()
			if _, err := decide(t, p, runtimetest.Input("p")); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 { // 60,000 lines in 100 s
			ask()
			time.Sleep(100 * time.Millisecond)
		}
		if lines > 256+100*4+60 || lines < 256 || bytes > 64<<10+100<<10 {
			t.Errorf("%d lines of %d bytes", lines, bytes)
		}
		if len(notices) < 2 || len(notices) > 60 || !strings.Contains(notices[0], "more than it may") || !strings.Contains(notices[1], "dropped before this one") {
			t.Errorf("%d notices: %.300q", len(notices), notices)
		}
		time.Sleep(10 * time.Minute)
		flood, lines = 1, 0
		for range 100 { // a calm one loses nothing
			ask()
			time.Sleep(time.Second)
		}
		if lines != 101 { // one says how many were dropped before
			t.Errorf("%d lines of 100", lines)
		}
	})
}
