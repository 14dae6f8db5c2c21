package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The most bytes of one message of a server.
const maxMessage = 16 << 20

// A link is one connection with a server, and the process behind it.
type link struct {
	session *sdk.ClientSession
	process *process      // nil: it is reached by HTTP
	ended   chan struct{} // closed when the connection is gone
	broken  atomic.Bool   // a call has found it gone
	closing sync.WaitGroup
}

// open starts a server, or connects to one, and shakes hands.
func open(ctx context.Context, s Server, o Options) (*link, error) {
	l := &link{ended: make(chan struct{})}
	transport, err := l.transport(s)
	if err != nil {
		return nil, err
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "dsh", Version: o.Version}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, // no roots, no sampling, nobody to be asked
	})
	l.session, err = client.Connect(ctx, transport, nil)
	if err != nil {
		err = l.explain(ctx, err)
		l.end()
		return nil, err
	}
	l.closing.Go(func() {
		defer close(l.ended)
		_ = l.session.Wait() // why it ended shows in the call that it ends
	})
	if l.process != nil {
		l.closing.Go(func() { // what the process started may hold its stdout
			select {
			case <-l.process.ended:
				_ = l.session.Close()
			case <-l.ended:
			}
		})
	}
	return l, nil
}

// end ends the process, if there is one.
func (l *link) end() {
	if l.process != nil {
		l.process.stop()
	}
}

func (l *link) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
	}
	if l.broken.Load() {
		return false
	}
	return l.process == nil || !l.process.gone()
}

// close ends the connection and the process.
func (l *link) close() {
	_ = l.session.Close() // it is gone either way
	l.end()
	l.closing.Wait()
}

func (l *link) transport(s Server) (sdk.Transport, error) {
	if s.URL != "" {
		return &sdk.StreamableClientTransport{
			Endpoint: s.URL, HTTPClient: httpClient(s), DisableStandaloneSSE: true, MaxRetries: 2, MaxEventSize: maxMessage,
		}, nil
	}
	p, err := begin(s)
	if err != nil {
		return nil, err
	}
	l.process = p
	return &sdk.IOTransport{Reader: p.stdout, Writer: p.stdin, MaxLineLength: maxMessage}, nil
}

// explain adds to an error of a link what is known of the server.
func (l *link) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if l.process == nil {
		return err
	}
	if ctx.Err() == nil { // it may be about to say why
		t := time.NewTimer(stopTime)
		defer t.Stop()
		select {
		case <-l.process.ended:
		case <-t.C:
		}
	}
	if said := l.process.said(); said != "" {
		return fmt.Errorf("%w; it says: %s", err, said)
	}
	return err
}

// httpClient sends the server's headers to the server and to nobody else: a
// redirect to another host is not followed. Its answers are bounded.
func httpClient(s Server) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // it is one
	return &http.Client{
		Transport: &sender{transport, s.Headers},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 3 || !sameOrigin(req.URL, via[0].URL) {
				return fmt.Errorf("the server redirects to %s, which is another: name that in url", req.URL.Host)
			}
			return nil
		},
	}
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// A sender puts headers on requests.
type sender struct {
	*http.Transport
	headers map[string]string
}

// RoundTrip sends a request with the headers.
func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range s.headers {
		req.Header.Set(name, value)
	}
	resp, err := s.Transport.RoundTrip(req)
	if err == nil && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &bounded{resp.Body, maxMessage}
	}
	return resp, err
}

// CloseIdleConnections is the transport's.
func (s *sender) CloseIdleConnections() { s.Transport.CloseIdleConnections() }

var errLarge = errors.New("the server's answer is too large")

// bounded is a body that fails behind a number of bytes.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// A process is a server on stdio.
type process struct {
	cmd           *exec.Cmd
	stdin, stdout *os.File
	stderr        *tail
	ended         chan struct{}
	once          sync.Once
}

// stopTime is how long a server may take to end when its stdin ends, and again
// when it is told to.
const stopTime = 500 * time.Millisecond

func begin(s Server) (*process, error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close())
	}
	p := &process{stdin: inW, stdout: outR, stderr: &tail{}, ended: make(chan struct{})}
	p.cmd = exec.Command(s.Command, s.Args...) //nolint:noctx // it lives for many calls, and is ended by stop
	p.cmd.Env, p.cmd.Dir = s.Env, s.Dir
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, p.stderr
	p.cmd.WaitDelay = stopTime // what it started may hold its stderr
	apart(p.cmd)
	err = p.cmd.Start()
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is not asked
		finish(p.cmd)    // nor what it left behind
	}()
	return p, nil
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// stop ends the process, by the steps that the protocol's specification names.
func (p *process) stop() {
	p.once.Do(func() {
		p.stdin.Close()
		for _, end := range []func(*exec.Cmd){func(*exec.Cmd) {}, terminate, finish} {
			end(p.cmd)
			t := time.NewTimer(stopTime)
			select {
			case <-p.ended:
			case <-t.C:
			}
			t.Stop()
		}
		<-p.ended
		p.stdout.Close()
	})
}

// said is the end of what the process wrote to stderr, in one line.
func (p *process) said() string {
	const most = 300
	s := printable(p.stderr.String(), 4<<10)
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return s
}

// A tail keeps the last bytes that are written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	t.buf = append(t.buf, b[max(0, len(b)-most):]...)
	if over := len(t.buf) - most; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
