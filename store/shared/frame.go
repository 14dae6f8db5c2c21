package shared

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/dsh-agent/dsh"
)

// protocol is the version of what is said on the socket.
const protocol = 1

// The kinds of frames.
const (
	frameHello   = 'h' // client: a hello
	frameWelcome = 'w' // keeper: a welcome
	frameAppend  = 'a' // client: number, events; answered when durable
	frameQueue   = 'q' // client: events of relaxed types; not answered
	frameSync    = 's' // client: number
	frameRelease = 'r' // client: number
	frameKeep    = 'k' // client: number, snapshot
	frameDone    = 'd' // keeper: number; of an append, a sync or a release
	frameFailed  = 'f' // keeper: number, failure
	frameGranted = 'g' // keeper: a grant
	frameEvent   = 'e' // keeper: a line
	frameHead    = 't' // keeper: a head
	frameKept    = 'p' // keeper: a snapshot
	frameDamage  = 'x' // keeper: a failure after which a list goes on
	frameEnd     = 'z' // keeper: the end of what was asked for
)

// What a hello asks for.
const (
	opAcquire = "acquire"
	opRead    = "read"
	opFollow  = "follow"
	opHead    = "head"
	opHeads   = "heads"
	opKept    = "snapshot"
	opRemove  = "remove"
	opPing    = "ping"
)

// A hello begins a connection.
type hello struct {
	Protocol int           `json:"protocol"`
	PID      int           `json:"pid"`
	Dir      string        `json:"dir"`
	Op       string        `json:"op"`
	Session  dsh.SessionID `json:"session,omitempty"`
	After    uint64        `json:"after,omitempty"`
}

// A welcome answers a hello. The keeper of another version says so with its
// own, and closes.
type welcome struct {
	Protocol int `json:"protocol"`
	PID      int `json:"pid"`
}

// A grant answers an acquire.
type grant struct {
	Epoch uint64   `json:"epoch"`
	Tail  dsh.Tail `json:"tail"`
}

// The ceilings of a connection.
const (
	maxFrame = 256 << 20 // bytes; an append is one frame
	chunk    = 64 << 10  // that is read at a time

	// defaultSilence is how long one side takes to answer, or to take what it
	// is sent. An answer may wait for a slow disk.
	defaultSilence = 30 * time.Second

	// slow is how long an answer takes of which the user is told.
	slow = 3 * time.Second
)

var errFrame = errors.New("a frame that is too long or has no kind")

// A wire is one connection, seen from either side. It is for one goroutine.
type wire struct {
	conn *net.UnixConn
	in   []byte // what was read and not taken yet
	out  []byte // what is to be sent
	pid  int    // of the other side

	silence time.Duration // that the other side is granted
	slow    func()        // told that it takes its time; nil on the keeper's side
}

// next gives the next frame. A read that ran into a deadline can be gone on
// with. The body is the caller's.
func (w *wire) next() (kind byte, body []byte, err error) {
	for {
		if kind, body, err = w.take(); kind != 0 || err != nil {
			return kind, body, err
		}
		if err := w.fill(); err != nil {
			return 0, nil, err
		}
	}
}

// take gives the next frame if all of it was read, and kind 0 if not.
func (w *wire) take() (kind byte, body []byte, err error) {
	if len(w.in) < 4 {
		return 0, nil, nil
	}
	n := binary.BigEndian.Uint32(w.in)
	if n == 0 || n > maxFrame {
		return 0, nil, errFrame
	}
	if uint64(len(w.in)) < 4+uint64(n) {
		return 0, nil, nil
	}
	if kind = w.in[4]; kind == 0 {
		return 0, nil, errFrame
	}
	body = bytes.Clone(w.in[5 : 4+n])
	w.in = w.in[4+n:]
	return kind, body, nil
}

// fill reads more. What is there already moves to the front when there is no
// room behind it.
func (w *wire) fill() error {
	if cap(w.in)-len(w.in) < chunk/2 {
		grown := make([]byte, len(w.in), max(chunk, 2*len(w.in)))
		copy(grown, w.in)
		w.in = grown
	}
	n, err := w.conn.Read(w.in[len(w.in):cap(w.in)])
	w.in = w.in[:len(w.in)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// put adds a frame to what is to be sent.
func (w *wire) put(kind byte, parts ...[]byte) {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(n))
	w.out = append(w.out, kind)
	for _, p := range parts {
		w.out = append(w.out, p...)
	}
}

// putJSON adds a frame whose body is a value of this package.
func (w *wire) putJSON(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		w.put(kind, b)
	}
	return err
}

