package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// hostFunc is a host that answers as a test wants it.
type hostFunc func(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error)

func (h hostFunc) Call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error) {
	return h(ctx, function, argument)
}

const delegates = `{"kind":"delegate"}`

// guest is a policy whose module asks for all capabilities and is granted some.
// It runs f in the place of its code.
func guest(t *testing.T, granted []string, f func(ctx context.Context, c runtime.Call) (runtime.Result, error)) dsh.Policy {
	t.Helper()
	wasm, err := hostabi.Pack(runtimetest.Guest(t, "delegate"), hostabi.Manifest{ABI: hostabi.ABI, Capabilities: hostabi.Capabilities()})
	if err != nil {
		t.Fatal(err)
	}
	opts := options(t)
	opts.Engine = &fake{call: f}
	return open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: wasm, Capabilities: granted})[0]
}

func ask(ctx context.Context, t *testing.T, p dsh.Policy, h dsh.Host) (dsh.Verdict, error) {
	t.Helper()
	raw, err := dsh.JSON(runtimetest.Input("p"))
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(ctx, dsh.Question{Hook: dsh.HookRecover, Input: raw, Host: h})
}

// refusalOf is the code of a refusal, or "".
func refusalOf(t *testing.T, answer []byte) string {
	t.Helper()
	var r hostabi.Refusal
	if err := json.Unmarshal(answer, &r); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return r.Err.Code
}

// A host function is called if it is granted, and what it shows is what is
// granted.
func TestHostGrants(t *testing.T) {
	session, shared := `{"scope":"session","key":"k","value":1}`, `{"scope":"shared","key":"k","value":1}`
	for _, c := range []struct {
		granted  []string
		function string
		argument string
		code     string
	}{
		{[]string{hostabi.CapLogRead}, hostabi.FuncLogRead, `{}`, ""},
		{[]string{hostabi.CapLogRead}, hostabi.FuncLogRead, `{"content":false}`, ""},
		{[]string{hostabi.CapLogRead}, hostabi.FuncLogRead, `{"content":true}`, hostabi.CodeDenied},
		{[]string{hostabi.CapLogRead}, hostabi.FuncLogRead, `{"Content":true}`, hostabi.CodeDenied},
		{[]string{hostabi.CapLogRead}, hostabi.FuncLogRead, `{"content":"yes"}`, hostabi.CodeInvalid},
		{[]string{hostabi.CapLogRead, hostabi.CapSurfaceContent}, hostabi.FuncLogRead, `{"content":true}`, ""},
		{[]string{hostabi.CapSurfaceContent}, hostabi.FuncLogRead, `{"content":true}`, hostabi.CodeDenied},
		{[]string{hostabi.CapLogRead}, hostabi.FuncSurfaceRead, `{}`, hostabi.CodeDenied},
		{[]string{hostabi.CapSurfaceRead}, hostabi.FuncSurfaceRead, `{}`, ""},
		{[]string{hostabi.CapSurfaceRead}, hostabi.FuncSurfaceRead, `{"content":true}`, hostabi.CodeDenied},
		{[]string{hostabi.CapStateSession}, hostabi.FuncStateGet, session, ""},
		{[]string{hostabi.CapStateSession}, hostabi.FuncStatePut, session, ""},
		{[]string{hostabi.CapStateSession}, hostabi.FuncStateGet, shared, hostabi.CodeDenied},
		{[]string{hostabi.CapStateSession}, hostabi.FuncStatePut, shared, hostabi.CodeDenied},
		{[]string{hostabi.CapStateSession}, hostabi.FuncStatePut, `{"scope":"session","scope":"shared","key":"k","value":1}`, hostabi.CodeDenied},
		{[]string{hostabi.CapStateShared}, hostabi.FuncStatePut, shared, ""},
		{[]string{hostabi.CapStateShared}, hostabi.FuncStatePut, session, hostabi.CodeDenied},
		{[]string{hostabi.CapStateShared}, hostabi.FuncStateGet, `{"key":"k"}`, hostabi.CodeInvalid},
		{[]string{hostabi.CapStateShared}, hostabi.FuncStateGet, `{"scope":"Shared","key":"k"}`, hostabi.CodeInvalid},
		{[]string{hostabi.CapLogAppend}, hostabi.FuncEmit, `{}`, ""},
		{[]string{hostabi.CapLogRead}, hostabi.FuncEmit, `{}`, hostabi.CodeDenied},
		{hostabi.Capabilities(), "http_request", `{}`, hostabi.CodeDenied},
		{hostabi.Capabilities(), "", `{}`, hostabi.CodeDenied},
		{hostabi.Capabilities(), hostabi.FuncEmit, "{\"a\":\"\xff\"}", hostabi.CodeInvalid},
		{hostabi.Capabilities(), hostabi.FuncEmit, `{}{}`, hostabi.CodeInvalid},
		{hostabi.Capabilities(), hostabi.FuncEmit, ` `, hostabi.CodeInvalid},
		{hostabi.Capabilities(), hostabi.FuncEmit, `{"a":"` + strings.Repeat("x", hostabi.MaxArgumentBytes) + `"}`, hostabi.CodeTooLarge},
	} {
		var answer []byte
		p := guest(t, c.granted, func(ctx context.Context, call runtime.Call) (runtime.Result, error) {
			answer = call.Host(ctx, c.function, []byte(c.argument))
			return runtime.Result{Output: []byte(delegates)}, nil
		})
		reached := false
		v, err := ask(t.Context(), t, p, hostFunc(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			reached = true
			return json.RawMessage("{}"), nil
		}))
		if err != nil || len(v.HostCalls) != 1 {
			t.Fatalf("%s %s: %d calls, %v", c.function, c.argument, len(v.HostCalls), err)
		}
		if got := refusalOf(t, answer); got != c.code || reached != (c.code == "") {
			t.Errorf("%v, %s %.80s: %q, and the host was asked: %v; want %q", c.granted, c.function, c.argument, got, reached, c.code)
		}
		if !json.Valid(v.HostCalls[0]) {
			t.Errorf("%s %.80s: the record is %s", c.function, c.argument, v.HostCalls[0])
		}
	}
}

