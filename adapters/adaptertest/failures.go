package adaptertest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// testFailures has the provider report each failure in each way.
func testFailures(t *testing.T, s Suite) {
	w := s.Wire()
	for _, code := range dsh.Codes() {
		message := "the words of " + string(code)
		status, body, ok := w.Error(code, message)
		if ok {
			t.Run(string(code)+" by status", func(t *testing.T) {
				both(t, func(t *testing.T, h2 bool) {
					srv := serve(t, h2, func(rw http.ResponseWriter, r *http.Request) {
						rw.Header().Set("Retry-After", "2.5")
						rw.Header().Set("X-Request-Id", "req_1")
						rw.Header().Set("Request-Id", "req_1")
						document(status, "application/json", body)(rw, r)
					})
					r := send(t.Context(), t, s.New(t, srv.target()), theBody)
					failed(t, r, code)
					if f := r.failure(); f != nil && (f.Status != status || f.RetryAfter != 2500*time.Millisecond || f.RequestID != "req_1" || !strings.Contains(f.Message, message)) {
						t.Errorf("the facts: %+v", f)
					}
					srv.one(theBody)
				})
			})
			t.Run(string(code)+" under a 200", func(t *testing.T) {
				srv := serve(t, false, document(200, "application/json", body))
				r := send(t.Context(), t, s.New(t, srv.target()), theBody)
				if r.failure() == nil {
					t.Errorf("an error under a 200 is a good end: %s", body)
				}
			})
			t.Run(string(code)+" with a body that is cut", func(t *testing.T) {
				srv := serve(t, false, func(rw http.ResponseWriter, _ *http.Request) {
					rw.Header().Set("Content-Type", "application/json")
					rw.Header().Set("Content-Length", "100000")
					rw.WriteHeader(status)
					_, _ = io.WriteString(rw, body)
				})
				r := send(t.Context(), t, s.New(t, srv.target()), theBody)
				failed(t, r, code)
			})
		}
		event, ok := w.StreamError(code, message)
		if !ok {
			continue
		}
		for name, pieces := range map[string][]string{
			"first":         {event},
			"in the middle": {w.Begin(), w.Text("partial"), event},
			"before an end": {w.Begin(), w.Text("partial"), event, w.End(dsh.FinishStop, dsh.Usage{InputTokens: 1, OutputTokens: 1})},
		} {
			t.Run(string(code)+" in the stream, "+name, func(t *testing.T) {
				srv := serve(t, false, stream(pieces...))
				r := send(t.Context(), t, s.New(t, srv.target()), theBody)
				failed(t, r, code)
				if f := r.failure(); f != nil && !strings.Contains(f.Message, message) {
					t.Errorf("the message is %q", f.Message)
				}
				srv.one(theBody)
			})
		}
	}
	t.Run("a status alone", func(t *testing.T) { statuses(t, s) })
}

// statuses are responses whose bodies say nothing.
func statuses(t *testing.T, s Suite) {
	for status, want := range map[int]dsh.Code{
		400: dsh.CodeInvalidRequest, 401: dsh.CodeAuth, 402: dsh.CodeQuota, 403: dsh.CodeAuth, 404: dsh.CodeInvalidRequest,
		408: dsh.CodeTimeout, 413: dsh.CodeInvalidRequest, 418: dsh.CodeUnknown, 422: dsh.CodeInvalidRequest, 429: dsh.CodeRateLimit,
		500: dsh.CodeServer, 502: dsh.CodeServer, 503: dsh.CodeServer, 504: dsh.CodeTimeout, 524: dsh.CodeTimeout, 529: dsh.CodeServer,
	} {
		for name, body := range map[string]string{
			"empty": "", "a page": "<html><head><title>Sorry</title></head><body>rate limit, quota, timeout</body></html>", "{}": "{}",
		} {
			srv := serve(t, false, document(status, "text/html", body))
			r := send(t.Context(), t, s.New(t, srv.target()), theBody)
			if r.code() != want {
				t.Errorf("%d with %s: %v, want %s", status, name, r.failure(), want)
			}
			if f := r.failure(); f != nil && (f.RetryAfter != 0 || f.RequestID != "") {
				t.Errorf("%d with %s: a wait or an id out of nothing: %+v", status, name, f)
			}
		}
	}
}

