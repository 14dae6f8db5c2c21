package cli

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Streams are what a command reads and writes.
type Streams struct {
	In         io.Reader
	InTerminal bool // In is a person's keyboard, and no prompt is read from it
	Out, Err   io.Writer

	// OutSize and ErrSize tell the present columns and rows of a terminal that
	// takes cursor movements; nil: the stream is none.
	OutSize, ErrSize func() (columns, rows int)

	Color bool // colours are wanted on a terminal
}

// StandardStreams are those of a process. A terminal of type "dumb" counts as
// none, since it cannot take back what was written; NO_COLOR (no-color.org)
// takes colours away.
func StandardStreams(in, out, err *os.File, getenv func(string) string) Streams {
	s := Streams{
		In: in, Out: out, Err: err,
		InTerminal: term.IsTerminal(int(in.Fd())),
		Color:      getenv("NO_COLOR") == "",
	}
	if getenv("TERM") != "dumb" {
		s.OutSize, s.ErrSize = terminalSize(out), terminalSize(err)
	}
	return s
}

// terminalSize returns nil for a file that is no terminal. The answer is 80 by
// 24 where the terminal does not say.
func terminalSize(f *os.File) func() (int, int) {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return nil
	}
	return func() (int, int) {
		columns, rows, err := term.GetSize(fd)
		if err != nil || columns <= 0 || rows <= 0 {
			return 80, 24
		}
		return columns, rows
	}
}

// An output is stdout. Its first error stays, and is an *outputError: all that
// would be written after it is dropped. It may be used by several goroutines.
type output struct {
	mu     sync.Mutex
	w      io.Writer
	failed error
}

func newOutput(w io.Writer) *output { return &output{w: w} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed != nil {
		return 0, o.failed
	}
	n, err := o.w.Write(p)
	if err != nil {
		o.failed = &outputError{err}
		return n, o.failed
	}
	return n, nil
}

// err is the first error, nil if there was none.
func (o *output) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}
