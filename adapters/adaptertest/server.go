package adaptertest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// A server counts what it is sent, and answers by a function.
type server struct {
	t      testing.TB
	http   *httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	bodies []string
	heads  []http.Header
	gone   chan struct{} // a value for each request whose client went away before the answer's end
}

// serve starts a server. Its answers are to end when the request's context
// does.
func serve(t testing.TB, h2 bool, answer func(w http.ResponseWriter, r *http.Request)) *server {
	t.Helper()
	s := &server{t: t, answer: answer, gone: make(chan struct{}, 64)}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.handle))
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	if h2 {
		s.http.EnableHTTP2 = true
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	s.bodies = append(s.bodies, string(body))
	s.heads = append(s.heads, r.Header.Clone())
	s.mu.Unlock()
	if err == nil {
		s.answer(w, r)
	}
	if r.Context().Err() != nil {
		s.gone <- struct{}{}
	}
}

// requests is how many requests came, and their bodies.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

// target is what the adapter is told.
func (s *server) target() Target { return target(s.http) }

func target(s *httptest.Server) Target {
	out := Target{BaseURL: s.URL}
	if s.TLS != nil {
		out.TLS = trust(s)
	}
	return out
}

// trust is a configuration that accepts the server's certificate.
func trust(s *httptest.Server) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// left waits until the server has seen the client go away.
func (s *server) left() {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(10 * time.Second):
		s.t.Error("the server does not see the connection close")
	}
}

// one checks that exactly one request came, with the body.
func (s *server) one(body string) {
	s.t.Helper()
	if got := s.requests(); len(got) != 1 || got[0] != body {
		s.t.Errorf("the server was sent %d requests, want one: %.200q", len(got), got)
	}
}

// stream writes a stream's pieces, each at once.
func stream(pieces ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range pieces {
			_, _ = io.WriteString(w, p)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// document writes a response of one piece.
func document(status int, kind, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// raw writes bytes to the connection as they are, and closes it.
func raw(s string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		c := hijack(w)
		_, _ = io.WriteString(c, s)
		_ = c.Close()
	}
}

func hijack(w http.ResponseWriter) net.Conn {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return c
}

// hello is a good stream with a text.
func hello(w Wire, text string) []string {
	pieces := []string{w.Begin()}
	for _, word := range strings.SplitAfter(text, " ") {
		pieces = append(pieces, w.Text(word))
	}
	return append(pieces, w.End(dsh.FinishStop, dsh.Usage{InputTokens: 11, OutputTokens: 7}))
}

// both runs a test over HTTP/1.1 and HTTP/2.
func both(t *testing.T, test func(t *testing.T, h2 bool)) {
	t.Run("HTTP1", func(t *testing.T) { t.Parallel(); test(t, false) })
	t.Run("HTTP2", func(t *testing.T) { t.Parallel(); test(t, true) })
}
