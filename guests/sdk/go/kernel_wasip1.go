package sdk

import "encoding/binary"

// Extism's kernel, by which bytes go in and out. A block of its memory is
// named by an offset and read or written by these functions: it is not the
// module's own memory.

//go:wasmimport extism:host/env input_length
func inputLength() uint64

//go:wasmimport extism:host/env input_load_u8
func inputLoadU8(at uint64) uint32

//go:wasmimport extism:host/env input_load_u64
func inputLoadU64(at uint64) uint64

//go:wasmimport extism:host/env alloc
func alloc(size uint64) uint64

//go:wasmimport extism:host/env length
func length(at uint64) uint64

//go:wasmimport extism:host/env load_u8
func loadU8(at uint64) uint32

//go:wasmimport extism:host/env load_u64
func loadU64(at uint64) uint64

//go:wasmimport extism:host/env store_u8
func storeU8(at uint64, v uint32)

//go:wasmimport extism:host/env store_u64
func storeU64(at, v uint64)

//go:wasmimport extism:host/env output_set
func outputSet(at, size uint64)

//go:wasmimport extism:host/env error_set
func errorSet(at uint64)

//go:wasmimport extism:host/env log_info
func kernelLogInfo(at uint64)

// The host functions. A module imports only those that it uses, and each takes
// a capability that the manifest asks for.

//go:wasmimport dsh:policy/v1 log_read
func hostLogRead(at uint64) uint64

//go:wasmimport dsh:policy/v1 surface_read
func hostSurfaceRead(at uint64) uint64

//go:wasmimport dsh:policy/v1 state_get
func hostStateGet(at uint64) uint64

//go:wasmimport dsh:policy/v1 state_put
func hostStatePut(at uint64) uint64

//go:wasmimport dsh:policy/v1 emit
func hostEmit(at uint64) uint64

func logRead(q []byte) []byte      { return block(hostLogRead(store(q))) }
func surfaceRead(q []byte) []byte  { return block(hostSurfaceRead(store(q))) }
func stateGetFunc(q []byte) []byte { return block(hostStateGet(store(q))) }
func statePutFunc(q []byte) []byte { return block(hostStatePut(store(q))) }
func emitFunc(q []byte) []byte     { return block(hostEmit(store(q))) }

func logInfo(text string) { kernelLogInfo(store([]byte(text))) }

func output(b []byte) { outputSet(store(b), uint64(len(b))) }

func fail(message string) { errorSet(store([]byte(message))) }

// input reads the whole input.
func input() []byte { return load(inputLength(), 0, inputLoadU64, inputLoadU8) }

// block reads a block of the kernel's memory.
func block(at uint64) []byte { return load(length(at), at, loadU64, loadU8) }

// load reads eight bytes at a time, since every call costs.
func load(size, at uint64, word func(uint64) uint64, single func(uint64) uint32) []byte {
	b := make([]byte, size)
	whole := len(b) / 8 * 8
	for i := 0; i < whole; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(at+uint64(i)))
	}
	for i := whole; i < len(b); i++ {
		b[i] = byte(single(at + uint64(i)))
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
