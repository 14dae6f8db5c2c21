package runtime

import (
	"context"
	"time"
)

// An allowance is a deadline that stands still while the host works. It is for
// one goroutine.
type allowance struct {
	left  time.Duration
	since time.Time
	timer *time.Timer
	end   context.CancelCauseFunc
}

// allow gives a context that ends after d of the guest's own time. Its err is
// context.Canceled and its cause context.DeadlineExceeded. The caller calls
// close.
func allow(ctx context.Context, d time.Duration) (context.Context, *allowance) {
	ctx, end := context.WithCancelCause(ctx)
	a := &allowance{left: d, since: time.Now(), end: end}
	a.timer = time.AfterFunc(d, a.over)
	return ctx, a
}

func (a *allowance) over() { a.end(context.DeadlineExceeded) }

// pause stops the clock.
func (a *allowance) pause() {
	a.timer.Stop()
	a.left -= time.Since(a.since)
}

// set gives d from now on, whatever was left.
func (a *allowance) set(d time.Duration) {
	a.left, a.since = d, time.Now()
	a.timer.Reset(d)
}

// resume lets the clock go on.
func (a *allowance) resume() {
	a.since = time.Now()
	a.timer.Reset(max(0, a.left))
}

func (a *allowance) close() {
	a.timer.Stop()
	a.end(context.Canceled)
}
