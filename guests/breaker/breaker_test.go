// Package breaker_test holds the circuit breaker to what it promises, on a host
// that is a map.
package breaker_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
)

// A host keeps one shared memory and one session's emitted events.
type host struct {
	t        *testing.T
	cells    map[string]hostabi.StateAnswer
	events   []hostabi.LogEvent
	attempt  int
	conflict int    // so many puts are too late
	refuse   string // the code of every answer
}

func (h *host) Call(_ context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	if h.refuse != "" {
		return nil, &dsh.HostError{Code: h.refuse, Message: "no"}
	}
	switch function {
	case hostabi.FuncLogRead:
		var q hostabi.LogRead
		h.read(argument, &q)
		a := hostabi.LogAnswer{Events: []hostabi.LogEvent{}}
		for _, e := range h.events { // a page holds one
			if len(q.Types) == 1 && e.Type == q.Types[0] && e.Seq > uint64(q.After) {
				if len(a.Events) == 1 {
					a.Next = a.Events[0].Seq
					break
				}
				a.Events = append(a.Events, e)
			}
		}
		return dsh.JSON(a)
	case hostabi.FuncStateGet:
		var g hostabi.StateGet
		h.read(argument, &g)
		a := h.cells[g.Key]
		if a.Version == 0 {
			a.Value = json.RawMessage("null")
		}
		return dsh.JSON(a)
	case hostabi.FuncStatePut:
		var p hostabi.StatePut
		h.read(argument, &p)
		have := h.cells[p.Key]
		if h.conflict > 0 {
			h.conflict--
			return nil, &dsh.HostError{Code: hostabi.CodeConflict, Message: "too late"}
		}
		if p.Version == nil || uint64(*p.Version) != have.Version {
			h.t.Errorf("put %s over version %d", argument, have.Version)
		}
		h.cells[p.Key] = hostabi.StateAnswer{Value: p.Value, Version: have.Version + 1}
		return dsh.JSON(hostabi.PutAnswer{Version: have.Version + 1})
	case hostabi.FuncEmit:
		var e hostabi.Emit
		h.read(argument, &e)
		data, err := dsh.JSON(dsh.PolicyEvent{Attempt: h.attempt, Data: e.Data})
		if err != nil {
			return nil, err
		}
		seq := uint64(len(h.events) + 1)
		h.events = append(h.events, hostabi.LogEvent{Seq: seq, Type: dsh.EventType("policy/breaker/" + e.Type), Data: data})
		return dsh.JSON(hostabi.EmitAnswer{Seq: seq})
	}
	return nil, fmt.Errorf("no function %s", function)
}

func (h *host) read(argument json.RawMessage, v any) {
	if err := json.Unmarshal(argument, v); err != nil {
		h.t.Errorf("%s: %v", argument, err)
	}
}

func load(t *testing.T, config string) (dsh.Policy, error) {
	t.Helper()
	set, err := runtime.Open(t.Context(), []runtime.Spec{{
		Name: "breaker", Module: "breaker.wasm", Capabilities: []string{hostabi.CapLogRead, hostabi.CapLogAppend, hostabi.CapStateShared},
		Config: json.RawMessage(config),
	}}, runtime.Options{Engine: native.New(native.Options{})})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	policies, _ := set.Policies()
	return policies[0], nil
}

func ask(t *testing.T, p dsh.Policy, h *host, attempt int, nowMs int64) dsh.Decision {
	t.Helper()
	h.attempt = attempt
	raw, err := dsh.JSON(dsh.RecoverInput{
		ABI: hostabi.ABI, Policy: "breaker", Turn: 1, Step: 1, Attempt: attempt, Purpose: dsh.PurposeReply, Provider: "p", Model: "m",
		Failure: dsh.Failure{Code: dsh.CodeServer}, NowMs: nowMs, RetryPolicy: dsh.DefaultRetryPolicy(), Config: p.Info().Config,
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw, Host: h})
	if err != nil {
		t.Fatal(err)
	}
	return v.Decision
}

func TestBreaker(t *testing.T) {
	p, err := load(t, `{"failures":3,"windowMs":1000,"openMs":500}`)
	if err != nil {
		t.Fatal(err)
	}
	const now = 1767225600000
	cells := map[string]hostabi.StateAnswer{}
	one, two := &host{t: t, cells: cells, conflict: 2}, &host{t: t, cells: cells}
	for i, c := range []struct {
		session *host
		attempt int
		at      int64
		delay   float64 // -1: it delegates
	}{
		{one, 1, 0, -1},
		{one, 1, 5, -1}, // asked again about the same attempt: it does not count twice
		{two, 1, 10, -1},
		{one, 2, 1500, -1}, // over a second later: the count begins anew
		{two, 2, 1600, -1},
		{one, 3, 1700, 500}, // the third within a second of the one before
		{two, 3, 1800, 400}, // the other session waits as long
		{one, 3, 1900, 300}, // and so does a session that was killed in its wait
		{two, 4, 2200, -1},  // closed again, and the count at its beginning
	} {
		d := ask(t, p, c.session, c.attempt, now+c.at)
		if c.delay < 0 && d.Kind != dsh.KindDelegate || c.delay >= 0 && (d.Kind != dsh.KindRetry || d.DelayMs != c.delay) {
			t.Errorf("question %d: %+v; want a delay of %v", i+1, d, c.delay)
		}
	}
	if d := ask(t, p, &host{t: t, refuse: hostabi.CodeUnavailable}, 1, now); d.Kind != dsh.KindDelegate || !strings.Contains(d.Reason, "unavailable") {
		t.Errorf("without a memory: %+v", d)
	}
}

func TestConfig(t *testing.T) {
	for config, want := range map[string]string{
		`{}`: "", `{"failures":1}`: "", `{"failures":0}`: "failures is a number", `{"openMs":"long"}`: "openMs is a number", `{"wait":1}`: "wait is no setting",
	} {
		if _, err := load(t, config); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", config, err, want)
		}
	}
}

// TestDigest: the module is the one whose digest stands beside it.
func TestDigest(t *testing.T) {
	wasm, err := os.ReadFile("breaker.wasm")
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile("breaker.wasm.sha256")
	if sum := sha256.Sum256(wasm); err != nil || !strings.HasPrefix(string(line), hex.EncodeToString(sum[:])+" ") {
		t.Errorf("%s, %v", line, err)
	}
}
