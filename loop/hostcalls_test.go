package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/storetest"
)

// A caller is a policy that calls host functions as a test wants it.
type caller struct {
	name   string
	decide func(ctx context.Context, call callFunc) (dsh.Verdict, error)
}

// A callFunc calls a host function and reads its answer into one of its type.
type callFunc func(function string, argument, answer any) error

func (c caller) Info() dsh.PolicyInfo {
	return dsh.PolicyInfo{Name: c.name, Digest: "d-" + c.name, Engine: "test", Hooks: []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep}}
}

func (c caller) Decide(ctx context.Context, q dsh.Question) (dsh.Verdict, error) {
	kind := dsh.KindDelegate
	if q.Hook == dsh.HookBeforeStep {
		kind = dsh.KindProceed
	}
	v, err := c.decide(ctx, func(function string, argument, answer any) error {
		raw, err := dsh.JSON(argument)
		if err != nil {
			return err
		}
		if raw, err = q.Host.Call(ctx, function, raw); err != nil {
			return err
		}
		return json.Unmarshal(raw, answer)
	})
	if v.Raw == nil {
		v.Decision.Kind = kind
		v.Raw, _ = dsh.JSON(v.Decision)
	}
	return v, err
}

// down is a provider that fails every request.
func down() *story {
	return &story{steps: []reply{{Fail: &dsh.Failure{Code: dsh.CodeServer, Message: "down"}}}}
}

// asks runs a turn of a session in which policies are asked about a failure.
func asks(ctx context.Context, log dsh.Log, id dsh.SessionID, policies ...dsh.Policy) error {
	cfg := down().play(log).config(loop.Front{})
	cfg.Policies = dsh.FixedWaterfall(policies)
	s, err := loop.Open(ctx, log, id, cfg)
	if errors.Is(err, dsh.ErrNoSession) {
		s, err = loop.Create(ctx, log, dsh.SessionStart{ID: id, Cwd: "/w", Title: "a secret title"}, cfg)
	}
	if err != nil {
		return err
	}
	_, err = s.Prompt(ctx, []dsh.Block{dsh.TextBlock("a secret prompt")})
	return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

// asked runs a turn in which one policy is asked.
func asked(t *testing.T, log dsh.Log, id dsh.SessionID, decide func(call callFunc)) {
	t.Helper()
	ran := false
	p := caller{"mine", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
		ran = true
		decide(call)
		return dsh.Verdict{}, nil
	}}
	if err := asks(t.Context(), log, id, p); err != nil || !ran {
		t.Fatalf("asked %v: %v", ran, err)
	}
}