// What a host answers badly is a refusal to the guest.
func TestBadHosts(t *testing.T) {
	for name, c := range map[string]struct {
		host hostFunc
		code string
	}{
		"refuses": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, &dsh.HostError{Code: "conflict"}
		}, "conflict"},
		"wraps": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, fmt.Errorf("x: %w", &dsh.HostError{Code: "too-many"})
		}, "too-many"},
		"breaks": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, errors.New("broken")
		}, "unavailable"},
		"babbles": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage("{"), nil
		}, "unavailable"},
		"floods": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`"` + strings.Repeat("x", hostabi.MaxAnswerBytes) + `"`), nil
		}, "too-large"},
		"is none":  {nil, "unavailable"},
		"has none": {func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, nil }, "unavailable"},
	} {
		var answer []byte
		p := guest(t, hostabi.Capabilities(), func(ctx context.Context, call runtime.Call) (runtime.Result, error) {
			answer = call.Host(ctx, hostabi.FuncEmit, []byte("{}"))
			return runtime.Result{Output: []byte(delegates)}, nil
		})
		var h dsh.Host
		if c.host != nil {
			h = c.host
		}
		if _, err := ask(t.Context(), t, p, h); err != nil || refusalOf(t, answer) != c.code {
			t.Errorf("%s: %s, %v; want %s", name, answer, err, c.code)
		}
	}
}

// The host's time is not the guest's; it is bounded in its own way.
func TestHostTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := hostFunc(func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
			select {
			case <-time.After(400 * time.Millisecond):
				return json.RawMessage("{}"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		good := 0
		p := guest(t, hostabi.Capabilities(), func(ctx context.Context, call runtime.Call) (runtime.Result, error) {
			for range 20 {
				if refusalOf(t, call.Host(ctx, hostabi.FuncEmit, []byte("{}"))) == "" {
					good++
				}
			}
			time.Sleep(900 * time.Millisecond) // of its second
			return runtime.Result{Output: []byte(delegates)}, ctx.Err()
		})
		start := time.Now()
		if v, err := ask(t.Context(), t, p, slow); err != nil || good != 5 || len(v.HostCalls) != 20 {
			t.Errorf("%d of %d calls, %v", good, len(v.HostCalls), err)
		}
		if took := time.Since(start); took != 2900*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A guest that is out of time, or whose turn was stopped, calls nothing more,
// and Decide does not leave a host function under way behind.
func TestNoCallsAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stopped := range []bool{false, true} {
			over, asked := false, 0
			answers := make(chan string, 1)
			p := guest(t, hostabi.Capabilities(), func(ctx context.Context, call runtime.Call) (runtime.Result, error) {
				call.Host(ctx, hostabi.FuncEmit, []byte("{}"))
				<-ctx.Done()
				answers <- refusalOf(t, call.Host(ctx, hostabi.FuncEmit, []byte("{}")))
				return runtime.Result{}, &dsh.Fault{Kind: dsh.FaultDeadline, Message: "stopped"}
			})
			ctx, stop := context.WithCancel(t.Context())
			v, err := ask(ctx, t, p, hostFunc(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				if asked++; over {
					t.Error("called after Decide")
				}
				if stopped {
					stop()
				}
				time.Sleep(5 * time.Second) // an append that is not left
				return json.RawMessage("{}"), nil
			}))
			over = true
			stop()
			var f *dsh.Fault
			if !errors.As(err, &f) || f.Kind != dsh.FaultDeadline || asked != 1 || len(v.HostCalls) != 1 {
				t.Errorf("stopped %v: %v, asked %d times, %d calls", stopped, err, asked, len(v.HostCalls))
			}
			if code := <-answers; code != hostabi.CodeUnavailable {
				t.Errorf("stopped %v: a late call was answered with %q", stopped, code)
			}
		}
	})
}

