package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/transfer"
)

// The forms of `dsh log export`.
const (
	formJSONL  = "jsonl"
	formSQLite = "sqlite"
)

func (a *app) exportCommand() *cobra.Command {
	var format, file string
	c := &cobra.Command{
		Use: "export [ID…]", Short: "Write sessions as the log has them, the oldest first", Args: between(0, -1, "sessions, or none for all"),
		Long: `Writes sessions as the log has them, the oldest first: a line of JSON an event,
to the byte; or a SQLite file with the tables sessions and events and the views
attempts, retries and decisions. dsh log import takes both.`,
		Example: `  dsh log export --output all.jsonl
  dsh log export last --format sqlite --output last.db
  sqlite3 last.db "SELECT failure, count(*) FROM attempts GROUP BY failure"`,
		RunE: func(c *cobra.Command, args []string) error {
			if format != formJSONL && format != formSQLite {
				return Usagef("--format %q is not known: %s or %s", oneLine(format, 40), formJSONL, formSQLite)
			}
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error {
				if format == formSQLite {
					return a.exportSQLite(ctx, log, args, file)
				}
				return a.toFile(file, func(out io.Writer) error { return a.exportLog(ctx, log, args, out) })
			})
		},
	}
	c.Flags().StringVar(&format, "format", formJSONL, "the `form`: jsonl or sqlite")
	c.Flags().StringVar(&file, "output", "", "the `file` that is written, once all of it is there (default: stdout)")
	return c
}

// stdoutName stands for stdout, or stdin, in the place of a file.
const stdoutName = "-"

// toFile hands a file to write, or stdout. The file is put in its place when
// all of it is there, durably; one that was there before is replaced.
func (a *app) toFile(file string, write func(io.Writer) error) (err error) {
	if file == "" || file == stdoutName {
		return write(a.out)
	}
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return writeInto(file, write) // a pipe or a device
	}
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".dsh-*")
	if err != nil {
		return fileError(file, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fileError(file, err)
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return fileError(file, err)
	}
	return syncFolder(dir)
}

func writeInto(file string, write func(io.Writer) error) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return fileError(file, err)
	}
	return errors.Join(write(f), f.Close())
}

// syncFolder makes a name in a folder durable, where folders can be synced.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // not everywhere
	return nil
}

// fileError says of a file that the user named why it cannot be used.
func fileError(file string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		return Usagef("%s: %v", file, err)
	}
	return fmt.Errorf("%s: %w", file, err)
}

// exportSQLite makes the file beside its place, since a database cannot be
// written to a stream.
func (a *app) exportSQLite(ctx context.Context, log dsh.Log, words []string, file string) error {
	heads, damage, err := chosen(ctx, log, words)
	if err != nil {
		return err
	}
	dir := os.TempDir()
	if file != "" && file != stdoutName {
		dir = filepath.Dir(file)
	}
	made, err := os.MkdirTemp(dir, ".dsh-*")
	if err != nil {
		return fileError(file, err)
	}
	defer os.RemoveAll(made) //nolint:errcheck // what is left of it says its name
	path := filepath.Join(made, "export.db")
	cut, err := a.program.Upkeep.WriteSQLite(ctx, path, log, heads)
	if err != nil {
		return err
	}
	if file != "" && file != stdoutName {
		if err := os.Rename(path, file); err != nil {
			return fileError(file, err)
		}
		if err := syncFolder(dir); err != nil {
			return err
		}
	} else if err := copyFile(a.out, path); err != nil {
		return err
	}
	return a.notWhole(cut, damage)
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// notWhole says which sessions are cut in what was written.
func (a *app) notWhole(cut []error, damage map[dsh.SessionID]*dsh.DamageError) error {
	for _, err := range cut {
		a.say.error("%s", oneLine(err.Error(), longMessage))
		var d *dsh.DamageError
		if errors.As(err, &d) {
			delete(damage, d.Session)
		}
	}
	for _, d := range damage {
		a.say.error("%s", d.Error())
	}
	if len(cut)+len(damage) == 0 {
		return nil
	}
	return &LogError{errors.New("the export is not whole")}
}

func (a *app) importCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Bring in what export wrote: lines of JSON, or a SQLite file", Args: between(1, 1, "one file, or - for stdin"),
		Long: `Brings in what dsh log export wrote, byte for byte, whatever version wrote it.
All of it is checked first, and nothing is brought in unless all is good: each
session has to be new, or a part of what the log has, or to go on where that
ends.`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.withInto(c, func(ctx context.Context, log dsh.Log) error { return a.importFile(ctx, log, args[0]) })
		},
	}
}

