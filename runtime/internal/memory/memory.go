// Package memory hands out the linear memories of guests and holds each to its
// limit.
package memory

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// A Recycler keeps the buffers of closed instances for the next ones. A fresh
// megabyte costs hundreds of page faults and keeps the garbage collector busy;
// to clear a used one costs a tenth. The zero value is ready. It may be used by
// several goroutines.
type Recycler struct {
	// Outside counts the bytes of buffers that are not the garbage collector's,
	// which large ones are not where the system has such. They are gone when they
	// are put back: to read one then is the end of the process. nil: all buffers
	// are Go's.
	Outside *atomic.Int64

	mu    sync.Mutex
	free  [][]byte // of length 0, all zero
	bytes int      // of all of them
}

// maxFree bounds the buffers of a recycler, maxFreeBytes the size of all, and
// maxFreeBuffer that of each: a guest of Go's has 5 MiB. Who takes more mostly does so to
// do harm, and what is left of it is given back at once.
const (
	maxFree       = 8
	maxFreeBytes  = 24 << 20
	maxFreeBuffer = 8 << 20
)

// Get returns a buffer of length 0 whose bytes are zero up to its capacity,
// which is the one asked for or up to twice as much.
func (r *Recycler) Get(capacity uint64) []byte {
	r.mu.Lock()
	for i, buf := range r.free {
		if uint64(cap(buf)) >= capacity && uint64(cap(buf)) <= 2*capacity {
			r.free = slices.Delete(r.free, i, i+1)
			r.bytes -= cap(buf)
			r.mu.Unlock()
			return buf
		}
	}
	r.mu.Unlock()
	if r.Outside != nil && capacity > maxFreeBuffer {
		if buf := makeLarge(capacity); buf != nil {
			r.Outside.Add(int64(capacity))
			return buf
		}
	}
	return make([]byte, 0, capacity)
}

// Put takes a buffer back, which nobody may read any more, and clears what was
// used of it, which is its length.
func (r *Recycler) Put(buf []byte) {
	switch {
	case cap(buf) == 0:
		return
	case cap(buf) > maxFreeBuffer:
		if r.Outside != nil && freeLarge(buf) {
			r.Outside.Add(-int64(cap(buf)))
		}
		return
	}
	clear(buf)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < maxFree && r.bytes+cap(buf) <= maxFreeBytes {
		r.free = append(r.free, buf[:0])
		r.bytes += cap(buf)
	}
}

// An Allocator makes the memories of one instance.
type Allocator struct {
	Recycler *Recycler

	// Limits are the most bytes that the memories may have, in the order in
	// which they are made; the last holds for all others, too.
	Limits []uint64

	// Slack is how many more bytes a memory's buffer has than it starts with:
	// most grow at once, and that would copy what is there.
	Slack uint64

	made    []*linear
	refused atomic.Bool
}

// Free gives back the memories of an instance that did not come to be, which
// the library leaves.
func (a *Allocator) Free() {
	for _, m := range a.made {
		m.Free()
	}
}

// Refused reports whether a memory was not made larger since the last Reset.
func (a *Allocator) Refused() bool { return a.refused.Load() }

// Reset forgets what was refused.
func (a *Allocator) Reset() { a.refused.Store(false) }

// Allocate makes the next memory.
func (a *Allocator) Allocate(capacity, _ uint64) experimental.LinearMemory {
	limit := a.Limits[min(len(a.made), len(a.Limits)-1)]
	m := &linear{owner: a, limit: limit, buf: a.Recycler.Get(min(limit, capacity+a.Slack))}
	a.made = append(a.made, m)
	return m
}

type linear struct {
	owner *Allocator
	limit uint64
	buf   []byte
}

// Reallocate returns nil where the limit is passed, which the guest sees as a
// growth that failed.
func (m *linear) Reallocate(size uint64) []byte {
	if size > m.limit {
		m.owner.refused.Store(true)
		return nil
	}
	if size > uint64(cap(m.buf)) {
		grown := m.owner.Recycler.Get(min(m.limit, max(size, 2*uint64(cap(m.buf)))))
		grown = grown[:size]
		copy(grown, m.buf)
		m.owner.Recycler.Put(m.buf)
		m.buf = grown
		return m.buf
	}
	m.buf = m.buf[:size]
	return m.buf
}

// Free may be called again.
func (m *linear) Free() {
	m.owner.Recycler.Put(m.buf)
	m.buf = nil
}
