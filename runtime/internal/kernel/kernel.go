// Package kernel is Extism's kernel in Go: the memory through which bytes go in
// and out of a guest, as blocks that are named by their offset. It does what
// the kernel of Extism's SDKs does, a WebAssembly module, down to the offsets
// that it gives out, so that a guest cannot tell the two apart.
//
// Its own bookkeeping stands in the same memory, as there, and a guest may
// write over it. So nothing that is read back is believed: what is outside of
// the memory is an error, and a walk over the blocks is charged for each step,
// so that one that never ends ends with the guest's fuel.
//
// Source: the Rust source of Extism's kernel (github.com/extism/extism,
// folder kernel) and the functions that its Go SDK 1.7 puts before it.
package kernel

import (
	"encoding/binary"
	"errors"
	"math"
)

// Where the kernel's own figures stand. The blocks follow.
const (
	atBegun        = 1  // u8: 0: nothing is there yet
	atPosition     = 9  // u64: how far blocks go
	atLength       = 17 // u64: how far they may go before memory grows
	atError        = 25 // u64: the handle of the error
	atInput        = 33 // u64: the handle of the input
	atInputLength  = 41 // u64
	atOutput       = 49 // u64
	atOutputLength = 57 // u64
	atBlocks       = 65
)

// A block is a header and its bytes; the handle is where the bytes begin.
const (
	blockStatus = 0 // u8
	blockSize   = 4 // u32: what it has room for
	blockUsed   = 8 // u32: what was asked for
	headerBytes = 12

	statusActive = 1
	statusFree   = 2
)

const (
	pageBytes  = 64 << 10
	startPages = 16 // what the kernel's memory begins with

	// startLength is what blocks may fill at the beginning, as the kernel
	// counts: one page, since it does not know of the others.
	startLength = pageBytes - 64

	// growth is by how much the buffer grows, and what is larger than largeBytes
	// grows to all that it may be: few steps leave little behind.
	growth     = 4
	largeBytes = 1 << 20

	// outputRoom is what the buffer has behind the input at first.
	outputRoom = 1024

	// clearedBytes are made zero where the first block goes.
	clearedBytes = 144

	// splitBytes is how much larger than needed a free block is before it is
	// split.
	splitBytes = 128

	// A walk over the blocks is charged priceSteps units of fuel every so many
	// steps. The first ones are in the price of every call of the host.
	stepsAtOnce = 16
	priceSteps  = 64
)

// The errors, each of which ends the guest.
var (
	ErrBounds = errors.New("out of bounds memory access")
	ErrFuel   = errors.New("the fuel is out")
)

// A Kernel is the kernel of one instance. It is for one goroutine at a time.
type Kernel struct {
	// Charge takes fuel, and reports false where there is not enough.
	Charge func(units int64) bool

	// Make makes a larger buffer, of length 0 and zero up to its capacity. nil:
	// it is new memory.
	Make func(capacity uint64) []byte

	// Refused says that memory has not grown since the last Reset.
	Refused bool

	buf   []byte // the memory as far as anything has been written; zero up to its capacity
	pages uint64 // that the memory has
	most  uint64 // that it may have
}

// New makes a kernel whose memory may have so many pages of 64 KiB. The buffer
// is its memory's beginning: of length 0, and zero up to its capacity.
func New(buf []byte, most uint64) Kernel {
	return Kernel{buf: buf, pages: startPages, most: max(most, startPages)}
}

// Buffer is the memory as far as it has been written to, for the next kernel.
// This one is of no use afterwards.
func (k *Kernel) Buffer() []byte { return k.buf }

// Pages is how many pages the memory has, which no Reset makes less.
func (k *Kernel) Pages() uint64 { return k.pages }

// Grown makes the memory of a new kernel as large as that of another one.
func (k *Kernel) Grown(pages uint64) { k.pages = max(k.pages, min(pages, k.most)) }

func (k *Kernel) bytes() uint64 { return k.pages * pageBytes }

// ensure makes the buffer reach to an offset within the memory.
func (k *Kernel) ensure(end uint64) {
	if end <= uint64(len(k.buf)) {
		return
	}
	if end > uint64(cap(k.buf)) {
		capacity := max(growth*uint64(cap(k.buf)), end)
		if capacity > largeBytes {
			capacity = k.most * pageBytes
		}
		var grown []byte
		if k.Make != nil {
			grown = k.Make(capacity)
		} else {
			grown = make([]byte, 0, capacity)
		}
		grown = grown[:len(k.buf)]
		copy(grown, k.buf)
		k.buf = grown
	}
	k.buf = k.buf[:end]
}

