package sse_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/dsh-agent/dsh/adapters/internal/sse"
)

// read renders a stream's events: name, data, and marks for stray and cut.
func read(src io.Reader) ([]string, error) {
	r := sse.NewReader(src)
	var out []string
	for {
		e, err := r.Next()
		if err != nil {
			return out, err
		}
		s := string(e.Name) + "|" + string(e.Data)
		if e.Stray {
			s += "|stray"
		}
		if e.Cut {
			s += "|cut"
		}
		out = append(out, s)
	}
}

var streams = []struct {
	name, in string
	want     []string
}{
	{"plain", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
	{"crlf", "event: x\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []string{"x|a", "|b"}},
	{"cr alone", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
	{"mixed ends", "data: a\r\n\ndata: b\n\r\n", []string{"|a", "|b"}},
	{"byte order mark", "\ufeffdata: a\n\n", []string{"|a"}},
	{"no space", "data:a\n\ndata:  b\n\n", []string{"|a", "| b"}},
	{"comments", ": keep-alive\n\n:\n\n: x\ndata: a\n: y\n\n", []string{"|a"}},
	{"many lines", "data: a\ndata: b\ndata:\n\n", []string{"|a\nb\n"}},
	{"data after a comment in the event", "data: {\"a\":\n: x\ndata: 1}\n\n", []string{"|{\"a\":\n1}"}},
	{"name after data", "data: a\nevent: x\n\n", []string{"x|a"}},
	{"id and retry", "id: 1\nretry: 5\ndata: a\n\n", []string{"|a"}},
	{"empty data", "data\n\ndata:\n\n", []string{"|", "|"}},
	{"event without data", "event: x\n\ndata: a\n\n", []string{"|a"}},
	{"no last newline", "data: a", []string{"|a|cut"}},
	{"no last blank line", "event: x\ndata: a\n", []string{"x|a|cut"}},
	{"no blank lines", "data: {\"a\":1}\ndata: {\"a\":2}\ndata: [DONE]\n", []string{`|{"a":1}`, `|{"a":2}`, `|[DONE]|cut`}},
	{"no blank lines, named", "event: x\ndata: a\nevent: y\ndata: b\n\n", []string{"x|a", "y|b"}},
	{"stray", "<html>\n<body>: x\n\n", []string{"|<html>|stray", "|<body>: x|stray"}},
	{"stray after data", "data: a\noops\n\ndata: b\n\n", []string{"|a", "|oops|stray", "|b"}},
	{"nothing", "", nil},
	{"blank lines", "\n\r\n\r", nil},
}

func TestStreams(t *testing.T) {
	for _, c := range streams {
		t.Run(c.name, func(t *testing.T) {
			for way, src := range map[string]io.Reader{
				"whole":         strings.NewReader(c.in),
				"byte for byte": iotest.OneByteReader(strings.NewReader(c.in)),
				"data with EOF": iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				got, err := read(src)
				if err != io.EOF {
					t.Errorf("%s: ends in %v, want EOF", way, err)
				}
				if strings.Join(got, "§") != strings.Join(c.want, "§") {
					t.Errorf("%s: got %q, want %q", way, got, c.want)
				}
			}
		})
	}
}

func TestTheSourcesErrorComesAfterItsBytes(t *testing.T) {
	broken := errors.New("reset")
	got, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)))
	if err != broken || strings.Join(got, " ") != "|a |b|cut" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLongLines(t *testing.T) {
	fits := "data:" + strings.Repeat("x", sse.MaxLine-len("data:"))
	if got, err := read(strings.NewReader(fits + "\n\ndata: b\n\n")); err != io.EOF || len(got) != 2 {
		t.Errorf("a line of MaxLine: %d events, %v", len(got), err)
	}
	for name, in := range map[string]io.Reader{
		"one line":        strings.NewReader(fits + "x\n\ndata: b\n\n"),
		"a line for ever": endless{'x'},
		"data for ever":   &repeat{s: "data: xxxxxxxx\n"},
		"blanks for ever": endless{' '},
		"JSON for ever":   &repeat{s: "data: {\"a\":\n"},
	} {
		if got, err := read(in); !errors.Is(err, sse.ErrTooLong) {
			t.Errorf("%s: %d events, %v", name, len(got), err)
		}
	}
}

type endless struct{ b byte }

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.b
	}
	return len(p), nil
}

type repeat struct {
	s   string
	pos int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.s[r.pos:])
	r.pos = (r.pos + n) % len(r.s)
	return n, nil
}

func TestASilentSourceEnds(t *testing.T) {
	if _, err := read(silent{}); err != io.ErrNoProgress {
		t.Errorf("got %v", err)
	}
}

type silent struct{}

func (silent) Read([]byte) (int, error) { return 0, nil }

func TestPeekAndRest(t *testing.T) {
	for _, in := range []string{"\ufeff\n {\"a\":1}", "{\"a\":1}"} {
		r := sse.NewReader(iotest.OneByteReader(strings.NewReader(in)))
		head, err := r.Peek()
		if err != nil || head[0] != '{' {
			t.Fatalf("%q: head %q, %v", in, head, err)
		}
		all, err := io.ReadAll(r.Rest())
		if err != nil || string(all) != in {
			t.Errorf("rest %q, %v", all, err)
		}
	}
	r := sse.NewReader(strings.NewReader("data: a\n\n"))
	if _, err := r.Peek(); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Next(); err != nil || string(e.Data) != "a" {
		t.Errorf("after Peek: %q, %v", e.Data, err)
	}
	if _, err := sse.NewReader(strings.NewReader(" \n")).Peek(); err != io.EOF {
		t.Errorf("Peek of blanks: %v", err)
	}
}

// FuzzReader holds a stream cut in single bytes against the same one whole:
// what comes out may not depend on how it arrived.
func FuzzReader(f *testing.F) {
	for _, c := range streams {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, in string) {
		whole, err1 := read(strings.NewReader(in))
		bits, err2 := read(iotest.OneByteReader(strings.NewReader(in)))
		if err1 != err2 || strings.Join(whole, "§") != strings.Join(bits, "§") {
			t.Fatalf("whole %q %v, in bytes %q %v", whole, err1, bits, err2)
		}
		size := 0
		for _, e := range whole {
			size += len(e)
		}
		if size > 16*len(in)+16 {
			t.Fatalf("%d bytes out of %d", size, len(in))
		}
	})
}

const frame = `data: {"id":"chatcmpl-0000","object":"chat.completion.chunk","created":1767225600,"model":"m-1","choices":[{"index":0,"delta":{"content":"abcd"},"finish_reason":null}]}` + "\n\n"

func BenchmarkReader(b *testing.B) {
	in := strings.Repeat(frame, 10000)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		r, n := sse.NewReader(strings.NewReader(in)), 0
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != 10000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkScanner is the floor to compare with: lines, and nothing made of
// them.
func BenchmarkScanner(b *testing.B) {
	in := strings.Repeat(frame, 10000)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		s, n := bufio.NewScanner(strings.NewReader(in)), 0
		for s.Scan() {
			n++
		}
		if n != 20000 {
			b.Fatal(n)
		}
	}
}
