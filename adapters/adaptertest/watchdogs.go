package adaptertest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// idle is the short silence that the tests allow, and late by how much an end
// may come after it on a busy machine.
const (
	idle = 500 * time.Millisecond
	late = 10 * time.Second
)

// hold sends pieces and then nothing until the client is gone.
func hold(pieces ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(pieces) > 0 {
			stream(pieces...)(w, r)
		}
		<-r.Context().Done()
	}
}

func testWatchdogs(t *testing.T, s Suite) {
	w := s.Wire()
	for name, pieces := range map[string][]string{
		"no header":           nil,
		"nothing after it":    {""},
		"a stall":             {w.Begin(), w.Text("a ")},
		"a stall in an event": {w.Begin(), w.Text("a "), w.Text("b")[:10]},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, h2 bool) {
				srv := serve(t, h2, hold(pieces...))
				target := srv.target()
				target.StreamIdle = idle
				timedOut(t, send(t.Context(), t, s.New(t, target), theBody), idle)
				srv.left()
				srv.one(theBody)
			})
		})
	}
	t.Run("a handshake", func(t *testing.T) { stalledHandshakes(t, s) })
	t.Run("keep-alives for ever", func(t *testing.T) { keepAlives(t, s) })
	t.Run("what is no stall", func(t *testing.T) { noStalls(t, s) })
	t.Run("an error body that stalls keeps its status", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
			document(429, "application/json", `{"error":{"message":"slow`)(rw, r)
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		})
		target := srv.target()
		target.StreamIdle = idle
		failed(t, send(t.Context(), t, s.New(t, target), theBody), dsh.CodeRateLimit)
		srv.left()
	})
}

func stalledHandshakes(t *testing.T, s Suite) {
	t.Run("no handshake", func(t *testing.T) {
		t.Parallel()
		closed := make(chan struct{})
		addr := listen(t, nil, func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c) // until the other side hangs up
			close(closed)
		})
		timedOut(t, send(t.Context(), t, s.New(t, Target{BaseURL: "https://" + addr, StreamIdle: idle}), theBody), idle)
		select {
		case <-closed:
		case <-time.After(late):
			t.Error("the connection stays open")
		}
	})
	t.Run("a header that drips", func(t *testing.T) {
		t.Parallel()
		addr := listen(t, nil, func(c net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
				return
			}
			for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; _, err = io.WriteString(c, "X: y\r\n") {
				time.Sleep(20 * time.Millisecond)
			}
		})
		timedOut(t, send(t.Context(), t, s.New(t, Target{BaseURL: "http://" + addr, StreamIdle: idle}), theBody), idle)
	})
}

func noStalls(t *testing.T, s Suite) {
	t.Run("keep-alives, and then an answer", func(t *testing.T) {
		t.Parallel()
		w := s.Wire()
		srv := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
			stream(w.Begin())(rw, r)
			for range 15 { // longer than the silence that is allowed, in all
				time.Sleep(idle / 10)
				stream(w.KeepAlive())(rw, r)
			}
			stream(hello(w, "late")[1:]...)(rw, r)
		})
		target := srv.target()
		target.StreamIdle = idle
		good(t, send(t.Context(), t, s.New(t, target), theBody), "late")
	})
	t.Run("a slow reader", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, false, stream(hello(s.Wire(), "one two three")...))
		target := srv.target()
		target.StreamIdle, target.Keepalive = idle, idle
		text := ""
		for c, err := range s.New(t, target).Send(t.Context(), []byte(theBody)) {
			if err != nil {
				t.Fatal(err)
			}
			text += c.Text
			time.Sleep(idle + idle/2)
		}
		if text != "one two three" {
			t.Errorf("text %q", text)
		}
	})
}

func keepAlives(t *testing.T, s Suite) {
	w := s.Wire()
	begin := w.Begin()
	for name, alive := range map[string]string{"the protocol's": w.KeepAlive(), "comments": ": x\n\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
				stream(begin)(rw, r)
				for r.Context().Err() == nil {
					stream(alive)(rw, r)
					time.Sleep(20 * time.Millisecond)
				}
			})
			target := srv.target()
			target.StreamIdle, target.Keepalive = 10*time.Second, 2*idle
			timedOut(t, send(t.Context(), t, s.New(t, target), theBody), 2*idle)
			srv.left()
		})
	}
}

func timedOut(t testing.TB, r result, after time.Duration) {
	t.Helper()
	failed(t, r, dsh.CodeTimeout)
	// A timer may be early by the clock's grain.
	if r.took < after-10*time.Millisecond || r.took > after+late {
		t.Errorf("it took %v, want %v", r.took, after)
	}
}

// testStop ends calls from outside.
func testStop(t *testing.T, s Suite) {
	w := s.Wire()
	why := errors.New("the user has seen enough")
	t.Run("before", func(t *testing.T) {
		srv := serve(t, false, stream(hello(w, "x")...))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		aborted(t, send(ctx, t, s.New(t, srv.target()), theBody), why)
		if n := len(srv.requests()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
	for name, pieces := range map[string][]string{
		"before a header": nil, "in a stall": {w.Begin(), w.Text("a")}, "among keep-alives": {w.Begin(), strings.Repeat(w.KeepAlive(), 10)},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, h2 bool) {
				there := make(chan struct{})
				srv := serve(t, h2, func(rw http.ResponseWriter, r *http.Request) {
					if pieces != nil {
						stream(pieces...)(rw, r)
					}
					close(there)
					<-r.Context().Done()
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				go func() {
					<-there
					cancel(why)
				}()
				aborted(t, send(ctx, t, s.New(t, srv.target()), theBody), why)
				srv.left()
				srv.one(theBody)
			})
		})
	}
	t.Run("from within", func(t *testing.T) { stopsFromWithin(t, s, why) })
}

func stopsFromWithin(t *testing.T, s Suite, why error) {
	w := s.Wire()
	t.Run("against the watchdog", func(t *testing.T) {
		// The caller stops it at the moment at which the watchdog would.
		srv := serve(t, false, hold(w.Begin(), w.Text("a")))
		target := srv.target()
		target.StreamIdle = idle
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		for _, err := range s.New(t, target).Send(ctx, []byte(theBody)) {
			if err == nil {
				cancel(why) // from within, so that it is surely the first
				continue
			}
			aborted(t, result{err: err}, why)
		}
	})
	pieces := []string{w.Begin(), w.Text("a"), w.Text("b")}
	t.Run("by leaving", func(t *testing.T) {
		both(t, func(t *testing.T, h2 bool) {
			srv := serve(t, h2, hold(pieces...))
			for range s.New(t, srv.target()).Send(t.Context(), []byte(theBody)) {
				break
			}
			srv.left()
			srv.one(theBody)
		})
	})
	t.Run("by a panic", func(t *testing.T) {
		srv := serve(t, false, hold(pieces...))
		func() {
			defer func() { _ = recover() }()
			for range s.New(t, srv.target()).Send(t.Context(), []byte(theBody)) {
				panic("the reader is broken")
			}
		}()
		srv.left()
	})
}

func aborted(t testing.TB, r result, why error) {
	t.Helper()
	failed(t, r, dsh.CodeAborted)
	if f := r.failure(); f != nil && !errors.Is(f, why) {
		t.Errorf("the cause is %v, want %v", f.Cause, why)
	}
}
