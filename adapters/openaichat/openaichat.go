// Package openaichat speaks the chat completions protocol: OpenAI's, and that
// of the many providers that have taken it over. What they do differently is
// data, one line a provider (quirks.go).
//
// It stands on go-openai, which makes the request. The body that goes out is
// the one that Encode made, since the library cannot send a temperature of 0,
// an empty tool result or empty arguments, and refuses models by their names;
// the answer is read by our own reader, since the library's drops headers and
// takes a cut stream for a finished one.
package openaichat

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

	"github.com/sashabaranov/go-openai"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/wire"
)

// Settings are what an adapter is told of its provider. Only BaseURL is
// needed.
type Settings struct {
	// BaseURL is what stands before /chat/completions. A query is kept, as in
	// Azure's ?api-version=….
	BaseURL string

	// Quirks names the provider, for what it does differently: see QuirkNames.
	// "": told from the base URL's host.
	Quirks string

	// Key is the API key; "" sends none. KeyFunc, if set, is asked for it
	// before each request instead.
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
	quirk  quirk
	window int64
}

// New checks the settings and makes an adapter. Nothing is sent.
func New(s Settings) (*Adapter, error) {
	base, err := url.Parse(s.BaseURL)
	if err != nil {
		return nil, errors.New("the base URL cannot be read; it looks like https://host/v1")
	}
	q, err := quirksOf(s.Quirks, base.Hostname())
	if err != nil {
		return nil, err
	}
	if s.Window < 0 {
		return nil, fmt.Errorf("the context window is %d; it must not be negative", s.Window)
	}
	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/chat/completions") + "/chat/completions"
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
	return &Adapter{client: client, quirk: q, window: s.Window}, nil
}

// Send makes one request: see dsh.Adapter.
func (a *Adapter) Send(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
	return a.client.Send(ctx, body, a.request, newDecoder(a.window))
}

// Close drops connections that are kept for the next request. The adapter can
// still be used.
func (a *Adapter) Close() { a.client.Close() }

// request lets the library make the request. The model that it is told is not
// the one that is asked: it refuses some by their names.
func (a *Adapter) request(k *wire.Call) error {
	config := openai.DefaultConfig(k.Key())
	if a.quirk.keyHeader == openai.AzureAPIKeyHeader {
		config.APIType = openai.APITypeCloudflareAzure // the key in its own header, the URL as it is
	}
	config.HTTPClient = k
	stream, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(k.Context(), openai.ChatCompletionRequest{Model: "dsh"})
	if err != nil {
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
