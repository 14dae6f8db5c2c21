//go:build wasip1

package main

import "encoding/binary"

// Extism's kernel, by which bytes go in and out. A block of its memory is
// named by an offset and read or written by the functions below: it is not the
// module's own memory.

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoadU8(at uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoadU64(at uint64) uint64

//go:wasmimport extism:host/env alloc
func alloc(size uint64) uint64

//go:wasmimport extism:host/env store_u8
func storeU8(at uint64, v uint32)

//go:wasmimport extism:host/env store_u64
func storeU64(at, v uint64)

//go:wasmimport extism:host/env output_set
func outputSet(at, size uint64)

//go:wasmimport extism:host/env error_set
func errorSet(at uint64)

// input reads the whole input.
func input() []byte {
	b := make([]byte, inputLength())
	whole := len(b) / 8 * 8
	for i := 0; i < whole; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], inputLoadU64(uint64(i)))
	}
	for i := whole; i < len(b); i++ {
		b[i] = byte(inputLoadU8(uint64(i)))
	}
	return b
}

// store copies bytes into a new block.
func store(b []byte) uint64 {
	at := alloc(uint64(len(b)))
	whole := len(b) / 8 * 8
	for i := 0; i < whole; i += 8 {
		storeU64(at+uint64(i), binary.LittleEndian.Uint64(b[i:]))
	}
	for i := whole; i < len(b); i++ {
		storeU8(at+uint64(i), uint32(b[i]))
	}
	return at
}
