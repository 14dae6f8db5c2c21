package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// A cell is a value of a policy's memory. A null is a value that was taken
// away.
type cell struct {
	Value   json.RawMessage `json:"value"`
	Version uint64          `json:"version"`
}

func (c cell) empty() bool { return len(c.Value) == 0 || string(c.Value) == "null" }

// A memory is what one policy keeps in one scope, by key.
type memory map[string]cell

// store folds a policy/state in. The memory may be nil.
func (m *memory) store(d dsh.PolicyState) {
	if *m == nil {
		*m = memory{}
	}
	(*m)[d.Key] = cell{d.Value, d.Version}
}

// next is what a put makes of the memory, or why it makes nothing of it.
func (m memory) next(p hostabi.StatePut) (dsh.PolicyState, error) {
	old := m[p.Key]
	if p.Version != nil && uint64(*p.Version) != old.Version {
		return dsh.PolicyState{}, &dsh.HostError{Code: hostabi.CodeConflict, Message: fmt.Sprintf("version %d was expected, and %q has version %d", *p.Version, p.Key, old.Version)}
	}
	next := cell{p.Value, old.Version + 1}
	if old.empty() && !next.empty() && m.keys() >= hostabi.MaxKeys {
		return dsh.PolicyState{}, &dsh.HostError{Code: hostabi.CodeTooMany, Message: fmt.Sprintf("%d keys hold a value, which is the most: put a null where one is not needed", hostabi.MaxKeys)}
	}
	return dsh.PolicyState{Scope: p.Scope, Key: p.Key, Value: next.Value, Version: next.Version}, nil
}

// keys counts the keys that hold a value.
func (m memory) keys() int {
	n := 0
	for _, c := range m {
		if !c.empty() {
			n++
		}
	}
	return n
}

// answer is a value as a policy is told it.
func (m memory) answer(key string) hostabi.StateAnswer {
	c := m[key]
	if c.empty() {
		c.Value = json.RawMessage("null")
	}
	return hostabi.StateAnswer{Value: c.Value, Version: c.Version}
}

// applyMemory folds a value of this session's memory in. In the session of a
// shared memory it is the shared one.
func (s *state) applyMemory(e dsh.Event) error {
	var d dsh.PolicyState
	if err := e.Decode(&d); err != nil {
		return err
	}
	m := s.memories[d.Policy]
	if d.Version != m[d.Key].Version+1 {
		return &InvariantError{e.Seq, fmt.Sprintf("version %d of %q follows version %d", d.Version, d.Key, m[d.Key].Version)}
	}
	m.store(d)
	if s.memories == nil {
		s.memories = map[string]memory{}
	}
	s.memories[d.Policy] = m
	return nil
}

// A sharedMemory is what was read of the memory that a policy shares between
// sessions, and up to where.
type sharedMemory struct {
	id    dsh.SessionID
	state state
	since int // events since the last snapshot
}

// sharedSnapshotEvery is after how many values a snapshot is kept, so that
// the first look of a process does not read all that was ever stored.
const sharedSnapshotEvery = 256

// refresh reads what was stored since.
func (m *sharedMemory) refresh(ctx context.Context, log dsh.Log) error {
	head, err := log.Head(ctx, m.id)
	switch {
	case errors.Is(err, dsh.ErrNoSession):
		m.state, m.since = state{}, 0
		return nil
	case err != nil:
		return err
	case head.Tail() == m.state.tail:
		return nil
	case head.Seq <= m.state.tail.Seq: // it was removed and made again
		m.state, m.since = state{}, 0
	}
	if m.state.tail.Seq == 0 {
		m.restore(ctx, log)
	}
	for e, err := range log.Read(ctx, m.id, m.state.tail.Seq) {
		if err != nil {
			return err
		}
		if m.state.tail.Seq > 0 && m.state.tail.Check(e) != nil {
			m.state, m.since = state{}, 0
			return m.refresh(ctx, log)
		}
		if err := m.state.apply(e); err != nil {
			return fmt.Errorf("session %s: %w", m.id, err)
		}
		m.since++
	}
	return nil
}

