package runtime

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
)

// A policy that has tripFaults faults within tripWithin is not asked any more.
const (
	tripFaults = 5
	tripWithin = time.Minute
)

// A Status is how a policy has done since it was loaded.
type Status struct {
	Calls       uint64        // decisions that it was asked for
	Faults      uint64        // of those, that ended in a fault
	LastFault   dsh.FaultKind // "": it had none
	LastMessage string        // of that fault
	LastAt      time.Time     // of that fault
	Tripped     bool          // it is not asked until it is swapped or reset
}

// State is the status in a word for people.
func (s Status) State() string {
	switch {
	case s.Tripped:
		return "tripped"
	case s.Calls > 0 && s.Faults == s.Calls:
		return "failing"
	}
	return "ready"
}

// A breaker counts a policy's faults. The zero value is closed, and lets the
// policy be asked. It may be used by several goroutines.
type breaker struct {
	mu     sync.Mutex
	status Status
	recent []time.Time // of faults, at most tripFaults, the oldest first
}

// admit counts a decision in. Its error is a fault that wraps dsh.ErrTripped.
func (b *breaker) admit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status.Tripped {
		return &dsh.Fault{Kind: dsh.FaultUnavailable, Message: b.why(), Cause: dsh.ErrTripped}
	}
	b.status.Calls++
	return nil
}

// why says for what the policy is not asked.
func (b *breaker) why() string {
	return fmt.Sprintf("it had %d faults within a minute, the last of kind %s (%s): it is not asked until another version takes its place or it is reset",
		tripFaults, b.status.LastFault, b.status.LastMessage)
}

// note takes the end of a decision. It says why the policy has tripped, if this
// did it, and "" otherwise.
func (b *breaker) note(err error, now time.Time) string {
	var f *dsh.Fault
	if !errors.As(err, &f) {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Faults++
	b.status.LastFault, b.status.LastMessage, b.status.LastAt = f.Kind, f.Message, now
	b.recent = append(b.recent, now)
	if len(b.recent) > tripFaults {
		b.recent = b.recent[1:]
	}
	if b.status.Tripped || len(b.recent) < tripFaults || now.Sub(b.recent[0]) >= tripWithin {
		return ""
	}
	b.status.Tripped = true
	return b.why()
}

// reset lets the policy be asked again, and reports whether it had tripped.
func (b *breaker) reset() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.status.Tripped
	b.status.Tripped, b.recent = false, nil
	return was
}

func (b *breaker) now() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// StatusOf returns how a policy of a Set has done since it was loaded; of
// another policy, nothing.
func StatusOf(p dsh.Policy) Status {
	if b := breakerOf(p); b != nil {
		return b.now()
	}
	return Status{}
}

// Reset lets a policy of a Set that has tripped be asked again. It reports
// whether it had.
func Reset(p dsh.Policy) bool {
	b := breakerOf(p)
	return b != nil && b.reset()
}

func breakerOf(p dsh.Policy) *breaker {
	switch p := p.(type) {
	case *policy:
		return &p.breaker
	case *version:
		p.set.mu.Lock()
		defer p.set.mu.Unlock()
		if p.policy != nil {
			return &p.policy.breaker
		}
	}
	return nil
}
