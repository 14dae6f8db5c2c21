package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/sqlite"
)

func logWith(t *testing.T, id dsh.SessionID, drafts ...dsh.Draft) dsh.Log {
	t.Helper()
	log := memory.New()
	put(t, log, id, drafts...)
	return log
}

func put(t *testing.T, log dsh.Log, id dsh.SessionID, drafts ...dsh.Draft) {
	t.Helper()
	w, err := log.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	drafts = append([]dsh.Draft{{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: id, Cwd: "/w", Title: "a title"}}}, drafts...)
	events, err := w.Tail().SealAll(time.UnixMilli(1000), drafts...)
	if err == nil {
		err = errors.Join(w.Append(t.Context(), events...), w.Release(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func heads(t *testing.T, log dsh.Log) []dsh.Head {
	t.Helper()
	var all []dsh.Head
	for h, err := range log.Heads(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	slices.Reverse(all)
	return all
}

func lines(t *testing.T, log dsh.Log) []byte {
	t.Helper()
	var b []byte
	for _, h := range heads(t, log) {
		for e, err := range log.Read(t.Context(), h.ID, 0) {
			if err != nil {
				t.Fatal(err)
			}
			b = append(append(b, e.Line()...), '\n')
		}
	}
	return b
}

func write(t *testing.T, log dsh.Log) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "with ?# in it.db")
	if cut, err := sqlite.Write(t.Context(), file, log, heads(t, log)); err != nil || len(cut) > 0 {
		t.Fatalf("Write: %v, %v", cut, err)
	}
	return file
}

func TestBytesComeThrough(t *testing.T) {
	log := logWith(t, "z",
		dsh.Draft{Type: "future/kind", Data: map[string]any{"text": "<&>\u2028é\U0001F600", "n": 1.5e300, "nul": "\x00", "bad": "\xff"}},
		dsh.Draft{Type: "a", Data: map[string]any{"deep": []any{map[string]any{}, nil, true}}})
	put(t, log, "a", dsh.Draft{Type: "big", Data: map[string]any{"x": string(bytes.Repeat([]byte("0123456789"), 300_000))}})
	file := write(t, log)
	var got []byte
	for line, err := range sqlite.Lines(t.Context(), file) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(append(got, line...), '\n')
	}
	if want := lines(t, log); !bytes.Equal(got, want) {
		t.Errorf("%d bytes came out, %d went in", len(got), len(want))
	}
	begin, err := os.ReadFile(file)
	if err != nil || !sqlite.Is(begin) || sqlite.Is([]byte(`{"seq":1`)) || sqlite.Is(nil) {
		t.Errorf("Is: %v", err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := sqlite.Write(t.Context(), file, log, heads(t, log)); !errors.Is(err, os.ErrExist) {
		t.Errorf("Write over a file: %v", err)
	}
}

func TestQueries(t *testing.T) {
	failure := dsh.Failure{Code: dsh.CodeRateLimit, Message: "slow down", Status: 429}
	log := logWith(t, "s",
		dsh.Draft{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: 1}},
		dsh.Draft{Type: dsh.TypeAttemptStart, Data: dsh.AttemptStart{Turn: 1, Step: 1, Attempt: 1, Purpose: dsh.PurposeReply, Provider: "p", Model: "m"}},
		dsh.Draft{Type: dsh.TypeAttemptEnd, Data: dsh.AttemptEnd{Turn: 1, Step: 1, Attempt: 1, Finish: dsh.Finish{Kind: dsh.FinishError, Failure: &failure}, DurationMs: 12}},
		dsh.Draft{Type: dsh.TypePolicyDecision, Data: map[string]any{"turn": 1, "step": 1, "attempt": 1, "policy": "retry", "decision": map[string]any{"action": "retry"}, "fuel": 7}},
		dsh.Draft{Type: dsh.TypeRetry, Data: dsh.Retry{RetryID: "r1", Turn: 1, Step: 1, Attempt: 1, Retry: 1, DelayMs: 640, Policy: "retry", Failure: failure}},
		dsh.Draft{Type: dsh.TypeRetryStarted, Data: dsh.RetryStarted{RetryID: "r1", Turn: 1, Step: 1, Retry: 1}},
		dsh.Draft{Type: dsh.TypeAttemptStart, Data: dsh.AttemptStart{Turn: 1, Step: 1, Attempt: 2, Purpose: dsh.PurposeReply, Provider: "p", Model: "m"}},
	)
	file := filepath.Join(t.TempDir(), "x.db")
	if _, err := sqlite.Write(t.Context(), file, log, heads(t, log)); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for query, want := range map[string]string{
		"SELECT id, title, state, turns, attempts, retries, last_failure, events FROM sessions":     "s a title open 1 2 1 RATE_LIMIT 8",
		"SELECT attempt, finish, failure, status, message, duration_ms FROM attempts ORDER BY seq":  "1 error RATE_LIMIT 429 slow down 12; 2 <nil> <nil> <nil> <nil> <nil>",
		"SELECT retry, delay_ms, policy, failure, outcome FROM retries":                             "1 640 retry RATE_LIMIT started",
		"SELECT kind, policy, decision, fuel FROM decisions":                                        `decision retry {"action":"retry"} 7`,
		"SELECT seq, type, turn, json_extract(data, '$.id') FROM events WHERE type='session/start'": "1 session/start <nil> s",
	} {
		if got := all(t, db, query); got != want {
			t.Errorf("%s:\n got %s\nwant %s", query, got, want)
		}
	}
}

// all runs a query and gives its rows in one line.
func all(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, _ := rows.Columns()
	out := ""
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		if out != "" {
			out += "; "
		}
		for i, v := range values {
			if i > 0 {
				out += " "
			}
			out += fmt.Sprint(*v.(*any))
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(sqlite.Magic+"and no more"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := func(name string, statements ...string) string {
		file := filepath.Join(dir, name)
		db, err := sql.Open("sqlite", file)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		return file
	}
	version := "PRAGMA user_version = 1"
	for _, file := range []string{
		text, made("empty", "CREATE TABLE x (y)"), made("no version", sqlite.Schema),
		made("orphans", version, sqlite.Schema, "INSERT INTO events (session, seq, at, type, line) VALUES ('s', 1, 1, 'x', '{}')"),
	} {
		var err error
		for _, err = range sqlite.Lines(t.Context(), file) {
		}
		var format *sqlite.FormatError
		if !errors.As(err, &format) {
			t.Errorf("%s: %v, want a *FormatError", file, err)
		}
	}
	var schema *dsh.SchemaError
	var err error
	for _, err = range sqlite.Lines(t.Context(), made("newer", "PRAGMA user_version = 77")) {
	}
	if !errors.As(err, &schema) || schema.Have != 77 {
		t.Errorf("a newer file: %v", err)
	}
}