// restore begins with the snapshot, if there is one that the log confirms.
func (m *sharedMemory) restore(ctx context.Context, log dsh.Log) {
	snapshot, err := log.Snapshot(ctx, m.id)
	if err != nil || snapshot.Tail.Seq == 0 {
		return
	}
	var memories map[string]memory
	if json.Unmarshal(snapshot.Data, &memories) != nil {
		return
	}
	for e, err := range log.Read(ctx, m.id, snapshot.Tail.Seq-1) {
		if err == nil && e.Tail() == snapshot.Tail {
			m.state = state{tail: snapshot.Tail, memories: memories}
		}
		return
	}
}

// put stores a value, unless its version is another one by then. It waits for
// other writers until ctx ends.
func (m *sharedMemory) put(ctx context.Context, log dsh.Log, policy string, p hostabi.StatePut, of dsh.PolicyState) (uint64, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		version, err := m.tryPut(ctx, log, policy, p, of)
		var held *dsh.HeldError
		var conflict *dsh.ConflictError
		if !errors.As(err, &held) && !errors.As(err, &conflict) && !errors.Is(err, dsh.ErrStale) {
			return version, err
		}
		// Several that wait are not to try at the same time.
		t := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return 0, &dsh.HostError{Code: hostabi.CodeUnavailable, Message: "others write the shared memory: " + err.Error()}
		}
	}
}

func (m *sharedMemory) tryPut(ctx context.Context, log dsh.Log, policy string, p hostabi.StatePut, of dsh.PolicyState) (uint64, error) {
	w, err := log.Acquire(ctx, m.id)
	if err != nil {
		return 0, err
	}
	version, err := m.append(ctx, log, w, policy, p, of)
	return version, errors.Join(err, w.Release(context.WithoutCancel(ctx)))
}

// append stores a value as the one writer.
func (m *sharedMemory) append(ctx context.Context, log dsh.Log, w dsh.Writer, policy string, p hostabi.StatePut, of dsh.PolicyState) (uint64, error) {
	if err := m.refresh(ctx, log); err != nil {
		return 0, err
	}
	if have, want := m.state.tail, w.Tail(); have != want {
		return 0, &dsh.DamageError{Session: m.id, Seq: have.Seq + 1, Reason: fmt.Sprintf("the log ends at event %d and was written up to %d", have.Seq, want.Seq)}
	}
	next, err := m.state.memories[policy].next(p)
	if err != nil {
		return 0, err
	}
	next.Policy, next.Session, next.DecisionID = policy, of.Session, of.DecisionID
	var drafts []dsh.Draft
	if m.state.tail.Seq == 0 {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{
			Schema: dsh.Schema, ID: m.id, Title: "shared memory of the policy " + policy,
		}})
	}
	events, err := m.state.tail.SealAll(time.Now(), append(drafts, dsh.Draft{Type: dsh.TypePolicyState, Data: next})...)
	if err != nil {
		return 0, err
	}
	ctx = context.WithoutCancel(ctx) // an append that was begun is not left
	if err := w.Append(ctx, events...); err != nil {
		return 0, err
	}
	for _, e := range events {
		if err := m.state.apply(e); err != nil {
			return 0, err
		}
		m.since++
	}
	m.keep(ctx, w)
	return next.Version, nil
}

// keep makes a snapshot where enough has come since the last one. One that
// cannot be kept is no loss.
func (m *sharedMemory) keep(ctx context.Context, w dsh.Writer) {
	if m.since < sharedSnapshotEvery {
		return
	}
	data, err := dsh.JSON(m.state.memories)
	if err != nil {
		return
	}
	m.since = 0
	_ = w.KeepSnapshot(ctx, dsh.Snapshot{Tail: m.state.tail, Data: data})
}
