package scripted

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
)

// A Request is one that the server was sent.
type Request struct {
	N           int // 1, 2, …
	Body        []byte
	Header      http.Header
	At          time.Time // when its body had come
	Done        time.Time // when it was answered; zero while it is not
	Step        int       // the step's number, from 1; 0: a rule, or none was left
	Do          string    // the step's kind
	Status      int       // that was sent; 0: none
	ClosedEarly bool      // the client went away before the step was done
}

// A Server plays a script. It may be used by several goroutines. It is to be
// closed.
type Server struct {
	// URL is the base URL for an adapter: http://127.0.0.1:port/v1.
	URL string

	http  *http.Server
	done  chan struct{}  // closed when the server has stopped
	plays sync.WaitGroup // the requests under way

	mu       sync.Mutex
	script   Script
	next     int // the step that is next
	used     int // how many requests it has served
	requests []Request
	changed  chan struct{} // closed, and made anew, when requests changes
}

// Serve plays steps on a free loopback port.
func Serve(steps ...Step) (*Server, error) { return Play(Script{Steps: steps}) }

// Play plays a script on a free loopback port.
func Play(script Script) (*Server, error) {
	if err := script.check(); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the scripted provider: %w", err)
	}
	s := &Server{
		URL: "http://" + ln.Addr().String() + "/v1", script: script,
		done: make(chan struct{}), changed: make(chan struct{}),
	}
	s.http = &http.Server{
		Handler:  http.HandlerFunc(s.serve),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), // it breaks connections on purpose
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(ln) // it ends by Close only
	}()
	return s, nil
}

type connKey struct{}

// Close stops the server and cuts the answers under way. It can be called
// again.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	s.plays.Wait()
	return err
}

// Requests returns what the server was sent so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Await returns when what the server was sent fulfils a condition, and with
// the context's error if that ends first.
func (s *Server) Await(ctx context.Context, fulfilled func([]Request) bool) error {
	for {
		s.mu.Lock()
		now, changed := slices.Clone(s.requests), s.changed
		s.mu.Unlock()
		if fulfilled(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.plays.Add(1)
	defer s.plays.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away inside its own request
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/chat/completions") {
		http.Error(w, `{"error":{"message":"the scripted provider has no such path","code":"not_found"}}`, http.StatusNotFound)
		return
	}
	step, n := s.take(body, r.Header)
	p := &play{w: w, r: r, step: step, n: n, bytes: len(body)}
	p.conn, _ = r.Context().Value(connKey{}).(net.Conn)
	p.commit = sync.OnceFunc(func() {
		s.update(n, func(q *Request) {
			q.Done, q.Status, q.ClosedEarly = time.Now(), p.status, p.broken || r.Context().Err() != nil && !p.done
		})
	})
	// A panic is how a connection is broken: it passes through.
	defer p.commit()
	p.run()
}

// take picks the step for a request and records it.
func (s *Server) take(body []byte, header http.Header) (Step, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step, number := s.pick(body)
	for step.IfBodyOver > 0 && len(body) <= step.IfBodyOver {
		if step.Else == nil {
			step = Step{Do: Text, Text: "ok"}
			break
		}
		step = *step.Else
	}
	n := len(s.requests) + 1
	s.requests = append(s.requests, Request{N: n, Body: body, Header: header.Clone(), At: time.Now(), Step: number, Do: step.Do})
	s.tell()
	return step, n
}

func (s *Server) pick(body []byte) (Step, int) {
	for _, r := range s.script.Rules {
		if r.BodyContains != "" && !bytes.Contains(body, []byte(r.BodyContains)) {
			continue
		}
		if r.HasTools != nil && *r.HasTools != hasTools(body) {
			continue
		}
		return r.Step, 0
	}
	if s.next == len(s.script.Steps) {
		return Step{
			Do: Status, Status: http.StatusBadRequest, Code: "script_used_up",
			Message: fmt.Sprintf("the script has no step for request %d: its %d steps are used up", len(s.requests)+1, len(s.script.Steps)),
		}, 0
	}
	step, number := s.script.Steps[s.next], s.next+1
	s.used++
	if step.Times >= 0 && s.used >= max(1, step.Times) {
		s.next, s.used = s.next+1, 0
	}
	return step, number
}

func hasTools(body []byte) bool {
	var r struct {
		Tools []json.RawMessage `json:"tools"`
	}
	return json.Unmarshal(body, &r) == nil && len(r.Tools) > 0
}

func (s *Server) update(n int, change func(*Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.requests[n-1])
	s.tell()
}

// tell wakes those who wait. The lock is held.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// An Adapter is an adapter together with the server that it speaks to.
type Adapter struct {
	dsh.Adapter
	Server *Server // closed by Close
}

// Open plays the script in a file, and makes the adapter that reads it: speak
// is given the base URL, and makes an adapter of the chat completions
// protocol. The adapter is to be closed.
func Open(file string, speak func(baseURL string) (dsh.Adapter, error)) (*Adapter, error) {
	script, err := ParseFile(file)
	if err != nil {
		return nil, err
	}
	server, err := Play(script)
	if err != nil {
		return nil, err
	}
	a, err := speak(server.URL)
	if err != nil {
		_ = server.Close() // the error to tell is the other
		return nil, err
	}
	return &Adapter{Adapter: a, Server: server}, nil
}

// Close stops the server.
func (a *Adapter) Close() error { return a.Server.Close() }