// view is a part of the memory; nil: it is not within it.
func (k *Kernel) view(at, n uint64) []byte {
	if at > k.bytes() || n > k.bytes()-at {
		return nil
	}
	k.ensure(at + n)
	return k.buf[at : at+n : at+n]
}

// own reads a figure of the kernel's own.
func (k *Kernel) own(at uint64) uint64 { return binary.LittleEndian.Uint64(k.view(at, 8)) }

func (k *Kernel) setOwn(at, v uint64) { binary.LittleEndian.PutUint64(k.view(at, 8), v) }

// begin makes the figures of a kernel that has none, also of one whose guest
// has written over the sign that it has them.
func (k *Kernel) begin() {
	if k.view(atBegun, 1)[0] != 0 {
		return
	}
	k.buf[atBegun] = 1
	clear(k.view(atPosition, atBlocks-atPosition))
	k.setOwn(atLength, startLength)
	clear(k.view(atBlocks, clearedBytes))
}

// Reset frees all blocks and takes in the input of a call, whose handle it
// keeps. It reports false where there is no memory for it.
func (k *Kernel) Reset(input []byte) bool {
	k.Refused = false
	clear(k.buf)
	k.buf = k.buf[:0]
	k.ensure(min(k.bytes(), uint64(atBlocks+headerBytes+len(input)+outputRoom)))
	k.begin()
	k.setOwn(atLength, (k.pages-startPages)*pageBytes+startLength)
	if len(input) == 0 {
		return true
	}
	handle, err := k.Alloc(uint64(len(input)))
	if err != nil || handle == 0 {
		return false
	}
	copy(k.view(handle, uint64(len(input))), input)
	if k.within(handle, uint64(len(input))) {
		k.setOwn(atInput, handle)
		k.setOwn(atInputLength, uint64(len(input)))
	}
	return true
}

// within is the kernel's test of a range that a guest gives it.
func (k *Kernel) within(at, n uint64) bool {
	end := k.own(atLength) + atBlocks
	last := at + n - 1
	return at >= atBlocks && at < end && last >= atBlocks && last < end
}

// Alloc makes a block. Its handle is 0 if there is no memory, or nothing is
// asked for.
func (k *Kernel) Alloc(n uint64) (uint64, error) {
	if n == 0 {
		return 0, nil
	}
	k.begin()
	need := n + headerBytes
	position, length := k.own(atPosition), k.own(atLength)
	if room := length - position - 64; need >= room {
		at, err := k.reuse(uint32(n), need, position)
		if err != nil || at != 0 {
			return at, err
		}
		more := need - room
		pages := uint32(more >> 16)
		if more&(pageBytes-1) != 0 {
			pages++
		}
		if uint64(pages) > k.most-k.pages {
			k.Refused = true
			return 0, nil
		}
		k.pages += uint64(pages)
		k.setOwn(atLength, length+uint64(pages)<<16)
	}
	k.setOwn(atPosition, position+need)
	block := uint64(uint32(position) + atBlocks)
	header := k.view(block, headerBytes)
	if header == nil {
		return 0, ErrBounds
	}
	binary.LittleEndian.PutUint32(header[blockUsed:], uint32(n))
	binary.LittleEndian.PutUint32(header[blockSize:], uint32(n))
	header[blockStatus] = statusActive
	return uint64(uint32(block) + headerBytes), nil
}

// reuse looks for a free block, the first that is large enough. 0: there is
// none.
func (k *Kernel) reuse(n uint32, need, position uint64) (uint64, error) {
	end := position + atBlocks
	if need > position || end <= atBlocks {
		return 0, nil
	}
	block := uint32(atBlocks)
	for w := (walk{k: k}); ; {
		header, err := w.step(block)
		if err != nil {
			return 0, err
		}
		size := binary.LittleEndian.Uint32(header[blockSize:])
		status := header[blockStatus]
		switch {
		case status == 0:
			return k.take(block, n)
		case status == statusFree && size >= n:
			if rest := size - n; rest >= splitBytes {
				if block, err = k.split(block, rest, n); err != nil {
					return 0, err
				}
			}
			return k.take(block, n)
		}
		if block += size + headerBytes; end <= uint64(block) {
			return 0, nil
		}
	}
}