// A replay gives the logged answers, and says where it cannot.
func TestReplayHostCalls(t *testing.T) {
	long := json.RawMessage(`{"tail":9,"events":["` + strings.Repeat("x", hostabi.KeptAnswerBytes) + `"]}`)
	script := [][2]string{
		{hostabi.FuncStateGet, `{"scope":"session","key":"k"}`},
		{hostabi.FuncStatePut, `{"scope":"shared"}`}, // not granted
		{hostabi.FuncLogRead, `{ "after": 1 }`},
		{hostabi.FuncEmit, "\xff"},
		{hostabi.FuncEmit, `{"data":"` + strings.Repeat("x", hostabi.KeptArgumentBytes) + `"}`},
	}
	var heard []string
	run := func(ctx context.Context, call runtime.Call) (runtime.Result, error) {
		heard = nil
		for _, c := range script {
			heard = append(heard, string(call.Host(ctx, c[0], []byte(c[1]))))
		}
		return runtime.Result{Output: []byte(delegates)}, nil
	}
	wasm, err := hostabi.Pack(runtimetest.Guest(t, "delegate"), hostabi.Manifest{ABI: hostabi.ABI, Capabilities: hostabi.Capabilities()})
	if err != nil {
		t.Fatal(err)
	}
	opts := options(t)
	opts.Engine = &fake{call: run}
	granted := []string{hostabi.CapStateSession, hostabi.CapLogRead, hostabi.CapLogAppend}
	p := open(t, opts, runtime.Spec{Name: "p", Module: "p.wasm", Wasm: wasm, Capabilities: granted})[0]
	v, err := ask(t.Context(), t, p, hostFunc(func(_ context.Context, function string, _ json.RawMessage) (json.RawMessage, error) {
		if function == hostabi.FuncLogRead {
			return long, nil
		}
		return json.RawMessage(`{"value": 1}`), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	first := heard
	raw, err := dsh.JSON(runtimetest.Input("p"))
	if err != nil {
		t.Fatal(err)
	}
	d := dsh.PolicyDecision{Hook: dsh.HookRecover, Policy: "p", Digest: p.Info().Digest, Input: raw, HostCalls: v.HostCalls, Decision: v.Raw}
	if line, err := (dsh.Tail{}).Seal(time.UnixMilli(1), dsh.Draft{Type: dsh.TypePolicyDecision, Data: d}); err != nil || line.Decode(&d) != nil {
		t.Fatal(err) // as the log keeps it
	}
	again := func(reread func(context.Context, dsh.PolicyDecision, string, json.RawMessage, uint64) (json.RawMessage, error), d dsh.PolicyDecision) error {
		r := runtime.NewReplayer(opts)
		r.Reread = reread
		defer r.Close()
		got, err := r.Replay(t.Context(), d)
		if err == nil && (string(got) != string(v.Raw) || strings.Join(heard, "\n") != strings.Join(first, "\n")) {
			t.Errorf("replayed %s, with the answers\n%s\nwant\n%s", got, heard, first)
		}
		return err
	}
	reread := func(_ context.Context, _ dsh.PolicyDecision, function string, argument json.RawMessage, tail uint64) (json.RawMessage, error) {
		if function != hostabi.FuncLogRead || string(argument) != script[2][1] || tail != 9 {
			t.Errorf("to be made again: %s %s at %d", function, argument, tail)
		}
		return long, nil
	}
	if err := again(reread, d); err != nil {
		t.Error(err)
	}
	if err := again(nil, d); err == nil || !strings.Contains(err.Error(), "host call 3") {
		t.Errorf("an answer that is only known by its hash: %v", err)
	}
	other := func(context.Context, dsh.PolicyDecision, string, json.RawMessage, uint64) (json.RawMessage, error) {
		return json.RawMessage("{}"), nil
	}
	if err := again(other, d); err == nil || !strings.Contains(err.Error(), "another now") {
		t.Errorf("another answer than the logged one: %v", err)
	}
	var diverged *runtime.DivergedError
	cut, more, changed := d, d, d
	cut.HostCalls = d.HostCalls[:2]
	more.HostCalls = append(append([]json.RawMessage(nil), d.HostCalls...), d.HostCalls[0])
	changed.HostCalls = append([]json.RawMessage{json.RawMessage(strings.Replace(string(d.HostCalls[0]), `"k"`, `"j"`, 1))}, d.HostCalls[1:]...)
	for call, d := range map[int]dsh.PolicyDecision{3: cut, 6: more, 1: changed} {
		if err := again(reread, d); !errors.As(err, &diverged) || diverged.Call != call {
			t.Errorf("%d logged calls: %v; want call %d", len(d.HostCalls), err, call)
		}
	}
}
