package badger

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/seal"
)

// A mark says how far a session was whole when the heads file was last synced.
type mark struct {
	seq  uint64
	hash string
	at   int64 // of the event, Unix ms
}

// heads is the heads file: a journal of marks outside of the database. A mark
// is written after the database has synced what it says, so that it is never
// ahead of an undamaged database.
//
// A line is the session's id, the seq, the hash, the time and a CRC-32 of all
// that in hex, with spaces between. A seq of 0 says that the session was
// removed.
type heads struct {
	path string
	box  *seal.Box
	warn func(error)

	// incomplete says that marks of the file are lost: it is missing, or some
	// of its lines are damaged.
	incomplete bool

	mu     sync.Mutex
	proven map[dsh.SessionID]mark // what the file said when it was opened
	summed bool                   // sum is that of proven
	sum    fingerprint
	dirty  map[dsh.SessionID]mark // what is not in the file yet

	file   sync.Mutex // held while the file is written to; taken before mu
	f      *os.File
	size   int64 // of the file
	failed bool  // the last flush; it is the loop's

	wake chan struct{} // a turn has ended
	quit chan struct{}
	once sync.Once
}

// headsEvery is how long a mark stays out of the file while a turn goes on.
const headsEvery = time.Second

// openHeads reads the heads file. fresh says that the database is new, so that
// the file may be missing. The journal is written anew when most of its lines
// are out of date, or damaged.
func openHeads(path string, box *seal.Box, fresh bool, warn func(error)) (*heads, error) {
	h := &heads{path: path, box: box, warn: warn, dirty: map[dsh.SessionID]mark{}, sum: fingerprint{seed: maphash.MakeSeed()},
		wake: make(chan struct{}, 1), quit: make(chan struct{})}
	b, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, err
	}
	if missing && !fresh {
		warn(fmt.Errorf("the heads file %s is missing: what the database may have lost before now cannot be seen", path))
		h.incomplete = true
	}
	lines, bad, torn := h.parse(b)
	if bad > 0 {
		warn(fmt.Errorf("the heads file %s has %d damaged lines: what the database may have lost of those sessions cannot be seen", path, bad))
		h.incomplete = true
		if err := keepHeads(path, b); err != nil {
			return nil, err
		}
	}
	h.size = int64(len(b))
	if bad > 0 || torn || missing || lines > 2*len(h.proven)+1000 {
		if err := h.rewrite(); err != nil {
			return nil, err
		}
	}
	h.f, err = os.OpenFile(path, os.O_WRONLY, 0o600)
	return h, err
}

// keepHeads sets a damaged heads file aside before it is written anew.
func keepHeads(path string, b []byte) error {
	aside := filepath.Join(filepath.Dir(path), repairedFolder)
	if err := makeFolder(aside); err != nil {
		return err
	}
	return writeFile(filepath.Join(aside, "heads."+stamp()), b)
}

// lineSize is about what a line takes.
const lineSize = 90

// parse reads the journal. The last line may be torn by a power cut.
func (h *heads) parse(b []byte) (lines, bad int, torn bool) {
	h.proven = make(map[dsh.SessionID]mark, len(b)/lineSize)
	for text := string(b); len(b) > 0; lines++ {
		k := bytes.IndexByte(b, '\n')
		if k < 0 {
			return lines, bad, true
		}
		id, m, ok := h.parseLine(b[:k], text[:k])
		switch {
		case !ok:
			bad++
		case m.seq == 0:
			delete(h.proven, id)
		default:
			h.proven[id] = m
		}
		b, text = b[k+1:], text[k+1:]
	}
	return lines, bad, false
}

// headsPlace is what the lines of an encrypted heads file are sealed for.
const headsPlace = "heads"

// parseLine is parseMark for a line that may be sealed.
func (h *heads) parseLine(line []byte, text string) (dsh.SessionID, mark, bool) {
	if h.box == nil {
		return parseMark(line, text)
	}
	sealed, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return "", mark{}, false
	}
	plain, err := h.box.Open(headsPlace, sealed)
	if err != nil {
		return "", mark{}, false
	}
	return parseMark(plain, string(plain))
}

// appendLine is appendMark for a file that may be encrypted.
func (h *heads) appendLine(b []byte, id dsh.SessionID, m mark) []byte {
	if h.box == nil {
		return appendMark(b, id, m)
	}
	plain := bytes.TrimSuffix(appendMark(nil, id, m), []byte("\n"))
	return append(base64.RawStdEncoding.AppendEncode(b, h.box.Seal(headsPlace, plain)), '\n')
}

