package cli_test

import (
	"strconv"
	"strings"
	"sync"

	"github.com/dsh-agent/dsh/internal/cli"
)

// A terminal is as much of a terminal as the screen relies on: rows that wrap
// and scroll, the carriage return, the line feed (which a tty turns into both),
// the tab, and the control sequences CUU, ED, EL and SGR of ECMA-48. It panics
// on any other, so that a test shows what should not have been written.
type terminal struct {
	mu            sync.Mutex
	columns, rows int
	scrolled      []string // what has left the screen
	grid          [][]rune
	x, y          int
	wrap          bool // the last column was written: the next character wraps
}

func newTerminal(columns, rows int) *terminal {
	t := &terminal{columns: columns, rows: rows}
	for range rows {
		t.grid = append(t.grid, t.blank())
	}
	return t
}

func (t *terminal) blank() []rune { return []rune(strings.Repeat(" ", t.columns)) }

func (t *terminal) size() (int, int) { return t.columns, t.rows }

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := []rune(string(p))
	for i := 0; i < len(s); i++ {
		switch r := s[i]; r {
		case '\n':
			t.x, t.wrap = 0, false
			t.down()
		case '\r':
			t.x, t.wrap = 0, false
		case '\t':
			t.x, t.wrap = min((t.x/8+1)*8, t.columns-1), t.wrap && t.x == t.columns-1
		case 0x1b:
			i = t.control(s, i)
		default:
			if r < ' ' || r >= 0x7f && r < 0xa0 {
				panic("a control character on the terminal: " + strconv.QuoteRune(r))
			}
			t.put(r)
		}
	}
	return len(p), nil
}

func (t *terminal) down() {
	if t.y < t.rows-1 {
		t.y++
		return
	}
	t.scrolled = append(t.scrolled, strings.TrimRight(string(t.grid[0]), " "))
	t.grid = append(t.grid[1:], t.blank())
}

func (t *terminal) put(r rune) {
	n := cli.Cells(r)
	if n == 0 {
		return
	}
	if t.wrap || t.x+n > t.columns {
		t.x, t.wrap = 0, false
		t.down()
	}
	t.grid[t.y][t.x] = r
	t.x += n
	if t.x >= t.columns {
		t.x, t.wrap = t.columns-1, true
	}
}

// control carries a control sequence out and returns the place of its end.
func (t *terminal) control(s []rune, i int) int {
	if i+1 >= len(s) || s[i+1] != '[' {
		panic("an escape that is no control sequence")
	}
	j := i + 2
	for s[j] >= '0' && s[j] <= '9' || s[j] == ';' {
		j++
	}
	n, _ := strconv.Atoi(string(s[i+2 : j]))
	switch s[j] {
	case 'A':
		t.y, t.wrap = max(0, t.y-max(1, n)), false
	case 'J':
		t.clear(t.y, t.x)
		for y := t.y + 1; y < t.rows; y++ {
			t.clear(y, 0)
		}
	case 'K':
		t.clear(t.y, t.x)
	case 'm':
	default:
		panic("an unknown control sequence " + string(s[i:j+1]))
	}
	return j
}

func (t *terminal) clear(y, x int) {
	for ; x < t.columns; x++ {
		t.grid[y][x] = ' '
	}
}

// text is the screen without the blanks at its ends.
func (t *terminal) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, row := range t.grid {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func (t *terminal) all() string { return strings.Join(t.scrolled, "\n") + "\n" + t.text() }
