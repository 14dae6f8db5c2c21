// Package sse reads server-sent events as model providers really send them.
//
// It follows the WHATWG event stream format (HTML Living Standard, 9.2.6) and
// is lenient where providers are not strict: a last event without its blank
// line is handed out, and two events without a blank line between them are
// told apart. Lines that belong to no field, which the standard ignores, are
// handed out too: they are where a broken gateway puts its error.
package sse

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// MaxLine is the longest line, and the longest event, in bytes.
const MaxLine = 1 << 20

// ErrTooLong is the end of a stream that had a line, or an event, of more than
// MaxLine bytes.
var ErrTooLong = errors.New("an event of more than 1 MiB")

// An Event is one event of a stream. Its slices are valid until the next call
// of Next.
type Event struct {
	Name []byte // of the event field; empty for none
	Data []byte // the data lines, joined by line feeds

	// Stray says that Data is a line that is no field of the format.
	Stray bool

	// Cut says that the stream ended before the blank line that ends an event.
	// The data may be whole nevertheless.
	Cut bool
}

// A Reader reads events. It is for one goroutine.
type Reader struct {
	src io.Reader
	buf []byte
	pos int // the next byte to look at
	end int // the end of what was read
	err error

	begun  bool // the byte order mark has been looked for
	skipLF bool // the last line ended in CR at the end of the buffer

	// The event that is being put together. Its data is buf[from:to] as long
	// as it is one line, and joined otherwise.
	open     bool
	from, to int
	many     bool
	joined   []byte
	name     []byte
}

// NewReader returns a reader of src, which it never reads beyond what it is
// asked for: a call of src.Read means that everything before was handed out.
func NewReader(src io.Reader) *Reader {
	return &Reader{src: src, buf: make([]byte, 16<<10)}
}

