package dsh

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// A SessionID names a session. It is made of lower-case letters, digits and
// dashes, and sorts by the time of its making.
type SessionID string

// A Log keeps sessions. It may be used by several goroutines.
type Log interface {
	// Acquire makes the caller the one writer of a session, which need not
	// exist yet. It fails with a *HeldError while another holds it.
	Acquire(ctx context.Context, id SessionID) (Writer, error)

	// Read yields the durable events of a session after a seq, in order. It
	// fails with ErrNoSession, or with a *DamageError at the place of the
	// damage after all events before it.
	Read(ctx context.Context, id SessionID, after uint64) iter.Seq2[Event, error]

	// Follow is Read that goes on with what becomes durable later, until ctx
	// ends (its error is the last thing yielded) or the session is removed.
	// A session that does not exist yet is waited for.
	Follow(ctx context.Context, id SessionID, after uint64) iter.Seq2[Event, error]

	// Head returns what is known of a session without reading it: it fails
	// with ErrNoSession.
	Head(ctx context.Context, id SessionID) (Head, error)

	// Snapshot returns the last snapshot that a writer of the session kept. The
	// zero value is none: it may be gone at any time, and be one of a session
	// that was longer then.
	Snapshot(ctx context.Context, id SessionID) (Snapshot, error)

	// Heads yields all sessions, the last written to first.
	Heads(ctx context.Context) iter.Seq2[Head, error]

	// Remove deletes a session that nobody holds.
	Remove(ctx context.Context, id SessionID) error

	// Close makes everything durable and lets go of the log.
	Close() error
}

// A Writer is the right to append to one session. It is for one goroutine.
type Writer interface {
	// Epoch counts the acquisitions of the session, from 1.
	Epoch() uint64

	// Tail is the end of the session when it was acquired.
	Tail() Tail

	// Append adds events that were sealed onto the session's end, all or
	// none. It answers when they are durable; events that are all of a
	// relaxed type are only queued, and their failure is the next Append's.
	// Appending the same bytes at the same seqs again is a success. It fails
	// with a *ConflictError where the events do not follow the end, with
	// ErrStale when another has acquired the session since, and with a
	// *SpaceError where there is no room.
	//
	// After any other error the caller does not know what became durable: it
	// stops using the writer and, to go on, acquires and reads again.
	Append(ctx context.Context, events ...Event) error

	// Sync answers when everything that was appended is durable.
	Sync(ctx context.Context) error

	// KeepSnapshot puts a snapshot in the place of the one before. It need not
	// survive a crash.
	KeepSnapshot(ctx context.Context, s Snapshot) error

	// Release gives the session up, after a Sync. It is to be called once.
	Release(ctx context.Context) error
}

// A Snapshot is what somebody made of a session's events up to a place, so that
// they need not be read again. It is derived, and never the truth: whoever uses
// one compares its place with the log, and does without it when in doubt. A
// store hands out what it was given, whole, or nothing.
type Snapshot struct {
	Tail Tail
	Data []byte // not to be changed
}

// The errors of a Log that have no facts of their own.
var (
	ErrNoSession = errors.New("no such session")
	ErrStale     = errors.New("the session was taken over by another writer")
	ErrClosed    = errors.New("the log is closed")
)

// A HeldError says who writes a session.
type HeldError struct {
	Session SessionID
	PID     int // of the process that holds it
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("session %s is held by process %d", e.Session, e.PID)
}

// A LockedError says which process has a data folder open.
type LockedError struct {
	Dir string
	PID int // 0: unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("the data folder %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("the data folder %s is in use by process %d", e.Dir, e.PID)
}

// A ConflictError says that an append did not fit the session's end.
type ConflictError struct {
	Session SessionID
	At      uint64 // the seq of the first event that was to be appended
	Tail    Tail   // where the session ends
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("session %s ends at event %d: event %d cannot be appended", e.Session, e.Tail.Seq, e.At)
}

// A DamageError says from where on a session cannot be trusted. Everything
// before Seq is proven by the chain.
type DamageError struct {
	Session SessionID
	Seq     uint64
	Reason  string
}

func (e *DamageError) Error() string {
	if e.Session == "" {
		return fmt.Sprintf("damaged at event %d: %s", e.Seq, e.Reason)
	}
	return fmt.Sprintf("session %s is damaged at event %d: %s", e.Session, e.Seq, e.Reason)
}

// A SchemaError says that a log was written by a newer version.
type SchemaError struct {
	Have int // the log's
	Max  int // the highest that this version reads
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("the log has schema %d and this version reads up to %d: use a newer version", e.Have, e.Max)
}

// A SpaceError says that the disk is too full to append.
type SpaceError struct {
	Dir        string
	Free, Need uint64 // bytes
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("the disk of %s has %d MiB free and %d are needed", e.Dir, e.Free>>20, e.Need>>20)
}
