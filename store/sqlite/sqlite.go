// Package sqlite writes sessions into a SQLite file that people can query, and
// reads them out of one, byte for byte.
//
// The events' lines are all that such a file holds; every other column and
// view is made of them. See [Schema] for the tables.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/dsh-agent/dsh"
)

// format is the version of the tables, and the highest that is read. It stands
// in PRAGMA user_version.
const format = 1

// Schema makes the tables and views of a file:
//
//   - sessions: one row a session, as `dsh sessions` shows it.
//   - events: one row an event. line is the event as the log has it, to the
//     byte; the other columns are read out of it when they are asked for. data
//     is the event's payload: json_extract(data, '$.…') goes on from there.
//   - attempts: one row a request to a provider, with how it ended.
//   - retries: one row a wait that a policy asked for, with what became of it.
//   - decisions: one row an answer of a policy, and one a fault or a refusal.
//
// Times are Unix ms.
const Schema = `
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, title TEXT NOT NULL, cwd TEXT NOT NULL, state TEXT NOT NULL,
  started_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  turns INTEGER NOT NULL, attempts INTEGER NOT NULL, retries INTEGER NOT NULL,
  last_failure TEXT, events INTEGER NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE events (
  session TEXT NOT NULL REFERENCES sessions (id), seq INTEGER NOT NULL,
  at INTEGER NOT NULL, type TEXT NOT NULL, line TEXT NOT NULL,
  data TEXT AS (json_extract(line, '$.data')) VIRTUAL,
  surface TEXT AS (json_extract(line, '$.surface')) VIRTUAL,
  hash TEXT AS (json_extract(line, '$.hash')) VIRTUAL,
  turn INTEGER AS (json_extract(line, '$.data.turn')) VIRTUAL,
  step INTEGER AS (json_extract(line, '$.data.step')) VIRTUAL,
  attempt INTEGER AS (json_extract(line, '$.data.attempt')) VIRTUAL,
  UNIQUE (session, seq)
);
CREATE INDEX events_by_type ON events (type, session, seq);
CREATE VIEW attempts AS
SELECT s.session, s.turn, s.step, s.attempt, s.seq, s.at AS started_at, e.at AS ended_at,
  json_extract(s.data, '$.purpose') AS purpose,
  json_extract(s.data, '$.provider') AS provider,
  json_extract(s.data, '$.model') AS model,
  json_extract(s.data, '$.requestBytes') AS request_bytes,
  json_extract(e.data, '$.finish.kind') AS finish,
  json_extract(e.data, '$.finish.failure.code') AS failure,
  json_extract(e.data, '$.finish.failure.status') AS status,
  json_extract(e.data, '$.finish.failure.message') AS message,
  json_extract(e.data, '$.usage.inputTokens') AS input_tokens,
  json_extract(e.data, '$.usage.outputTokens') AS output_tokens,
  json_extract(e.data, '$.durationMs') AS duration_ms
FROM events s LEFT JOIN events e ON e.type = 'attempt/end' AND e.session = s.session
  AND e.turn = s.turn AND e.step = s.step AND e.attempt = s.attempt
WHERE s.type = 'attempt/start';
CREATE VIEW retries AS
SELECT r.session, r.turn, r.step, r.attempt, r.seq, r.at AS decided_at,
  json_extract(r.data, '$.retry') AS retry,
  json_extract(r.data, '$.maxRetries') AS max_retries,
  json_extract(r.data, '$.mode') AS mode,
  json_extract(r.data, '$.delayMs') AS delay_ms,
  json_extract(r.data, '$.notBefore') AS not_before,
  json_extract(r.data, '$.policy') AS policy,
  json_extract(r.data, '$.failure.code') AS failure,
  CASE x.type WHEN 'llm/retry-started' THEN 'started' WHEN 'llm/retry-cancelled' THEN 'cancelled' ELSE 'pending' END AS outcome,
  x.at AS settled_at,
  json_extract(x.data, '$.reason') AS reason
FROM events r LEFT JOIN events x ON x.type IN ('llm/retry-started', 'llm/retry-cancelled') AND x.session = r.session
  AND json_extract(x.data, '$.retryId') = json_extract(r.data, '$.retryId')
WHERE r.type = 'llm/retry';
CREATE VIEW decisions AS
SELECT session, turn, step, attempt, seq, at, substr(type, 8) AS kind,
  json_extract(data, '$.policy') AS policy,
  json_extract(data, '$.hook') AS hook,
  json_extract(data, '$.digest') AS digest,
  json_extract(data, '$.decision') AS decision,
  coalesce(json_extract(data, '$.kind'), json_extract(data, '$.rule')) AS rule,
  json_extract(data, '$.message') AS message,
  json_extract(data, '$.input.failure.code') AS failure,
  json_extract(data, '$.fuel') AS fuel
FROM events WHERE type IN ('policy/decision', 'policy/fault', 'policy/refused');
`