// parseMark reads a line, given as bytes and as the text of which the mark's
// texts become parts.
func parseMark(line []byte, text string) (id dsh.SessionID, m mark, ok bool) {
	k := strings.LastIndexByte(text, ' ')
	if k < 0 || len(text)-k != 9 {
		return "", mark{}, false
	}
	sum, err := strconv.ParseUint(text[k+1:], 16, 32)
	if err != nil || uint32(sum) != crc32.ChecksumIEEE(line[:k]) {
		return "", mark{}, false
	}
	name, rest, _ := strings.Cut(text[:k], " ")
	seq, rest, _ := strings.Cut(rest, " ")
	hash, at, ok := strings.Cut(rest, " ")
	if !ok {
		return "", mark{}, false
	}
	m.hash = hash
	m.seq, err = strconv.ParseUint(seq, 10, 64)
	if err == nil {
		m.at, err = strconv.ParseInt(at, 10, 64)
	}
	return dsh.SessionID(name), m, err == nil && validID(dsh.SessionID(name))
}

func appendMark(b []byte, id dsh.SessionID, m mark) []byte {
	from := len(b)
	b = append(b, id...)
	b = strconv.AppendUint(append(b, ' '), m.seq, 10)
	b = append(append(b, ' '), m.hash...)
	b = strconv.AppendInt(append(b, ' '), m.at, 10)
	return fmt.Appendf(b, " %08x\n", crc32.ChecksumIEEE(b[from:]))
}

// rewrite puts a journal of the proven marks in the file's place.
func (h *heads) rewrite() error {
	var b []byte
	for id, m := range h.proven {
		b = h.appendLine(b, id, m)
	}
	h.size = int64(len(b))
	return writeFile(h.path, b)
}

// get is how far a session was whole when the log was opened. What has become
// durable since is not told: a reader may look at an older state.
func (h *heads) get(id dsh.SessionID) (mark, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.proven[id]
	return m, ok
}

// each calls f with what get knows of all sessions, which f must not change, and
// the fingerprint of that.
func (h *heads) each(f func(map[dsh.SessionID]mark, fingerprint) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.summed {
		h.summed, h.sum = true, fingerprint{seed: h.sum.seed}
		for id, m := range h.proven {
			h.sum.add(id, m.seq)
		}
	}
	return f(h.proven, h.sum)
}

// A fingerprint tells whether two sets of sessions with their ends are the same,
// in whatever order they are come by: looking each of many up in a map takes
// longer than all else in a list. The seed is the process's own, so that nobody
// can prepare two sets with one fingerprint.
type fingerprint struct {
	seed maphash.Seed
	sum  uint64
	n    int
}

func (f *fingerprint) add(id dsh.SessionID, seq uint64) {
	f.sum += maphash.String(f.seed, string(id)) * (2*seq + 1)
	f.n++
}

// mark notes the end of a session, which is durable. now asks for it to be
// written at once.
func (h *heads) mark(id dsh.SessionID, m mark, now bool) {
	h.mu.Lock()
	h.dirty[id] = m
	h.mu.Unlock()
	if now {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

// remove notes durably that a session is going to be removed.
func (h *heads) remove(id dsh.SessionID) error {
	h.file.Lock()
	defer h.file.Unlock()
	h.mu.Lock()
	delete(h.dirty, id)
	h.mu.Unlock()
	if err := h.write(h.appendLine(nil, id, mark{hash: "-"})); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.proven, id)
	h.summed = false
	h.mu.Unlock()
	return nil
}

// flush writes the marks that are not in the file.
func (h *heads) flush() error {
	h.file.Lock()
	defer h.file.Unlock()
	h.mu.Lock()
	marks := h.dirty
	h.dirty = map[dsh.SessionID]mark{}
	h.mu.Unlock()
	if len(marks) == 0 {
		return nil
	}
	var b []byte
	for id, m := range marks {
		b = h.appendLine(b, id, m)
	}
	err := h.write(b)
	if err != nil {
		h.mu.Lock()
		maps.Copy(marks, h.dirty)
		h.dirty = marks
		h.mu.Unlock()
	}
	return err
}

// write adds lines to the file. A line that was written in part is written
// over by the next ones. h.file is held.
func (h *heads) write(b []byte) error {
	_, err := h.f.WriteAt(b, h.size)
	err = errors.Join(err, h.f.Sync())
	if err == nil {
		h.size += int64(len(b))
	}
	return err
}

// loop writes marks at the ends of turns and each second, until stop.
func (h *heads) loop() {
	tick := time.NewTicker(headsEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.wake:
		case <-tick.C:
		case <-h.quit:
			return
		}
		err := h.flush()
		if err != nil && !h.failed { // said once, and tried again each second
			h.warn(fmt.Errorf("the heads file cannot be written: %w", err))
		}
		h.failed = err != nil
	}
}

func (h *heads) stop() { h.once.Do(func() { close(h.quit) }) }

// close writes what is left. The loop has ended.
func (h *heads) close() error { return errors.Join(h.flush(), h.f.Close()) }
