package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
)

// A server lets other processes use a store.
type server struct {
	dir      string
	store    dsh.Log
	listener *net.UnixListener
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	stopping bool
	wires    map[*wire]bool        // true: it holds a session
	holders  map[dsh.SessionID]int // the processes that hold sessions over a wire
}

// serve listens on the folder's socket. Whoever calls it has the store open,
// so that a socket that is there was left behind.
func serve(ctx context.Context, dir string, store dsh.Log) (*server, error) {
	path, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(path)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(path, 0o600), writeNote(dir, path)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	s := &server{dir: dir, store: store, listener: listener, wires: map[*wire]bool{}, holders: map[dsh.SessionID]int{}}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.accept(ctx) })
	return s, nil
}

// close stops serving and closes the store. Those who hold a session keep
// their connection until the store is closed, so that they find it closed when
// they look for it.
func (s *server) close(store dsh.Log) error {
	if s == nil {
		return store.Close()
	}
	err := s.listener.Close()
	s.mu.Lock()
	s.stopping = true
	for w, holds := range s.wires {
		if holds {
			_ = w.conn.SetReadDeadline(past())
		} else {
			_ = w.conn.Close()
		}
	}
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	err = errors.Join(err, store.Close())
	for w := range s.wires {
		_ = w.conn.Close()
	}
	return err
}

func (s *server) accept(ctx context.Context) {
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: those who wait try again
			continue
		}
		w := &wire{conn: conn, silence: defaultSilence}
		if !s.add(w) {
			_ = conn.Close()
			return
		}
		s.running.Go(func() {
			defer s.done(w)
			s.handle(ctx, w)
		})
	}
}

func (s *server) add(w *wire) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.wires[w] = false
	return true
}

// done ends a connection, or leaves that to close.
func (s *server) done(w *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		delete(s.wires, w)
		_ = w.conn.Close()
	}
}

// handle does what one connection asks for.
func (s *server) handle(ctx context.Context, w *wire) {
	h, err := s.greet(w)
	if err != nil {
		return
	}
	switch h.Op {
	case opAcquire:
		s.lease(ctx, w, h.Session)
		return
	case opRead, opFollow, opHeads:
		ctx, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { // the client says nothing more: a read ends when it leaves
			_, _ = w.conn.Read(make([]byte, 1))
			cancel()
		})
		if s.stream(ctx, w, h) == nil {
			_ = w.flush()
		}
		_ = w.conn.CloseWrite()
		_ = w.conn.SetReadDeadline(time.Now().Add(time.Second)) // the client leaves first, with all it was sent
		watching.Wait()
		cancel()
		return
	}
	s.answer(ctx, w, h)
}

// greet reads the hello. The client has to say it at once.
func (s *server) greet(w *wire) (hello, error) {
	var h hello
	if err := checkPeer(w.conn); err != nil {
		return h, err
	}
	s.deadline(w, time.Now().Add(w.silence))
	kind, body, err := w.next()
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(body, &h); err != nil || kind != frameHello {
		return h, errFrame
	}
	s.deadline(w, time.Time{})
	w.pid = h.PID
	if err := w.putJSON(frameWelcome, welcome{protocol, os.Getpid()}); err != nil {
		return h, err
	}
	if h.Protocol != protocol {
		return h, errors.Join(w.flush(), errFrame)
	}
	if h.Dir != s.dir {
		w.put(frameFailed, number(0), mustFail(fmt.Errorf("process %d keeps the log of another folder: %s", os.Getpid(), s.dir)))
		return h, errors.Join(w.flush(), errFrame)
	}
	return h, nil
}

// deadline sets one for reading, unless the server stops.
func (s *server) deadline(w *wire, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		_ = w.conn.SetReadDeadline(t)
	}
}

func mustFail(err error) []byte {
	b, _ := json.Marshal(failureOf(err)) // its types always marshal
	return b
}

// passing reports whether an error is that of the server's end and not of the
// store: the connection is closed on it, and the client looks for the log.
func passing(err error) bool {
	return errors.Is(err, dsh.ErrClosed) || errors.Is(err, context.Canceled)
}

// fail answers with an error.
func (s *server) fail(w *wire, n uint64, err error) error {
	if passing(err) {
		return err
	}
	w.put(frameFailed, number(n), mustFail(s.named(err)))
	return nil
}

// named puts the process that holds a session over a wire in the place of this
// one.
func (s *server) named(err error) error {
	var held *dsh.HeldError
	if !errors.As(err, &held) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid, ok := s.holders[held.Session]; ok {
		return &dsh.HeldError{Session: held.Session, PID: pid}
	}
	return held
}

