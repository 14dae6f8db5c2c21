package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/dsh-agent/dsh"
)

// past is a deadline that ends a read or a write at once.
func past() time.Time { return time.Unix(1, 0) }

// errLeft says that who iterates wants no more.
var errLeft = errors.New("the iteration was left")

// do runs an operation where the log is: here, or there over a connection that
// it has to itself. It begins anew where a connection is lost.
func (l *Log) do(ctx context.Context, h *hello, here func(dsh.Log) error, there func(*wire) error) error {
	const enough = 50 // connections in a row that are lost as soon as they are made
	for try := 0; ; try++ {
		began := time.Now()
		store, w, err := l.reach(ctx, h)
		if err != nil {
			return err
		}
		if store != nil {
			return here(store)
		}
		err = there(w)
		l.hangUp(w)
		if err == nil || !isLost(err) {
			return err
		}
		if time.Since(began) > time.Second {
			try = 0
		}
		if try == enough {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
}

// reach finds the log. A store that nobody has open is opened.
func (l *Log) reach(ctx context.Context, h *hello) (dsh.Log, *wire, error) {
	begun := time.Now()
	for try := 0; ; try++ {
		l.mu.Lock()
		store, closed := l.local, l.closed
		l.mu.Unlock()
		if closed {
			return nil, nil, dsh.ErrClosed
		}
		if store != nil {
			return store, nil, nil
		}
		w, err := l.dial(ctx, h)
		if err == nil {
			return nil, w, nil
		}
		var version *VersionError
		var silent *SilentError
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if errors.As(err, &version) || errors.As(err, &silent) {
			return nil, nil, err
		}
		unserved := err
		if err := l.own(ctx); err == nil {
			l.o.Tell(errors.New("the process that kept the log is gone: this one keeps it now"))
			continue
		} else if !isLocked(err) {
			return nil, nil, err
		} else if time.Since(begun) > l.o.Patience {
			return nil, nil, fmt.Errorf("%w, and it does not serve the log to others (%w)", err, unserved)
		}
		if err := pause(ctx, try); err != nil {
			return nil, nil, err
		}
	}
}

// dial makes a connection, and says on it what is wanted.
func (l *Log) dial(ctx context.Context, h *hello) (*wire, error) {
	err := fs.ErrNotExist
	for _, path := range socketPaths(l.dir) {
		var w *wire
		if w, err = l.connect(ctx, path, h); err == nil {
			return w, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, err
}

func (l *Log) connect(ctx context.Context, path string, h *hello) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn.(*net.UnixConn), silence: l.o.Silence}
	w.slow = l.tellSlow
	if err := l.keep(w); err != nil {
		return nil, err
	}
	if err = checkPeer(w.conn); err == nil {
		err = l.greet(ctx, w, h)
	}
	if err != nil {
		l.hangUp(w)
		return nil, err
	}
	return w, nil
}

func (l *Log) greet(ctx context.Context, w *wire, h *hello) error {
	h.Protocol, h.PID, h.Dir = protocol, os.Getpid(), l.dir
	if err := w.putJSON(frameHello, h); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	_, body, err := w.expect(ctx, frameWelcome)
	if err != nil {
		var silent *SilentError
		if errors.As(err, &silent) {
			silent.PID = l.holder()
		}
		return err
	}
	var hi welcome
	if err := json.Unmarshal(body, &hi); err != nil {
		return err
	}
	w.pid = hi.PID
	if hi.Protocol != protocol {
		return &VersionError{PID: hi.PID, Have: hi.Protocol, Want: protocol}
	}
	return nil
}

// tellSlow says once that a keeper takes its time.
func (l *Log) tellSlow() {
	l.mu.Lock()
	told := l.slow
	l.slow = true
	l.mu.Unlock()
	if !told {
		l.o.Warn(errors.New("the process that keeps the log takes its time: it was stopped, or its disk is slow"))
	}
}

// holder is the process that has the store open, as far as that is known.
func (l *Log) holder() int {
	var locked *dsh.LockedError
	store, err := l.o.Open()
	if err == nil {
		_ = store.Close() // it has gone this moment
	}
	if errors.As(err, &locked) {
		return locked.PID
	}
	return 0
}

// keep notes a connection, for Close to end.
func (l *Log) keep(w *wire) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = w.conn.Close()
		return dsh.ErrClosed
	}
	l.wires[w] = struct{}{}
	return nil
}

func (l *Log) hangUp(w *wire) {
	_ = w.conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wires, w)
}

// answer waits for a frame, for as long as limit (0: for ever) and ctx let it.
func (w *wire) answer(ctx context.Context, limit time.Duration) (kind byte, body []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	if kind, body, err := w.take(); err == nil && kind != 0 {
		return kind, body, nil
	}
	var deadline time.Time
	if limit > 0 {
		deadline = time.Now().Add(limit)
	}
	if err := w.conn.SetReadDeadline(deadline); err != nil {
		return 0, nil, &lost{err}
	}
	ended := make(chan struct{})
	if limit > slow && w.slow != nil {
		defer time.AfterFunc(slow, w.slow).Stop()
	}
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = w.conn.SetReadDeadline(past())
	})
	kind, body, err = w.next()
	if !stop() {
		<-ended
	}
	switch {
	case err == nil:
		return kind, body, nil
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil, &SilentError{PID: w.pid}
	}
	return 0, nil, &lost{err}
}

