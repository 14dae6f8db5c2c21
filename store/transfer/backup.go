package transfer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// The names in a backup.
const (
	headerName = "backup.json"
	sumsName   = "sums"
	sessionDir = "sessions/"
	filesDir   = "files/"
)

// backupFormat is the version of a backup, and the highest that is read.
const backupFormat = 1

// partSize is about how much of a session stands in one part.
const partSize = 4 << 20

type backupHeader struct {
	Format int   `json:"format"`
	At     int64 `json:"at"` // Unix ms
}

// A Contents is what is in a backup.
type Contents struct {
	Report
	Files   int
	At      time.Time // when it was begun
	Damaged []error   // sessions that are in it as far as they are whole
}

// Backup writes all sessions and the files of folders, which are given by
// their names in the backup. It may be taken while sessions are written: of
// each it has what was durable when it came to it. A folder that is not there
// is passed over.
func Backup(ctx context.Context, log dsh.Log, folders map[string]string, to io.Writer) (Contents, error) {
	zip, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return Contents{}, err
	}
	b := &backup{tar: tar.NewWriter(zip), at: time.Now()}
	header, err := json.Marshal(backupHeader{backupFormat, b.at.UnixMilli()})
	if err == nil {
		err = b.put(headerName, header)
	}
	if err == nil {
		err = b.sessions(ctx, log)
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if err == nil {
			err = b.folder(ctx, name, folders[name])
		}
	}
	if err == nil {
		err = b.write(sumsName, b.sums.Bytes())
	}
	if err == nil {
		err = errors.Join(b.tar.Close(), zip.Close())
	}
	b.contents.At = b.at
	return b.contents, err
}

type backup struct {
	tar      *tar.Writer
	at       time.Time
	sums     bytes.Buffer
	contents Contents
}

func (b *backup) put(name string, data []byte) error {
	sum := sha256.Sum256(data)
	fmt.Fprintf(&b.sums, "%s %s\n", hex.EncodeToString(sum[:]), name) //nolint:errcheck // a buffer takes all
	return b.write(name, data)
}

func (b *backup) write(name string, data []byte) error {
	h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: b.at, Format: tar.FormatPAX}
	if err := b.tar.WriteHeader(h); err != nil {
		return err
	}
	_, err := b.tar.Write(data)
	return err
}

func (b *backup) sessions(ctx context.Context, log dsh.Log) error {
	var heads []dsh.Head
	for h, err := range log.Heads(ctx) {
		var damage *dsh.DamageError
		switch {
		case errors.As(err, &damage): // of a session that has been listed, and is met when it is read
		case err != nil:
			return err
		default:
			heads = append(heads, h)
		}
	}
	slices.Reverse(heads) // the session last written to is the last again when it is restored
	for _, h := range heads {
		if err := b.session(ctx, log, h); err != nil {
			return err
		}
	}
	return nil
}

