package runtime

import (
	"fmt"
	"sync"
	"time"
)

// What a policy may log over time, beside what it may in one decision: a flood
// of decisions fills no screen and no file.
const (
	flowLines     = 256      // at once
	flowBytes     = 64 << 10 // at once
	flowLineRate  = 4        // a second, after that
	flowByteRate  = 1 << 10  // a second, after that
	flowGoesOn    = 32       // lines that have to be there again before a cut flow goes on
	flowLineBytes = 16       // what a line counts beside its text
)

// A flow lets through what a policy may log. The zero value is ready for use by
// several goroutines.
type flow struct {
	mu      sync.Mutex
	begun   bool
	at      time.Time // when lines and bytes were counted
	lines   float64   // that may be logged now
	bytes   float64
	dropped int
}

// pass returns which of some lines are let through. What is dropped is said
// once when it begins, and counted when it ends.
func (f *flow) pass(lines []LogLine, now time.Time) []LogLine {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fill(now)
	passed := make([]LogLine, 0, len(lines))
	for _, l := range lines {
		size := float64(len(l.Text) + flowLineBytes)
		if f.lines < 1 || f.bytes < size || f.dropped > 0 && f.lines < flowGoesOn {
			if f.dropped++; f.dropped == 1 {
				passed = append(passed, LogLine{Level: "warn", Text: "it logs more than it may over time; lines are dropped"})
			}
			continue
		}
		if f.dropped > 0 {
			passed = append(passed, LogLine{Level: "warn", Text: fmt.Sprintf("%d lines were dropped before this one", f.dropped)})
			f.dropped = 0
		}
		f.lines--
		f.bytes -= size
		passed = append(passed, l)
	}
	return passed
}

func (f *flow) fill(now time.Time) {
	if !f.begun {
		f.begun, f.lines, f.bytes = true, flowLines, flowBytes
	} else if passed := now.Sub(f.at).Seconds(); passed > 0 {
		f.lines = min(flowLines, f.lines+passed*flowLineRate)
		f.bytes = min(flowBytes, f.bytes+passed*flowByteRate)
	}
	f.at = now
}
