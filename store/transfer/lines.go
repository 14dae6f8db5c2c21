package transfer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/dsh-agent/dsh"
)

// A LineError says which line of the input is wrong.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap gives what is wrong.
func (e *LineError) Unwrap() error { return e.Err }

// maxLine is far above the largest event that a log takes.
const maxLine = 256 << 20

// Lines splits an input into lines. Empty ones are passed over. What is yielded
// is the caller's.
func Lines(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in := bufio.NewReaderSize(r, 256<<10)
		for n := 1; ; n++ {
			line, err := readLine(in)
			if err != nil && err != io.EOF {
				yield(nil, &LineError{n, err})
				return
			}
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
			if err == io.EOF {
				return
			}
		}
	}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("it is longer than %d MiB", maxLine>>20)
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// Sessions splits lines into sessions and holds each to its chain. It yields
// every event with its session. A second part of a session in one input is an
// error, and so is an event before the first session/start.
func Sessions(lines iter.Seq2[[]byte, error]) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var s splitter
		n := 0
		for line, err := range lines {
			n++
			var e Entry
			if err == nil {
				if e, err = s.next(line); err != nil {
					err = &LineError{n, err}
				}
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// An Entry is an event and the session that it is of.
type Entry struct {
	Session dsh.SessionID
	Event   dsh.Event
}

type splitter struct {
	id   dsh.SessionID
	tail dsh.Tail
	head dsh.Head
	seen map[dsh.SessionID]bool
}

func (s *splitter) next(line []byte) (Entry, error) {
	e, err := dsh.ParseEvent(line)
	if err != nil {
		return Entry{}, err
	}
	if e.Type == dsh.TypeSessionStart {
		var start dsh.SessionStart
		if err := e.Decode(&start); err != nil {
			return Entry{}, err
		}
		if !validID(start.ID) {
			return Entry{}, fmt.Errorf("%q is no session id: lower-case letters, digits and dashes are allowed, %d at most", start.ID, maxID)
		}
		if s.seen[start.ID] {
			return Entry{}, fmt.Errorf("session %s begins a second time", start.ID)
		}
		if s.seen == nil {
			s.seen = map[dsh.SessionID]bool{}
		}
		s.seen[start.ID] = true
		s.id, s.tail, s.head = start.ID, dsh.Tail{}, dsh.Head{}
	}
	if s.id == "" {
		return Entry{}, errors.New("an event before the first session/start")
	}
	if err := s.tail.Check(e); err != nil {
		var damage *dsh.DamageError
		if errors.As(err, &damage) {
			damage.Session = s.id
		}
		return Entry{}, err
	}
	if err := s.head.Apply(e); err != nil { // no log takes it
		return Entry{}, err
	}
	s.tail = e.Tail()
	return Entry{s.id, e}, nil
}

// maxID is the longest session id that every store takes.
const maxID = 128

func validID(id dsh.SessionID) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// A ClashError says that the log has another session of a name.
type ClashError struct {
	Session dsh.SessionID
	Through uint64 // up to this event they are not the same
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("session %s is in the log already, and up to event %d it is another: remove that one first (dsh sessions rm %s), or use another data folder", e.Session, e.Through, e.Session)
}

// A Report says what an input has.
type Report struct {
	Sessions int
	Events   uint64
	Added    uint64 // events that the log does not have
}

// Check reads an input to its end and holds it against the log: each session
// is new, or a part of what is there, or goes on where that ends. Nothing is
// written.
func Check(ctx context.Context, log dsh.Log, entries iter.Seq2[Entry, error]) (Report, error) {
	c := checker{log: log}
	for e, err := range entries {
		if err == nil {
			err = c.add(ctx, e)
		}
		if err != nil {
			return c.report, err
		}
	}
	return c.report, c.end(ctx)
}

type checker struct {
	log    dsh.Log
	id     dsh.SessionID
	tail   dsh.Tail // of the input
	have   dsh.Tail // of the log
	report Report
}

func (c *checker) add(ctx context.Context, e Entry) error {
	if c.id != e.Session {
		if err := c.end(ctx); err != nil {
			return err
		}
		h, err := c.log.Head(ctx, e.Session)
		if err != nil && !errors.Is(err, dsh.ErrNoSession) {
			return err
		}
		c.id, c.have = e.Session, h.Tail()
		c.report.Sessions++
	}
	c.tail = e.Event.Tail()
	c.report.Events++
	if c.tail.Seq > c.have.Seq {
		c.report.Added++
	}
	if c.tail.Seq == c.have.Seq && c.tail != c.have { // a hash stands for all before it
		return &ClashError{c.id, c.tail.Seq}
	}
	return nil
}

// end looks at a session of which the log has more than the input.
func (c *checker) end(ctx context.Context) error {
	if c.tail.Seq >= c.have.Seq {
		return nil
	}
	have, err := tailAt(ctx, c.log, c.id, c.tail.Seq)
	if err == nil && have != c.tail {
		return &ClashError{c.id, c.tail.Seq}
	}
	return err
}

func tailAt(ctx context.Context, log dsh.Log, id dsh.SessionID, seq uint64) (dsh.Tail, error) {
	for e, err := range log.Read(ctx, id, seq-1) {
		return e.Tail(), err
	}
	return dsh.Tail{}, nil
}

// The size of one append.
const (
	maxAppend = 1000
	appendTo  = 1 << 20 // bytes
)

// Write appends entries to the log, session by session. The same ones may be
// written again: what is there already counts.
func Write(ctx context.Context, log dsh.Log, entries iter.Seq2[Entry, error]) (err error) {
	w := &into{log: log}
	defer func() { err = errors.Join(err, w.end(context.WithoutCancel(ctx))) }()
	for e, err := range entries {
		if err == nil {
			err = w.add(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

// into appends to one session after the other.
type into struct {
	log    dsh.Log
	id     dsh.SessionID
	writer dsh.Writer
	events []dsh.Event
	bytes  int
}

func (w *into) add(ctx context.Context, e Entry) error {
	if w.writer == nil || w.id != e.Session {
		if err := w.flush(ctx); err != nil {
			return err
		}
		if err := w.end(ctx); err != nil {
			return err
		}
		writer, err := w.log.Acquire(ctx, e.Session)
		if err != nil {
			return err
		}
		w.id, w.writer = e.Session, writer
	}
	w.events = append(w.events, e.Event)
	w.bytes += len(e.Event.Line())
	if len(w.events) < maxAppend && w.bytes < appendTo {
		return nil
	}
	return w.flush(ctx)
}

func (w *into) flush(ctx context.Context) error {
	if len(w.events) == 0 {
		return nil
	}
	err := w.writer.Append(ctx, w.events...)
	var conflict *dsh.ConflictError
	if errors.As(err, &conflict) {
		err = &ClashError{Session: w.id, Through: w.events[0].Seq}
	}
	w.events, w.bytes = nil, 0
	return err
}

func (w *into) end(ctx context.Context) error {
	if w.writer == nil {
		return nil
	}
	writer := w.writer
	w.writer = nil
	return writer.Release(ctx)
}