func (b *backup) session(ctx context.Context, log dsh.Log, h dsh.Head) error {
	var part []byte
	n := 0
	flush := func() error {
		n++
		err := b.put(fmt.Sprintf("%s%s/%06d.jsonl", sessionDir, h.ID, n), part)
		part = part[:0]
		return err
	}
	for e, err := range log.Read(ctx, h.ID, 0) {
		if errors.Is(err, dsh.ErrNoSession) && n == 0 && len(part) == 0 {
			return nil // it was removed meanwhile
		}
		var damage *dsh.DamageError
		if errors.As(err, &damage) {
			b.contents.Damaged = append(b.contents.Damaged, err)
			break
		}
		if err != nil {
			return err
		}
		part = append(append(part, e.Line()...), '\n')
		b.contents.Events++
		if len(part) >= partSize {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(part) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	if n > 0 {
		b.contents.Sessions++
	}
	return nil
}

func (b *backup) folder(ctx context.Context, name, dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b.contents.Files++
		return b.put(filesDir+name+"/"+filepath.ToSlash(rel), data)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// A BackupError says why a backup cannot be restored.
type BackupError struct {
	Reason string
	Err    error // may be nil
}

func (e *BackupError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the backup is damaged: %s (%v)", e.Reason, e.Err)
	}
	return "the backup is damaged: " + e.Reason
}

// Unwrap gives the cause.
func (e *BackupError) Unwrap() error { return e.Err }

// Restore verifies a backup from its beginning to its end, and then writes what
// the log does not have. open is called twice, once for each reading. Of the
// folders' files those that are there already stay as they are.
func Restore(ctx context.Context, log dsh.Log, folders map[string]string, open func() (io.ReadCloser, error)) (Contents, error) {
	contents, err := Verify(ctx, log, open)
	if err != nil {
		return contents, err
	}
	in, err := open()
	if err != nil {
		return contents, err
	}
	defer in.Close()
	a := &archive{}
	return contents, Write(ctx, log, Sessions(a.lines(ctx, in, func(name string, data []byte) error {
		return restoreFile(folders, name, data)
	})))
}

// Verify reads a backup to its end and holds it to its sums, to the chains of
// its sessions and to what the log has. Nothing is written.
func Verify(ctx context.Context, log dsh.Log, open func() (io.ReadCloser, error)) (Contents, error) {
	in, err := open()
	if err != nil {
		return Contents{}, err
	}
	defer in.Close()
	a := &archive{}
	report, err := Check(ctx, log, Sessions(a.lines(ctx, in, func(string, []byte) error { return nil })))
	return Contents{Report: report, Files: a.files, At: a.at}, err
}

// An archive is a backup that is being read.
type archive struct {
	at    time.Time
	files int
	sums  bytes.Buffer
	whole bool
}

// lines yields the lines of all sessions, and hands each file of a folder to
// file. An archive that does not end in its sums ends in an error.
func (a *archive) lines(ctx context.Context, in io.Reader, file func(name string, data []byte) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		zip, err := gzip.NewReader(bufio.NewReaderSize(in, 256<<10))
		if err != nil {
			yield(nil, &BackupError{"it is no gzip file", err})
			return
		}
		r := tar.NewReader(zip)
		for !a.whole {
			name, data, err := nextFile(ctx, r)
			if err == nil {
				err = a.take(name, data, file)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !strings.HasPrefix(name, sessionDir) {
				continue
			}
			for line := range bytes.Lines(data) {
				if !yield(bytes.TrimSuffix(line, []byte("\n")), nil) {
					return
				}
			}
		}
		if _, err := io.Copy(io.Discard, zip); err != nil { // gzip's own sum
			yield(nil, &BackupError{"its end is damaged", err})
		}
	}
}

// maxPart bounds one file of a backup: a part of a session is larger than
// partSize by one event at most.
const maxPart = 1 << 30

func nextFile(ctx context.Context, r *tar.Reader) (name string, data []byte, err error) {
	if err := ctx.Err(); err != nil {
		return "", nil, err
	}
	h, err := r.Next()
	if errors.Is(err, io.EOF) {
		return "", nil, &BackupError{"it is cut off: its sums are missing", nil}
	}
	if err != nil {
		return "", nil, &BackupError{"it cannot be read", err}
	}
	if h.Size > maxPart {
		return "", nil, &BackupError{fmt.Sprintf("%s has %d bytes", h.Name, h.Size), nil}
	}
	data, err = io.ReadAll(r)
	if err != nil {
		return "", nil, &BackupError{"it is cut off in " + h.Name, err}
	}
	return h.Name, data, nil
}

// take looks at one file of the archive.
func (a *archive) take(name string, data []byte, file func(string, []byte) error) error {
	if name == sumsName {
		if !bytes.Equal(data, a.sums.Bytes()) {
			return &BackupError{"its contents do not have the sums that it ends in", nil}
		}
		a.whole = true
		return nil
	}
	first := a.sums.Len() == 0
	sum := sha256.Sum256(data)
	fmt.Fprintf(&a.sums, "%s %s\n", hex.EncodeToString(sum[:]), name) //nolint:errcheck // a buffer takes all
	if first != (name == headerName) {
		return &BackupError{"it does not begin with " + headerName, nil}
	}
	if first {
		var h backupHeader
		if err := json.Unmarshal(data, &h); err != nil {
			return &BackupError{headerName + " cannot be read", err}
		}
		if h.Format > backupFormat {
			return &dsh.SchemaError{Have: h.Format, Max: backupFormat}
		}
		a.at = time.UnixMilli(h.At)
		return nil
	}
	if rel, ok := strings.CutPrefix(name, filesDir); ok {
		if !filepath.IsLocal(filepath.FromSlash(rel)) {
			return &BackupError{fmt.Sprintf("the name %q leads out of its folder", rel), nil}
		}
		a.files++
		return file(rel, data)
	}
	return nil
}

// restoreFile puts a file in its folder, unless there is one.
func restoreFile(folders map[string]string, rel string, data []byte) error {
	name, rest, _ := strings.Cut(rel, "/")
	dir, ok := folders[name]
	if !ok || rest == "" {
		return nil // of a folder that a newer version keeps
	}
	path := filepath.Join(dir, filepath.FromSlash(rest))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
