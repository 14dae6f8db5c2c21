package badger

import (
	db "github.com/dgraph-io/badger/v4"

	"github.com/dsh-agent/dsh"
)

// What the tests need of the inside.

// BodyFrom is the length of a line from which it goes to a file.
const BodyFrom = bodyFrom

// DB is the database of a log, to damage it.
func (l *Log) DB() *db.DB { return l.db }

// The keys, to damage what is under them.
func EventKey(id dsh.SessionID, seq uint64) []byte { return eventKey(id, seq) }
func RecordKey(id dsh.SessionID) []byte            { return recordKey(id) }
func RemovingKey(id dsh.SessionID) []byte          { return removingKey(id) }
func SchemaKey() []byte                            { return []byte(keySchema) }

// EncodeRecord makes the record of a session.
func EncodeRecord(id dsh.SessionID, h dsh.Head, epoch, order, pending uint64) []byte {
	r := record{head: h, epoch: epoch, order: order, pending: pending}
	return r.encode(id)
}

// DecodeRecord reads a record.
func DecodeRecord(id dsh.SessionID, b []byte) (h dsh.Head, epoch, order, pending uint64, err error) {
	r, err := decodeRecord(id, b)
	return r.head, r.epoch, r.order, r.pending, err
}

// ParseMark reads a line of the heads file and writes it again.
func ParseMark(line []byte) (again []byte, ok bool) {
	id, m, ok := parseMark(line, string(line))
	return appendMark(nil, id, m), ok
}

// ParseClosed reads the file "closed".
func ParseClosed(text string) bool { return parseClosed(text) != nil }

// SetFree sets what the committer takes for the free bytes. It is called before
// the first append.
func (l *Log) SetFree(free func() uint64) {
	l.free = func(string) (uint64, error) { return free(), nil }
}

// LogBytes is what the database's logs take, for the room that opening needs.
func LogBytes(base string) (uint64, error) {
	_, logs, err := listDatabase(base)
	return logs, err
}