// expect waits for a frame of a kind. A failure in its place is the error.
func (w *wire) expect(ctx context.Context, want byte) (number uint64, body []byte, err error) {
	kind, body, err := w.answer(ctx, w.silence)
	switch {
	case err != nil:
		return 0, nil, err
	case kind == want && kind != frameDone:
		return 0, body, nil
	case kind == frameFailed || kind == frameDone:
		number, body, err = numbered(body)
		if err == nil && kind == frameFailed {
			err = parseFailure(body)
		}
		return number, body, err
	}
	return 0, nil, fmt.Errorf("the process that keeps the log answers with %q, want %q", kind, want)
}

// events reads or follows a session, over as many connections as it takes.
func (l *Log) events(ctx context.Context, h *hello) iter.Seq2[dsh.Event, error] {
	return func(yield func(dsh.Event, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(dsh.Event{}, err)
			return
		}
		s := &stream{log: l, hello: *h, yield: yield}
		if err := s.run(ctx); err != nil && err != errLeft {
			yield(dsh.Event{}, err)
		}
	}
}

// A stream is a Read or a Follow under way.
type stream struct {
	log   *Log
	hello hello // of the next connection
	yield func(dsh.Event, error) bool
	tail  dsh.Tail // of the last event; the zero value before the first
	again bool     // a connection was lost since
}

var errRemoved = errors.New("the session was removed")

func (s *stream) run(ctx context.Context) error {
	err := s.log.do(ctx, &s.hello, func(store dsh.Log) error {
		if err := s.check(ctx); err != nil {
			return err
		}
		seq := store.Read
		if s.hello.Op == opFollow {
			seq = store.Follow
		}
		for e, err := range seq(ctx, s.hello.Session, s.hello.After) {
			if err == nil {
				err = s.deliver(e)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, func(w *wire) error {
		if err := s.check(ctx); err != nil {
			return err
		}
		err := s.receive(ctx, w)
		s.again = s.again || isLost(err)
		return err
	})
	if err == errRemoved {
		return nil
	}
	return err
}

// check looks whether a session that was followed is still there.
func (s *stream) check(ctx context.Context) error {
	if !s.again || s.tail.Seq == 0 || s.hello.Op != opFollow {
		return nil
	}
	_, err := s.log.Head(ctx, s.hello.Session)
	if errors.Is(err, dsh.ErrNoSession) {
		return errRemoved
	}
	return nil // all else is met by the reading
}

func (s *stream) receive(ctx context.Context, w *wire) error {
	limit := w.silence
	if s.hello.Op == opFollow {
		limit = 0
	}
	for {
		kind, body, err := w.answer(ctx, limit)
		if err != nil {
			return err
		}
		switch kind {
		case frameEvent:
			e, err := dsh.ParseEvent(body)
			if err != nil {
				return err
			}
			if err := s.deliver(e); err != nil {
				return err
			}
		case frameFailed:
			_, body, err := numbered(body)
			if err != nil {
				return err
			}
			return parseFailure(body)
		case frameEnd:
			return nil
		default:
			return errFrame
		}
	}
}

// deliver hands an event out. The first one after a connection was lost has to
// follow the last one before: otherwise it is another session of that name.
func (s *stream) deliver(e dsh.Event) error {
	if s.again && s.tail.Seq > 0 && s.tail.Check(e) != nil {
		return errRemoved
	}
	s.again, s.tail, s.hello.After = false, e.Tail(), e.Seq
	if !s.yield(e, nil) {
		return errLeft
	}
	return nil
}

// heads yields all sessions, each once.
func (l *Log) heads(ctx context.Context, yield func(dsh.Head, error) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	seen := map[dsh.SessionID]bool{}
	var damages []error
	err := l.do(ctx, &hello{Op: opHeads}, func(store dsh.Log) error {
		for h, err := range store.Heads(ctx) {
			if len(seen) > 0 && seen[h.ID] && err == nil {
				continue
			}
			if !yield(h, err) {
				return errLeft
			}
		}
		return nil
	}, func(w *wire) error {
		damages = nil
		return receiveHeads(ctx, w, func(h dsh.Head) bool {
			if seen[h.ID] {
				return true
			}
			seen[h.ID] = true
			return yield(h, nil)
		}, func(err error) { damages = append(damages, err) })
	})
	if err != nil {
		return err
	}
	for _, err := range damages {
		var d *dsh.DamageError
		h := dsh.Head{}
		if errors.As(err, &d) {
			h.ID = d.Session
		}
		if !yield(h, err) {
			return errLeft
		}
	}
	return nil
}

func receiveHeads(ctx context.Context, w *wire, take func(dsh.Head) bool, damaged func(error)) error {
	for {
		kind, body, err := w.answer(ctx, w.silence)
		if err != nil {
			return err
		}
		switch kind {
		case frameHead:
			h, err := unpackHead(body)
			if err != nil {
				return err
			}
			if !take(h) {
				return errLeft
			}
		case frameDamage:
			damaged(parseFailure(body))
		case frameFailed:
			_, body, err := numbered(body)
			if err != nil {
				return err
			}
			return parseFailure(body)
		case frameEnd:
			return nil
		default:
			return errFrame
		}
	}
}
