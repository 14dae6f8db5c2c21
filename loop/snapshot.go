package loop

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dsh-agent/dsh"
)

// A snapshot is the fold of a session at rest, so that a long one is opened
// without reading all of it. The log stays the only state: a snapshot counts
// only while the event that it names stands in the log with its hash, and one
// that does not is as good as none.

// snapshotVersion is to be raised whenever the fold makes something else of the
// same events, or this file writes it in another way.
const snapshotVersion = 2

// snapshotEvery is how many bytes of log are read rather than kept. Folding as
// much takes a few ms.
const snapshotEvery = 256 << 10

// snapshotHead is all of a state at rest but the surface.
type snapshotHead struct {
	Version int                `json:"version"`
	Start   dsh.SessionStart   `json:"start"`
	Header  *dsh.RequestHeader `json:"header,omitempty"`
	Refs    []dsh.PolicyRef    `json:"refs"`
	Gen     int                `json:"gen"`
	Turn    int                `json:"turn"`
	Manual  bool               `json:"manual,omitempty"`
	End     dsh.EndReason      `json:"end"`
	Work    int                `json:"work,omitempty"` // 0: no turn but compactions
	WorkEnd dsh.EndReason      `json:"workEnd"`
	Counted uint64             `json:"counted,omitempty"` // the anchor
	Rate    float64            `json:"rate,omitempty"`
	Memory  map[string]memory  `json:"memory,omitempty"`
	Entries int                `json:"entries"`
	Blocks  int                `json:"blocks"` // of all entries
}

// encode writes a state in which no turn is open.
func (s *state) encode() ([]byte, error) {
	h := snapshotHead{
		Version: snapshotVersion, Start: s.start, Header: s.header, Refs: s.refs, Gen: s.gen,
		Turn: s.turn.n, Manual: s.turn.manual, End: *s.turn.end,
		Counted: s.anchor.seq, Rate: s.anchor.rate, Memory: s.memories, Entries: len(s.surface),
	}
	for _, en := range s.surface {
		h.Blocks += len(en.message.Content)
	}
	if s.work != nil {
		h.Work, h.WorkEnd = s.work.turn, s.work.end
	}
	head, err := dsh.JSON(h)
	if err != nil {
		return nil, err
	}
	b := packed{}
	b.bytes(head)
	for _, en := range s.surface {
		b.number(en.seq)
		b.number(uint64(en.size))
		b.string(en.provider)
		b.string(en.model)
		b.string(string(en.message.Role))
		b.blocks(en.message.Content)
	}
	return b, nil
}

// decodeState reads what encode has written of the state at a tail.
func decodeState(snapshot dsh.Snapshot) (state, error) {
	r := unpacking{rest: string(snapshot.Data)}
	var h snapshotHead
	if err := json.Unmarshal([]byte(r.string()), &h); err != nil {
		return state{}, err
	}
	if h.Version != snapshotVersion {
		return state{}, fmt.Errorf("a snapshot of version %d, and this is version %d", h.Version, snapshotVersion)
	}
	if h.Entries < 0 || h.Entries > len(r.rest) || h.Blocks < 0 || h.Blocks > len(r.rest) {
		return state{}, errPacked
	}
	r.free = make([]dsh.Block, h.Blocks)
	s := state{
		start: h.Start, tail: snapshot.Tail, header: h.Header, refs: h.Refs, gen: h.Gen,
		turn: &turn{n: h.Turn, manual: h.Manual, end: &h.End}, anchor: anchor{h.Counted, h.Rate},
		surface: make([]entry, h.Entries), memories: h.Memory,
	}
	if h.Work > 0 {
		s.work = &work{h.Work, h.WorkEnd}
	}
	for i := range s.surface {
		en := &s.surface[i]
		en.seq, en.size = r.number(), int(r.number())
		en.provider, en.model, en.message.Role = r.string(), r.string(), dsh.Role(r.string())
		en.message.Content = r.blocks(0)
	}
	if r.bad || r.rest != "" {
		return state{}, errPacked
	}
	return s, nil
}

// packed are numbers and strings one after the other, each string behind its
// length.
type packed []byte

