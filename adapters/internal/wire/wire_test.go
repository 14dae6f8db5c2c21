package wire_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/wire"
)

// decoder reads a protocol of its own: the data of an event is text, but for
// "usage", "finish" and "end".
type decoder struct{ state wire.State }

func (d *decoder) Event(_, data []byte) ([]dsh.Chunk, error) {
	switch s := string(data); s {
	case "usage":
		return nil, nil
	case "finish":
		d.state = wire.Finished
		return nil, nil
	case "end":
		d.state = wire.Closed
		return nil, nil
	default:
		return []dsh.Chunk{{Type: dsh.ChunkText, Text: s}}, nil
	}
}

func (d *decoder) Document(data []byte) ([]dsh.Chunk, error) {
	d.state = wire.Closed
	return []dsh.Chunk{{Type: dsh.ChunkText, Text: string(data)}}, nil
}

func (d *decoder) State() wire.State { return d.state }
func (d *decoder) End() wire.End     { return wire.End{Kind: dsh.FinishStop} }

const body = `{"a":1}`

// library makes a request as an SDK does: with a body that can be had again.
func library(k *wire.Call) error {
	req, err := http.NewRequestWithContext(k.Context(), http.MethodPost, "http://nowhere.invalid", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", "1")
	resp, err := k.Do(req)
	if err != nil {
		return err
	}
	if all, err := io.ReadAll(resp.Body); len(all) > 0 || err != nil {
		return fmt.Errorf("the library was given a body: %q, %v", all, err)
	}
	return resp.Body.Close()
}

// pipe serves each connection that is dialled by a function, within the
// process, so that a bubble's clock rules it.
func pipe(serve func(net.Conn)) (wire.Settings, func()) {
	var all sync.WaitGroup
	dial := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		all.Go(func() {
			defer there.Close()
			serve(there)
		})
		return here, nil
	}
	return wire.Settings{URL: "http://127.0.0.1:1/x", Dial: dial}, all.Wait
}

// request reads a request and its body.
func request(c net.Conn) string {
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return ""
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return ""
	}
	return string(b)
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

// call sends, and tells the text, the end, and when it came.
func call(ctx context.Context, t *testing.T, s wire.Settings, body string, pause time.Duration) (text string, f *dsh.Failure, took time.Duration) {
	t.Helper()
	c, err := wire.NewClient(s)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	begun := time.Now()
	for chunk, err := range c.Send(ctx, []byte(body), library, &decoder{}) {
		if err != nil {
			f = dsh.AsFailure(err)
		}
		text += chunk.Text
		time.Sleep(pause)
	}
	return text, f, time.Since(begun)
}

