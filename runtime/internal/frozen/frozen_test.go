package frozen_test

import (
	"bytes"
	"testing"

	"github.com/dsh-agent/dsh/runtime/internal/frozen"
)

const page = 64 << 10

// TestImage: a fresh memory becomes what the other one was, also where that is
// zero and the fresh one is not, and where it has grown.
func TestImage(t *testing.T) {
	fresh := make([]byte, page)
	copy(fresh[5000:], "what the data segments say")
	for name, change := range map[string]func(b []byte) []byte{
		"nothing": func(b []byte) []byte { return b },
		"bytes":   func(b []byte) []byte { copy(b[4090:], "over the end of a part"); b[page-1] = 1; return b },
		"zeros":   func(b []byte) []byte { clear(b); return b },
		"growth":  func(b []byte) []byte { return append(b, bytes.Repeat([]byte{0, 0, 7, 0}, page/2)...) },
		"room":    func(b []byte) []byte { return append(b, make([]byte, page)...) },
	} {
		t.Run(name, func(t *testing.T) {
			now := change(bytes.Clone(fresh))
			m, ok := frozen.Compare(fresh, now)
			if !ok || m.Size() != len(now) {
				t.Fatalf("%t, %d bytes", ok, m.Size())
			}
			other := append(bytes.Clone(fresh), make([]byte, len(now)-len(fresh))...)
			if m.Put(other); !bytes.Equal(other, now) {
				t.Error("the memory is another")
			}
			if name == "nothing" && m.Bytes() != 0 || name == "room" && m.Bytes() != 0 {
				t.Errorf("%d bytes are remembered", m.Bytes())
			}
		})
	}
	if _, ok := frozen.Compare(nil, bytes.Repeat([]byte{1}, 16<<20)); ok {
		t.Error("16 MiB are remembered")
	}
	if m, ok := frozen.Compare(nil, nil); !ok || m.Size() != 0 {
		t.Error("no memory is no memory")
	}
}
