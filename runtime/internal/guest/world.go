// Package guest is what every engine gives a guest and takes from it, apart
// from running it: the world that it sees beyond its input, its calls of host
// functions, and what the end of its call means.
package guest

import (
	"io"
	"strings"
	"time"

	"github.com/dsh-agent/dsh/runtime"
)

// maxWords bounds what of a guest's own words gets into a fault, in bytes.
const maxWords = 512

// A World is all that a guest sees beyond its input: a clock that stands at
// the decision's time and moves when the guest sleeps, random numbers from the
// decision's seed, and a stderr that is kept for a fault's message. It is for
// one call.
type World struct {
	Log runtime.Transcript

	now    time.Time
	slept  time.Duration
	seed   [4]float64
	random io.Reader // nil: nothing has been read yet
	stderr []byte
}

// NewWorld makes the world of a call.
func NewWorld(c runtime.Call) World {
	return World{now: time.UnixMilli(c.NowMs), seed: c.Random}
}

func (w *World) time() time.Time { return w.now.Add(w.slept) }

// Walltime is the time in seconds and nanoseconds since 1970.
func (w *World) Walltime() (int64, int32) {
	t := w.time()
	return t.Unix(), int32(t.Nanosecond())
}

// Nanotime is the time of a clock that counts from somewhere. It is never 0:
// Go's runtime takes that for a broken clock.
func (w *World) Nanotime() int64 { return max(1, w.time().UnixNano()) }

// Sleep takes no time: the guest's clock jumps.
func (w *World) Sleep(ns int64) {
	if ns > 0 && w.slept < 1<<61 {
		w.slept += time.Duration(min(ns, 1<<60))
	}
}

// Read fills b with random bytes.
func (w *World) Read(b []byte) (int, error) {
	if w.random == nil {
		w.random = runtime.Entropy(w.seed)
	}
	return w.random.Read(b)
}

// Write takes what the guest writes to its stderr, and keeps its beginning.
func (w *World) Write(b []byte) (int, error) {
	room := max(0, maxWords-len(w.stderr))
	w.stderr = append(w.stderr, b[:min(len(b), room)]...)
	return len(b), nil
}

// lastWords is the first line of stderr, behind a colon.
func (w *World) lastWords() string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(w.stderr)), "\n")
	if line = runtime.Printable(line, maxWords); line == "" {
		return ""
	}
	return ": " + line
}
