package dsh

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Schema is the version of the log that this package writes, and the highest
// that it reads.
const Schema = 1

// An Event is one line of a session's log. Its bytes are what was written:
// unknown types and fields survive a read, a copy and an export.
//
// Events are made by [Tail.Seal] and [ParseEvent] and are not to be changed.
type Event struct {
	Seq     uint64          // 1, 2, 3, … without a gap
	At      int64           // Unix time in ms
	Type    EventType       // may be one that this package does not know
	Data    json.RawMessage // an object
	Surface *SurfaceOp      // nil: the model never sees it
	Hash    string          // of the chain up to this event, 32 hex digits

	line []byte
}

// Line is the event as it stands in the log, one JSON object without a line
// end. It is not to be changed.
func (e Event) Line() []byte { return e.line }

// Time is At as a time.
func (e Event) Time() time.Time { return time.UnixMilli(e.At) }

// Decode reads the event's data into v, which is a pointer to one of the
// payloads of this package.
func (e Event) Decode(v any) error {
	if err := json.Unmarshal(e.Data, v); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

// Tail is the event's place in the chain, onto which the next one is sealed.
func (e Event) Tail() Tail { return Tail{e.Seq, e.Hash} }

// A SurfaceOp says how an event changes what the model sees. Op "append" adds
// the event at the end; "replace" puts it in the place of all that stands from
// event From to event To on the surface now.
type SurfaceOp struct {
	Op   string `json:"op"`
	From uint64 `json:"from,omitempty"`
	To   uint64 `json:"to,omitempty"`
}

// The surface operations.
const (
	SurfaceAppend  = "append"
	SurfaceReplace = "replace"
)

// A Tail is the end of a session's chain. The zero value is the end of an
// empty session.
type Tail struct {
	Seq  uint64
	Hash string
}

// A Draft is an event that has no place in a log yet. Data is marshalled.
type Draft struct {
	Type    EventType
	Data    any
	Surface *SurfaceOp
}

// hashMark stands before the hash in a line, and hashSize is the number of hex
// digits of it: the first 16 bytes of SHA-256.
const (
	hashMark = `,"hash":"`
	hashSize = 32
)

// Seal makes a draft the next event after t, at the time at.
func (t Tail) Seal(at time.Time, d Draft) (Event, error) {
	data, err := JSON(d.Data)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", d.Type, err)
	}
	if d.Type == "" || data[0] != '{' {
		return Event{}, fmt.Errorf("event %q: it needs a type, and data that is an object", d.Type)
	}
	name, err := JSON(d.Type)
	if err != nil {
		return Event{}, err
	}
	e := Event{Seq: t.Seq + 1, At: at.UnixMilli(), Type: d.Type, Data: data, Surface: d.Surface}
	line := make([]byte, 0, len(data)+160)
	line = append(line, `{"seq":`...)
	line = strconv.AppendUint(line, e.Seq, 10)
	line = append(line, `,"at":`...)
	line = strconv.AppendInt(line, e.At, 10)
	line = append(line, `,"type":`...)
	line = append(line, name...)
	line = append(line, `,"data":`...)
	line = append(line, data...)
	if d.Surface != nil {
		op, err := JSON(d.Surface)
		if err != nil {
			return Event{}, err
		}
		line = append(append(line, `,"surface":`...), op...)
	}
	e.Hash = chain(t.Hash, line)
	e.line = append(append(append(line, hashMark...), e.Hash...), `"}`...)
	return e, nil
}

// SealAll seals drafts one after the other, all at one time.
func (t Tail) SealAll(at time.Time, drafts ...Draft) ([]Event, error) {
	events := make([]Event, 0, len(drafts))
	for _, d := range drafts {
		e, err := t.Seal(at, d)
		if err != nil {
			return nil, err
		}
		events = append(events, e)
		t = e.Tail()
	}
	return events, nil
}

func chain(previous string, head []byte) string {
	h := sha256.New()
	h.Write([]byte(previous))
	h.Write(head)
	return hex.EncodeToString(h.Sum(nil)[:hashSize/2])
}

// ParseEvent reads a line of a log. It keeps the line, without copying it. It
// does not look at the chain: that is [Tail.Check].
func ParseEvent(line []byte) (Event, error) {
	line = bytes.TrimSpace(line)
	_, hash, err := splitHash(line)
	if err != nil {
		return Event{}, err
	}
	var j struct {
		Seq     *uint64         `json:"seq"`
		At      int64           `json:"at"`
		Type    EventType       `json:"type"`
		Data    json.RawMessage `json:"data"`
		Surface *SurfaceOp      `json:"surface"`
	}
	if err := json.Unmarshal(line, &j); err != nil {
		return Event{}, fmt.Errorf("not an event: %w", err)
	}
	switch {
	case j.Seq == nil || *j.Seq == 0:
		return Event{}, fmt.Errorf("not an event: no seq")
	case j.Type == "":
		return Event{}, fmt.Errorf("event %d: no type", *j.Seq)
	case len(j.Data) == 0 || j.Data[0] != '{':
		return Event{}, fmt.Errorf("event %d: data is no object", *j.Seq)
	}
	return Event{Seq: *j.Seq, At: j.At, Type: j.Type, Data: j.Data, Surface: j.Surface, Hash: hash, line: line}, nil
}

// splitHash finds the hash, which is the last field of a line.
func splitHash(line []byte) (head []byte, hash string, err error) {
	k := len(line) - len(hashMark) - hashSize - len(`"}`)
	if k < 1 || !bytes.HasPrefix(line[k:], []byte(hashMark)) || !bytes.HasSuffix(line, []byte(`"}`)) {
		return nil, "", fmt.Errorf("not an event: it does not end in a hash")
	}
	hash = string(line[k+len(hashMark) : len(line)-len(`"}`)])
	if _, err := hex.DecodeString(hash); err != nil {
		return nil, "", fmt.Errorf("not an event: its hash is not hex")
	}
	return line[:k], hash, nil
}

// Check reports whether e is what follows t: the next seq, and a hash that
// fits. Its error is a *DamageError without a session.
func (t Tail) Check(e Event) error {
	if e.Seq != t.Seq+1 {
		return &DamageError{Seq: t.Seq + 1, Reason: fmt.Sprintf("event %d follows event %d", e.Seq, t.Seq)}
	}
	head, hash, err := splitHash(e.line)
	if err != nil {
		return &DamageError{Seq: e.Seq, Reason: err.Error()}
	}
	if want := chain(t.Hash, head); want != hash {
		return &DamageError{Seq: e.Seq, Reason: fmt.Sprintf("hash %s, want %s", hash, want)}
	}
	return nil
}