// testDeliveries breaks the delivery of a good answer in every way.
func testDeliveries(t *testing.T, s Suite) {
	w := s.Wire()
	begun := w.Begin() + w.Text("partial ")
	end := w.End(dsh.FinishStop, dsh.Usage{InputTokens: 1, OutputTokens: 1})
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		want   dsh.Code
		text   string
	}{
		{"closed before a byte", raw(""), dsh.CodeTransport, ""},
		{"closed in the header", raw("HTTP/1.1 200 OK\r\nContent-Ty"), dsh.CodeTransport, ""},
		{"no HTTP", raw("hello\r\n\r\n"), dsh.CodeTransport, ""},
		{"reset before a byte", reset(""), dsh.CodeTransport, ""},
		{"reset in the stream", reset(ok + "\r\n" + begun), dsh.CodeTransport, "partial "},
		{"cut between events", stream(begun), dsh.CodeTransport, "partial "},
		{"cut after the beginning", stream(w.Begin()), dsh.CodeTransport, ""},
		{"cut in an event", stream(begun, w.Text("tail")[:len(w.Text("tail"))-8]), dsh.CodeTransport, "partial "},
		{"cut in an event that looks whole", stream(begun, truncated(w)), dsh.CodeTransport, "partial "},
		{"cut in a chunk of the transfer", raw(ok + "Transfer-Encoding: chunked\r\n\r\n" + "fff\r\n" + begun), dsh.CodeTransport, "partial "},
		{"shorter than its length", raw(ok + "Content-Length: 100000\r\n\r\n" + begun), dsh.CodeTransport, "partial "},
		{"longer than its length", raw(ok + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(begun)) + begun + end), dsh.CodeTransport, "partial "},
		{"a broken event, and on", stream(begun, truncated(w), w.Text("more"), end), dsh.CodeProtocol, "partial "},
		{"content after the end", stream(begun, end, w.Text("more")), dsh.CodeProtocol, "partial "},
		{"a page", document(200, "text/html", "<!DOCTYPE html><html><head><title>Login</title></head></html>"), dsh.CodeServer, ""},
		{"a page that says it is a stream", document(200, "text/event-stream", "<html><body>502 Bad Gateway</body></html>"), dsh.CodeServer, ""},
		{"prose", document(200, "text/plain", "upstream is not well\ntry another day\n"), dsh.CodeServer, ""},
		{"no body", document(200, "application/json", ""), dsh.CodeEmptyResponse, ""},
		{"an empty stream", document(200, "text/event-stream", ""), dsh.CodeTransport, ""},
		{"comments alone", document(200, "text/event-stream", ": hello\n\n"), dsh.CodeTransport, ""},
		{"an empty answer", stream(w.Begin(), w.End(dsh.FinishStop, dsh.Usage{InputTokens: 3, OutputTokens: 0})), dsh.CodeEmptyResponse, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, false, c.answer)
			r := send(t.Context(), t, s.New(t, srv.target()), theBody)
			failed(t, r, c.want)
			if r.text != c.text {
				t.Errorf("the text before the failure is %q, want %q", r.text, c.text)
			}
			srv.one(theBody)
		})
	}
	t.Run("an empty answer still tells what it cost", func(t *testing.T) {
		srv := serve(t, false, stream(w.Begin(), w.End(dsh.FinishStop, dsh.Usage{InputTokens: 300, OutputTokens: 2})))
		r := send(t.Context(), t, s.New(t, srv.target()), theBody)
		if r.finish == nil || r.finish.Usage == nil || r.finish.Usage.InputTokens != 300 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("no connection", func(t *testing.T) { connections(t, s) })
	t.Run("a silent overflow", func(t *testing.T) { silentOverflow(t, s) })
}

// connections are those that do not come about.
func connections(t *testing.T, s Suite) {
	t.Run("nobody listens", func(t *testing.T) {
		r := send(t.Context(), t, s.New(t, Target{BaseURL: "http://127.0.0.1:1"}), theBody)
		failed(t, r, dsh.CodeTransport)
	})
	t.Run("no such host", func(t *testing.T) {
		r := send(t.Context(), t, s.New(t, Target{BaseURL: "http://no-such-host.invalid"}), theBody)
		failed(t, r, dsh.CodeTransport)
	})
	t.Run("a certificate that is not trusted", func(t *testing.T) {
		srv := serve(t, true, stream())
		r := send(t.Context(), t, s.New(t, Target{BaseURL: srv.http.URL}), theBody)
		failed(t, r, dsh.CodeTransport)
	})
}

// truncated is an event whose JSON is cut, though the event is whole.
func truncated(w Wire) string {
	e := strings.TrimRight(w.Text("tail"), "\n")
	return e[:len(e)-6] + "\n\n"
}

// reset writes bytes and then resets the connection.
func reset(s string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		c := hijack(w)
		_, _ = io.WriteString(c, s)
		if s != "" {
			time.Sleep(50 * time.Millisecond) // a reset throws away what the other side has not read
		}
		if l, ok := c.(interface{ SetLinger(int) error }); ok {
			_ = l.SetLinger(0)
		}
		_ = c.Close()
	}
}

func silentOverflow(t *testing.T, s Suite) {
	w := s.Wire()
	for _, c := range []struct {
		name   string
		pieces []string
		want   dsh.Code
	}{
		{"over the window", []string{w.Begin(), w.Text("x"), w.End(dsh.FinishStop, dsh.Usage{InputTokens: 1001, OutputTokens: 5})}, dsh.CodeContextWindow},
		{"within", []string{w.Begin(), w.Text("x"), w.End(dsh.FinishStop, dsh.Usage{InputTokens: 1000, OutputTokens: 5})}, ""},
		{"nothing at the edge", []string{w.Begin(), w.End(dsh.FinishLength, dsh.Usage{InputTokens: 999})}, dsh.CodeContextWindow},
		{"nothing far from the edge", []string{w.Begin(), w.End(dsh.FinishLength, dsh.Usage{InputTokens: 500})}, ""},
		{"cut at the edge", []string{w.Begin(), w.Text("x"), w.End(dsh.FinishLength, dsh.Usage{InputTokens: 999, OutputTokens: 1})}, ""},
	} {
		srv := serve(t, false, stream(c.pieces...))
		target := srv.target()
		target.Window = 1000
		if r := send(t.Context(), t, s.New(t, target), theBody); r.code() != c.want {
			t.Errorf("%s: %v, want %q", c.name, r.failure(), c.want)
		}
		target.Window = 0
		if r := send(t.Context(), t, s.New(t, target), theBody); r.code() != "" {
			t.Errorf("%s, of a window that is not known: %v", c.name, r.failure())
		}
	}
}
