package storetest

import (
	"bytes"
	"testing"

	"github.com/dsh-agent/dsh"
)

// A snapshot is handed out as it was given, or not at all, and goes with its
// session.
func testSnapshots(t *testing.T, b *bench) {
	wants := func(id dsh.SessionID, want dsh.Snapshot) {
		t.Helper()
		s, err := b.Snapshot(t.Context(), id)
		if err != nil || s.Tail != want.Tail || !bytes.Equal(s.Data, want.Data) {
			t.Errorf("the snapshot of %s is %v and %d bytes, %v; want %v and %d bytes", id, s.Tail, len(s.Data), err, want.Tail, len(want.Data))
		}
	}
	none := dsh.Snapshot{}
	wants("nobody", none)
	c, w := b.started(t, "s", 3)
	other, v := b.started(t, "s2", 1)
	wants("s", none)
	first := dsh.Snapshot{Tail: c.tail, Data: []byte("\x00\xffbytes of any kind\n")}
	second := dsh.Snapshot{Tail: c.tail, Data: bytes.Repeat([]byte("0123456789"), 200_000)}
	for _, s := range []dsh.Snapshot{first, second} {
		if err := w.KeepSnapshot(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		wants("s", s)
	}
	if err := v.KeepSnapshot(t.Context(), dsh.Snapshot{Tail: other.tail}); err != nil {
		t.Fatal(err)
	}
	wants("s", second)
	appendAll(t, w, c.step())
	wants("s", second)
	release(t, w)
	if err := w.KeepSnapshot(t.Context(), first); err == nil {
		t.Error("a writer that was released keeps a snapshot")
	}
	if b.reopen(t) {
		wants("s", second)
	}
	if err := b.Remove(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	wants("s", none)
}
