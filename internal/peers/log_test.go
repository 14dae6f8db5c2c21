package peers_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// A keeper makes events of sessions durable: append answers when the event is
// safe against a power cut. It is called by one goroutine a session.
type keeper interface {
	append(ctx context.Context, session int, e dsh.Event) error
	close() error
}

// A contender is a way to keep events. each is how many events a session brings
// in one round: more where they are faster, so that rounds take alike.
type contender struct {
	name string
	each int
	open func(dir string, sessions int) (keeper, error)
}

// contenders are the store, what it cannot be faster than, and what else people
// take.
func contenders() []contender {
	return []contender{
		{"dsh", 4, newStore},
		{"file", 4, newFile},           // one file, whose writer syncs for all who wait
		{"bbolt", 1, newBolt},          // a transaction an event
		{"bbolt-batch", 1, newBatched}, // its own way to share one
		{"sqlite", 1, newSQLite},       // a transaction an event, WAL, synchronous=FULL
		{"jsonl", 1, newLines},         // a file a session, and fsync
	}
}

// BenchmarkLogAlone is one durable append of a 300-byte event by a session that
// is alone, as a multiple of what nothing can go below: a write and fdatasync of
// as many bytes, made in between. The figures are medians.
func BenchmarkLogAlone(b *testing.B) {
	floor, err := os.Create(filepath.Join(b.TempDir(), "floor"))
	must(b, err)
	defer floor.Close()
	all := openAll(b, 1)
	took := make([][]time.Duration, len(all)+1)
	for b.Loop() {
		for i, r := range all {
			e := r.next(b, 0)
			began := time.Now()
			must(b, r.keeper.append(b.Context(), 0, e))
			took[i] = append(took[i], time.Since(began))
		}
		began := time.Now()
		must(b, writeSync(floor, all[0].next(b, 0).Line()))
		took[len(all)] = append(took[len(all)], time.Since(began))
		all[0].back(0)
	}
	least := median(took[len(all)])
	b.ReportMetric(0, "ns/op") // all together: it says nothing
	b.ReportMetric(float64(least.Microseconds()), "µs-floor")
	for i, r := range all {
		b.ReportMetric(float64(median(took[i]))/float64(least), r.name+"/floor")
	}
}

// BenchmarkLogSessions is durable appends of 300-byte events by many sessions at
// once: how many a second, as a multiple of what one writer reaches that writes
// and syncs a plain file. All take turns in each round.
func BenchmarkLogSessions(b *testing.B) {
	for _, n := range []int{1, 16, 256, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			floor, err := os.Create(filepath.Join(b.TempDir(), "floor"))
			must(b, err)
			defer floor.Close()
			all := openAll(b, n)
			var floorTook time.Duration
			rounds := 0
			line := make([]byte, 300)
			const writes = 50
			for b.Loop() {
				began := time.Now()
				for range writes {
					must(b, writeSync(floor, line))
				}
				floorTook += time.Since(began)
				for _, r := range all {
					r.round(b, n)
				}
				rounds++
			}
			one := float64(writes*rounds) / floorTook.Seconds()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(one, "one-writer/s")
			for _, r := range all {
				b.ReportMetric(float64(n*r.each*rounds)/r.took.Seconds()/one, r.name+"/one-writer")
			}
		})
	}
}

// A runner is a contender with its sessions.
type runner struct {
	contender
	keeper keeper
	tails  []dsh.Tail
	last   dsh.Tail
	took   time.Duration
}

func openAll(b *testing.B, sessions int) []*runner {
	b.Helper()
	var all []*runner
	for _, c := range contenders() {
		dir := filepath.Join(b.TempDir(), c.name)
		must(b, os.Mkdir(dir, 0o700))
		k, err := c.open(dir, sessions)
		must(b, err)
		b.Cleanup(func() { must(b, k.close()) })
		r := &runner{contender: c, keeper: k, tails: make([]dsh.Tail, sessions)}
		r.begin(b)
		all = append(all, r)
	}
	return all
}

// begin writes the first event of every session.
func (r *runner) begin(b *testing.B) {
	b.Helper()
	r.together(b, len(r.tails), func(i int) []dsh.Event { return []dsh.Event{r.next(b, i)} })
}

// next seals the next event of a session: about 300 bytes.
func (r *runner) next(b *testing.B, i int) dsh.Event {
	b.Helper()
	r.last = r.tails[i]
	d := dsh.Draft{Type: dsh.TypeStepStart, Data: map[string]string{"text": strings.Repeat("x", 180)}}
	if r.tails[i].Seq == 0 {
		d = dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: sessionID(i), Cwd: "/w"}}
	}
	e, err := r.tails[i].Seal(time.UnixMilli(1_790_000_000_000), d)
	must(b, err)
	r.tails[i] = e.Tail()
	return e
}

// back takes the last next back.
func (r *runner) back(i int) { r.tails[i] = r.last }