// TestWaits holds every wait to the clock.
func TestWaits(t *testing.T) {
	say := func(c net.Conn, s string) { _, _ = io.WriteString(c, s) }
	until := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) } // the client hangs up
	for _, x := range []struct {
		name  string
		serve func(net.Conn)
		body  string // "": a short one
		pause time.Duration
		text  string
		code  dsh.Code
		took  time.Duration
	}{
		{name: "no header", serve: func(c net.Conn) { request(c); until(c) }, code: dsh.CodeTimeout, took: 10 * time.Second},
		{name: "a header that drips", code: dsh.CodeTimeout, took: 10 * time.Second, serve: func(c net.Conn) {
			request(c)
			for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; _, err = io.WriteString(c, "X: y\r\n") {
				time.Sleep(time.Second)
			}
		}},
		{name: "a stall", text: "a", code: dsh.CodeTimeout, took: 13 * time.Second, serve: func(c net.Conn) {
			request(c)
			time.Sleep(3 * time.Second)
			say(c, head+"data: a\n\n")
			until(c)
		}},
		{name: "just in time, each time", text: "abc", took: 29700 * time.Millisecond, serve: func(c net.Conn) {
			request(c)
			for _, s := range []string{head + "data: a\n\n", "data: b\n\n", "data: c\n\ndata: end\n\n"} {
				time.Sleep(9900 * time.Millisecond)
				say(c, s)
			}
		}},
		{name: "keep-alives for ever", text: "a", code: dsh.CodeTimeout, took: 25 * time.Second, serve: func(c net.Conn) {
			request(c)
			say(c, head+"data: a\n\n")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(c, ": x\n\n"); err != nil {
					return
				}
			}
		}},
		{name: "events without a chunk for ever", text: "a", code: dsh.CodeTimeout, took: 25 * time.Second, serve: func(c net.Conn) {
			request(c)
			say(c, head+"data: a\n\n")
			for {
				time.Sleep(time.Second)
				if _, err := io.WriteString(c, "data: usage\n\n"); err != nil {
					return
				}
			}
		}},
		{name: "keep-alives between chunks", text: "ab", took: 40 * time.Second, serve: func(c net.Conn) {
			request(c)
			say(c, head)
			for _, piece := range []string{"a", "b"} {
				for range 4 {
					time.Sleep(5 * time.Second)
					say(c, ": x\n\n")
				}
				say(c, "data: "+piece+"\n\n")
			}
			say(c, "data: end\n\n")
		}},
		// net.Pipe has no buffer: the server writes as the reader reads.
		{name: "a slow reader", pause: time.Minute, text: "ab", took: 3 * time.Minute, serve: func(c net.Conn) {
			request(c)
			say(c, head+"data: a\n\ndata: b\n\ndata: end\n\n")
		}},
		{name: "finished, and no end", text: "a", took: 5 * time.Second, serve: func(c net.Conn) {
			request(c)
			say(c, head+"data: a\n\ndata: finish\n\n")
			until(c)
		}},
		{name: "the end, and an open connection", text: "a", took: 50 * time.Millisecond, serve: func(c net.Conn) {
			request(c)
			say(c, head+"data: a\n\ndata: end\n\n")
			until(c)
		}},
		{name: "an error whose body stalls", code: dsh.CodeRateLimit, took: 10 * time.Second, serve: func(c net.Conn) {
			request(c)
			say(c, "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 100\r\n\r\n{\"error\":")
			until(c)
		}},
		{name: "a body that is slow to go out", body: strings.Repeat("x", 640<<10), text: "a", took: 20 * 9 * time.Second, serve: func(c net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			for range 20 {
				time.Sleep(9 * time.Second)
				_, _ = io.CopyN(io.Discard, r.Body, 32<<10)
			}
			say(c, head+"data: a\n\ndata: end\n\n")
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, wait := pipe(x.serve)
				s.Idle, s.Keepalive = 10*time.Second, 25*time.Second
				text, f, took := call(t.Context(), t, s, cmp.Or(x.body, body), x.pause)
				code := dsh.Code("")
				if f != nil {
					code = f.Code
				}
				if text != x.text || code != x.code || took != x.took {
					t.Errorf("%q, %v after %v; want %q, %q after %v", text, f, took, x.text, x.code, x.took)
				}
				wait() // every connection was closed
			})
		})
	}
}

// TestOnlyOneRequest takes each way on which a second request is sent, and
// shows with a client as it comes that the way is open.
func TestOnlyOneRequest(t *testing.T) {
	var requests atomic.Int32
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					n := requests.Add(1)
					_, _ = io.Copy(io.Discard, r.Body)
					if n > 1 {
						return
					}
					answer := "data: a\n\ndata: end\n\n"
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
				}
			})
		}
	})
	defer all.Wait()
	defer ln.Close()
	url := "http://" + ln.Addr().String()

	c, err := wire.NewClient(wire.Settings{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		for range c.Send(t.Context(), []byte(body), library, &decoder{}) {
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("2 calls made %d requests", n)
	}

	requests.Store(0)
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "1")
		if resp, err := plain.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("net/http does not send again by itself any more (%d requests): is this test still one?", n)
	}
}

// TestALibraryThatRetries gets no second request.
func TestALibraryThatRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		s, wait := pipe(func(c net.Conn) {
			if request(c) != "" {
				requests.Add(1)
			}
			_, _ = io.WriteString(c, "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")
		})
		c, err := wire.NewClient(s)
		if err != nil {
			t.Fatal(err)
		}
		stubborn := func(k *wire.Call) error {
			for range 3 {
				if err := library(k); err != nil {
					return err
				}
			}
			return nil
		}
		var got error
		for _, err := range c.Send(t.Context(), []byte(body), stubborn, &decoder{}) {
			got = err
		}
		if n := requests.Load(); n != 1 || !errors.Is(got, dsh.CodeServer) {
			t.Errorf("%d requests, %v", n, got)
		}
		c.Close()
		wait()
	})
}

