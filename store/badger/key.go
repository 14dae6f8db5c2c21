package badger

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"unicode/utf8"

	"github.com/dsh-agent/dsh"
)

// The keys. A session's id holds no '|', so that no prefix of one session is
// one of another.
//
//	e|SESSION|SEQ   an event: its line, or a bodyRef
//	s|SESSION       its record
//	d|SESSION       the session is being removed
//	b|SHA|SESSION|SEQ  an event whose line is in a body
//	m|schema        the version of all this
const (
	prefixEvent    = "e|"
	prefixRecord   = "s|"
	prefixRemoving = "d|"
	prefixBody     = "b|"
	keySchema      = "m|schema"
)

// formatSchema is the version of the keys and records of this package.
const formatSchema = 1

func eventPrefix(id dsh.SessionID) []byte { return []byte(prefixEvent + string(id) + "|") }

func eventKey(id dsh.SessionID, seq uint64) []byte {
	k := make([]byte, 0, len(prefixEvent)+len(id)+9)
	k = append(k, prefixEvent...)
	k = append(k, id...)
	k = append(k, '|')
	return binary.BigEndian.AppendUint64(k, seq)
}

func recordKey(id dsh.SessionID) []byte   { return []byte(prefixRecord + string(id)) }
func removingKey(id dsh.SessionID) []byte { return []byte(prefixRemoving + string(id)) }

func bodyPrefix(sum string) []byte { return []byte(prefixBody + sum + "|") }

func bodyKey(sum string, id dsh.SessionID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(append(bodyPrefix(sum), id...), '|'), seq)
}

// maxID keeps keys far below the 65,000 bytes that Badger takes.
const maxID = 128

// validID reports whether an id can be a session's: lower-case letters, digits
// and dashes.
func validID(id dsh.SessionID) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// A record is what the database keeps of a session beside its events, written
// in the transaction of its last ones.
type record struct {
	head  dsh.Head
	epoch uint64 // acquisitions so far
	order uint64 // grows with every append to the log: sorts sessions by their last one

	// pending is the last event of an append that took several transactions
	// and is not complete: events after head.Seq up to it do not count. 0: none.
	pending uint64
}

// recordFormat is the first byte of a record after its checksum.
const recordFormat = 1

// maxText cuts a title or a working folder in a record, which has to stay far
// below what a transaction takes.
const maxText = 4 << 10

var errRecord = errors.New("its head record is damaged")

// encode writes a record. It is no JSON because lists of 100,000 sessions are
// read in one go.
func (r *record) encode(id dsh.SessionID) []byte {
	h := &r.head
	b := make([]byte, 4, 160+len(h.Title)+len(h.Cwd))
	b = append(b, recordFormat)
	for _, n := range []uint64{r.epoch, r.order, r.pending, uint64(h.StartedAt), uint64(h.UpdatedAt),
		uint64(h.Turns), uint64(h.Attempts), uint64(h.Retries), h.Seq} {
		b = binary.AppendUvarint(b, n)
	}
	for _, s := range []string{h.Hash, string(h.State), string(h.LastFailure), string(h.ID), cut(h.Title), cut(h.Cwd)} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	binary.BigEndian.PutUint32(b, recordSum(id, b[4:]))
	return b
}

// recordSum covers the key too: a record that was found under another
// session's key is none.
func recordSum(id dsh.SessionID, b []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(id)), crc32.IEEETable, b)
}

func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	s = s[:maxText]
	for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) {
		s = s[:len(s)-1]
	}
	return s
}

func decodeRecord(id dsh.SessionID, b []byte) (record, error) {
	if len(b) < 5 || binary.BigEndian.Uint32(b) != recordSum(id, b[4:]) {
		return record{}, errRecord
	}
	if b[4] != recordFormat {
		return record{}, &dsh.SchemaError{Have: int(b[4]), Max: recordFormat}
	}
	d := decoder{rest: string(b[5:])} // of which the texts are parts
	var r record
	h := &r.head
	r.epoch, r.order, r.pending = d.number(), d.number(), d.number()
	h.StartedAt, h.UpdatedAt = int64(d.number()), int64(d.number())
	h.Turns, h.Attempts, h.Retries = int(d.number()), int(d.number()), int(d.number())
	h.Seq = d.number()
	h.Hash, h.State, h.LastFailure = d.text(), dsh.State(d.text()), dsh.Code(d.text())
	h.ID, h.Title, h.Cwd = dsh.SessionID(d.text()), d.text(), d.text()
	if d.bad || len(d.rest) > 0 {
		return record{}, errRecord
	}
	return r, nil
}

// A decoder takes numbers and texts off the front of rest.
type decoder struct {
	rest string
	bad  bool
}

// number reads what binary.AppendUvarint wrote, and nothing else.
func (d *decoder) number() (n uint64) {
	for shift := 0; shift < 64; shift += 7 {
		if shift/7 >= len(d.rest) {
			break
		}
		c := d.rest[shift/7]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			d.rest = d.rest[shift/7+1:]
			return n
		}
	}
	d.bad = true
	return 0
}

func (d *decoder) text() string {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}
