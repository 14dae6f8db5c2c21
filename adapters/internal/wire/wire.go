// Package wire makes one HTTP request and reads its answer, for every adapter
// alike. It is the one place that knows how a request is sent exactly once,
// when a wait for a byte has been too long, and how much of an answer is too
// much. What the bytes mean is for a [Decoder] to say, and what went wrong for
// package fault.
package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dsh-agent/dsh/adapters/internal/fault"
)

// The defaults and bounds of config.md.
const (
	DefaultIdle      = 300 * time.Second
	DefaultKeepalive = 600 * time.Second
)

// The bounds of an answer.
const (
	maxHeader   = 256 << 10 // of the response's header, in bytes
	maxDocument = 16 << 20  // of an answer that is no stream
	maxIdle     = 16 << 20  // bytes without one chunk among them
)

const (
	errorBodyWait = 10 * time.Second      // for the body of an error: its status is known
	finishWait    = 5 * time.Second       // for the usage, after the model has finished
	endWait       = 50 * time.Millisecond // for the end of the body, after its terminal
)

// Settings are what every adapter is told.
type Settings struct {
	URL    string      // where requests go, with the path and query of the protocol
	Header http.Header // extra headers; they win over the protocol's own
	TLS    *tls.Config // nil: the system's roots

	// Dial makes the connections. nil: TCP, through the proxy of the
	// environment.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Idle      time.Duration // the longest silence while a reader waits; 0: DefaultIdle
	Keepalive time.Duration // the longest wait for a chunk, whatever else arrives; 0: DefaultKeepalive

	// Key is asked for the key of each request; nil, and "", for none.
	Key func(context.Context) (string, error)

	// AllowInsecureHTTP lets a key go over plain HTTP to other machines.
	AllowInsecureHTTP bool
}

// A Client sends requests. It may be used by several goroutines.
type Client struct {
	http     *http.Client
	url      *url.URL
	settings Settings
	secrets  []string // the values of the extra headers that may hold one
}

// NewClient checks the settings.
func NewClient(s Settings) (*Client, error) {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return nil, errors.New("the base URL cannot be read; it looks like https://host/path")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, fmt.Errorf("the base URL %q is none; it looks like https://host/path", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the base URL holds a user name or password; put the key into a variable and name that")
	}
	if s.Idle == 0 {
		s.Idle = DefaultIdle
	}
	if s.Keepalive == 0 {
		s.Keepalive = DefaultKeepalive
	}
	for name, d := range map[string]time.Duration{"stream idle": s.Idle, "keepalive": s.Keepalive} {
		if d < 0 || d > math.MaxInt32*time.Millisecond {
			return nil, fmt.Errorf("the %s timeout is %v; it must be positive and at most 2147483647 ms", name, d)
		}
	}
	c := &Client{url: u, settings: s, http: newHTTP(s)}
	for name, values := range s.Header {
		for _, v := range values {
			if !validHeader(v) {
				return nil, fmt.Errorf("the value of the header %s holds a character that no header can carry", name)
			}
			if secretHeader(name) {
				c.secrets = append(c.secrets, v, strings.TrimPrefix(v, "Bearer "))
			}
		}
	}
	for name, values := range u.Query() {
		if secretHeader(name) {
			c.secrets = append(c.secrets, values...)
		}
	}
	return c, nil
}

// Insecure reports whether a key of this client would go over plain HTTP to
// another machine.
func (c *Client) Insecure() bool {
	if c.url.Scheme != "http" || c.settings.AllowInsecureHTTP {
		return false
	}
	host := c.url.Hostname()
	ip := net.ParseIP(host)
	return host != "localhost" && !strings.HasSuffix(host, ".localhost") && (ip == nil || !ip.IsLoopback())
}

// Host is where requests go, for messages.
func (c *Client) Host() string { return c.url.Host }

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func newHTTP(s Settings) *http.Client {
	dial := s.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext
	}
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a stream gains nothing by it, and a bomb needs it
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second, // below the 60 s after which load balancers hang up
		ReadBufferSize:         32 << 10,
	}
	if s.Dial != nil {
		t.Proxy = nil
	}
	if s.TLS != nil {
		t.TLSClientConfig = s.TLS.Clone()
	}
	return &http.Client{
		Transport: t,
		// net/http would send the body a second time after a 307 or a 308.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func validHeader(v string) bool {
	return !strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// secretHeader guesses from a name whether the value is to be hidden.
func secretHeader(name string) bool {
	n := strings.ToLower(name)
	for _, part := range []string{"auth", "key", "token", "secret", "cookie", "password", "signature", "credential"} {
		if strings.Contains(n, part) {
			return true
		}
	}
	return false
}

func (c *Client) redactor(key string) *fault.Redactor {
	return fault.NewRedactor(append([]string{key}, c.secrets...)...)
}
