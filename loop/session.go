package loop

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/schema"
)

// defaultMaxSteps is the ceiling of a turn's steps where Config has none.
const defaultMaxSteps = 100

// Session is one session under way. It is for one goroutine.
type Session struct {
	cfg    Config
	log    dsh.Log
	writer dsh.Writer
	state  state
	start  dsh.SessionStart // written with the first turn

	frontErr error // the first error of a front; it is told nothing more

	schemas map[string]*schema.Schema // of the tools that were called, by name

	fresh int // bytes of log that came since the last snapshot
	kept  int // the length of that

	shared map[string]*sharedMemory // by policy
}

// Create begins a session. Nothing is in the log until its first Prompt.
// start.Schema is set by Create.
func Create(ctx context.Context, log dsh.Log, start dsh.SessionStart, cfg Config) (*Session, error) {
	if start.ID.Reserved() {
		return nil, &ReservedError{start.ID}
	}
	w, err := log.Acquire(ctx, start.ID)
	if err != nil {
		return nil, err
	}
	if tail := w.Tail(); tail.Seq != 0 {
		return nil, errors.Join(fmt.Errorf("session %s exists and has %d events", start.ID, tail.Seq), w.Release(ctx))
	}
	start.Schema = dsh.Schema
	return &Session{cfg: cfg.withDefaults(), log: log, writer: w, start: start}, nil
}

// Open acquires a session of the log and folds it. It fails as Acquire and
// Read do, with a *dsh.SchemaError for a log of a newer version, and with an
// *InvariantError for one that no loop has written.
func Open(ctx context.Context, log dsh.Log, id dsh.SessionID, cfg Config) (*Session, error) {
	if id.Reserved() {
		return nil, &ReservedError{id}
	}
	if _, err := log.Head(ctx, id); err != nil {
		return nil, err // an Acquire would make the session
	}
	w, err := log.Acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &Session{cfg: cfg.withDefaults(), log: log, writer: w}
	if err := s.fold(ctx, log, id); err != nil {
		return nil, errors.Join(err, w.Release(ctx))
	}
	s.start = s.state.start
	return s, nil
}

// A ReservedError says that a session is no conversation.
type ReservedError struct{ Session dsh.SessionID }

func (e *ReservedError) Error() string {
	return fmt.Sprintf("session %s keeps the memory of a policy: no turn can be opened in it", e.Session)
}

func (s *Session) fold(ctx context.Context, log dsh.Log, id dsh.SessionID) error {
	s.restore(ctx, log, id)
	for e, err := range log.Read(ctx, id, s.state.tail.Seq) {
		if err != nil {
			return err
		}
		if err := s.state.apply(e); err != nil {
			return fmt.Errorf("session %s: %w", id, err)
		}
		s.fresh += len(e.Line())
	}
	if have, want := s.state.tail, s.writer.Tail(); have != want {
		return &dsh.DamageError{Session: id, Seq: have.Seq + 1, Reason: fmt.Sprintf("the log ends at event %d and was written up to %d", have.Seq, want.Seq)}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.MaxSteps == 0 {
		c.MaxSteps = defaultMaxSteps
	}
	if c.Policies == nil {
		c.Policies = dsh.FixedWaterfall(nil)
	}
	return c
}

// ID is the session's id.
func (s *Session) ID() dsh.SessionID { return s.start.ID }

// Tail is the end of what the session has appended.
func (s *Session) Tail() dsh.Tail { return s.state.tail }

// Close syncs and releases the session. It is to be called once.
func (s *Session) Close(ctx context.Context) error { return s.writer.Release(ctx) }

// append makes drafts the next events: all durable when it returns, or, where
// all are relaxed, on their way. A store is never left in the middle of an
// append by a caller's stop.
func (s *Session) append(ctx context.Context, drafts ...dsh.Draft) error {
	if len(drafts) == 0 {
		return nil
	}
	drafts, err := s.redacted(drafts)
	if err != nil {
		return err
	}
	events, err := s.state.tail.SealAll(time.Now(), drafts...)
	if err != nil {
		return err
	}
	if err := s.writer.Append(context.WithoutCancel(ctx), events...); err != nil {
		return fmt.Errorf("session %s: %w", s.start.ID, err)
	}
	for _, e := range events {
		if err := s.state.apply(e); err != nil {
			return fmt.Errorf("session %s: %w", s.start.ID, err)
		}
		s.fresh += len(e.Line())
		s.tell(e)
	}
	return nil
}

// redacted are drafts without what is not to be logged.
func (s *Session) redacted(drafts []dsh.Draft) ([]dsh.Draft, error) {
	if s.cfg.Redact == nil {
		return drafts, nil
	}
	clean := make([]dsh.Draft, len(drafts))
	for i, d := range drafts {
		data, err := dsh.JSON(d.Data)
		if err != nil {
			return nil, fmt.Errorf("event %s: %w", d.Type, err)
		}
		d.Data = json.RawMessage(s.cfg.Redact(data))
		clean[i] = d
	}
	return clean, nil
}

// tell shows an event to the front. Its failure does not undo the append: the
// turn ends by it at the next step of drive.
func (s *Session) tell(e dsh.Event) {
	if s.cfg.Front.Event == nil || s.frontErr != nil {
		return
	}
	s.frontErr = s.cfg.Front.Event(e)
}

// newID is a fresh random id of 128 bits, in hex.
func newID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil { // never: see crypto/rand
		panic(err)
	}
	return hex.EncodeToString(b[:])
}