// flush sends what was put. The other side has to take it in time.
func (w *wire) flush() error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(w.silence)); err != nil {
		return err
	}
	_, err := w.conn.Write(w.out)
	w.out = w.out[:0]
	if cap(w.out) > 4*chunk {
		w.out = nil
	}
	return err
}

// room sends what was put when there is much of it.
func (w *wire) room() error {
	if len(w.out) < chunk {
		return nil
	}
	return w.flush()
}

// numbered takes the number off a frame's front.
func numbered(body []byte) (n uint64, rest []byte, err error) {
	if len(body) < 8 {
		return 0, nil, errFrame
	}
	return binary.BigEndian.Uint64(body), body[8:], nil
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// packEvents puts lines behind each other, each after its length.
func packEvents(events []dsh.Event) ([]byte, error) {
	n := 0
	for _, e := range events {
		n += len(e.Line()) + binary.MaxVarintLen32
	}
	if n > maxFrame-chunk {
		return nil, fmt.Errorf("an append of %d MiB is too large for another process's log: %d are allowed", n>>20, maxFrame>>20)
	}
	b := make([]byte, 0, n)
	for _, e := range events {
		b = binary.AppendUvarint(b, uint64(len(e.Line())))
		b = append(b, e.Line()...)
	}
	return b, nil
}

func unpackEvents(b []byte) ([]dsh.Event, error) {
	var events []dsh.Event
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return nil, errFrame
		}
		e, err := dsh.ParseEvent(b[k : k+int(n)])
		if err != nil {
			return nil, err
		}
		events = append(events, e)
		b = b[k+int(n):]
	}
	return events, nil
}

// packHead writes a head. It is no JSON because there may be 100,000 of them.
func packHead(h dsh.Head) []byte {
	b := make([]byte, 0, 128+len(h.Title)+len(h.Cwd))
	for _, n := range []uint64{uint64(h.StartedAt), uint64(h.UpdatedAt), uint64(h.Turns), uint64(h.Attempts), uint64(h.Retries), h.Seq} {
		b = binary.AppendUvarint(b, n)
	}
	for _, s := range []string{string(h.ID), h.Title, h.Cwd, string(h.State), string(h.LastFailure), h.Hash} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

func unpackHead(b []byte) (h dsh.Head, err error) {
	var numbers [6]uint64
	for i := range numbers {
		n, k := binary.Uvarint(b)
		if k <= 0 {
			return h, errFrame
		}
		numbers[i], b = n, b[k:]
	}
	var texts [6]string
	for i := range texts {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return h, errFrame
		}
		texts[i], b = string(b[k:k+int(n)]), b[k+int(n):]
	}
	if len(b) > 0 {
		return h, errFrame
	}
	return dsh.Head{
		StartedAt: int64(numbers[0]), UpdatedAt: int64(numbers[1]), Turns: int(numbers[2]), Attempts: int(numbers[3]), Retries: int(numbers[4]), Seq: numbers[5],
		ID: dsh.SessionID(texts[0]), Title: texts[1], Cwd: texts[2], State: dsh.State(texts[3]), LastFailure: dsh.Code(texts[4]), Hash: texts[5],
	}, nil
}

// packSnapshot puts a snapshot's place before its data.
func packSnapshot(s dsh.Snapshot) []byte {
	b := make([]byte, 0, 8+1+len(s.Tail.Hash)+len(s.Data))
	b = append(b, number(s.Tail.Seq)...)
	b = append(append(b, byte(len(s.Tail.Hash))), s.Tail.Hash...)
	return append(b, s.Data...)
}

func unpackSnapshot(b []byte) (dsh.Snapshot, error) {
	seq, b, err := numbered(b)
	if err != nil || len(b) == 0 || len(b)-1 < int(b[0]) {
		return dsh.Snapshot{}, errFrame
	}
	n := 1 + int(b[0])
	s := dsh.Snapshot{Tail: dsh.Tail{Seq: seq, Hash: string(b[1:n])}}
	if len(b) > n {
		s.Data = b[n:]
	}
	return s, nil
}
