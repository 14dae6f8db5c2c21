package wire

import (
	"fmt"
	"sync"
	"time"
)

// An expiry is why a watchdog ended a request.
type expiry struct{ what string }

func (e *expiry) Error() string { return e.what }

// A watchdog ends a request when a wait has been too long. It counts only
// while it is armed, which is while somebody waits for bytes: a slow reader
// does not trip it. It may be used by several goroutines.
type watchdog struct {
	expire func(error)

	mu        sync.Mutex
	idle      time.Duration // the longest silence
	keepalive time.Duration // the longest wait without a chunk
	timer     *time.Timer
	round     int // tells a timer that fired late that it is of the past
	armed     bool
	since     time.Time     // when it was armed
	waited    time.Duration // without a chunk, up to since
}

// arm begins a wait.
func (w *watchdog) arm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
}

func (w *watchdog) start() {
	w.round++
	w.armed, w.since = true, time.Now()
	round, d, why := w.round, w.idle, fmt.Sprintf("nothing came for %v", w.idle)
	if left := w.keepalive - w.waited; left < d {
		d, why = max(left, 0), fmt.Sprintf("nothing but keep-alives for %v", w.keepalive)
	}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.timer = time.AfterFunc(d, func() {
		w.mu.Lock()
		late := !w.armed || round != w.round
		w.mu.Unlock()
		if !late {
			w.expire(&expiry{why})
		}
	})
}

// touch begins the wait anew: the other side is alive, and takes our bytes.
func (w *watchdog) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		w.waited = 0
		w.start()
	}
}

// disarm ends a wait.
func (w *watchdog) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed {
		w.armed = false
		w.timer.Stop()
		w.waited += time.Since(w.since)
	}
}

// progress says that a chunk has come.
func (w *watchdog) progress() {
	w.mu.Lock()
	w.waited = 0
	w.mu.Unlock()
}

// hurry shortens the waits from now on.
func (w *watchdog) hurry(idle time.Duration) {
	w.mu.Lock()
	w.idle, w.keepalive, w.waited = min(w.idle, idle), min(w.keepalive, idle), 0
	w.mu.Unlock()
}
