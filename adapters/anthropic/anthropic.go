// Package anthropic speaks the messages protocol: Anthropic's, and that of the
// providers that have taken it over.
//
// It stands on anthropic-sdk-go, which makes the request. The body that goes
// out is the one that Encode made; the answer is read by our own reader, since
// the SDK's takes a cut stream for a finished one.
package anthropic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/wire"
)

// Settings are what an adapter is told of its provider. Only BaseURL is
// needed.
type Settings struct {
	// BaseURL is what stands before /v1/messages. A query is kept.
	BaseURL string

	// Key is the API key; "" sends none. KeyFunc, if set, is asked for it
	// before each request instead. A token of a login (sk-ant-oat…) is sent as
	// a bearer.
	Key     string
	KeyFunc func(context.Context) (string, error)

	Header            http.Header // extra headers, which win over the adapter's own
	AllowInsecureHTTP bool        // lets a key go over plain http to other machines

	// StreamIdle is the longest silence while a reader waits; 0: 300 s.
	// Keepalive is the longest wait for a chunk, whatever else arrives
	// meanwhile; 0: 600 s. Both end the attempt as TIMEOUT.
	StreamIdle, Keepalive time.Duration

	// Window is the model's context in tokens; 0: unknown. It is needed to see
	// that a provider has cut a request that was too long without saying so.
	Window int64

	TLS  *tls.Config                                                       // nil: the system's roots
	Dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: TCP, by the environment's proxy
}

// An Adapter is a dsh.Adapter. It may be used by several goroutines.
type Adapter struct {
	client *wire.Client
	window int64
	own    bool // the provider is Anthropic
}

// New checks the settings and makes an adapter. Nothing is sent.
func New(s Settings) (*Adapter, error) {
	base, err := url.Parse(s.BaseURL)
	if err != nil {
		return nil, errors.New("the base URL cannot be read; it looks like https://host")
	}
	if s.Window < 0 {
		return nil, fmt.Errorf("the context window is %d; it must not be negative", s.Window)
	}
	base.Path = strings.TrimRight(base.Path, "/")
	for _, tail := range []string{"/messages", "/v1"} {
		base.Path = strings.TrimSuffix(base.Path, tail)
	}
	base.Path += "/v1/messages"
	key := s.KeyFunc
	if key == nil {
		key = func(context.Context) (string, error) { return s.Key, nil }
	}
	client, err := wire.NewClient(wire.Settings{
		URL: base.String(), Header: s.Header, TLS: s.TLS, Dial: s.Dial,
		Idle: s.StreamIdle, Keepalive: s.Keepalive,
		Key: key, AllowInsecureHTTP: s.AllowInsecureHTTP,
	})
	if err != nil {
		return nil, err
	}
	if s.KeyFunc == nil && strings.TrimSpace(s.Key) != "" && client.Insecure() {
		return nil, fmt.Errorf("a key is not sent over plain http to %s; use https, or allow_insecure_http", client.Host())
	}
	return &Adapter{client: client, window: s.Window, own: base.Hostname() == "api.anthropic.com"}, nil
}

// Send makes one request: see dsh.Adapter.
func (a *Adapter) Send(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
	return a.client.Send(ctx, body, a.request, newDecoder(a.window))
}

// Close drops connections that are kept for the next request. The adapter can
// still be used.
func (a *Adapter) Close() { a.client.Close() }

// request lets the SDK make the request. The service is made without the
// client around it, which reads keys, addresses and headers of its own from
// the environment.
func (a *Adapter) request(k *wire.Call) error {
	options := []option.RequestOption{
		option.WithHTTPClient(k), option.WithBaseURL("http://replaced.invalid"), // by the call
		option.WithMaxRetries(0), option.WithoutOpenTelemetry(),
	}
	switch key := k.Key(); {
	case strings.HasPrefix(key, "sk-ant-oat"):
		options = append(options, option.WithAuthToken(key), option.WithHeader("anthropic-beta", "oauth-2025-04-20"))
	case key != "":
		options = append(options, option.WithAPIKey(key))
	}
	if !a.own {
		// Those who have taken the protocol over have its first version, with
		// the key in a header of its own.
		options = append(options, option.WithHeader("anthropic-version", "2023-06-01"))
		if k.Key() != "" {
			options = append(options, option.WithHeader("x-api-key", k.Key()))
		}
	}
	service := sdk.NewMessageService(options...)
	stream := service.NewStreaming(k.Context(), sdk.MessageNewParams{Model: "dsh", MaxTokens: 1})
	if err := stream.Err(); err != nil {
		return err
	}
	return stream.Close()
}

// Classify makes of a recorded response what Send makes of one from the wire,
// and names the rule that decided. Nothing is sent. The failure is nil for a
// good answer. A status of 0 is taken as 200.
func Classify(status int, header http.Header, body []byte) (failure *dsh.Failure, rule string) {
	if status == 0 {
		status = http.StatusOK
	}
	return wire.Judge(status, header, body, newDecoder(0))
}
