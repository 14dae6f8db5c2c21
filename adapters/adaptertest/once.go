package adaptertest

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dsh-agent/dsh"
)

// testOnce counts requests at the server where something below an adapter is
// known to send a second one.
func testOnce(t *testing.T, s Suite) {
	for status, want := range map[int]dsh.Code{
		301: dsh.CodeInvalidRequest, 302: dsh.CodeInvalidRequest, 303: dsh.CodeInvalidRequest, // followed as a GET
		307: dsh.CodeInvalidRequest, 308: dsh.CodeInvalidRequest, // followed with the body, if it can be had again
		408: dsh.CodeTimeout, 409: "", 429: dsh.CodeRateLimit, 500: dsh.CodeServer, 503: dsh.CodeServer, 529: dsh.CodeServer,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			both(t, func(t *testing.T, h2 bool) {
				srv := serve(t, h2, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "/elsewhere")
					w.Header().Set("Retry-After", "0.001")
					w.Header().Set("X-Should-Retry", "true")
					w.WriteHeader(status)
				})
				r := send(t.Context(), t, s.New(t, srv.target()), theBody)
				if want != "" {
					failed(t, r, want)
				}
				if f := r.failure(); f == nil || f.Status != status {
					t.Errorf("%+v, want status %d", f, status)
				}
				srv.one(theBody)
			})
		})
	}
	t.Run("a good answer", func(t *testing.T) {
		both(t, func(t *testing.T, h2 bool) {
			srv := serve(t, h2, stream(hello(s.Wire(), "hi")...))
			a := s.New(t, srv.target())
			seq := a.Send(t.Context(), []byte(theBody))
			if n := len(srv.requests()); n != 0 {
				t.Errorf("%d requests before the answer is read", n)
			}
			for range seq {
			}
			n := 0
			for c, err := range seq {
				n++
				if err == nil {
					t.Errorf("a second reading gives %+v", c)
				}
			}
			if n != 1 {
				t.Errorf("a second reading gives %d things, want an error", n)
			}
			srv.one(theBody)
		})
	})
	t.Run("a connection that was idle", func(t *testing.T) { idleConnection(t, s) })
	t.Run("REFUSED_STREAM", func(t *testing.T) { brokenHTTP2(t, s, rstStream) })
	t.Run("GOAWAY", func(t *testing.T) { brokenHTTP2(t, s, goAway) })
	t.Run("GOAWAY of an earlier stream", func(t *testing.T) { brokenHTTP2(t, s, goAwayZero) })
}

// idleConnection answers once, and hangs up on the second request of the
// connection: net/http sends such a request again if it can.
func idleConnection(t *testing.T, s Suite) {
	w := s.Wire()
	answer := strings.Join(hello(w, "hi"), "")
	var requests atomic.Int32
	addr := listen(t, nil, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			n := requests.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			if n > 1 {
				return // the second request gets no answer, on whatever connection
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		}
	})
	// The header by which net/http knows that a POST may be sent again.
	a := s.New(t, Target{BaseURL: "http://" + addr, Header: http.Header{"Idempotency-Key": {"1"}}})
	good(t, send(t.Context(), t, a, theBody), "hi")
	failed(t, send(t.Context(), t, a, theBody), dsh.CodeTransport)
	if n := requests.Load(); n != 2 {
		t.Errorf("2 calls made %d requests", n)
	}
}

// The frames of RFC 9113, 6, with which a server says that it has not begun
// with a request: net/http sends such a request again if it can.
func rstStream(stream uint32) []byte { return frame(0x3, 0, stream, []byte{0, 0, 0, 0x7}) }

func goAway(stream uint32) []byte { return goAwayAfter(stream) }

func goAwayZero(uint32) []byte { return goAwayAfter(0) }

func goAwayAfter(last uint32) []byte {
	return frame(0x7, 0, 0, append(binary.BigEndian.AppendUint32(nil, last), 0, 0, 0, 0))
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	f := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(f, stream), payload...)
}

// brokenHTTP2 answers every request with one frame, and hangs up.
func brokenHTTP2(t *testing.T, s Suite, answer func(stream uint32) []byte) {
	cert := httptest.NewUnstartedServer(nil)
	cert.EnableHTTP2 = true
	cert.StartTLS()
	t.Cleanup(cert.Close)
	var requests atomic.Int32
	addr := listen(t, &tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}, func(c net.Conn) {
		preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		_, _ = c.Write(frame(0x4, 0, 0, nil)) // SETTINGS
		for {
			head := make([]byte, 9)
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			n := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
			if _, err := io.CopyN(io.Discard, c, n); err != nil {
				return
			}
			stream := binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)
			switch kind, flags := head[3], head[4]; {
			case kind == 0x4 && flags&1 == 0:
				_, _ = c.Write(frame(0x4, 1, 0, nil))
			case kind == 0x1: // HEADERS: a request
				requests.Add(1)
			case kind == 0x0 && flags&1 != 0: // the end of its body
				_, _ = c.Write(answer(stream))
				if requests.Load() > 8 {
					return
				}
			}
		}
	})
	r := send(t.Context(), t, s.New(t, Target{BaseURL: "https://" + addr, TLS: trust(cert), StreamIdle: idle}), theBody)
	if c := r.code(); c != dsh.CodeTransport && c != dsh.CodeTimeout {
		t.Errorf("got %v, want TRANSPORT", r.failure())
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("one call made %d requests", n)
	}
}

// listen serves each connection by a function, and closes it after that.
func listen(t *testing.T, secure *tls.Config, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return addr
}