// round is one round of all sessions at once. The events are sealed before.
func (r *runner) round(b *testing.B, sessions int) {
	b.Helper()
	batches := make([][]dsh.Event, sessions)
	for i := range batches {
		for range r.each {
			batches[i] = append(batches[i], r.next(b, i))
		}
	}
	began := time.Now()
	r.together(b, sessions, func(i int) []dsh.Event { return batches[i] })
	r.took += time.Since(began)
}

// together appends events of each session, one by one, all sessions at once.
func (r *runner) together(b *testing.B, sessions int, events func(i int) []dsh.Event) {
	b.Helper()
	var group sync.WaitGroup
	for i := range sessions {
		of := events(i)
		group.Go(func() {
			for _, e := range of {
				if err := r.keeper.append(b.Context(), i, e); err != nil {
					b.Error(r.name, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func sessionID(i int) dsh.SessionID { return dsh.SessionID(fmt.Sprintf("20261130-120000000-%06d", i)) }

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// store is this project's.
type store struct {
	log     *badger.Log
	writers []dsh.Writer
}

func newStore(dir string, sessions int) (keeper, error) {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		return nil, err
	}
	s := &store{log: log}
	for i := range sessions {
		w, err := log.Acquire(context.Background(), sessionID(i))
		if err != nil {
			return nil, err
		}
		s.writers = append(s.writers, w)
	}
	return s, nil
}

func (s *store) append(ctx context.Context, session int, e dsh.Event) error {
	return s.writers[session].Append(ctx, e)
}

func (s *store) close() error { return s.log.Close() }

// file is a plain file with group commit: one writer takes all that waits, and
// syncs once for all of them. It is the limit of what a log can reach.
type file struct {
	f     *os.File
	queue chan entry
	done  sync.WaitGroup
}

type entry struct {
	line []byte
	done chan error
}

func newFile(dir string, sessions int) (keeper, error) {
	f, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	k := &file{f: f, queue: make(chan entry, sessions)}
	k.done.Go(k.loop)
	return k, nil
}

func (k *file) loop() {
	var b bytes.Buffer
	for e := range k.queue {
		b.Reset()
		waiting := []chan error{e.done}
		b.Write(e.line)
		b.WriteByte('\n')
		for len(k.queue) > 0 && b.Len() < 1<<20 {
			e := <-k.queue
			b.Write(e.line)
			b.WriteByte('\n')
			waiting = append(waiting, e.done)
		}
		err := writeSync(k.f, b.Bytes())
		for _, w := range waiting {
			w <- err
		}
	}
}

func (k *file) append(_ context.Context, _ int, e dsh.Event) error {
	done := make(chan error, 1)
	k.queue <- entry{e.Line(), done}
	return <-done
}

func (k *file) close() error {
	close(k.queue)
	k.done.Wait()
	return k.f.Close()
}

// bolt is a key an event in one bucket.
type bolt struct {
	db     *bbolt.DB
	update func(func(*bbolt.Tx) error) error
}

func newBolt(dir string, _ int) (keeper, error) {
	k, err := openBolt(dir)
	k.update = k.db.Update
	return k, err
}

func newBatched(dir string, _ int) (keeper, error) {
	k, err := openBolt(dir)
	k.update = k.db.Batch
	return k, err
}

func openBolt(dir string) (*bolt, error) {
	db, err := bbolt.Open(filepath.Join(dir, "log"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	return &bolt{db: db}, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("events"))
		return err
	})
}

func (k *bolt) append(_ context.Context, session int, e dsh.Event) error {
	key := binary.BigEndian.AppendUint64([]byte(sessionID(session)), e.Seq)
	return k.update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("events")).Put(key, e.Line()) })
}

func (k *bolt) close() error { return k.db.Close() }

// lite is a row an event in one table.
type lite struct {
	db     *sql.DB
	insert *sql.Stmt
}

func newSQLite(dir string, _ int) (keeper, error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "log")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // it has one writer at a time: others would only find it busy
	if _, err := db.Exec("CREATE TABLE events (session TEXT, seq INTEGER, line BLOB, PRIMARY KEY (session, seq)) WITHOUT ROWID"); err != nil {
		return nil, err
	}
	insert, err := db.Prepare("INSERT INTO events VALUES (?, ?, ?)")
	return &lite{db, insert}, err
}

func (k *lite) append(ctx context.Context, session int, e dsh.Event) error {
	_, err := k.insert.ExecContext(ctx, string(sessionID(session)), int64(e.Seq), e.Line())
	return err
}

func (k *lite) close() error { return k.db.Close() }

// lines is a file of JSON lines a session, each line synced.
type lines []*os.File

func newLines(dir string, sessions int) (keeper, error) {
	var k lines
	for i := range sessions {
		f, err := os.OpenFile(filepath.Join(dir, string(sessionID(i))+".jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		k = append(k, f)
	}
	return k, nil
}

func (k lines) append(_ context.Context, session int, e dsh.Event) error {
	if _, err := k[session].Write(append(slices.Clip(e.Line()), '\n')); err != nil {
		return err
	}
	return k[session].Sync()
}

func (k lines) close() error {
	for _, f := range k {
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