func (b *packed) number(n uint64) { *b = binary.AppendUvarint(*b, n) }

func (b *packed) string(s string) {
	b.number(uint64(len(s)))
	*b = append(*b, s...)
}

func (b *packed) bytes(p []byte) {
	b.number(uint64(len(p)))
	*b = append(*b, p...)
}

func (b *packed) blocks(blocks []dsh.Block) {
	if blocks == nil {
		b.number(0)
		return
	}
	b.number(uint64(len(blocks)) + 1)
	for _, c := range blocks {
		b.string(string(c.Type))
		b.string(c.Text)
		b.bytes(c.Opaque)
		b.string(c.ID)
		b.string(c.Name)
		b.string(c.Arguments)
		b.string(c.CallID)
		b.blocks(c.Content)
		b.number(map[bool]uint64{true: 1}[c.IsError])
		b.string(c.MediaType)
		b.bytes(c.Data)
	}
}

// maxDepth is how deep blocks are in others: a tool's result has some, and
// those have none.
const maxDepth = 2

var errPacked = errors.New("a snapshot that is not whole")

// unpacking reads what packed holds. Its strings are parts of one; it is bad
// from the first thing on that does not fit.
type unpacking struct {
	rest string
	bad  bool
	free []dsh.Block // for what is read: one allocation serves a whole surface
}

func (r *unpacking) number() uint64 {
	var n uint64
	for i := 0; i < len(r.rest) && i < binary.MaxVarintLen64; i++ {
		c := r.rest[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			r.rest = r.rest[i+1:]
			return n
		}
	}
	r.bad, r.rest = true, ""
	return 0
}

func (r *unpacking) string() string {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// bytes are nil where there are none.
func (r *unpacking) bytes() []byte {
	if s := r.string(); s != "" {
		return []byte(s)
	}
	return nil
}

func (r *unpacking) take(n int) []dsh.Block {
	if n > len(r.free) {
		return make([]dsh.Block, n)
	}
	blocks := r.free[:n:n]
	r.free = r.free[n:]
	return blocks
}

// blocks reads blocks that are so deep in others.
func (r *unpacking) blocks(depth int) []dsh.Block {
	n := r.number()
	if n > uint64(len(r.rest)) || depth > maxDepth {
		r.bad, r.rest = true, ""
	}
	if n == 0 || r.bad {
		return nil
	}
	blocks := r.take(int(n - 1))
	for i := range blocks {
		blocks[i] = dsh.Block{
			Type: dsh.BlockType(r.string()), Text: r.string(), Opaque: r.bytes(),
			ID: r.string(), Name: r.string(), Arguments: r.string(),
			CallID: r.string(), Content: r.blocks(depth + 1), IsError: r.number() == 1,
			MediaType: r.string(), Data: r.bytes(),
		}
	}
	return blocks
}

// restore begins the fold with the session's snapshot, if there is one that the
// log confirms. Whatever is wrong with one, the fold then begins at the first
// event.
func (s *Session) restore(ctx context.Context, log dsh.Log, id dsh.SessionID) {
	snapshot, err := log.Snapshot(ctx, id)
	if err != nil || snapshot.Tail.Seq == 0 {
		return
	}
	state, err := decodeState(snapshot)
	if err != nil || state.start.ID != id {
		return
	}
	for e, err := range log.Read(ctx, id, snapshot.Tail.Seq-1) {
		if err == nil && e.Tail() == snapshot.Tail {
			s.state, s.kept = state, len(snapshot.Data)
		}
		return
	}
}

// keep makes a snapshot of the session where no turn is open and enough has
// come since the last one: as much as that was long, so that keeping a long
// surface costs no more than reading it once. A snapshot that cannot be kept is
// no loss, so that nobody is told.
func (s *Session) keep(ctx context.Context) {
	if s.fresh < max(snapshotEvery, s.kept) || s.state.turn == nil || s.state.open() {
		return
	}
	data, err := s.state.encode()
	if err != nil {
		return
	}
	s.fresh, s.kept = 0, len(data)
	_ = s.writer.KeepSnapshot(context.WithoutCancel(ctx), dsh.Snapshot{Tail: s.state.tail, Data: data})
}