// TestLibraries are those that send nothing.
func TestLibraries(t *testing.T) {
	refused := errors.New("this model cannot do that")
	for _, x := range []struct {
		err  error
		code dsh.Code
	}{{refused, dsh.CodeInvalidRequest}, {nil, dsh.CodeUnknown}} {
		c, err := wire.NewClient(wire.Settings{URL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range c.Send(t.Context(), []byte(body), func(*wire.Call) error { return x.err }, &decoder{}) {
			if !errors.Is(err, x.code) {
				t.Errorf("got %v, want %s", err, x.code)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	lost := errors.New("the wallet is locked")
	for _, x := range []struct {
		name, url, key string
		err            error
		allow          bool
		code           dsh.Code
	}{
		{name: "no key to be had", url: "http://127.0.0.1:1", err: lost, code: dsh.CodeAuth},
		{name: "a key over plain http", url: "http://example.com", key: "k", code: dsh.CodeInvalidRequest},
		{name: "a key over plain http that is allowed", url: "http://host.invalid", key: "k", allow: true, code: dsh.CodeTransport},
		{name: "a key over plain http to loopback", url: "http://127.0.0.1:1", key: "k", code: dsh.CodeTransport},
		{name: "a key over plain http to localhost", url: "http://localhost:1", key: "k", code: dsh.CodeTransport},
		{name: "a key over plain http to loopback, version 6", url: "http://[::1]:1", key: "k", code: dsh.CodeTransport},
		{name: "no key over plain http", url: "http://host.invalid", code: dsh.CodeTransport},
		{name: "a line end in the key", url: "http://127.0.0.1:1", key: "a\nb", code: dsh.CodeAuth},
		{name: "a line end after the key", url: "http://127.0.0.1:1", key: "a\n", code: dsh.CodeTransport},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, err := wire.NewClient(wire.Settings{
				URL: x.url, AllowInsecureHTTP: x.allow,
				Key: func(context.Context) (string, error) { return x.key, x.err },
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range c.Send(t.Context(), []byte(body), library, &decoder{}) {
				if !errors.Is(err, x.code) {
					t.Errorf("got %v, want %s", err, x.code)
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for _, x := range []struct {
		name string
		s    wire.Settings
		want string
	}{
		{"nothing", wire.Settings{}, "it looks like https://host/path"},
		{"no scheme", wire.Settings{URL: "example.com/v1"}, "it looks like https://host/path"},
		{"another scheme", wire.Settings{URL: "ftp://example.com"}, "it looks like https://host/path"},
		{"no host", wire.Settings{URL: "https:///v1"}, "it looks like https://host/path"},
		{"a password", wire.Settings{URL: "https://u:secret@example.com"}, "user name or password"},
		{"a control character", wire.Settings{URL: "https://example.com/\x00secret"}, "cannot be read"},
		{"a negative wait", wire.Settings{URL: "https://example.com", Idle: -1}, "stream idle timeout"},
		{"an endless wait", wire.Settings{URL: "https://example.com", Keepalive: 1 << 62}, "keepalive timeout"},
		{"a broken header", wire.Settings{URL: "https://example.com", Header: http.Header{"X-A": {"a\nsecret"}}}, "header X-A"},
	} {
		_, err := wire.NewClient(x.s)
		if err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}

// TestHeaders sends those of the settings in the place of the library's.
func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan http.Header, 1)
		s, wait := pipe(func(c net.Conn) {
			r, err := http.ReadRequest(bufio.NewReader(c))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			got <- r.Header
			_, _ = io.WriteString(c, head+"data: end\n\n")
		})
		s.Header = http.Header{"X-Own": {"1", "2"}, "Idempotency-Key": {"mine"}}
		if _, f, _ := call(t.Context(), t, s, body, 0); f != nil {
			t.Fatal(f)
		}
		wait()
		h := <-got
		if fmt.Sprint(h["X-Own"]) != "[1 2]" || fmt.Sprint(h["Idempotency-Key"]) != "[mine]" || h.Get("User-Agent") != "dsh" {
			t.Errorf("headers %v", h)
		}
	})
}
