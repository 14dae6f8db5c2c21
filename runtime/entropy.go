package runtime

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"unicode"

	"github.com/dsh-agent/dsh/hostabi"
)

// Entropy is the random bytes that a guest reads of WASI: ChaCha8 (its
// reference: C2SP chacha8rand), seeded with the four numbers of the input as
// little-endian doubles. The same numbers give the same bytes in every engine
// and every version.
func Entropy(random [4]float64) io.Reader {
	var seed [32]byte
	for i, f := range random {
		binary.LittleEndian.PutUint64(seed[8*i:], math.Float64bits(f))
	}
	return rand.NewChaCha8(seed)
}

// A Transcript collects what a guest logs in one call, up to the limits of
// hostabi. What is beyond them is counted and dropped. The zero value is
// empty.
type Transcript struct {
	lines   []LogLine
	bytes   int
	dropped int
}

// Add takes a line.
func (t *Transcript) Add(level, text string) {
	room := hostabi.MaxLogBytes - t.bytes
	if len(t.lines) >= hostabi.MaxLogLines || room <= 0 {
		t.dropped++
		return
	}
	text = Printable(text, room)
	t.bytes += len(text)
	t.lines = append(t.lines, LogLine{Level: level, Text: text})
}

// Lines returns what was taken. If anything was dropped, the last line says
// so.
func (t *Transcript) Lines() []LogLine {
	if t.dropped == 0 {
		return t.lines
	}
	lines := append([]LogLine(nil), t.lines...)
	return append(lines, LogLine{Level: "warn", Text: "more was logged than is allowed; the rest is dropped"})
}

// Printable cuts a guest's text to at most limit bytes and makes it safe to
// show: UTF-8 on one line, without control characters.
func Printable(s string, limit int) string {
	s = strings.TrimSpace(s)
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsGraphic(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