// withInto is withLog for a command that brings sessions in.
func (a *app) withInto(c *cobra.Command, f func(context.Context, dsh.Log) error) error {
	return a.withOpened(c, a.program.Upkeep.Into, f)
}

// An imported is `dsh log import --json`.
type imported struct {
	Sessions int    `json:"sessions"`
	Events   uint64 `json:"events"`
	Added    uint64 `json:"added"` // that the log did not have
}

func (a *app) importFile(ctx context.Context, log dsh.Log, file string) error {
	path, done, err := a.input(file)
	if err != nil {
		return err
	}
	defer done()
	lines, err := a.linesOf(ctx, path)
	if err != nil {
		return fileError(file, err)
	}
	memories := map[dsh.SessionID]bool{}
	report, err := transfer.Check(ctx, log, conversations(transfer.Sessions(lines()), memories))
	if err != nil {
		return a.refused(ctx, file, err)
	}
	if err := transfer.Write(ctx, log, conversations(transfer.Sessions(lines()), memories)); err != nil {
		return a.refused(ctx, file, err)
	}
	if n := len(memories); n > 0 {
		a.progress(plain, fmt.Sprintf("left out %s: what policies keep here stays as it is", count(n, "memory of a policy", "memories of policies")))
	}
	if a.common.JSON {
		return writeJSON(a.out, imported{report.Sessions, report.Events, report.Added})
	}
	a.progress(plain, fmt.Sprintf("imported %s with %s, %d of them new", count(report.Sessions, "session", "sessions"), count(int(report.Events), "event", "events"), report.Added))
	return nil
}

// conversations leaves the memories of policies out, and remembers which: what a
// policy keeps here is not to be decided by a file from elsewhere.
func conversations(entries iter.Seq2[transfer.Entry, error], memories map[dsh.SessionID]bool) iter.Seq2[transfer.Entry, error] {
	return func(yield func(transfer.Entry, error) bool) {
		for e, err := range entries {
			if err == nil && e.Session.Reserved() {
				memories[e.Session] = true
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// input is a file that can be read twice: stdin is put into one.
func (a *app) input(file string) (path string, done func(), err error) {
	if file != stdoutName {
		return file, func() {}, nil
	}
	f, err := os.CreateTemp("", "dsh-*")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.Remove(f.Name()) }
	_, err = io.Copy(f, a.in)
	if err = errors.Join(err, f.Close()); err != nil {
		done()
		return "", nil, fmt.Errorf("stdin could not be kept in a file: %w", err)
	}
	return f.Name(), done, nil
}

// linesOf gives the lines of a file of either form, as often as it is called.
func (a *app) linesOf(ctx context.Context, path string) (func() iter.Seq2[[]byte, error], error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	begin := make([]byte, 64)
	n, err := io.ReadFull(f, begin)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if a.program.Upkeep.IsSQLite(begin[:n]) {
		return func() iter.Seq2[[]byte, error] { return a.program.Upkeep.ReadSQLite(ctx, path) }, nil
	}
	return func() iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) {
			f, err := os.Open(path)
			if err != nil {
				yield(nil, err)
				return
			}
			defer f.Close()
			for line, err := range transfer.Lines(f) {
				if err == nil {
					err = ctx.Err()
				}
				if !yield(line, err) || err != nil {
					return
				}
			}
		}
	}, nil
}

// refused tells an input's own faults, which are the file's, from those of the
// log.
func (a *app) refused(ctx context.Context, file string, err error) error {
	var (
		line   *transfer.LineError
		clash  *transfer.ClashError
		backup *transfer.BackupError
	)
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &line), errors.As(err, &backup):
		return fmt.Errorf("%s: %s; nothing was brought in", file, err) //nolint:errorlint // the log is not damaged: the file is
	case errors.As(err, &clash):
		return fmt.Errorf("%s: %w", file, err)
	}
	return err
}

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write all sessions, modules and policies into one file, also while turns run", Args: between(1, 1, "one file, or - for stdout"),
		RunE: func(c *cobra.Command, args []string) error {
			folders, err := a.program.Upkeep.Folders(c.Context(), a.common)
			if err != nil {
				return err
			}
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error { return a.backup(ctx, log, folders, args[0]) })
		},
	}
}

