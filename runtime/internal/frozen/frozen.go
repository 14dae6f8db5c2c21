// Package frozen remembers what an instance has become, so that others can
// begin there. A guest of Go's runs a million instructions of its runtime's
// start and of its warm export, which come to the same each time; to put their
// result into a fresh instance takes a tenth of that.
package frozen

import (
	"bytes"
	"encoding/binary"
	"strconv"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// maxGlobals bounds the globals of a module that is frozen: toolchains have
// from 1 to 10.
const maxGlobals = 64

// globalPrefix begins the names under which globals are exported. The number of
// each follows.
const globalPrefix = wasm.ReservedPrefix + "global/"

// headerBytes is the length of what stands before a module's first section.
const headerBytes = 8

// Export makes a module export all globals of its own that change, and names
// the exports. The code is what was made of module m by writing more globals
// behind its own, and has an export section. nil: an instance of the module has
// state that is in neither its memory nor these, and the code stays as it is.
func Export(code []byte, m *wasm.Module) ([]byte, []string) {
	if m.Rearranges {
		return code, nil
	}
	names := []string{}
	var entries []byte
	for i, g := range m.Globals {
		if !g.Mutable {
			continue
		}
		switch g.Type {
		case hostabi.ValueI32, hostabi.ValueI64, hostabi.ValueF32, hostabi.ValueF64:
		default:
			return code, nil // a reference, or more than 64 bits
		}
		name := globalPrefix + strconv.Itoa(i)
		names = append(names, name)
		entries = binary.AppendUvarint(entries, uint64(len(name)))
		entries = append(entries, name...)
		entries = append(entries, byte(hostabi.ExternGlobal))
		entries = binary.AppendUvarint(entries, uint64(i))
	}
	if len(names) > maxGlobals {
		return code, nil
	}
	exporting, ok := addExports(code, len(names), entries)
	if !ok {
		return code, nil
	}
	return exporting, names
}

// addExports puts entries behind those of the export section.
func addExports(code []byte, count int, entries []byte) ([]byte, bool) {
	for at := headerBytes; at < len(code); {
		size, n := binary.Uvarint(code[at+1:])
		begin := at + 1 + n
		if n <= 0 || size > uint64(len(code)-begin) {
			return nil, false
		}
		end := begin + int(size)
		if code[at] != wasm.SectionExport {
			at = end
			continue
		}
		have, n := binary.Uvarint(code[begin:end])
		if n <= 0 {
			return nil, false
		}
		section := binary.AppendUvarint(nil, have+uint64(count))
		section = append(section, code[begin+n:end]...)
		section = append(section, entries...)
		out := append([]byte{}, code[:at+1]...)
		out = binary.AppendUvarint(out, uint64(len(section)))
		out = append(out, section...)
		return append(out, code[end:]...), true
	}
	return nil, false
}

// partBytes is the size of the parts in which memories are compared.
const partBytes = 4096

// maxImage bounds what is remembered of a memory. A guest of Go's has changed
// less than 1 MiB.
const maxImage = 8 << 20

// An Image is how a memory differs from one that is fresh. It may be used by
// several goroutines.
type Image struct {
	size  int // of the memory
	parts []part
}

type part struct {
	at   int
	data []byte
}

// Compare makes the image of a memory, beside the fresh one of another instance
// of the same module, which is at most as large. It keeps neither. ok is false
// where too much differs.
func Compare(fresh, now []byte) (m Image, ok bool) {
	m.size = len(now)
	var zero [partBytes]byte
	total := 0
	for at := 0; at < len(now); {
		end := at
		for end < len(now) {
			stop := min(end+partBytes, len(now))
			before := zero[:stop-end]
			if stop <= len(fresh) { // both are of whole pages
				before = fresh[end:stop]
			}
			if bytes.Equal(before, now[end:stop]) {
				break
			}
			end = stop
		}
		if end == at {
			at = min(at+partBytes, len(now))
			continue
		}
		if total += end - at; total > maxImage {
			return Image{}, false
		}
		m.parts = append(m.parts, part{at, bytes.Clone(now[at:end])})
		at = end
	}
	return m, true
}

// Size is the size of the memory, in bytes.
func (m *Image) Size() int { return m.size }

// Bytes is how much is remembered.
func (m *Image) Bytes() (n int) {
	for _, p := range m.parts {
		n += len(p.data)
	}
	return n
}

// Put makes a fresh memory what the other one was. It is as large as that.
func (m *Image) Put(memory []byte) {
	for _, p := range m.parts {
		copy(memory[p.at:], p.data)
	}
}
