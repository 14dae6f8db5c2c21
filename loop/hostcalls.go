package loop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// A host answers the functions that one policy calls in one decision. What it
// stores is in the log before it answers.
type host struct {
	session  *Session
	policy   dsh.PolicyInfo
	decision string // its id
	attempt  int

	// failed is why the session's log can take nothing more.
	failed error
}

var _ dsh.Host = (*host)(nil)

var errNoHost = errors.New("nothing is stored when a decision is read again")

// isKey and isEventType are functions, as are the like of them: a pattern that
// counts takes a millisecond to compile, at every start of every program.
func isKey(s string) bool {
	return s != "" && len(s) <= hostabi.MaxKeyBytes && !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

func isEventType(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// Call runs a host function.
func (h *host) Call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	if h.failed != nil {
		return nil, h.failed
	}
	var answer any
	var err error
	switch function {
	case hostabi.FuncLogRead:
		answer, err = decoded(argument, func(r hostabi.LogRead) (any, error) { return h.readLog(ctx, r) })
	case hostabi.FuncSurfaceRead:
		answer, err = decoded(argument, h.readSurface)
	case hostabi.FuncStateGet:
		answer, err = decoded(argument, func(g hostabi.StateGet) (any, error) { return h.get(ctx, g) })
	case hostabi.FuncStatePut:
		answer, err = decoded(argument, func(p hostabi.StatePut) (any, error) { return h.put(ctx, p) })
	case hostabi.FuncEmit:
		answer, err = decoded(argument, func(e hostabi.Emit) (any, error) { return h.emit(ctx, e) })
	default:
		return nil, invalid("there is no host function %q", function)
	}
	if err != nil {
		return nil, err
	}
	return dsh.JSON(answer)
}

// decoded reads an argument for f. Unknown fields are ignored.
func decoded[T any](argument json.RawMessage, f func(T) (any, error)) (any, error) {
	var v T
	if err := json.Unmarshal(argument, &v); err != nil {
		return nil, invalid("the argument is not of the contract's form: %v", err)
	}
	return f(v)
}

func invalid(format string, args ...any) error {
	return &dsh.HostError{Code: hostabi.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

func tooLarge(what string, limit int) error {
	return &dsh.HostError{Code: hostabi.CodeTooLarge, Message: fmt.Sprintf("%s of over %d bytes", what, limit)}
}

// readSurface answers surface_read.
func (h *host) readSurface(r hostabi.SurfaceRead) (any, error) {
	s := &h.session.state
	a := hostabi.SurfaceAnswer{Entries: []hostabi.SurfaceEntry{}, Tail: s.tail.Seq, Generation: s.gen, Tokens: s.tokens()}
	room := answerRoom
	for i := int(min(r.From, hostabi.Whole(len(s.surface)))); i < len(s.surface); i++ {
		entry := surfaceEntry(s.surface[i], r.Content)
		raw, err := dsh.JSON(entry)
		if err != nil {
			return nil, err
		}
		if len(raw) > answerRoom {
			entry.Content = nil
			if raw, err = dsh.JSON(entry); err != nil {
				return nil, err
			}
		}
		if room -= len(raw) + 1; room < 0 || len(a.Entries) == page(r.Limit) {
			a.Next = i
			break
		}
		a.Entries = append(a.Entries, entry)
	}
	return a, nil
}

// answerRoom is what events or entries have of an answer.
const answerRoom = hostabi.MaxAnswerBytes - 256

func page(limit hostabi.Whole) int {
	if limit == 0 || limit > hostabi.MaxPage {
		return hostabi.MaxPage
	}
	return int(limit)
}

// maxKinds bounds the blocks of a message that are told of.
const maxKinds = 1000

func surfaceEntry(en entry, content bool) hostabi.SurfaceEntry {
	e := hostabi.SurfaceEntry{Seq: en.seq, Role: en.message.Role, Kinds: []dsh.BlockType{}, Tokens: tokens(en.size)}
	for _, b := range en.message.Content[:min(len(en.message.Content), maxKinds)] {
		e.Kinds = append(e.Kinds, b.Type)
	}
	if content {
		e.Content = sendable(en.message.Content, false)
	}
	return e
}

// get answers state_get.
func (h *host) get(ctx context.Context, g hostabi.StateGet) (any, error) {
	if !isKey(g.Key) {
		return nil, invalid("a key has 1 to %d printable ASCII characters", hostabi.MaxKeyBytes)
	}
	if g.Scope != dsh.ScopeShared {
		return h.session.state.memories[h.policy.Name].answer(g.Key), nil
	}
	m := h.session.sharedMemory(h.policy.Name)
	if err := m.refresh(ctx, h.session.log); err != nil {
		return nil, err
	}
	return m.state.memories[h.policy.Name].answer(g.Key), nil
}

// put answers state_put.
func (h *host) put(ctx context.Context, p hostabi.StatePut) (any, error) {
	if !isKey(p.Key) {
		return nil, invalid("a key has 1 to %d printable ASCII characters", hostabi.MaxKeyBytes)
	}
	var err error
	if p.Value, err = compactValue(p.Value, "value"); err != nil {
		return nil, err
	}
	s := h.session
	if s.writer == nil {
		return nil, errNoHost
	}
	if p.Scope == dsh.ScopeShared {
		of := dsh.PolicyState{Session: s.start.ID, DecisionID: h.decision}
		version, err := s.sharedMemory(h.policy.Name).put(ctx, s.log, h.policy.Name, p, of)
		return hostabi.PutAnswer{Version: version}, err
	}
	next, err := s.state.memories[h.policy.Name].next(p)
	if err != nil {
		return nil, err
	}
	next.Policy, next.DecisionID = h.policy.Name, h.decision
	if err := h.append(ctx, dsh.Draft{Type: dsh.TypePolicyState, Data: next}); err != nil {
		return nil, err
	}
	return hostabi.PutAnswer{Version: next.Version}, nil
}

// emit answers emit.
func (h *host) emit(ctx context.Context, e hostabi.Emit) (any, error) {
	if !isEventType(e.Type) {
		return nil, invalid("a type has 1 to 64 of a-z, 0-9 and dash, the first a letter or digit")
	}
	data, err := compactValue(e.Data, "data")
	if err != nil {
		return nil, err
	}
	if data[0] != '{' {
		return nil, invalid("data is an object")
	}
	s := h.session
	if s.writer == nil {
		return nil, errNoHost
	}
	event := dsh.PolicyEvent{
		Turn: s.state.turn.n, Step: s.state.turn.step.n, Attempt: h.attempt,
		Policy: h.policy.Name, Digest: h.policy.Digest, DecisionID: h.decision, Data: data,
	}
	draft := dsh.Draft{Type: dsh.EventType("policy/" + h.policy.Name + "/" + e.Type), Data: event}
	if err := h.append(ctx, draft); err != nil {
		return nil, err
	}
	return hostabi.EmitAnswer{Seq: s.state.tail.Seq}, nil
}

// append makes an event durable. Where that fails nothing more can be: the
// session ends by it once the policy is done.
func (h *host) append(ctx context.Context, d dsh.Draft) error {
	h.failed = h.session.append(ctx, d)
	return h.failed
}

func compactValue(raw json.RawMessage, what string) (json.RawMessage, error) {
	var b bytes.Buffer
	switch err := json.Compact(&b, raw); {
	case err != nil:
		return nil, invalid("%s is missing", what)
	case b.Len() > hostabi.MaxValueBytes:
		return nil, tooLarge("a "+what, hostabi.MaxValueBytes)
	}
	return b.Bytes(), nil
}

// sharedMemory is what this session knows of the memory that a policy shares.
func (s *Session) sharedMemory(policy string) *sharedMemory {
	m := s.shared[policy]
	if m == nil {
		m = &sharedMemory{id: dsh.SharedState(policy)}
		if s.shared == nil {
			s.shared = map[string]*sharedMemory{}
		}
		s.shared[policy] = m
	}
	return m
}

// Reread makes an answer of log_read or surface_read again, as it was when the
// session's log ended at event tail: what is needed to replay a decision whose
// answer the log has by its hash alone.
func Reread(ctx context.Context, log dsh.Log, id dsh.SessionID, policy, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error) {
	if function != hostabi.FuncLogRead && function != hostabi.FuncSurfaceRead {
		return nil, fmt.Errorf("an answer of %s cannot be made again", function)
	}
	s := &Session{log: log}
	for e, err := range log.Read(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if err := s.state.apply(e); err != nil {
			return nil, fmt.Errorf("session %s: %w", id, err)
		}
		if e.Seq == tail {
			break
		}
	}
	if s.state.tail.Seq != tail {
		return nil, fmt.Errorf("session %s ends at event %d, and the answer was of event %d", id, s.state.tail.Seq, tail)
	}
	s.start = s.state.start
	return (&host{session: s, policy: dsh.PolicyInfo{Name: policy}}).Call(ctx, function, argument)
}