// A backedUp is `dsh log backup --json` and `restore --json`.
type backedUp struct {
	Sessions int    `json:"sessions"`
	Events   uint64 `json:"events"`
	Files    int    `json:"files"`
	Added    uint64 `json:"added,omitempty"` // events that the log did not have
	At       int64  `json:"at"`              // Unix ms
}

func (a *app) backup(ctx context.Context, log dsh.Log, folders map[string]string, file string) error {
	var c transfer.Contents
	err := a.toFile(file, func(out io.Writer) error {
		sealed, err := a.program.Upkeep.Seal(ctx, a.common, out)
		if err != nil {
			return err
		}
		if sealed == nil {
			c, err = transfer.Backup(ctx, log, folders, out)
			return err
		}
		c, err = transfer.Backup(ctx, log, folders, sealed)
		return errors.Join(err, sealed.Close())
	})
	if err != nil {
		return err
	}
	for _, err := range c.Damaged {
		a.say.error("%s", oneLine(err.Error(), longMessage))
	}
	if err := a.tellContents("backed up", file == stdoutName, c); err != nil || len(c.Damaged) == 0 {
		return err
	}
	return &LogError{errors.New("the backup has the damaged sessions as far as they are whole")}
}

func (a *app) tellContents(did string, quiet bool, c transfer.Contents) error {
	if a.common.JSON && !quiet {
		return writeJSON(a.out, backedUp{c.Sessions, c.Events, c.Files, c.Added, c.At.UnixMilli()})
	}
	a.progress(plain, fmt.Sprintf("%s %s with %s, and %s", did, count(c.Sessions, "session", "sessions"),
		count(int(c.Events), "event", "events"), count(c.Files, "file", "files")))
	return nil
}

func (a *app) restoreCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Bring in a backup, once all of it is verified", Args: between(1, 1, "one file, or - for stdin"),
		RunE: func(c *cobra.Command, args []string) error {
			folders, err := a.program.Upkeep.Folders(c.Context(), a.common)
			if err != nil {
				return err
			}
			f := func(ctx context.Context, log dsh.Log) error { return a.restore(ctx, log, folders, args[0], dry) }
			if dry {
				return a.withLog(c, f)
			}
			return a.withInto(c, f)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "verifies the backup, and brings nothing in")
	return c
}

// openBackup opens a backup, encrypted or not.
func (a *app) openBackup(ctx context.Context, path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	in, err := a.program.Upkeep.Open(ctx, a.common, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{in, f}, nil
}

func (a *app) restore(ctx context.Context, log dsh.Log, folders map[string]string, file string, dry bool) error {
	path, done, err := a.input(file)
	if err != nil {
		return err
	}
	defer done()
	if _, err := os.Stat(path); err != nil {
		return fileError(file, err)
	}
	open := func() (io.ReadCloser, error) { return a.openBackup(ctx, path) }
	if dry {
		c, err := transfer.Verify(ctx, log, open)
		if err != nil {
			return a.refused(ctx, file, err)
		}
		return a.tellContents("good: the backup has", false, c)
	}
	c, err := transfer.Restore(ctx, log, folders, open)
	if err != nil {
		return a.refused(ctx, file, err)
	}
	after, err := transfer.Verify(ctx, log, open)
	if err == nil && after.Added > 0 {
		err = &LogError{fmt.Errorf("%d events of the backup are not in the log after all", after.Added)}
	}
	if err != nil {
		return err
	}
	return a.tellContents("restored", false, c)
}
