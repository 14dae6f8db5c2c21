package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A screen is what a person reads: progress and errors on stderr, and, where
// stdout is a terminal, the text of the attempt under way. On one terminal the
// two share their rows, so one place draws both. It may be used by several
// goroutines. What it is told to show is cleaned first.
type screen struct {
	mu      sync.Mutex
	out     *output // used only where outSize is set
	err     io.Writer
	outSize func() (int, int) // nil: stdout is no terminal
	errSize func() (int, int) // nil: stderr is no terminal
	color   bool

	text     strings.Builder // of the attempt under way, as it was written to out
	waiting  []string        // lines that came while text was shown
	status   func(time.Time) string
	shown    string // the status that is on the terminal; the cursor is in its last row
	stop     chan struct{}
	finished sync.WaitGroup
}

// tick is how often a status is drawn: a countdown shows tenths of a second.
const tick = 100 * time.Millisecond

func newScreen(out *output, s Streams) *screen {
	return &screen{out: out, err: s.Err, outSize: s.OutSize, errSize: s.ErrSize, color: s.Color}
}

// The styles of a line, as SGR parameters of ECMA-48.
const (
	plain  = ""
	dim    = "2"
	red    = "31"
	yellow = "33"
	green  = "32"
	bold   = "1"
)

// paint puts a style on a text for stderr.
func (s *screen) paint(style, text string) string {
	if style == plain || !s.color || s.errSize == nil {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// error says what went wrong, in one line.
func (s *screen) error(format string, args ...any) {
	s.line(red, "dsh: "+fmt.Sprintf(format, args...))
}

// line says something, in one line or, where it holds line ends, in several.
// While an attempt's text is shown it is kept until the text is settled.
func (s *screen) line(style, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range strings.Lines(clean(text)) {
		l = s.paint(style, strings.TrimRight(l, "\n")) + "\n"
		if s.text.Len() > 0 {
			s.waiting = append(s.waiting, l)
			continue
		}
		s.clearStatus()
		io.WriteString(s.err, l) //nolint:errcheck // there is nowhere to say that stderr is gone
	}
}

// streams reports whether text is shown as it comes.
func (s *screen) streams() bool { return s.outSize != nil }

// write shows a piece of the attempt's text on stdout.
func (s *screen) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearStatus()
	text = clean(text)
	s.text.WriteString(text)
	return s.print(text)
}

// print writes to stdout, whose first error stays.
func (s *screen) print(text string) error {
	_, err := io.WriteString(s.out, text)
	return err
}

// keep settles the text that is shown: it is part of the answer.
func (s *screen) keep() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.text.String(); t != "" && !strings.HasSuffix(t, "\n") {
		s.print("\n") //nolint:errcheck // it stays, and is returned below
	}
	s.settle()
	return s.out.err()
}

// takeBack removes the text that is shown: its attempt failed.
func (s *screen) takeBack() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text.String()
	if text == "" {
		return s.out.err()
	}
	columns, rows := s.outSize()
	up, lost := rowsOf(text, columns)-1, false
	if up >= rows { // what has left the screen cannot be reached
		up, lost = rows-1, true
	}
	s.print(erase(up)) //nolint:errcheck // it stays, and is returned below
	if lost {
		s.waiting = append([]string{s.paint(yellow, "the text above this line is of a failed attempt and does not count") + "\n"}, s.waiting...)
	}
	s.settle()
	return s.out.err()
}

// erase clears the cursor's row and a number of rows above it, and leaves the
// cursor at the start of the first.
func erase(up int) string {
	if up > 0 {
		return fmt.Sprintf("\x1b[%dA\r\x1b[J", up)
	}
	return "\r\x1b[J"
}

// settle ends the text of an attempt and says what had to wait for that.
func (s *screen) settle() {
	s.text.Reset()
	for _, l := range s.waiting {
		io.WriteString(s.err, l) //nolint:errcheck // as in line
	}
	s.waiting = nil
}

// setStatus shows a line on a terminal's stderr until the next one, redrawn
// as time goes by; nil: none. Elsewhere it does nothing.
func (s *screen) setStatus(status func(now time.Time) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errSize == nil {
		return
	}
	s.clearStatus()
	s.status = status
	if status == nil {
		return
	}
	s.drawStatus(time.Now())
	if s.stop == nil {
		stop := make(chan struct{})
		s.stop = stop
		s.finished.Go(func() { s.redraw(stop) })
	}
}

// redraw draws the status until stop is closed.
func (s *screen) redraw(stop <-chan struct{}) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-t.C:
			s.mu.Lock()
			s.drawStatus(now)
			s.mu.Unlock()
		}
	}
}

func (s *screen) drawStatus(now time.Time) {
	if s.status == nil || s.text.Len() > 0 {
		return
	}
	columns, _ := s.errSize()
	text := fit(oneLine(s.status(now), 4*columns), columns-1)
	if text == s.shown {
		return
	}
	s.clearStatus()
	io.WriteString(s.err, s.paint(dim, text)) //nolint:errcheck // as in line
	s.shown = text
}

// clearStatus takes the status away. A terminal that became narrower since may
// have wrapped it.
func (s *screen) clearStatus() {
	if s.shown == "" {
		return
	}
	columns, _ := s.errSize()
	io.WriteString(s.err, erase(rowsOf(s.shown, columns)-1)) //nolint:errcheck // as in line
	s.shown = ""
}

// close takes the status away and ends the drawing.
func (s *screen) close() {
	s.mu.Lock()
	s.clearStatus()
	s.status = nil
	s.settle()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		close(stop)
		s.finished.Wait()
	}
}