// answer answers a question.
func (s *server) answer(ctx context.Context, w *wire, h hello) {
	var err error
	switch h.Op {
	case opPing:
		w.put(frameEnd)
	case opHead:
		var head dsh.Head
		if head, err = s.store.Head(ctx, h.Session); err == nil {
			w.put(frameHead, packHead(head))
		}
	case opKept:
		var kept dsh.Snapshot
		if kept, err = s.store.Snapshot(ctx, h.Session); err == nil {
			w.put(frameKept, packSnapshot(kept))
		}
	case opRemove:
		if err = s.store.Remove(ctx, h.Session); err == nil {
			w.put(frameEnd)
		}
	default:
		err = fmt.Errorf("%q is not known to process %d", h.Op, os.Getpid())
	}
	if err != nil && s.fail(w, 0, err) != nil {
		return
	}
	_ = w.flush()
}

// stream sends what a read, a follow or a list yields.
func (s *server) stream(ctx context.Context, w *wire, h hello) error {
	if h.Op == opHeads {
		return s.heads(ctx, w)
	}
	seq, flush := s.store.Read, w.room
	if h.Op == opFollow {
		seq, flush = s.store.Follow, w.flush // what is there is shown
		if err := w.flush(); err != nil {
			return err
		}
	}
	for e, err := range seq(ctx, h.Session, h.After) {
		if err != nil {
			return s.fail(w, 0, err)
		}
		w.put(frameEvent, e.Line())
		if err := flush(); err != nil {
			return err
		}
	}
	w.put(frameEnd)
	return nil
}

func (s *server) heads(ctx context.Context, w *wire) error {
	for h, err := range s.store.Heads(ctx) {
		var damage *dsh.DamageError
		switch {
		case errors.As(err, &damage):
			w.put(frameDamage, mustFail(damage))
		case err != nil:
			return s.fail(w, 0, err)
		default:
			w.put(frameHead, packHead(h))
		}
		if err := w.room(); err != nil {
			return err
		}
	}
	w.put(frameEnd)
	return nil
}

// lease lets a client write a session, until it releases it or is gone.
func (s *server) lease(ctx context.Context, w *wire, id dsh.SessionID) {
	writer, err := s.store.Acquire(ctx, id)
	if err != nil {
		if s.fail(w, 0, err) == nil {
			_ = w.flush()
		}
		return
	}
	s.mu.Lock()
	s.holders[id] = w.pid
	s.wires[w] = true
	if s.stopping {
		_ = w.conn.SetReadDeadline(past())
	}
	s.mu.Unlock()
	l := &lease{server: s, wire: w, writer: writer}
	err = w.putJSON(frameGranted, grant{writer.Epoch(), writer.Tail()})
	if err == nil {
		err = w.flush()
	}
	for err == nil && !l.over {
		err = l.step(ctx)
	}
	if !l.over {
		_ = writer.Release(context.WithoutCancel(ctx)) // who wrote is gone; what it had queued is kept
	}
	s.mu.Lock()
	delete(s.holders, id)
	s.mu.Unlock()
	if l.over { // the answer comes when the session can be acquired again
		_ = w.flush()
	}
}

// A lease is the writing of one session for a client.
type lease struct {
	server *server
	wire   *wire
	writer dsh.Writer
	failed error // of relaxed events, for the next answer
	over   bool
}

// step does what one frame says.
func (l *lease) step(ctx context.Context) error {
	kind, body, err := l.wire.next()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // what was begun is finished before the store is closed
	if kind == frameQueue {
		if l.failed == nil {
			events, err := unpackEvents(body)
			if err == nil {
				err = l.writer.Append(ctx, events...)
			}
			l.failed = err
		}
		return nil
	}
	n, body, err := numbered(body)
	if err != nil {
		return err
	}
	err, l.failed = l.failed, nil
	switch {
	case kind == frameRelease:
		l.over = true
		err = errors.Join(err, l.writer.Release(ctx))
	case err != nil: // that of relaxed events
	case kind == frameAppend:
		var events []dsh.Event
		if events, err = unpackEvents(body); err == nil {
			err = l.writer.Append(ctx, events...)
		}
	case kind == frameSync:
		err = l.writer.Sync(ctx)
	case kind == frameKeep:
		var kept dsh.Snapshot
		if kept, err = unpackSnapshot(body); err == nil {
			err = l.writer.KeepSnapshot(ctx, kept)
		}
	default:
		return errFrame
	}
	if err == nil {
		l.wire.put(frameDone, number(n))
	} else if err := l.server.fail(l.wire, n, err); err != nil {
		return err
	}
	if l.over {
		return nil
	}
	return l.wire.flush()
}
