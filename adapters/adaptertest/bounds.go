package adaptertest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// testSecrets has the provider send the key back wherever it can.
func testSecrets(t *testing.T, s Suite) {
	w := s.Wire()
	const key = "sk-canary-3f9a77c1"
	status, body, ok := w.Error(dsh.CodeAuth, "Incorrect API key provided: "+key)
	if !ok {
		status, body = 401, key
	}
	event, _ := w.StreamError(dsh.CodeServer, "the key "+key+" broke it")
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"in an error":         document(status, "application/json", body),
		"in plain text":       document(401, "text/plain", "who is "+key+"?"),
		"with a zero inside":  document(401, "text/plain", "who is "+key[:8]+"\x00"+key[8:]+"?"),
		"in a page":           document(502, "text/html", "<title>"+key+"</title>"),
		"in prose under 200":  document(200, "text/plain", "you are "+key),
		"in a broken event":   stream(w.Begin(), "data: {"+key+"\n\n", w.Text("x")),
		"in a stream's error": stream(w.Begin(), w.Text("a"), event),
		"in headers": func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Request-Id", key)
			rw.Header().Set("Request-Id", key)
			rw.Header().Set("Content-Encoding", key)
			document(200, "application/json", "x")(rw, r)
		},
		"in a redirect": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://"+key+".example/")
			rw.WriteHeader(307)
		},
		"in a broken header": raw("HTTP/1.1 " + key + "\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, false, answer)
			target := srv.target()
			target.Key = key
			r := send(t.Context(), t, s.New(t, target), theBody)
			f := r.failure()
			if f == nil {
				t.Fatal("a good end")
			}
			js, err := f.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			for e := error(f); e != nil; e = errors.Unwrap(e) {
				if shown := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(shown, key) {
					t.Errorf("the key shows in %T: %s", e, shown)
				}
			}
			if strings.Contains(string(js), key) {
				t.Errorf("the key shows in %s", js)
			}
			sent := false
			for _, values := range srv.heads[0] {
				for _, v := range values {
					sent = sent || strings.Contains(v, key)
				}
			}
			if !sent {
				t.Error("the key was not sent at all")
			}
		})
	}
}

// testBounds sends too much of everything.
func testBounds(t *testing.T, s Suite) {
	w := s.Wire()
	var mib = strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		want   dsh.Code
	}{
		{"an error body for ever", then(429, "text/plain", forever(mib)), dsh.CodeRateLimit},
		{"an error body of JSON for ever", then(500, "application/json", forever(strings.Repeat(`{"error":{"message":"`, 1000))), dsh.CodeServer},
		{"a page for ever", then(200, "text/html", forever("<html>"+mib)), dsh.CodeServer},
		{"a document for ever", then(200, "application/json", forever(strings.Repeat(`{"a":`, 10000))), dsh.CodeProtocol},
		{"a line for ever", then(200, "text/event-stream", forever("data: "+mib)), dsh.CodeProtocol},
		{"data lines for ever", then(200, "text/event-stream", forever("data: "+mib[:1000]+"\n")), dsh.CodeProtocol},
		{"a long line in a stream", stream(w.Begin(), w.Text("a"), "data: "+mib+mib+"\n\n", w.End(dsh.FinishStop, dsh.Usage{})), dsh.CodeProtocol},
		{"comments for ever", then(200, "text/event-stream", forever(strings.Repeat(": x\n\n", 10000))), dsh.CodeProtocol},
		{"blanks for ever", then(200, "text/event-stream", forever(strings.Repeat("\n", 10000))), dsh.CodeProtocol},
		{"a header for ever", func(rw http.ResponseWriter, _ *http.Request) {
			c := hijack(rw)
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for _, err := io.WriteString(c, "X: y\r\n"); err == nil; _, err = io.WriteString(c, strings.Repeat("X-More: y\r\n", 1000)) {
			}
		}, dsh.CodeTransport},
		{"a bomb", zipped(200, "text/event-stream", ": x\n\n"), dsh.CodeProtocol},
		{"a bomb in an error", zipped(503, "application/json", " "), dsh.CodeServer},
		{"a coding that was not asked for", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "br")
			stream("x")(rw, r)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := serve(t, false, c.answer)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r := send(t.Context(), t, s.New(t, srv.target()), theBody)
			runtime.ReadMemStats(&after)
			if c.want != "" {
				failed(t, r, c.want)
			} else if r.failure() == nil {
				t.Error("a good end")
			}
			if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 256<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
			if r.took > 30*time.Second {
				t.Errorf("it took %v", r.took)
			}
		})
	}
}

// forever writes a piece until the client is gone.
func forever(piece string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for _, err := io.WriteString(rw, piece); err == nil; _, err = io.WriteString(rw, piece) {
		}
	}
}

// then writes a head before a body.
func then(status int, kind string, body func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", kind)
		rw.WriteHeader(status)
		body(rw, r)
	}
}

// zipped answers with gzip that unpacks to a piece without end, nearly.
func zipped(status int, kind, piece string) func(http.ResponseWriter, *http.Request) {
	return func(rw http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		block := []byte(strings.Repeat(piece, 1<<20/len(piece)))
		for range 24 {
			_, _ = z.Write(block)
		}
		_ = z.Close()
		rw.Header().Set("Content-Type", kind)
		rw.Header().Set("Content-Encoding", "gzip")
		rw.WriteHeader(status)
		_, _ = rw.Write(b.Bytes())
	}
}

// testSequence makes many calls on one adapter, one after the other and at
// once.
func testSequence(t *testing.T, s Suite) {
	w := s.Wire()
	srv := serve(t, false, stream(hello(w, "hi there")...))
	a := s.New(t, srv.target())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				good(t, send(t.Context(), t, a, theBody), "hi there")
			}
		})
	}
	all.Wait()
	if n := len(srv.requests()); n != 80 {
		t.Errorf("80 calls made %d requests", n)
	}
}