func read(t *testing.T, log dsh.Log, id dsh.SessionID) []dsh.Event {
	t.Helper()
	var all []dsh.Event
	for e, err := range log.Read(t.Context(), id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func code(err error) string {
	var h *dsh.HostError
	if errors.As(err, &h) {
		return h.Code
	}
	if err == nil {
		return ""
	}
	return "other: " + err.Error()
}

func whole(n uint64) *hostabi.Whole {
	w := hostabi.Whole(n)
	return &w
}

// Both scopes of a memory behave the same, but for who sees it.
func TestMemory(t *testing.T) {
	for _, scope := range []string{dsh.ScopeSession, dsh.ScopeShared} {
		t.Run(scope, func(t *testing.T) {
			log := memory.New()
			asked(t, log, "one", func(call callFunc) {
				put := func(key, value string, version *hostabi.Whole) (uint64, error) {
					var a hostabi.PutAnswer
					err := call(hostabi.FuncStatePut, hostabi.StatePut{Scope: scope, Key: key, Value: json.RawMessage(value), Version: version}, &a)
					return a.Version, err
				}
				get := func(key string) string {
					var a hostabi.StateAnswer
					if err := call(hostabi.FuncStateGet, hostabi.StateGet{Scope: scope, Key: key}, &a); err != nil {
						return err.Error()
					}
					return fmt.Sprintf("%s %d", a.Value, a.Version)
				}
				long := `"` + strings.Repeat("x", hostabi.MaxValueBytes-2) + `"`
				for _, c := range []struct {
					key, value string
					expect     *hostabi.Whole
					version    uint64
					code       string
				}{
					{"k", `{"a": 1}`, nil, 1, ""},
					{"k", `2`, whole(1), 2, ""},
					{"k", `3`, whole(1), 0, hostabi.CodeConflict},
					{"k", `3`, whole(0), 0, hostabi.CodeConflict},
					{"new", `3`, whole(1), 0, hostabi.CodeConflict},
					{"new", `3`, whole(0), 1, ""},
					{"k", `null`, whole(2), 3, ""},
					{"k", `4`, whole(3), 4, ""},
					{"long", long, nil, 1, ""},
					{"long", long[:1] + "x" + long[1:], nil, 0, hostabi.CodeTooLarge},
					{"", `1`, nil, 0, hostabi.CodeInvalid},
					{"with a space", `1`, nil, 0, hostabi.CodeInvalid},
					{strings.Repeat("k", hostabi.MaxKeyBytes+1), `1`, nil, 0, hostabi.CodeInvalid},
				} {
					version, err := put(c.key, c.value, c.expect)
					if version != c.version || code(err) != c.code {
						t.Errorf("put %.20q %.20s: version %d, %v; want %d, %s", c.key, c.value, version, err, c.version, c.code)
					}
				}
				if got := get("k"); got != "4 4" {
					t.Error(got)
				}
				if got := get("nothing"); got != "null 0" {
					t.Error(got)
				}
				for i := range hostabi.MaxKeys - 3 {
					if _, err := put(fmt.Sprintf("n%d", i), "1", nil); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := put("over", "1", nil); code(err) != hostabi.CodeTooMany {
					t.Error(err)
				}
				if _, err := put("n7", "null", nil); err != nil {
					t.Error(err)
				}
				if _, err := put("over", "1", nil); err != nil {
					t.Error(err)
				}
			})
			for id, want := range map[dsh.SessionID]string{"one": "4 4", "two": map[string]string{dsh.ScopeSession: "null 0", dsh.ScopeShared: "4 4"}[scope]} {
				asked(t, log, id, func(call callFunc) {
					var a hostabi.StateAnswer
					if err := call(hostabi.FuncStateGet, hostabi.StateGet{Scope: scope, Key: "k"}, &a); err != nil || fmt.Sprintf("%s %d", a.Value, a.Version) != want {
						t.Errorf("later, in session %s: %s %d, %v; want %s", id, a.Value, a.Version, err, want)
					}
				})
				if _, err := loop.Verify(log.Read(t.Context(), id, 0)); err != nil {
					t.Error(err)
				}
			}
			if err := loop.CheckSnapshots(read(t, log, "one")); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is stored is in the log when the policy is told so, and says of which
// decision it is.
func TestStoredBeforeAnswered(t *testing.T) {
	log := memory.New()
	asked(t, log, "s", func(call callFunc) {
		for _, scope := range []string{dsh.ScopeSession, dsh.ScopeShared} {
			var a hostabi.PutAnswer
			if err := call(hostabi.FuncStatePut, hostabi.StatePut{Scope: scope, Key: "k", Value: json.RawMessage("1")}, &a); err != nil {
				t.Fatal(err)
			}
			id := dsh.SessionID("s")
			if scope == dsh.ScopeShared {
				id = dsh.SharedState("mine")
			}
			all := read(t, log, id)
			var d dsh.PolicyState
			if err := all[len(all)-1].Decode(&d); err != nil || d.Policy != "mine" || d.Scope != scope || d.DecisionID == "" || d.Version != 1 {
				t.Errorf("%s: %+v, %v", scope, d, err)
			}
		}
		var a hostabi.EmitAnswer
		if err := call(hostabi.FuncEmit, hostabi.Emit{Type: "opened", Data: json.RawMessage(`{"n":1}`)}, &a); err != nil {
			t.Fatal(err)
		}
		all := read(t, log, "s")
		last := all[len(all)-1]
		var d dsh.PolicyEvent
		if err := last.Decode(&d); err != nil || last.Type != "policy/mine/opened" || last.Seq != a.Seq || last.Surface != nil || string(d.Data) != `{"n":1}` || d.Attempt != 1 {
			t.Errorf("%s %+v, %v", last.Type, d, err)
		}
		for _, e := range []hostabi.Emit{
			{Type: "../x", Data: json.RawMessage("{}")}, {Type: "", Data: json.RawMessage("{}")}, {Type: "x", Data: json.RawMessage("[]")}, {Type: "x"},
		} {
			if err := call(hostabi.FuncEmit, e, &a); code(err) != hostabi.CodeInvalid {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

// Sessions that share a memory lose nothing of each other's.
func TestSharedCounter(t *testing.T) {
	log := memory.New()
	const sessions, rounds = 4, 80
	count := func(call callFunc) error {
		for range rounds {
			for {
				var have hostabi.StateAnswer
				if err := call(hostabi.FuncStateGet, hostabi.StateGet{Scope: dsh.ScopeShared, Key: "n"}, &have); err != nil {
					return err
				}
				n := 0
				if err := json.Unmarshal(have.Value, &n); err != nil {
					return err
				}
				err := call(hostabi.FuncStatePut, hostabi.StatePut{Scope: dsh.ScopeShared, Key: "n", Value: json.RawMessage(fmt.Sprint(n + 1)), Version: whole(have.Version)}, new(any))
				if err == nil {
					break
				}
				if code(err) != hostabi.CodeConflict {
					return err
				}
			}
		}
		return nil
	}
	var running sync.WaitGroup
	for i := range sessions {
		running.Go(func() {
			p := caller{"counter", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
				if err := count(call); err != nil {
					t.Error(err)
				}
				return dsh.Verdict{}, nil
			}}
			if err := asks(t.Context(), log, dsh.SessionID(fmt.Sprintf("s%d", i)), p); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	get := func(want string) {
		t.Helper()
		p := caller{"counter", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
			var a hostabi.StateAnswer
			if err := call(hostabi.FuncStateGet, hostabi.StateGet{Scope: dsh.ScopeShared, Key: "n"}, &a); err != nil || string(a.Value) != want {
				t.Errorf("the counter is %s, %v; want %s", a.Value, err, want)
			}
			return dsh.Verdict{}, nil
		}}
		if err := asks(t.Context(), log, "reader", p); err != nil {
			t.Error(err)
		}
	}
	get(fmt.Sprint(sessions * rounds))
	id := dsh.SharedState("counter")
	if kept, err := log.Snapshot(t.Context(), id); err != nil || kept.Tail.Seq == 0 {
		t.Errorf("no snapshot of a long memory: %+v, %v", kept.Tail, err)
	}
	if err := log.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	get("null")
}

// log_read gives every event once, page by page, and no text without leave.
func TestLogRead(t *testing.T) {
	log := memory.New()
	asked(t, log, "s", func(callFunc) {})
	if err := asks(t.Context(), log, "s", caller{"other", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
		err := call(hostabi.FuncStatePut, hostabi.StatePut{Scope: dsh.ScopeSession, Key: "k", Value: json.RawMessage(`"a secret value"`)}, new(any))
		return dsh.Verdict{HostCalls: []json.RawMessage{json.RawMessage(`{"answer":"a secret answer"}`)}}, err
	}}); err != nil {
		t.Fatal(err)
	}
	asked(t, log, "s", func(call callFunc) {
		var seqs []uint64
		pages := 0
		for r := (hostabi.LogRead{Limit: 3}); ; pages++ {
			var a hostabi.LogAnswer
			if err := call(hostabi.FuncLogRead, r, &a); err != nil {
				t.Fatal(err)
			}
			for _, e := range a.Events {
				seqs = append(seqs, e.Seq)
				if strings.Contains(string(e.Data), "secret") {
					t.Errorf("event %d (%s) shows a text: %s", e.Seq, e.Type, e.Data)
				}
			}
			if r.After = hostabi.Whole(a.Next); a.Next == 0 {
				break
			}
		}
		all := read(t, log, "s")
		if len(seqs) != len(all) || !slices.IsSorted(seqs) || pages < 3 {
			t.Errorf("%d pages with the events %v, and there are %d", pages, seqs, len(all))
		}
		for _, c := range []struct {
			ask  hostabi.LogRead
			want func(dsh.Event, int) bool
		}{
			{hostabi.LogRead{Types: []dsh.EventType{dsh.TypeAttemptEnd, dsh.TypeUserMessage}}, func(e dsh.Event, _ int) bool {
				return e.Type == dsh.TypeAttemptEnd || e.Type == dsh.TypeUserMessage
			}},
			{hostabi.LogRead{Turn: 2}, func(_ dsh.Event, turn int) bool { return turn == 2 }},
			{hostabi.LogRead{Turn: 2, Step: 7}, func(dsh.Event, int) bool { return false }},
			{hostabi.LogRead{Types: []dsh.EventType{"no/such"}}, func(dsh.Event, int) bool { return false }},
		} {
			var a hostabi.LogAnswer
			if err := call(hostabi.FuncLogRead, c.ask, &a); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range all {
				var at struct{ Turn int }
				if err := e.Decode(&at); err != nil {
					t.Fatal(err)
				}
				if c.want(e, at.Turn) {
					n++
				}
			}
			if len(a.Events) != n {
				t.Errorf("%+v: %d events, want %d", c.ask, len(a.Events), n)
			}
		}
		var a hostabi.LogAnswer
		err := call(hostabi.FuncLogRead, hostabi.LogRead{Types: []dsh.EventType{dsh.TypeUserMessage}, Content: true}, &a)
		if err != nil || len(a.Events) != 3 || !strings.Contains(string(a.Events[0].Data), "a secret prompt") {
			t.Errorf("%+v, %v", a, err)
		}
		if err := call(hostabi.FuncLogRead, map[string]any{"after": -1}, &a); code(err) != hostabi.CodeInvalid {
			t.Error(err)
		}
	})
}

// What a page holds is bounded in bytes, and what is too large for any page
// does not stop the reading.
func TestLogReadBounds(t *testing.T) {
	log := memory.New()
	big := strings.Repeat("x", 30_000)
	p := caller{"mine", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
		events := 0
		for r := (hostabi.LogRead{Content: true}); ; {
			var raw json.RawMessage
			if err := call(hostabi.FuncLogRead, r, &raw); err != nil || len(raw) > hostabi.MaxAnswerBytes {
				t.Fatalf("%d bytes, %v", len(raw), err)
			}
			var a hostabi.LogAnswer
			if err := json.Unmarshal(raw, &a); err != nil {
				t.Fatal(err)
			}
			events += len(a.Events)
			if r.After = hostabi.Whole(a.Next); a.Next == 0 {
				if uint64(events) != a.Tail {
					t.Errorf("%d events of %d", events, a.Tail)
				}
				break
			}
		}
		var s hostabi.SurfaceAnswer
		if err := call(hostabi.FuncSurfaceRead, hostabi.SurfaceRead{Content: true}, &s); err != nil || s.Next == 0 {
			t.Errorf("%d entries, next %d, %v", len(s.Entries), s.Next, err)
		}
		return dsh.Verdict{}, nil
	}}
	for _, size := range []int{1, 1, 1, 1, 9} {
		cfg := down().play(log).config(loop.Front{})
		if cfg.Policies = nil; size == 9 {
			cfg.Policies = dsh.FixedWaterfall{p}
		}
		s, err := loop.Open(t.Context(), log, "s", cfg)
		if errors.Is(err, dsh.ErrNoSession) {
			s, err = loop.Create(t.Context(), log, dsh.SessionStart{ID: "s", Cwd: "/w"}, cfg)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prompt(t.Context(), []dsh.Block{dsh.TextBlock(strings.Repeat(big, size))}); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSurfaceRead(t *testing.T) {
	log := memory.New()
	asked(t, log, "s", func(callFunc) {})
	asked(t, log, "s", func(call callFunc) {
		var a hostabi.SurfaceAnswer
		if err := call(hostabi.FuncSurfaceRead, hostabi.SurfaceRead{}, &a); err != nil || len(a.Entries) != 2 || a.Tokens == 0 || a.Next != 0 {
			t.Fatalf("%+v, %v", a, err)
		}
		first := a.Entries[0]
		if first.Role != dsh.RoleUser || len(first.Kinds) != 1 || first.Kinds[0] != dsh.BlockText || first.Tokens == 0 || first.Content != nil {
			t.Errorf("%+v", first)
		}
		if err := call(hostabi.FuncSurfaceRead, hostabi.SurfaceRead{From: 1, Limit: 1, Content: true}, &a); err != nil || len(a.Entries) != 1 || dsh.Text(a.Entries[0].Content) != "a secret prompt" {
			t.Errorf("%+v, %v", a, err)
		}
		if err := call(hostabi.FuncSurfaceRead, hostabi.SurfaceRead{Limit: 1}, &a); err != nil || a.Next != 1 {
			t.Errorf("%+v, %v", a, err)
		}
		if err := call(hostabi.FuncSurfaceRead, hostabi.SurfaceRead{From: 1 << 50}, &a); err != nil || len(a.Entries) != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// An answer can be made again, later, as it was.
func TestReread(t *testing.T) {
	log := memory.New()
	type answer struct {
		function string
		argument json.RawMessage
		raw      json.RawMessage
		tail     uint64
	}
	var given []answer
	for range 3 {
		asked(t, log, "s", func(call callFunc) {
			for _, c := range []struct {
				function string
				argument any
			}{
				{hostabi.FuncLogRead, hostabi.LogRead{}}, {hostabi.FuncLogRead, hostabi.LogRead{Content: true, After: 3}}, {hostabi.FuncSurfaceRead, hostabi.SurfaceRead{Content: true}},
			} {
				a := answer{function: c.function}
				a.argument, _ = dsh.JSON(c.argument)
				if err := call(c.function, c.argument, &a.raw); err != nil {
					t.Fatal(err)
				}
				var at struct{ Tail uint64 }
				if err := json.Unmarshal(a.raw, &at); err != nil {
					t.Fatal(err)
				}
				a.tail = at.Tail
				given = append(given, a)
			}
			if err := call(hostabi.FuncEmit, hostabi.Emit{Type: "x", Data: json.RawMessage("{}")}, new(any)); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, a := range given {
		again, err := loop.Reread(t.Context(), log, "s", "mine", a.function, a.argument, a.tail)
		if err != nil || string(again) != string(a.raw) {
			t.Errorf("%s at %d: %v\n%s\nwant\n%s", a.function, a.tail, err, again, a.raw)
		}
	}
	if _, err := loop.Reread(t.Context(), log, "s", "mine", hostabi.FuncLogRead, json.RawMessage("{}"), 1<<20); err == nil {
		t.Error("an answer of an event that is not there")
	}
	if _, err := loop.Reread(t.Context(), log, "s", "mine", hostabi.FuncEmit, json.RawMessage("{}"), 5); err == nil {
		t.Error("emitted again")
	}
}

// A store that takes nothing more ends the session, whatever the policy makes
// of that; a resumed session asks again.
func TestStoreFailsUnderAPut(t *testing.T) {
	for _, after := range []bool{false, true} {
		inner := memory.New()
		// 1: the prompt, 2: the step, 3: the attempt, 4: its end, 5: the put.
		log := storetest.Faulty(inner, storetest.Fault{N: 5, After: after, Err: errDisk})
		err := asks(t.Context(), log, "s", caller{"mine", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
			put := hostabi.StatePut{Scope: dsh.ScopeSession, Key: "k", Value: json.RawMessage("1")}
			for range 3 {
				if err := call(hostabi.FuncStatePut, put, new(any)); !errors.Is(err, errDisk) {
					t.Errorf("the put: %v", err)
				}
			}
			return dsh.Verdict{}, nil
		}})
		if !errors.Is(err, errDisk) {
			t.Errorf("after the write %v: %v", after, err)
		}
		all := read(t, inner, "s")
		if last := all[len(all)-1].Type; (last == dsh.TypePolicyState) != after {
			t.Errorf("after the write %v: the log ends in %s", after, last)
		}
	}
}

// A policy that is stopped, or gives no decision, leaves in the log what it did.
func TestWhatWasDone(t *testing.T) {
	calls := []json.RawMessage{json.RawMessage(`{"function":"emit"}`)}
	for name, c := range map[string]struct {
		stop bool
		err  error
		want dsh.EventType
	}{
		"fault":   {false, &dsh.Fault{Kind: dsh.FaultTrap, Message: "broken"}, dsh.TypePolicyFault},
		"stopped": {true, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "stopped"}, dsh.TypePolicyFault},
		"tripped": {false, &dsh.Fault{Kind: dsh.FaultUnavailable, Message: "tripped", Cause: dsh.ErrTripped}, dsh.TypePolicyRefused},
	} {
		log := memory.New()
		ctx, stop := context.WithCancelCause(t.Context())
		err := asks(ctx, log, "s", caller{"mine", func(context.Context, callFunc) (dsh.Verdict, error) {
			if c.stop {
				stop(loop.ErrAbort)
			}
			return dsh.Verdict{HostCalls: calls}, c.err
		}})
		stop(nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		found := false
		for _, e := range read(t, log, "s") {
			if e.Type != c.want {
				continue
			}
			found = true
			var d struct {
				dsh.PolicyFault
				Rule dsh.Rule `json:"rule"`
			}
			if err := e.Decode(&d); err != nil {
				t.Fatal(err)
			}
			if e.Type == dsh.TypePolicyFault && len(d.HostCalls) != 1 || e.Type == dsh.TypePolicyRefused && d.Rule != dsh.RuleTripped {
				t.Errorf("%s: %s", name, e.Data)
			}
		}
		if !found {
			t.Errorf("%s: the log does not say it", name)
		}
	}
}

// The session of a shared memory is no conversation.
func TestReserved(t *testing.T) {
	log := memory.New()
	id := dsh.SharedState("a.b_c")
	if err := asks(t.Context(), log, id); !errors.As(err, new(*loop.ReservedError)) {
		t.Error(err)
	}
	if _, err := loop.Create(t.Context(), log, dsh.SessionStart{ID: id}, loop.Config{}); !errors.As(err, new(*loop.ReservedError)) {
		t.Error(err)
	}
	if other := dsh.SharedState("a-b-c"); other == id || !other.Reserved() || dsh.SessionID("20260101-x").Reserved() {
		t.Errorf("%s, %s", id, other)
	}
}

// Whichever append fails while policies store things, the log stays sound, the
// session can be resumed, and what a policy is told last is what it stored.
func TestEveryAppendFailsUnderPolicies(t *testing.T) {
	told := "" // what the policy stored last
	mine := caller{"mine", func(_ context.Context, call callFunc) (dsh.Verdict, error) {
		var have hostabi.StateAnswer
		if err := call(hostabi.FuncStateGet, hostabi.StateGet{Scope: dsh.ScopeSession, Key: "n"}, &have); err != nil {
			return dsh.Verdict{}, err
		}
		if told != "" && string(have.Value) != told && string(have.Value) != told+"1" {
			t.Errorf("it stored %s and is told %s", told, have.Value)
		}
		next := strings.Trim(string(have.Value), "nul") + "1"
		put := hostabi.StatePut{Scope: dsh.ScopeSession, Key: "n", Value: json.RawMessage(next), Version: whole(have.Version)}
		if err := call(hostabi.FuncStatePut, put, new(any)); err != nil {
			return dsh.Verdict{}, err
		}
		told = next
		err := call(hostabi.FuncEmit, hostabi.Emit{Type: "told", Data: json.RawMessage("{}")}, new(any))
		return dsh.Verdict{}, err
	}}
	failed := 0
	for _, after := range []bool{false, true} {
		for n := 1; n <= 12; n++ {
			told = ""
			inner := memory.New()
			log := storetest.Faulty(inner, storetest.Fault{N: n, After: after, Passing: true, Err: errDisk})
			if err := asks(t.Context(), log, "s", mine); err == nil {
				continue
			} else if !errors.Is(err, errDisk) {
				t.Fatal(err)
			}
			failed++
			if _, err := inner.Head(t.Context(), "s"); errors.Is(err, dsh.ErrNoSession) {
				continue
			}
			cfg := down().play(inner).config(loop.Front{})
			cfg.Policies = dsh.FixedWaterfall{mine}
			s, err := loop.Open(t.Context(), inner, "s", cfg)
			if err != nil {
				t.Fatalf("append %d, after %v: %v", n, after, err)
			}
			if o, err := s.Resume(t.Context()); err != nil || o.Status != dsh.EndFailed {
				t.Errorf("append %d, after %v: %+v, %v", n, after, o, err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := loop.Verify(inner.Read(t.Context(), "s", 0)); err != nil {
				t.Errorf("append %d, after %v: %v", n, after, err)
			}
		}
	}
	if failed < 12 {
		t.Errorf("only %d appends failed", failed)
	}
}
