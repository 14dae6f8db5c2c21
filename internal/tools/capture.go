package tools

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// How much of an output's beginning and of its end is kept: the end says how
// it went.
const (
	captureHead = 20 << 10
	captureTail = 40 << 10
)

// A capture keeps the beginning and the end of what is written to it, in
// bounded memory. It is for one goroutine.
type capture struct {
	head  []byte
	tail  []byte // a ring, once it is full
	at    int    // of the ring: where the oldest byte is
	total int64
}

func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	room := min(captureHead-len(c.head), len(p))
	c.head = append(c.head, p[:room]...)
	p = p[room:]
	if over := len(p) - captureTail; over > 0 {
		p = p[over:]
	}
	room = min(captureTail-len(c.tail), len(p))
	c.tail = append(c.tail, p[:room]...)
	for p = p[room:]; len(p) > 0; {
		k := copy(c.tail[c.at:], p)
		c.at = (c.at + k) % captureTail
		p = p[k:]
	}
	return n, nil
}

// text is what is kept, as text, with a line about what is not.
func (c *capture) text() string {
	tail := append(c.tail[c.at:len(c.tail):len(c.tail)], c.tail[:c.at]...)
	cut := c.total - int64(len(c.head)+len(tail))
	if cut == 0 {
		whole, _ := plain(append(c.head[:len(c.head):len(c.head)], tail...))
		if len(whole) <= captureHead+captureTail {
			return whole
		}
		return cutText(whole, captureHead) + leftOut(int64(len(whole)-captureHead-captureTail)) + cutFront(whole, captureTail)
	}
	head, _ := plain(c.head)
	end, _ := plain(tail)
	return cutText(head, captureHead) + leftOut(cut) + cutFront(end, captureTail)
}

func leftOut(n int64) string {
	return fmt.Sprintf("\n[… %s of the output are left out here …]\n", size(n))
}

// cutFront is s, or its last bytes without half a rune at their beginning.
func cutFront(s string, size int) string {
	if len(s) <= size {
		return s
	}
	s = s[len(s)-size:]
	for i := range min(len(s), utf8.UTFMax) {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return strings.ToValidUTF8(s, "")
}
