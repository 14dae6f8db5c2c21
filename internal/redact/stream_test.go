package redact_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dsh-agent/dsh/internal/redact"
)

// stream gives a text in pieces of some bytes, and what each was answered with.
func stream(p redact.Patterns, text string, size int, cut bool) []string {
	s := p.Stream()
	var out []string
	for len(text) > 0 {
		n := min(size, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n++
		}
		out = append(out, s.Next(text[:n]))
		text = text[n:]
	}
	return append(out, s.End(cut))
}

func TestStream(t *testing.T) {
	key := `sk-[a-z0-9]{8,}`
	for _, k := range []struct {
		name     string
		patterns []string
		text     string
		whole    string // when the text is at its end
		cut      string // when it was cut off there
	}{
		{"nothing", []string{key}, "nothing to take", "nothing to take", "nothing to take"},
		{"a key", []string{key}, "use sk-abcd1234efgh now", "use [redacted] now", "use [redacted] now"},
		{"at the end", []string{key}, "use sk-abcd1234efgh", "use [redacted]", "use [redacted]"},
		{"half a key", []string{key}, "use sk-abcd", "use sk-abcd", "use [redacted]"},
		{"the beginning of hardly any", []string{key}, "use sk-", "use sk-", "use sk-"},
		{"no key after all", []string{key}, "use sk-abc, or sk-", "use sk-abc, or sk-", "use sk-abc, or sk-"},
		{"two side by side", []string{`k[0-9]{4}`}, "k1234k5678", "[redacted][redacted]", "[redacted][redacted]"},
		{"two patterns", []string{key, `(?i)password=\S+`}, "PASSWORD=sk-abcdefgh1 and sk-abcdefgh2", "[redacted] and [redacted]", "[redacted] and [redacted]"},
		{"overlapping", []string{`aab`, `bcc`}, "xaabccx", "x[redacted]x", "x[redacted]x"},
		{"the longer of two", []string{`key(-[a-z]+-end)?`}, "key-long-en key-long-end.", "[redacted]-long-en [redacted].", "[redacted]-long-en [redacted]."},
		{"a word alone", []string{`\bkey\b`}, "key keys mykey key.", "[redacted] keys mykey [redacted].", "[redacted] keys mykey [redacted]."},
		{"inside of words", []string{`\Bkey`}, "key mykey", "key my[redacted]", "key my[redacted]"},
		{"at the text's beginning", []string{`^key[0-9]`}, "key1 key2", "[redacted] key2", "[redacted] key2"},
		{"at a line's beginning", []string{`(?m)^key[0-9]`}, "key1 key2\nkey3", "[redacted] key2\n[redacted]", "[redacted] key2\n[redacted]"},
		{"at the text's end", []string{`key[0-9]$`}, "key1 key2", "key1 [redacted]", "key1 [redacted]"},
		{"lines", []string{`(?s)-----BEGIN KEY-----.*?-----END KEY-----`}, "a -----BEGIN KEY-----\nx\ny\n-----END KEY----- b", "a [redacted] b", "a [redacted] b"},
		{"a block that does not end", []string{`(?s)-----BEGIN KEY-----.*?-----END KEY-----`}, "a -----BEGIN KEY-----\nx\ny", "a -----BEGIN KEY-----\nx\ny", "a [redacted]"},
		{"letters of many bytes", []string{`ключ:\pL+`}, "вот ключ:тайна, да", "вот [redacted], да", "вот [redacted], да"},
	} {
		t.Run(k.name, func(t *testing.T) {
			p := compiled(t, k.patterns...)
			for size := 1; size <= len(k.text); size++ {
				if got := strings.Join(stream(p, k.text, size, false), ""); got != k.whole {
					t.Errorf("pieces of %d: got %q, want %q", size, got, k.whole)
				}
				if got := strings.Join(stream(p, k.text, size, true), ""); got != k.cut {
					t.Errorf("pieces of %d, cut off: got %q, want %q", size, got, k.cut)
				}
			}
		})
	}
}

// What cannot become a match is given at once: a text is not held back until
// its end.
func TestStreamGivesWhatIsCertain(t *testing.T) {
	p := compiled(t, `sk-[a-z0-9]{8,}`)
	got := stream(p, "some words, sk-abcd1234efgh, more of it", 13, false)
	if want := []string{"some words, ", "", "[redacted], more of it", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzStream holds that a stream gives what package regexp finds in the whole,
// wherever that is cut into pieces.
func FuzzStream(f *testing.F) {
	f.Add("password=x sk-1234abcd key", 3)
	f.Add("-----BEGIN-----\n\xff-----END----- -----END-----", 1)
	f.Add("aaa\nmykeys key-a-b key-a", 2)
	patterns := []string{`sk-[a-z0-9]{4,8}\b`, `(?i)password=\S+`, `(?s)-----BEGIN-----.*?-----END-----`, `(?m)^a+$`, `\Bkey\B`, `key(-a(-b)?)?`, `(a|ab)(c|bcd)?`, `^.y`}
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size <= 0 {
			return
		}
		for _, pattern := range patterns {
			p := compiled(t, pattern)
			want := p.Text(text)
			if got := strings.Join(stream(p, text, size, false), ""); got != want {
				t.Errorf("%s in %q in pieces of %d: got %q, want %q", pattern, text, size, got, want)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	p := compiled(b, `sk-[A-Za-z0-9]{20,}`, `(?i)password=\S+`, `AKIA[0-9A-Z]{16}`)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog. ", 100)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		stream(p, text, 200, false)
	}
}
