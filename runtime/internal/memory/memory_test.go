package memory_test

import (
	"bytes"
	goruntime "runtime"
	"sync/atomic"
	"testing"

	"github.com/dsh-agent/dsh/runtime/internal/memory"
)

const mib = 1 << 20

// A buffer is zero up to its capacity, whoever had it before.
func TestRecycler(t *testing.T) {
	for name, outside := range map[string]*atomic.Int64{"Go's": nil, "counted": new(atomic.Int64)} {
		t.Run(name, func(t *testing.T) {
			r := &memory.Recycler{Outside: outside}
			for _, capacity := range []uint64{1, 64 << 10, mib, 8 * mib, 8*mib + 1, 16 * mib, 64 * mib} {
				for range 3 {
					buf := r.Get(capacity)
					if len(buf) != 0 || uint64(cap(buf)) < capacity || uint64(cap(buf)) > 2*capacity {
						t.Fatalf("%d bytes: length %d, capacity %d", capacity, len(buf), cap(buf))
					}
					buf = buf[:capacity]
					for i := uint64(0); i < capacity; i += 4096 {
						if buf[i] != 0 {
							t.Fatalf("%d bytes: byte %d is %d", capacity, i, buf[i])
						}
						buf[i] = 1
					}
					buf[capacity-1]++
					r.Put(buf)
				}
				if outside != nil && outside.Load() != 0 {
					t.Errorf("%d bytes: %d are taken when all are put back", capacity, outside.Load())
				}
			}
			r.Put(nil)
		})
	}
}

// What is large is counted while it is taken, where there is room outside.
func TestOutside(t *testing.T) {
	var outside atomic.Int64
	r := &memory.Recycler{Outside: &outside}
	small, large, larger := r.Get(mib), r.Get(16*mib), r.Get(32*mib)
	want := int64(0)
	if goruntime.GOOS == "linux" {
		want = 48 * mib
	}
	if n := outside.Load(); n != want {
		t.Errorf("%d bytes are outside, want %d", n, want)
	}
	for _, buf := range [][]byte{small, large, larger} {
		r.Put(buf)
	}
	if n := outside.Load(); n != 0 {
		t.Errorf("%d bytes are outside when all are put back", n)
	}
}

// A memory keeps what it has when it grows, is zero behind that, and grows to its
// limit, which is its own.
func TestAllocator(t *testing.T) {
	var outside atomic.Int64
	a := memory.Allocator{Recycler: &memory.Recycler{Outside: &outside}, Limits: []uint64{2 * mib, 40 * mib}, Slack: mib}
	first, second := a.Allocate(mib, 0), a.Allocate(mib, 0)
	if first.Reallocate(2*mib) == nil || a.Refused() {
		t.Error("the first memory does not grow to its limit")
	}
	if first.Reallocate(2*mib+1) != nil || !a.Refused() {
		t.Error("the first memory grows over its limit")
	}
	a.Reset()
	copy(second.Reallocate(mib), "it is here")
	for _, size := range []uint64{2 * mib, 9 * mib, 10 * mib, 33 * mib, 40 * mib} {
		buf := second.Reallocate(size)
		if uint64(len(buf)) != size || !bytes.HasPrefix(buf, []byte("it is here\x00")) {
			t.Fatalf("%d bytes: %d, %q", size, len(buf), buf[:min(16, len(buf))])
		}
		if n := bytes.Count(buf[16:], []byte{0}); n != len(buf)-16 {
			t.Errorf("%d bytes: %d of those behind are not zero", size, len(buf)-16-n)
		}
	}
	if a.Refused() || second.Reallocate(40*mib+1) != nil || !a.Refused() {
		t.Error("the second memory's limit is not its own")
	}
	first.Free()
	second.Free()
	if n := outside.Load(); n != 0 {
		t.Errorf("%d bytes are outside when all are freed", n)
	}
}

// What was made for an instance that does not come to be is given back.
func TestFree(t *testing.T) {
	var outside atomic.Int64
	a := memory.Allocator{Recycler: &memory.Recycler{Outside: &outside}, Limits: []uint64{16 * mib}}
	a.Allocate(9*mib, 0).Reallocate(9 * mib)
	a.Allocate(mib, 0).Reallocate(12 * mib)
	a.Free()
	a.Free()
	if n := outside.Load(); n != 0 {
		t.Errorf("%d bytes are outside when all are freed", n)
	}
}
