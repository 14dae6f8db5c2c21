//go:build unix

package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/adapters/scripted"
)

// BenchmarkProcess is what a dsh costs as a process: the start alone
// (version), a run of a one-line answer, and one that gets over a failure by a
// decision of the built-in policy. Each run is a new process on one data
// folder; ms/run is the median of the wall, the wait of 1 ms included.
func BenchmarkProcess(b *testing.B) {
	text := scripted.Step{Do: scripted.Text, Text: "the answer is 42", Times: -1}
	failed := scripted.Step{Do: scripted.Status, Status: 500}
	quick := []string{"--set", "providers.test.retry_policy.backoff.initial_delay_ms=1"}
	b.Run("start", func(b *testing.B) { benchmarkProcess(b, nil, "version") })
	b.Run("answer", func(b *testing.B) { benchmarkProcess(b, []scripted.Step{text}, "run", "q") })
	b.Run("recovered", func(b *testing.B) {
		var steps []scripted.Step
		for range 2000 {
			steps = append(steps, failed, scripted.Step{Do: scripted.Text, Text: text.Text})
		}
		benchmarkProcess(b, steps, append([]string{"run", "q"}, quick...)...)
	})
}

// BenchmarkDeltas is a run whose one answer comes in 200,000 deltas of four
// bytes, all of them logged. The provider sends what it has ready.
func BenchmarkDeltas(b *testing.B) {
	const deltas = 200_000
	var body bytes.Buffer
	for range deltas {
		body.WriteString("data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"abc \"},\"finish_reason\":null}]}\n\n")
	}
	body.WriteString("data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write(body.Bytes()) // a client that goes away is the benchmark's to report
	}))
	defer s.Close()
	w, err := newWorld(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	if err := w.configure(s.URL + "/v1"); err != nil {
		b.Fatal(err)
	}
	measureProcess(b, w, "run", "q")
}

func benchmarkProcess(b *testing.B, steps []scripted.Step, args ...string) {
	w, err := newWorld(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	if steps != nil {
		if err := w.play(steps...); err != nil {
			b.Fatal(err)
		}
	}
	measureProcess(b, w, args...)
}

func measureProcess(b *testing.B, w *world, args ...string) {
	var walls []time.Duration
	var most int64
	for b.Loop() {
		c := exec.CommandContext(b.Context(), "dsh", args...)
		c.Dir, c.Env = w.dir, append(os.Environ(), w.env...)
		began := time.Now()
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		walls = append(walls, time.Since(began))
		if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
			most = max(most, u.Maxrss)
		}
	}
	slices.Sort(walls)
	b.ReportMetric(float64(walls[len(walls)/2])/float64(time.Millisecond), "ms/run")
	b.ReportMetric(float64(most)/1024, "MiB-peak") // Maxrss is in KiB on Linux: getrusage(2)
}
