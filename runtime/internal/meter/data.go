package meter

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

const (
	// manySegments is the number of data segments above which they are joined.
	// Go's linker writes tens of thousands, one for each run without zeros, and
	// an engine goes through all of them for each instance.
	manySegments = 64

	// joinGap is the most zeros, in bytes, that joining writes where two
	// segments do not touch.
	joinGap = 64
)

// joined is the data section with its segments joined, where that changes
// nothing that code can see: all segments are written at the beginning, at
// constant places and without overlaps, into memory that is zero otherwise;
// and nothing names a segment. nil: it stays as it is.
func joined(m *wasm.Module, contents []byte) []byte {
	if m.Data <= manySegments || hasSection(m, wasm.SectionDataCount) {
		return nil
	}
	d := dataReader{rest: contents}
	all := make([]segment, 0, m.Data)
	for range d.number() {
		if all = append(all, d.segment()); d.bad {
			return nil
		}
	}
	slices.SortStableFunc(all, func(a, b segment) int { return cmp.Compare(a.start, b.start) })
	few := all[:1:1]
	few[0].bytes = slices.Clip(few[0].bytes)
	for i := 1; i < len(all); i++ {
		last, next := &few[len(few)-1], all[i]
		switch gap := int64(next.start) - int64(last.end()); {
		case gap < 0:
			return nil
		case gap <= joinGap:
			last.bytes = append(append(last.bytes, make([]byte, gap)...), next.bytes...)
		default:
			next.bytes = slices.Clip(next.bytes)
			few = append(few, next)
		}
	}
	out := binary.AppendUvarint(make([]byte, 0, len(contents)), uint64(len(few)))
	for _, s := range few {
		out = append(out, 0, wasm.OpI32Const)
		out = append(appendSigned(out, int64(int32(s.start))), wasm.OpEnd)
		out = append(binary.AppendUvarint(out, uint64(len(s.bytes))), s.bytes...)
	}
	return out
}

// segment is bytes that go to a constant place.
type segment struct {
	start uint32
	bytes []byte
}

func (s *segment) end() uint64 { return uint64(s.start) + uint64(len(s.bytes)) }

func hasSection(m *wasm.Module, id byte) bool {
	for _, s := range m.Sections {
		if s.ID == id {
			return true
		}
	}
	return false
}

// dataReader reads segments that are active and at a constant place. Others
// make it bad.
type dataReader struct {
	rest []byte
	bad  bool
}

func (d *dataReader) number() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *dataReader) op(want byte) {
	if d.bad = d.bad || len(d.rest) == 0 || d.rest[0] != want; !d.bad {
		d.rest = d.rest[1:]
	}
}

// segment reads where a segment goes, and its bytes.
func (d *dataReader) segment() segment {
	d.op(0) // active, in the one memory
	d.op(wasm.OpI32Const)
	if d.bad {
		return segment{}
	}
	start := uint32(d.signed())
	d.op(wasm.OpEnd)
	n := d.number()
	if d.bad = d.bad || n > uint64(len(d.rest)); d.bad {
		return segment{}
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return segment{start, b}
}

// signed reads a signed LEB128 number of 32 bits, which has been decoded once.
func (d *dataReader) signed() int64 {
	var v int64
	for shift := 0; shift < 35; shift += 7 {
		if len(d.rest) == 0 {
			break
		}
		c := d.rest[0]
		d.rest = d.rest[1:]
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	d.bad = true
	return 0
}
