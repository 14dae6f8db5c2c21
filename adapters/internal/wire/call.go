package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
)

var (
	errSecond = errors.New("a library wanted to send a second request in one call")
	errLeft   = errors.New("the reader left")
	errEnd    = errors.New("the answer has ended")
	errFlood  = fmt.Errorf("%d MiB without anything of an answer in them", maxIdle>>20)
)

// A Call is one request under way. To a library it is an HTTP client, which
// sends one request and no more, with the body that the call was made with.
type Call struct {
	client *Client
	caller context.Context //nolint:containedctx // as in http.Request: whose end is ABORTED
	ctx    context.Context //nolint:containedctx // as in http.Request: of the request, which ends for any cause
	cancel context.CancelCauseFunc
	watch  watchdog
	body   []byte
	key    string
	redact *fault.Redactor

	sent bool
	resp *http.Response
	err  error  // of the request, where there is no response
	rule string // that an in-band end was made by
}

// begin prepares a call. It is to be closed.
func (c *Client) begin(ctx context.Context, body []byte) *Call {
	k := &Call{client: c, caller: ctx, body: body, redact: c.redactor("")}
	k.ctx, k.cancel = context.WithCancelCause(ctx)
	k.watch = watchdog{expire: k.cancel, idle: c.settings.Idle, keepalive: c.settings.Keepalive}
	return k
}

// close ends the request if it is still under way, and with it the connection.
func (k *Call) close() {
	k.watch.disarm()
	k.cancel(errLeft)
	if k.resp != nil {
		_ = k.resp.Body.Close() // what is lost by it was given up
	} else {
		// net/http goes on dialling for a request that may come later, for ever
		// if the other side is silent. This ends the dials that nobody waits for.
		k.client.http.CloseIdleConnections()
	}
}

// Context is the request's, for a library that makes it.
func (k *Call) Context() context.Context { return k.ctx }

// Key is the key of this call.
func (k *Call) Key() string { return k.key }

// Do sends the request: where to and with what headers is the library's word,
// as far as the settings have none; the body is ours. What it returns to the
// library has no body: the answer is read by [Client.Send].
func (k *Call) Do(req *http.Request) (*http.Response, error) {
	if k.sent {
		return nil, errSecond
	}
	k.sent = true
	req = req.Clone(k.ctx)
	req.URL, req.Host = k.client.url, ""
	req.Body = io.NopCloser(&upload{bytes.NewReader(k.body), &k.watch})
	req.ContentLength = int64(len(k.body))
	// With a GetBody net/http sends again by itself: on a connection that was
	// idle, after REFUSED_STREAM and after GOAWAY.
	req.GetBody = nil
	req.Header.Set("User-Agent", "dsh")
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") { // what an SDK tells of the machine
			req.Header.Del(name)
		}
	}
	for name, values := range k.client.settings.Header {
		req.Header.Del(name)
		for _, v := range values {
			req.Header.Add(name, v)
		}
	}
	k.watch.arm()
	resp, err := k.client.http.Do(req)
	k.watch.disarm()
	if err != nil {
		k.err = err
		return nil, err
	}
	k.resp = resp
	shell := *resp
	shell.Body, shell.ContentLength = http.NoBody, 0
	return &shell, nil
}

// upload is the body on its way out. A slow one is no silence.
type upload struct {
	body  *bytes.Reader // not embedded: its WriteTo would go past Read
	watch *watchdog
}

func (u *upload) Read(p []byte) (int, error) {
	u.watch.touch()
	return u.body.Read(p)
}

// open reads the key and lets the library make the request.
func (k *Call) open(request func(*Call) error) *ended {
	if k.caller.Err() != nil {
		return k.broken(k.caller.Err())
	}
	if f := k.client.settings.Key; f != nil {
		key, err := f(k.ctx)
		key = strings.TrimSpace(key)
		switch {
		case k.caller.Err() != nil:
			return k.broken(k.caller.Err())
		case err != nil:
			return k.fail(dsh.CodeAuth, "the key cannot be had: "+err.Error(), "the key")
		case !validHeader(key):
			return k.fail(dsh.CodeAuth, "the key holds a character that no header can carry", "the key")
		case key != "" && k.client.Insecure():
			return k.fail(dsh.CodeInvalidRequest, "a key is not sent over plain http to "+k.client.Host()+": use https, or allow_insecure_http", "insecure http")
		}
		k.key, k.redact = key, k.client.redactor(key)
	}
	err := request(k)
	switch {
	case k.resp != nil:
		return nil
	case k.err != nil:
		return k.broken(k.err)
	case err != nil:
		// The library refused it before sending.
		return k.fail(dsh.CodeInvalidRequest, err.Error(), "refused before sending")
	}
	return k.fail(dsh.CodeUnknown, "no request was sent", "no request")
}

// content is the body of the response as it is to be read: watched, without
// its transfer coding, and bounded.
func (k *Call) content() (*content, error) {
	c := &content{call: k, src: k.resp.Body}
	switch e := strings.ToLower(strings.TrimSpace(k.resp.Header.Get("Content-Encoding"))); e {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(&watched{k, k.resp.Body})
		if err != nil {
			return nil, fmt.Errorf("a body that says it is gzip and is not: %w", err)
		}
		c.src, c.plain = z, true
	default:
		return nil, fmt.Errorf("a body in the coding %q, which was not asked for", fault.Clean(e))
	}
	return c, nil
}

// content counts the bytes since the last chunk.
type content struct {
	call  *Call
	src   io.Reader
	plain bool // src is watched already
	count int
}

func (c *content) Read(p []byte) (int, error) {
	if c.count > maxIdle {
		return 0, errFlood
	}
	if !c.plain {
		c.call.watch.arm()
	}
	n, err := c.src.Read(p)
	if !c.plain {
		c.call.watch.disarm()
	}
	c.count += n
	return n, err
}

func (c *content) progress() {
	c.count = 0
	c.call.watch.progress()
}

// watched arms the watchdog around each read.
type watched struct {
	call *Call
	src  io.Reader
}

func (w *watched) Read(p []byte) (int, error) {
	w.call.watch.arm()
	defer w.call.watch.disarm()
	return w.src.Read(p)
}
