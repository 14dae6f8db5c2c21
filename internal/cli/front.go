package cli

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// A front shows one turn as it runs: its text on stdout, how it goes on
// stderr. It is for the goroutine that runs the session.
type front struct {
	*app
	output string // the form of stdout
	setup  *Setup
	stop   context.CancelCauseFunc
	hungUp bool // the terminal went away

	told  progress
	shown attemptID // whose text was shown as it came
}

// attemptID names an attempt in a session.
type attemptID struct{ turn, step, attempt int }

func newFront(a *app, output string, setup *Setup) *front {
	return &front{app: a, output: output, setup: setup}
}

// streams reports whether text is shown as it comes.
func (f *front) streams() bool { return f.output == outputText && f.say.streams() }

// event shows what an event tells.
func (f *front) event(e dsh.Event) error {
	lines, err := f.told.lines(e)
	if err != nil {
		return err
	}
	switch e.Type {
	case dsh.TypeAttemptStart:
		f.sending(e)
	case dsh.TypeAttemptEnd:
		f.say.setStatus(nil)
		if err := f.settle(f.told.good); err != nil {
			return err
		}
	case dsh.TypeRetry:
		f.countdown(f.told.retry)
	case dsh.TypeRetryStarted, dsh.TypeRetryCancelled, dsh.TypeTurnEnd:
		f.say.setStatus(nil)
	}
	for _, l := range lines {
		if f.common.Quiet || l.verbose && !f.common.Verbose {
			continue
		}
		f.say.line(l.style, l.text)
	}
	return nil
}

// sending shows that an answer is waited for.
func (f *front) sending(e dsh.Event) {
	var d dsh.AttemptStart
	if e.Decode(&d) != nil || f.common.Quiet {
		return
	}
	began := time.Now()
	f.say.setStatus(func(now time.Time) string {
		return "asking " + d.Model + " " + seconds(now.Sub(began).Truncate(time.Second)) + again(d.Attempt)
	})
}

func again(attempt int) string {
	if attempt == 1 {
		return ""
	}
	return ", attempt " + strconv.Itoa(attempt)
}

// countdown shows a wait on a terminal.
func (f *front) countdown(r dsh.Retry) {
	if f.common.Quiet {
		return
	}
	until := time.UnixMilli(r.NotBefore)
	f.say.setStatus(func(now time.Time) string {
		return "waiting " + countdown(until.Sub(now)) + " for " + ofRetries(r) + " (Ctrl-C stops)"
	})
}

// chunk shows a piece of the answer on a terminal.
func (f *front) chunk(turn, step, attempt int, c dsh.Chunk) error {
	if c.Type != dsh.ChunkText || c.Text == "" || !f.streams() {
		return nil
	}
	f.shown = attemptID{turn, step, attempt}
	return f.gone(f.say.write(c.Text))
}

// settle keeps the text of an attempt that ended well, and takes that of a
// failed one back.
func (f *front) settle(good bool) error {
	switch {
	case !f.streams():
		return nil
	case good:
		return f.gone(f.say.keep())
	}
	return f.gone(f.say.takeBack())
}

// gone makes a terminal that went away a reason to suspend: what is not shown
// now is shown when the turn is resumed. Any other error of stdout stays.
func (f *front) gone(err error) error {
	if err != nil && errors.Is(err, syscall.EIO) {
		f.hungUp = true
		f.stop(loop.ErrSuspend)
		return nil
	}
	return err
}

// answer writes the answer, unless it was shown as it came.
func (f *front) answer(m dsh.AssistantMessage) error {
	if f.output != outputText {
		return nil
	}
	if f.streams() && f.shown == (attemptID{m.Turn, m.Step, m.Attempt}) {
		return nil
	}
	text := dsh.Text(m.Content)
	if text == "" {
		f.say.line(yellow, "dsh: the answer has no text")
		return nil
	}
	f.say.setStatus(nil)
	if f.streams() {
		if err := f.say.write(text); err != nil {
			return f.gone(err)
		}
		return f.gone(f.say.keep())
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	_, err := io.WriteString(f.out, text)
	return err
}

// done ends what is shown of a turn that goes no further here.
func (f *front) done() {
	f.say.setStatus(nil)
	f.settle(false) //nolint:errcheck // stdout's first error stays, and is looked at
}

// pending shows the wait that a resumed session goes on with.
func (f *front) pending(ctx context.Context, log dsh.Log, h dsh.Head) {
	if h.State != dsh.StateWaiting {
		return
	}
	const enough = 16 // events that may stand behind the wait
	var found dsh.Retry
	for e, err := range log.Read(ctx, h.ID, h.Seq-min(h.Seq, enough)) {
		if err != nil {
			return // the loop meets it too
		}
		if e.Type == dsh.TypeRetry && e.Decode(&found) != nil {
			return
		}
	}
	if found.RetryID == "" {
		return
	}
	f.told.retry = found
	if !f.common.Quiet {
		left := max(0, time.Until(time.UnixMilli(found.NotBefore)))
		f.say.line(yellow, failureLine(found.Failure)+"; "+ofRetries(found)+" in "+seconds(left)+", decided by "+found.Policy+" before")
	}
	f.countdown(found)
}
