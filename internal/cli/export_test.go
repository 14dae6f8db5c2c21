package cli

import (
	"io"
	"time"

	"github.com/dsh-agent/dsh"
)

// What the tests outside of the package see of its inside.
var (
	Clean        = clean
	OneLine      = oneLine
	RowsOf       = rowsOf
	Cells        = cells
	Fit          = fit
	Near         = near
	Distance     = distance
	CheckPrompt  = checkPrompt
	Find         = find
	NewSessionID = newSessionID
	TitleOf      = titleOf
	Seconds      = seconds
	Countdown    = countdown
	ExitCode     = exitCode
	Mark         = mark
	EventLine    = eventLine
	Meaning      = meaning
)

const MaxPrompt = maxPrompt

// A Screen is a screen for tests.
type Screen struct{ *screen }

func NewScreen(out, err io.Writer, outSize, errSize func() (int, int)) Screen {
	o := newOutput(out)
	return Screen{newScreen(o, Streams{Out: out, Err: err, OutSize: outSize, ErrSize: errSize})}
}

func (s Screen) Write(text string) error              { return s.write(text) }
func (s Screen) Keep() error                          { return s.keep() }
func (s Screen) TakeBack() error                      { return s.takeBack() }
func (s Screen) Line(text string)                     { s.line(plain, text) }
func (s Screen) Status(status func(time.Time) string) { s.setStatus(status) }
func (s Screen) Close()                               { s.close() }

// Reorder is reorder over the real commands.
func Reorder(args ...string) []string {
	a := &app{out: newOutput(io.Discard), say: newScreen(newOutput(io.Discard), Streams{Err: io.Discard})}
	return reorder(a.root(), args)
}

// Advice is advice without a session.
func Advice(f dsh.Failure, p ProviderFacts) string { return advice(f, p, "ID", 0, time.Now()) }