// split makes two blocks of a free one and returns the second, of n bytes.
func (k *Kernel) split(block, rest, n uint32) (uint32, error) {
	second := k.view(uint64(block+rest), headerBytes) // first of all: it may move the memory
	first := k.view(uint64(block), headerBytes)
	if first == nil || second == nil {
		return 0, ErrBounds
	}
	binary.LittleEndian.PutUint32(first[blockUsed:], 0)
	binary.LittleEndian.PutUint32(first[blockSize:], rest-headerBytes)
	binary.LittleEndian.PutUint32(second[blockUsed:], 0)
	binary.LittleEndian.PutUint32(second[blockSize:], n)
	second[blockStatus] = statusFree
	return block + rest, nil
}

func (k *Kernel) take(block, n uint32) (uint64, error) {
	header := k.view(uint64(block), headerBytes)
	if header == nil {
		return 0, ErrBounds
	}
	header[blockStatus] = statusActive
	binary.LittleEndian.PutUint32(header[blockUsed:], n)
	return uint64(block + headerBytes), nil
}

// walk goes from block to block and pays for it.
type walk struct {
	k     *Kernel
	steps int
}

// step reads the header of a block.
func (w *walk) step(block uint32) ([]byte, error) {
	if w.steps++; w.steps%stepsAtOnce == 0 && w.k.Charge != nil && !w.k.Charge(priceSteps) {
		return nil, ErrFuel
	}
	header := w.k.view(uint64(block), headerBytes)
	if header == nil {
		return nil, ErrBounds
	}
	return header, nil
}

// find looks for the active block of a handle; nil: there is none.
func (k *Kernel) find(handle uint64) ([]byte, error) {
	if handle == 0 {
		return nil, nil
	}
	if k.begin(); handle < 64 || k.bytes() < handle {
		return nil, nil
	}
	end := handle + atBlocks
	block := uint32(atBlocks)
	for w := (walk{k: k}); ; {
		header, err := w.step(block)
		if err != nil {
			return nil, err
		}
		data := block + headerBytes
		if header[blockStatus] == statusActive && uint64(data) == handle {
			return header, nil
		}
		if block = data + binary.LittleEndian.Uint32(header[blockSize:]); end <= uint64(block) {
			return nil, nil
		}
	}
}

// Free gives a block back. A handle of nothing is let be.
func (k *Kernel) Free(handle uint64) error {
	header, err := k.find(handle)
	if header == nil || err != nil {
		return err
	}
	header[blockStatus] = statusFree
	if k.own(atInput) == handle {
		k.setOwn(atInputLength, 0)
	}
	return nil
}

// Length is the length of a block; 0: it is none.
func (k *Kernel) Length(handle uint64) (uint64, error) {
	header, err := k.find(handle)
	if header == nil || err != nil {
		return 0, err
	}
	return uint64(binary.LittleEndian.Uint32(header[blockUsed:])), nil
}

// LengthUnsafe is Length by what stands before the handle.
func (k *Kernel) LengthUnsafe(handle uint64) (uint64, error) {
	if handle < 64 || k.bytes() < handle {
		return 0, nil
	}
	header := k.view(uint64(uint32(handle)-headerBytes), headerBytes)
	switch {
	case header == nil:
		return 0, ErrBounds
	case header[blockStatus] != statusActive:
		return 0, nil
	}
	return uint64(binary.LittleEndian.Uint32(header[blockUsed:])), nil
}

// Load8 reads a byte; 0 where the kernel gives none.
func (k *Kernel) Load8(at uint64) (byte, error) {
	if at < 64 || k.bytes() < at {
		return 0, nil
	}
	if at == k.bytes() || at > math.MaxUint32 {
		return 0, ErrBounds
	}
	if at >= uint64(len(k.buf)) {
		return 0, nil // nothing has been written there
	}
	return k.buf[at], nil
}

// Load64 reads eight bytes, also of the kernel's own.
func (k *Kernel) Load64(at uint64) (uint64, error) {
	at = uint64(uint32(at))
	if at+8 <= uint64(len(k.buf)) {
		return binary.LittleEndian.Uint64(k.buf[at:]), nil
	}
	b := k.view(at, 8)
	if b == nil {
		return 0, ErrBounds
	}
	return binary.LittleEndian.Uint64(b), nil
}

// Store8 writes a byte.
func (k *Kernel) Store8(at uint64, v byte) error {
	if at < 64 || k.bytes() < at {
		return nil
	}
	if at == k.bytes() || at > math.MaxUint32 {
		return ErrBounds
	}
	k.ensure(at + 1)
	k.buf[at] = v
	return nil
}

// Store64 writes eight bytes, also over the kernel's own.
func (k *Kernel) Store64(at, v uint64) error {
	b := k.view(uint64(uint32(at)), 8)
	if b == nil {
		return ErrBounds
	}
	binary.LittleEndian.PutUint64(b, v)
	return nil
}
