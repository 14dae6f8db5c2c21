package wasm

import (
	"fmt"
	"unicode/utf8"

	"github.com/dsh-agent/dsh/hostabi"
)

// reader reads the primitives of the binary format. The first error sticks,
// and every later read gives zero. It never allocates more than it has bytes.
type reader struct {
	b   []byte
	off int
	err *Refusal
}

func (r *reader) done() bool { return r.err != nil || r.off >= len(r.b) }

func (r *reader) left() int { return len(r.b) - r.off }

func (r *reader) fail(format string, args ...any) {
	r.stop(refuse(RuleFormat, format, args...))
}

func (r *reader) stop(err *Refusal) {
	if r.err == nil {
		r.err = err
	}
}

// end reports an error, or bytes that nothing has asked for.
func (r *reader) end() *Refusal {
	if r.err == nil && r.off != len(r.b) {
		r.fail("%d bytes are left over at its end", r.left())
	}
	return r.err
}

func (r *reader) byte() byte {
	if r.err != nil || r.off >= len(r.b) {
		r.fail("it ends too early")
		return 0
	}
	r.off++
	return r.b[r.off-1]
}

// u32 reads an unsigned LEB128 number of 32 bits.
func (r *reader) u32() uint32 {
	if r.err == nil && r.off < len(r.b) && r.b[r.off] < 0x80 {
		r.off++
		return uint32(r.b[r.off-1])
	}
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		if shift == 28 && b > 0x0f {
			break
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.fail("a number of more than 32 bits")
	return 0
}

// signed skips a signed LEB128 number of the given bits.
func (r *reader) signed(bits int) int64 {
	var v int64
	for shift := 0; shift < bits; shift += 7 {
		b := r.byte()
		v |= int64(b&0x7f) << shift
		if b >= 0x80 {
			continue
		}
		rest := bits - shift // the bits that the last byte may carry
		if rest < 7 {
			top := int8(b<<1) >> rest // the sign, and all bits above it
			if top != 0 && top != -1 {
				break
			}
		}
		if shift+7 < 64 && b&0x40 != 0 {
			v |= -1 << (shift + 7)
		}
		return v
	}
	r.fail("a number of more than %d bits", bits)
	return 0
}

func (r *reader) take(n uint32) []byte {
	if r.err == nil && uint64(n) > uint64(r.left()) {
		r.fail("it says that it has %d bytes, and %d are left", n, r.left())
	}
	if r.err != nil {
		return nil
	}
	r.off += int(n)
	return r.b[r.off-int(n) : r.off]
}

func (r *reader) skip(n int) {
	if r.err == nil && n > r.left() {
		r.fail("it ends too early")
	}
	if r.err == nil {
		r.off += n
	}
}

// name reads a name. It is a view of the module's bytes until it is kept.
func (r *reader) name() []byte {
	b := r.take(r.u32())
	if r.err == nil && !utf8.Valid(b) {
		r.fail("a name that is not UTF-8")
		return nil
	}
	return b
}

// count reads how many things of at least so many bytes each follow. It fails
// where the bytes that are left cannot hold them, and where they are too many.
func (r *reader) count(rule Rule, things string, limit, each int) int {
	n := r.u32()
	switch {
	case r.err != nil:
	case uint64(n) > uint64(limit):
		r.stop(tooMany(rule, uint64(n), uint64(limit), things))
	case uint64(n)*uint64(each) > uint64(r.left()):
		r.fail("it says that it has %d %s, and only %d bytes follow", n, things, r.left())
	default:
		return int(n)
	}
	return 0
}

// valueType reads the type of a value.
func (r *reader) valueType() hostabi.ValueType {
	b := r.byte()
	if r.err == nil && !plainType(b) {
		r.stop(badType(b))
	}
	return hostabi.ValueType(b)
}

func plainType(b byte) bool { return b >= 0x7c && b <= 0x7f || isRef(b) }

// The reference types that there are without the proposals that add more.
const (
	typeFuncref   = 0x70
	typeExternref = 0x6f
)

func isRef(b byte) bool { return b == typeFuncref || b == typeExternref }

func badType(b byte) *Refusal {
	feature := ""
	switch {
	case b == 0x7b:
		feature = "SIMD"
	case b == 0x69 || b == 0x74:
		feature = "exceptions"
	case b == 0x63 || b == 0x64:
		feature = "typed function references"
	case b >= 0x6a && b <= 0x73:
		feature = "garbage collection"
	default:
		return refuse(RuleFormat, "a value of the unknown type 0x%02x", b)
	}
	return unsupported(feature, fmt.Sprintf("type 0x%02x", b))
}

// unsupported is the refusal of a proposal.
func unsupported(feature, what string) *Refusal {
	return refuse(RuleFeature, "uses %s (%s), which is not supported", feature, what)
}

// limits reads the limits of a memory or a table.
func (r *reader) limits() (l Limits) {
	flags := r.byte()
	switch {
	case r.err != nil:
	case flags > 7:
		r.fail("limits with the unknown flags 0x%x", flags)
	case flags&2 != 0:
		r.stop(unsupported("threads", "a shared memory"))
	case flags&4 != 0:
		r.stop(unsupported("64-bit memories", "limits of 64 bits"))
	}
	l.Min = r.u32()
	if l.HasMax = flags&1 != 0; l.HasMax {
		l.Max = r.u32()
	}
	if r.err == nil && l.HasMax && l.Max < l.Min {
		r.fail("limits whose least, %d, is above their most, %d", l.Min, l.Max)
	}
	return l
}
