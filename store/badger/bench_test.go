package badger_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/store/badger"
)

// payload makes an event of about 300 bytes.
func payload(c *chain) dsh.Event {
	return c.add(dsh.TypeStepStart, map[string]string{"text": strings.Repeat("x", 180)})
}

// BenchmarkAppend is one durable append of a 300-byte event. The metrics are
// medians: of the append, of a plain write and fdatasync of as many bytes that
// is made in between, and their ratio.
func BenchmarkAppend(b *testing.B) {
	log := open(b, b.TempDir())
	defer func() { must(b, log.Close()) }()
	w, err := log.Acquire(b.Context(), "s")
	must(b, err)
	c := &chain{t: b}
	must(b, w.Append(b.Context(), c.start("s")))
	raw, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(b, err)
	defer func() { must(b, raw.Close()) }()
	var appends, writes []time.Duration
	for b.Loop() {
		e := payload(c)
		began := time.Now()
		must(b, w.Append(b.Context(), e))
		appends = append(appends, time.Since(began))

		began = time.Now()
		_, err := raw.Write(e.Line())
		must(b, err)
		must(b, dataSync(raw))
		writes = append(writes, time.Since(began))
	}
	a, r := median(appends), median(writes)
	b.ReportMetric(0, "ns/op") // both together: it says nothing
	b.ReportMetric(float64(a.Microseconds()), "µs/append")
	b.ReportMetric(float64(r.Microseconds()), "µs/raw")
	b.ReportMetric(float64(a)/float64(r), "ratio")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkSessions is durable appends of many sessions at once. The ratio is
// to one writer that writes and syncs a plain file, in the same run.
func BenchmarkSessions(b *testing.B) {
	for _, n := range []int{1, 16, 256, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			rate := rawRate(b)
			log := open(b, b.TempDir())
			defer func() { must(b, log.Close()) }()
			writers, chains := make([]dsh.Writer, n), make([]*chain, n)
			for i := range n {
				id := dsh.SessionID("s" + strconv.Itoa(i))
				w, err := log.Acquire(b.Context(), id)
				must(b, err)
				writers[i], chains[i] = w, &chain{t: b}
			}
			const each = 4
			sealed := make([][each]dsh.Event, n) // sealing is not the store's
			took, count := time.Duration(0), 0
			for b.Loop() {
				for i := range sealed {
					for k := range sealed[i] {
						sealed[i][k] = payload(chains[i])
					}
				}
				began := time.Now()
				var group sync.WaitGroup
				for i := range n {
					group.Go(func() {
						for _, e := range sealed[i] {
							if err := writers[i].Append(b.Context(), e); err != nil {
								b.Error(err)
							}
						}
					})
				}
				group.Wait()
				took += time.Since(began)
				count += each * n
			}
			perSecond := float64(count) / took.Seconds()
			b.ReportMetric(perSecond, "appends/s")
			b.ReportMetric(perSecond/rate, "ratio")
		})
	}
}

// rawRate is how many 300-byte writes one writer syncs in a second.
func rawRate(b *testing.B) float64 {
	b.Helper()
	raw, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	must(b, err)
	defer func() { must(b, raw.Close()) }()
	line := make([]byte, 300)
	began := time.Now()
	const n = 500
	for range n {
		_, err := raw.Write(line)
		must(b, err)
		must(b, dataSync(raw))
	}
	return n / time.Since(began).Seconds()
}

