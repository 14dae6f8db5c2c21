package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
)

// again replays by what a function says of each decision.
type again func(d dsh.PolicyDecision) (string, error)

func (r again) Replay(_ context.Context, _ dsh.Log, _ dsh.SessionID, d dsh.PolicyDecision) (string, error) {
	return r(d)
}

func (again) Close() error { return nil }

// runWith runs a command of a program that a test has changed.
func (w *world) runWith(change func(*cli.Program), args ...string) result {
	p := w.program()
	change(&p)
	var out, err strings.Builder
	code := cli.Run(w.t.Context(), args, p, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	return result{code, out.String(), err.String()}
}

// TestReplay: every decision is run again, and a difference is an error.
func TestReplay(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500), fails(dsh.CodeServer, 500), answers("x"))
	if r := w.run("run", "q"); r.code != 0 {
		t.Fatal(r)
	}
	for _, c := range []struct {
		name string
		say  again
		code int
		want string
	}{
		{"same", func(dsh.PolicyDecision) (string, error) { return "", nil }, 0, "2 decisions: 2 the same"},
		{"different", func(d dsh.PolicyDecision) (string, error) {
			if d.Attempt == 1 {
				return "", nil
			}
			return "it decides otherwise", nil
		}, 1, "2 decisions: 1 the same, 1 different"},
		{"gone", func(dsh.PolicyDecision) (string, error) { return "", errors.New("it is not kept") }, 1, "2 could not be run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			use := func(p *cli.Program) {
				p.Replayer = func(context.Context, cli.Common) (cli.Replayer, error) { return c.say, nil }
			}
			r := w.runWith(use, "policy", "replay", "last")
			if r.code != c.code || !strings.Contains(r.out+r.err, c.want) || strings.Count(r.out, "retry (") != 2 {
				t.Errorf("%+v", r)
			}
			r = w.runWith(use, "policy", "replay", "last", "--json")
			if r.code != c.code || strings.Count(r.out, `"result":`) != 2 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestExplain: what the log of a failure says is told.
func TestExplain(t *testing.T) {
	event := func(typ dsh.EventType, data any) dsh.Event {
		raw, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return dsh.Event{Type: typ, Data: raw}
	}
	decision := func(policy, text string) dsh.Event {
		return event(dsh.TypePolicyDecision, dsh.PolicyDecision{Hook: dsh.HookRecover, Policy: policy, Input: []byte("{}"), Decision: []byte(text)})
	}
	for _, c := range []struct {
		name   string
		events []dsh.Event
		json   string
		text   string
	}{
		{"retry", []dsh.Event{
			event(dsh.TypePolicyFault, dsh.PolicyFault{Hook: dsh.HookCheckConfig, Policy: "bad"}),
			event(dsh.TypePolicyFault, dsh.PolicyFault{Hook: dsh.HookRecover, Policy: "a", Kind: dsh.FaultTrap, Message: "m"}),
			decision("b", `{"kind":"delegate","reason":"no"}`),
			decision("c", `{"kind":"retry","delayMs":640}`),
			event(dsh.TypeRetry, dsh.Retry{Policy: "c", DelayMs: 640}),
			event(dsh.TypePolicyFault, dsh.PolicyFault{Hook: dsh.HookRecover, Policy: "late"}),
		}, `{"verdict":"retry","policy":"c","delayMs":640,"asked":[{"policy":"a","answer":"fault","reason":"trap: m"},{"policy":"b","answer":"delegate","reason":"no"},{"policy":"c","answer":"retry","reason":""}]}`,
			"SERVER (HTTP 503) with a wait of 2.5 s: c retries after 0.64 s"},
		{"refused", []dsh.Event{
			decision("a", `{"kind":"retry","delayMs":1}`),
			event(dsh.TypePolicyRefused, dsh.PolicyRefused{Policy: "a", Rule: dsh.RuleMaxWait, Message: "too long"}),
			event(dsh.TypeTurnEnd, dsh.TurnEnd{}),
		}, `{"verdict":"final","policy":"","delayMs":0,"asked":[{"policy":"a","answer":"refused","reason":"max-wait: too long"}]}`,
			"nobody retries"},
		{"nobody", []dsh.Event{event(dsh.TypeTurnEnd, dsh.TurnEnd{})}, `{"verdict":"final","policy":"","delayMs":0,"asked":[]}`, "no policy is configured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			use := func(p *cli.Program) {
				p.Explain = func(_ context.Context, _ cli.Common, f dsh.Failure) (func(context.Context, func(dsh.Event) error) error, error) {
					if f.Code != dsh.CodeServer || f.Status != 503 || f.RetryAfter != 2500*time.Millisecond {
						t.Errorf("asked for %+v", f)
					}
					return func(ctx context.Context, tell func(dsh.Event) error) error {
						for _, e := range c.events {
							if ctx.Err() != nil {
								break
							}
							if err := tell(e); err != nil {
								return err
							}
						}
						return nil
					}, nil
				}
			}
			args := []string{"policy", "explain", "server", "--status", "503", "--retry-after", "2500"}
			if r := w.runWith(use, append(args, "--json")...); r.code != 0 || r.out != c.json+"\n" {
				t.Errorf("%+v", r)
			}
			if r := w.runWith(use, args...); r.code != 0 || !strings.Contains(r.out, c.text) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestListCountsFaults: a listed policy's faults are those of its bytes.
func TestListCountsFaults(t *testing.T) {
	w := newWorld(t, fails(dsh.CodeServer, 500), answers("x"))
	if r := w.run("run", "q"); r.code != 0 {
		t.Fatal(r)
	}
	use := func(p *cli.Program) {
		p.Policies = func(context.Context, cli.Common) ([]cli.Policy, error) {
			list, _ := w.policies.Policies()
			return []cli.Policy{
				{PolicyInfo: dsh.PolicyInfo{Name: "bad", Source: "bad.wasm"}, Origin: "folder", State: "refused: x", Refused: true},
				{PolicyInfo: list[0].Info(), Origin: "config", Trust: "signed", Signer: "KEY", State: "ready"},
			}, nil
		}
	}
	r := w.runWith(use, "policy", "list", "--json")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || len(lines) != 2 || !strings.Contains(lines[0], `"position":0,"name":"bad"`) || !strings.Contains(lines[1], `"position":1,`) ||
		!strings.Contains(lines[1], `"origin":"config","trust":"signed","signer":"KEY"`) || !strings.Contains(lines[1], `"calls":1,"faults":0,"lastFault":null`) {
		t.Errorf("%+v", r)
	}
}
