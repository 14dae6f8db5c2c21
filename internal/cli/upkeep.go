package cli

import (
	"context"
	"io"
	"iter"

	"github.com/dsh-agent/dsh"
)

// An Upkeep is what the commands need that bring sessions in and out and look
// after the log.
type Upkeep struct {
	// Into opens the log for a command that brings sessions in: unlike
	// Program.Log it makes the data folder. The caller closes it.
	Into func(ctx context.Context, c Common) (dsh.Log, error)

	// Folders are those that go with the log, by their names in a backup.
	Folders func(ctx context.Context, c Common) (map[string]string, error)

	// IsSQLite reports whether what a file begins with makes it a SQLite file.
	IsSQLite func(begin []byte) bool

	// WriteSQLite makes a new file of sessions that people query. A damaged
	// session is in it as far as it is whole, and its error is in cut.
	WriteSQLite func(ctx context.Context, file string, log dsh.Log, heads []dsh.Head) (cut []error, err error)

	// ReadSQLite yields the events' lines of such a file.
	ReadSQLite func(ctx context.Context, file string) iter.Seq2[[]byte, error]

	// Seal encrypts what is written to a backup, nil where the log is not
	// encrypted. Open decrypts one, and leaves one that is not encrypted as it
	// is.
	Seal func(ctx context.Context, c Common, to io.Writer) (io.WriteCloser, error)
	Open func(ctx context.Context, c Common, from io.Reader) (io.Reader, error)

	// Doctor looks at everything that dsh needs, and says what to do where
	// something is not as it should be.
	Doctor func(ctx context.Context, c Common) ([]Finding, error)

	// Repair sets aside what is damaged in the log, so that the rest goes on,
	// and says what it did.
	Repair func(ctx context.Context, c Common) ([]Finding, error)
}

// A Finding is one line of `dsh doctor`.
type Finding struct {
	What   string `json:"what"`             // was looked at
	State  string `json:"state"`            // FindingGood, FindingNote or FindingBad
	Detail string `json:"detail,omitempty"` // what was found
	Advice string `json:"advice,omitempty"` // what to do; of a good one empty
}

// The states of a Finding.
const (
	FindingGood = "ok"
	FindingNote = "note" // it works, and might work better
	FindingBad  = "bad"
)