// BenchmarkRelaxed is 200,000 deltas of four bytes, sealed and appended one by
// one, and synced at the end.
func BenchmarkRelaxed(b *testing.B) {
	for b.Loop() {
		log := open(b, b.TempDir())
		w, err := log.Acquire(b.Context(), "s")
		must(b, err)
		c := &chain{t: b}
		must(b, w.Append(b.Context(), c.start("s")))
		began := time.Now()
		var sealing time.Duration
		for range 200_000 {
			t := time.Now()
			e := c.chunk("abcd")
			sealing += time.Since(t)
			must(b, w.Append(b.Context(), e))
		}
		must(b, w.Append(b.Context(), c.end()))
		took := time.Since(began)
		b.ReportMetric(float64(took.Milliseconds()), "ms")
		b.ReportMetric(float64(sealing.Milliseconds()), "ms-sealing")
		must(b, log.Close())
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkOpen opens a log with a million events in it, after a close and
// after a kill.
func BenchmarkOpen(b *testing.B) {
	if testing.Short() {
		b.Skip("making a million events takes a while")
	}
	dir := b.TempDir()
	million(b, dir)
	b.Run("closed", func(b *testing.B) { benchmarkOpen(b, dir) })
	b.Run("killed", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			copied := filepath.Join(b.TempDir(), "d")
			killedCopy(b, dir, copied)
			b.StartTimer()
			log := open(b, copied)
			b.StopTimer()
			must(b, log.Close())
			must(b, os.RemoveAll(copied))
			b.StartTimer()
		}
	})
	b.Run("read", func(b *testing.B) {
		log := open(b, dir)
		defer func() { must(b, log.Close()) }()
		for b.Loop() {
			whole(b, log, "s0", 100_000)
		}
	})
}

func benchmarkOpen(b *testing.B, dir string) {
	for b.Loop() {
		log := open(b, dir)
		b.StopTimer()
		must(b, log.Close())
		b.StartTimer()
	}
}

// million makes ten sessions of 100,000 events.
func million(b *testing.B, dir string) {
	b.Helper()
	log := open(b, dir)
	var group sync.WaitGroup
	for i := range 10 {
		id := dsh.SessionID("s" + strconv.Itoa(i))
		w, err := log.Acquire(b.Context(), id)
		must(b, err)
		group.Go(func() {
			c := &chain{t: b}
			events := []dsh.Event{c.start(id)}
			for n := 1; n < 100_000; n++ {
				if events = append(events, payload(c)); len(events) == 1000 || n == 99_999 {
					if err := w.Append(b.Context(), events...); err != nil {
						b.Error(err)
						return
					}
					events = nil
				}
			}
		})
	}
	group.Wait()
	must(b, log.Close())
}

// killedCopy makes a copy of a closed folder as a process leaves it that was
// killed with 4 MB in its log.
func killedCopy(b *testing.B, dir, copied string) {
	b.Helper()
	must(b, os.CopyFS(copied, os.DirFS(dir)))
	if out, err := child("burst", copied).CombinedOutput(); !strings.HasPrefix(string(out), "appended") {
		b.Fatalf("%v: %s", err, out)
	}
}

// childBurst appends 4 MB and kills itself.
func childBurst(dir string) int {
	log, err := badger.Open(dir, badger.Options{})
	if err != nil {
		fmt.Println(err)
		return exitLog
	}
	w, err := log.Acquire(contextOf(), "burst")
	if err != nil {
		fmt.Println(err)
		return exitLog
	}
	c := &chain{}
	events := []dsh.Event{c.start("burst")}
	for len(events) < 8000 {
		events = append(events, payload(c))
	}
	for part := range slices.Chunk(events, 1000) {
		if err := w.Append(contextOf(), part...); err != nil {
			fmt.Println(err)
			return exitLog
		}
	}
	fmt.Println("appended")
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	fmt.Println(err)
	select {}
}

// BenchmarkHeads lists 100,000 sessions.
func BenchmarkHeads(b *testing.B) {
	if testing.Short() {
		b.Skip("making 100,000 sessions takes a while")
	}
	dir := b.TempDir()
	log := open(b, dir)
	var group sync.WaitGroup
	for part := range 100 {
		group.Go(func() {
			for i := range 1000 {
				id := dsh.SessionID(fmt.Sprintf("s%02d-%03d", part, i))
				w, err := log.Acquire(b.Context(), id)
				if err != nil {
					b.Error(err)
					return
				}
				c := &chain{t: b}
				if err := w.Append(b.Context(), c.start(id), c.end()); err != nil {
					b.Error(err)
				}
				if err := w.Release(b.Context()); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	must(b, log.Close())
	b.Run("open", func(b *testing.B) { benchmarkOpen(b, dir) })
	log = open(b, dir)
	defer func() { must(b, log.Close()) }()
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			n := 0
			for _, err := range log.Heads(b.Context()) {
				must(b, err)
				n++
			}
			if n != 100_000 {
				b.Fatalf("%d heads", n)
			}
		}
	})
}

var _ dsh.Log = (*badger.Log)(nil)