// Next returns the next event. At the end its error is io.EOF, or the error of
// the source, or ErrTooLong; it is then the same for ever.
func (r *Reader) Next() (Event, error) {
	r.reset()
	for {
		line, err := r.line()
		if err != nil {
			if r.open {
				return Event{Name: r.name, Data: r.data(), Cut: true}, nil
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if r.open {
				return Event{Name: r.name, Data: r.data()}, nil
			}
			r.name = r.name[:0]
			continue
		}
		start := r.lineEnd(line) - len(line)
		field, value := split(line)
		switch {
		case string(field) == "data":
			if r.open && !r.many && r.complete() {
				r.unread(start)
				return Event{Name: r.name, Data: r.data()}, nil
			}
			if err := r.add(value); err != nil {
				return Event{}, err
			}
		case string(field) == "event":
			if r.open && len(r.name) > 0 {
				// The next event begins without a blank line before it.
				r.unread(start)
				return Event{Name: r.name, Data: r.data()}, nil
			}
			r.name = append(r.name[:0], value...)
		case len(field) == 0, string(field) == "id", string(field) == "retry":
			// A comment, or a field that no provider means anything by.
		case r.open:
			r.unread(start)
			return Event{Name: r.name, Data: r.data()}, nil
		default:
			return Event{Data: line, Stray: true}, nil
		}
	}
}

// Peek returns the first bytes of the stream that are no white space and no
// byte order mark, at least one of them, without taking them. It is to be
// called before the first Next.
func (r *Reader) Peek() ([]byte, error) {
	for {
		if rest := bytes.TrimLeft(r.buf[r.pos:r.end], "\ufeff \t\r\n"); len(rest) > 0 && rest[0] != 0xef || len(rest) > 2 {
			return rest, nil
		}
		if r.err != nil {
			return nil, r.err
		}
		if r.end-r.pos > MaxLine {
			return nil, ErrTooLong
		}
		r.fill()
	}
}

// Buffered reports whether there are bytes that Next can look at without
// reading from the source.
func (r *Reader) Buffered() bool { return r.pos < r.end }

// Rest returns a reader of everything that was not taken, for a body that
// turned out to be no event stream.
func (r *Reader) Rest() io.Reader {
	head := bytes.NewReader(r.buf[r.pos:r.end])
	r.pos = r.end
	if r.err != nil {
		return io.MultiReader(head, failing{r.err})
	}
	return io.MultiReader(head, r.src)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (r *Reader) reset() {
	r.open, r.many = false, false
	r.name = r.name[:0]
	r.joined = r.joined[:0]
}

// unread puts the line that begins at start back.
func (r *Reader) unread(start int) { r.pos, r.skipLF = start, false }

// data is what the open event has so far.
func (r *Reader) data() []byte {
	if r.many {
		return r.joined
	}
	return r.buf[r.from:r.to]
}

// add takes one data line, which lies in the buffer.
func (r *Reader) add(value []byte) error {
	if !r.open {
		r.open = true
		r.to = r.lineEnd(value)
		r.from = r.to - len(value)
		return nil
	}
	if !r.many {
		r.many = true
		r.joined = append(r.joined[:0], r.buf[r.from:r.to]...)
	}
	r.joined = append(append(r.joined, '\n'), value...)
	if len(r.joined) > MaxLine {
		r.err, r.pos, r.open = ErrTooLong, r.end, false
		return ErrTooLong
	}
	return nil
}

// lineEnd finds where a line, or the tail of one, ends in the buffer: its
// capacity reaches to the buffer's.
func (r *Reader) lineEnd(value []byte) int { return cap(r.buf) - cap(value) + len(value) }

// complete reports whether the one data line so far is an event of its own, so
// that the next begins another: some servers leave out the blank line.
func (r *Reader) complete() bool {
	d := bytes.TrimSpace(r.data())
	return len(d) > 0 && (string(d) == "[DONE]" || (d[0] == '{' || d[0] == '[') && json.Valid(d))
}

// line takes the next line, without its end: LF, CR LF or CR. A last line
// without an end is a line.
func (r *Reader) line() ([]byte, error) {
	scanned := 0
	for {
		if !r.begun {
			r.skipMark()
		}
		if r.skipLF && r.pos < r.end {
			if r.buf[r.pos] == '\n' {
				r.pos++
			}
			r.skipLF = false
		}
		rest := r.buf[r.pos:r.end]
		if scanned > len(rest) {
			scanned = 0
		}
		n := bytes.IndexByte(rest[scanned:], '\n')
		look := rest[scanned:]
		if n >= 0 {
			look = look[:n]
		}
		if c := bytes.IndexByte(look, '\r'); c >= 0 {
			line := rest[:scanned+c]
			r.pos += scanned + c + 1
			r.skipLF = true
			return r.within(line)
		}
		if n >= 0 {
			r.pos += scanned + n + 1
			return r.within(rest[:scanned+n])
		}
		scanned = len(rest)
		if len(rest) > MaxLine {
			r.err, r.pos = ErrTooLong, r.end
			return nil, ErrTooLong
		}
		if r.err != nil {
			if len(rest) > 0 {
				r.pos = r.end
				return rest, nil
			}
			return nil, r.err
		}
		r.fill()
	}
}

func (r *Reader) within(line []byte) ([]byte, error) {
	if len(line) > MaxLine {
		r.err, r.pos = ErrTooLong, r.end
		return nil, ErrTooLong
	}
	return line, nil
}

// skipMark takes a byte order mark at the beginning of the stream.
func (r *Reader) skipMark() {
	rest := r.buf[r.pos:r.end]
	const mark = "\xef\xbb\xbf"
	if len(rest) < len(mark) && r.err == nil && string(rest) == mark[:len(rest)] {
		return // not enough to tell
	}
	r.begun = true
	if bytes.HasPrefix(rest, []byte(mark)) {
		r.pos += len(mark)
	}
}

// fill reads once from the source, after it has made room. What the open event
// holds stays where its offsets say.
func (r *Reader) fill() {
	keep := r.pos
	if r.open && !r.many {
		keep = r.from
	}
	if keep > 0 && (r.end == len(r.buf) || keep == r.end) {
		copy(r.buf, r.buf[keep:r.end])
		r.pos, r.end, r.from, r.to = r.pos-keep, r.end-keep, r.from-keep, r.to-keep
	}
	if r.end == len(r.buf) {
		bigger := make([]byte, 2*len(r.buf))
		copy(bigger, r.buf[:r.end])
		r.buf = bigger
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// split tells a line's field from its value. A line without a colon is a field
// without a value; a comment has an empty field.
func split(line []byte) (field, value []byte) {
	if len(line) > 5 && string(line[:5]) == "data:" { // nearly every line
		field, value = line[:4], line[5:]
	} else if i := bytes.IndexByte(line, ':'); i >= 0 {
		field, value = line[:i], line[i+1:]
	} else {
		return line, line[len(line):]
	}
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return field, value
}
