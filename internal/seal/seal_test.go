package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"testing"

	"github.com/dsh-agent/dsh/internal/seal"
)

var key = bytes.Repeat([]byte{7}, seal.KeySize)

func box(t testing.TB, key []byte) *seal.Box {
	t.Helper()
	b, err := seal.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseKey(t *testing.T) {
	for _, text := range []string{hex.EncodeToString(key), base64.StdEncoding.EncodeToString(key) + "\n", " " + base64.RawURLEncoding.EncodeToString(key)} {
		if got, err := seal.ParseKey(text); err != nil || !bytes.Equal(got, key) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "secret", hex.EncodeToString(key[:31]), hex.EncodeToString(key) + "00"} {
		if _, err := seal.ParseKey(text); !errors.Is(err, seal.ErrKey) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBox(t *testing.T) {
	b := box(t, key)
	for _, plain := range []string{"", "x", `{"seq":1}`, string(make([]byte, 1<<20))} {
		sealed := b.Seal("here", []byte(plain))
		if again := b.Seal("here", []byte(plain)); bytes.Equal(sealed, again) || len(sealed) != len(plain)+seal.Overhead {
			t.Error("the same bytes are sealed alike, or to another length")
		}
		if got, err := b.Open("here", sealed); err != nil || string(got) != plain {
			t.Errorf("Open: %v", err)
		}
		if _, err := b.Open("there", sealed); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("Open at another place: %v", err)
		}
		if _, err := box(t, bytes.Repeat([]byte{8}, 32)).Open("here", sealed); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("Open with another key: %v", err)
		}
		sealed[len(sealed)/2] ^= 1
		if _, err := b.Open("here", sealed); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("Open of what was changed: %v", err)
		}
		if _, err := b.Open("here", []byte(plain)); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("Open of something plain: %v", err)
		}
	}
	var none *seal.Box
	if got, err := none.Open("here", none.Seal("here", []byte("x"))); err != nil || string(got) != "x" {
		t.Errorf("no box: %q, %v", got, err)
	}
	if _, err := none.Open("here", b.Seal("here", nil)); !errors.Is(err, seal.ErrSealed) {
		t.Errorf("no box, and something sealed: %v", err)
	}
	if again := b.Sum([]byte("x")); again == none.Sum([]byte("x")) || again != box(t, key).Sum([]byte("x")) {
		t.Error("the sums do not go by the key")
	}
}

func sealed(t *testing.T, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := seal.NewWriter(key, &out)
	if err != nil {
		t.Fatal(err)
	}
	for part := range bytes.Lines(plain) {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func opened(key, b []byte) ([]byte, error) {
	r, err := seal.NewReader(key, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestStream(t *testing.T) {
	const piece = 64 << 10
	for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 3 * piece, 200_000} {
		plain := bytes.Repeat([]byte("0123456789abcde\n"), n/16+1)[:n]
		s := sealed(t, plain)
		if got, err := opened(key, s); err != nil || !bytes.Equal(got, plain) || !seal.IsStream(s) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
		if bytes.Contains(s, []byte("0123456789")) {
			t.Error("a part is plain")
		}
		if _, err := opened(bytes.Repeat([]byte{8}, 32), s); !errors.Is(err, seal.ErrOpen) {
			t.Errorf("another key: %v", err)
		}
		for _, bad := range [][]byte{s[:len(s)-1], s[:len(s)-17], append(bytes.Clone(s), 0), s[:len(seal.StreamMagic)+32], s[:10]} {
			if _, err := opened(key, bad); !errors.Is(err, seal.ErrOpen) {
				t.Errorf("%d of %d bytes: %v", len(bad), len(s), err)
			}
		}
		if n > piece { // the pieces in another order, and one left out
			from := len(seal.StreamMagic) + 32
			if _, err := opened(key, append(bytes.Clone(s[:from]), s[from+piece+16:]...)); !errors.Is(err, seal.ErrOpen) {
				t.Errorf("without its first piece: %v", err)
			}
		}
	}
}