// Magic is how a SQLite file begins.
const Magic = "SQLite format 3\x00"

// open opens a file. Nothing of it is cached or synced: it is made anew, or
// only read.
func open(file, mode string) (*sql.DB, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	q := url.Values{"mode": {mode}, "_pragma": {"synchronous(OFF)"}}
	if mode != "ro" {
		q.Add("_pragma", "journal_mode(OFF)")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// Write makes a new file of sessions, in the order of their heads. A session
// that is damaged is in it as far as it is whole, and its error is in cut. The
// file is whole when Write returns without an error, and is not to be there
// before.
func Write(ctx context.Context, file string, log dsh.Log, heads []dsh.Head) (cut []error, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	db, err := open(file, "rw")
	if err != nil {
		return nil, err
	}
	if cut, err = fill(ctx, db, log, heads); err != nil {
		return cut, errors.Join(err, db.Close())
	}
	if err := db.Close(); err != nil {
		return cut, err
	}
	return cut, f.Sync()
}

func fill(ctx context.Context, db *sql.DB, log dsh.Log, heads []dsh.Head) (cut []error, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // after a Commit it does nothing
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d;%s", format, Schema)); err != nil {
		return nil, err
	}
	events, err := tx.PrepareContext(ctx, "INSERT INTO events (session, seq, at, type, line) VALUES (?, ?, ?, ?, ?)")
	if err != nil {
		return nil, err
	}
	defer events.Close() //nolint:errcheck // the transaction tells what failed
	for _, h := range heads {
		var made dsh.Head // of the events that are written
		for e, err := range log.Read(ctx, h.ID, 0) {
			var damage *dsh.DamageError
			if errors.As(err, &damage) {
				cut = append(cut, err)
				break
			}
			if err == nil {
				err = made.Apply(e)
			}
			if err == nil {
				_, err = events.ExecContext(ctx, h.ID, e.Seq, e.At, e.Type, string(e.Line()))
			}
			if err != nil {
				return cut, err
			}
		}
		if made.Seq == 0 {
			continue
		}
		if err := putSession(ctx, tx, h.ID, made); err != nil {
			return cut, err
		}
	}
	return cut, tx.Commit()
}

func putSession(ctx context.Context, tx *sql.Tx, id dsh.SessionID, h dsh.Head) error {
	last := sql.NullString{String: string(h.LastFailure), Valid: h.LastFailure != ""}
	_, err := tx.ExecContext(ctx, "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
		id, h.Title, h.Cwd, h.State, h.StartedAt, h.UpdatedAt, h.Turns, h.Attempts, h.Retries, last, h.Seq, h.Hash)
	return err
}

// A FormatError says that a file is none that Write made.
type FormatError struct {
	File string
	Err  error
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s is no export of dsh: %v", e.File, e.Err)
}

// Unwrap gives what was found.
func (e *FormatError) Unwrap() error { return e.Err }

// Lines yields the lines of a file's events, session by session, in the order
// in which they were written into it.
func Lines(ctx context.Context, file string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		db, err := open(file, "ro")
		if err == nil {
			defer db.Close() //nolint:errcheck // nothing was written
			err = checkFormat(ctx, db, file)
		}
		var rows *sql.Rows
		if err == nil {
			rows, err = db.QueryContext(ctx, "SELECT e.line FROM sessions s JOIN events e ON e.session = s.id ORDER BY s.rowid, e.seq")
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer rows.Close() //nolint:errcheck // Err tells what failed
		for rows.Next() {
			var line []byte
			if err := rows.Scan(&line); err != nil {
				yield(nil, err)
				return
			}
			if !yield(line, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

func checkFormat(ctx context.Context, db *sql.DB, file string) error {
	var have int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return &FormatError{file, err}
	}
	if have > format {
		return &dsh.SchemaError{Have: have, Max: format}
	}
	var orphans int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE session NOT IN (SELECT id FROM sessions)").Scan(&orphans)
	if err == nil && have == 0 {
		err = errors.New("it has no version")
	}
	if err == nil && orphans > 0 {
		err = fmt.Errorf("%d events are of no session in it", orphans)
	}
	if err != nil {
		return &FormatError{file, err}
	}
	return nil
}

// Is reports whether what a reader begins with is a SQLite file.
func Is(begin []byte) bool { return string(begin[:min(len(begin), len(Magic))]) == Magic }
