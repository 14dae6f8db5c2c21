package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

// A Simulation is what `dsh policy simulate` is to do.
type Simulation struct {
	File     string
	Sessions []dsh.SessionID // nil: all that met a failure
	Name     string          // "": the module's own
	Config   json.RawMessage // nil: that of the listed policy of the name
	Alone    bool            // nobody else is asked

	// Failure is told what became of each failure: a SimulatedFailure in JSON.
	Failure func(SimulatedFailure) error
}

// A SimulatedFailure is one failure in the log, beside what the candidate would
// have done.
type SimulatedFailure struct {
	Type      string           `json:"type"` // failure
	Session   dsh.SessionID    `json:"session"`
	Turn      int              `json:"turn"`
	Step      int              `json:"step"`
	Attempt   int              `json:"attempt"`
	Purpose   dsh.Purpose      `json:"purpose"`
	Provider  string           `json:"provider"`
	Code      dsh.Code         `json:"code"`
	Recorded  SimulatedOutcome `json:"recorded"`
	Candidate SimulatedOutcome `json:"candidate"`
	Beyond    int              `json:"beyond"` // requests that the candidate would send on, which the log knows nothing of
	Differs   bool             `json:"differs"`
}

// A SimulatedOutcome is what became of a failure on one side.
type SimulatedOutcome struct {
	Answer  string  `json:"answer"` // retry, final, open, or none: the candidate had ended the turn before
	Policy  string  `json:"policy,omitempty"`
	DelayMs float64 `json:"delayMs"`
	Reason  string  `json:"reason,omitempty"`
	Refused string  `json:"refused,omitempty"` // the rule of the host
	Fault   string  `json:"fault,omitempty"`
}

// A SimulatedSide is what failures came to on one side.
type SimulatedSide struct {
	Failures int     `json:"failures"`
	Retried  int     `json:"retried"`
	Final    int     `json:"final"`
	Requests int     `json:"requests"`
	WaitMs   float64 `json:"waitMs"`
	Tokens   int64   `json:"tokens"`
}

// A SimulatedLine compares the sides of one code or provider.
type SimulatedLine struct {
	Type      string        `json:"type"` // code or provider
	Key       string        `json:"key"`
	Recorded  SimulatedSide `json:"recorded"`
	Candidate SimulatedSide `json:"candidate"`
}

// Simulated is what a simulation came to: the last line of `--json`.
type Simulated struct {
	Type      string        `json:"type"` // total
	Policy    string        `json:"policy"`
	Digest    string        `json:"digest"`
	Sessions  int           `json:"sessions"`
	Recorded  SimulatedSide `json:"recorded"`
	Candidate SimulatedSide `json:"candidate"`
	Beyond    SimulatedSide `json:"beyond"` // of the candidate's side, what the log knows nothing of

	Changed     int `json:"changed"`
	Lost        int `json:"lost"`
	Skipped     int `json:"skipped"`
	Faults      int `json:"faults"`
	Refused     int `json:"refused"`
	Unbounded   int `json:"unbounded"`
	Unknown     int `json:"unknown"`
	Rebuilt     int `json:"rebuilt"`
	Unasked     int `json:"unasked"`
	Unavailable int `json:"unavailable"`

	Codes     []SimulatedLine `json:"-"`
	Providers []SimulatedLine `json:"-"`
}

const simulateHelp = `Asks a policy about every failure that the log holds, and shows beside each other
what was decided and what this policy would have decided. Nothing is sent, nobody
waits, and nothing is written to the log.

The candidate takes the place of the policy of its name (its own, or --as), or
stands before all others where there was none of that name, as it would in the
policies folder; with --alone nobody else is asked. It gets the recorded inputs
with its own name, config and retries, all capabilities that it asks for, and the
ceilings that were in force.

What is modelled
  - a failure that the candidate meets is the recorded one, whatever it decided
    before; its clock is moved by how much longer or shorter it has waited
  - the number, the ceilings and the rules by which the host refuses a retry
  - where the candidate gives up and the log went on, the turn ends: what came
    later in it is not sent ("skipped"), and an answer that the log has is "lost"
  - where the candidate goes on and the log ended, the last failure is met again
    until the candidate gives up, a ceiling is met or 50 requests are sent; this
    is the worst case, and shown apart ("beyond the log")
  - log_read and surface_read, as the log was then; other host functions answer
    as they did to the same call of the policy of the same name
What is not
  - another policy that was not asked is taken to delegate ("unasked")
  - memory of policies: a call without a recorded answer is refused ("unavailable")
  - what a repair of the candidate would do: behind it nothing is followed
  - before_step, faults that would end a turn, min_delay_ms, and whether a request
    after another delay would have fared better or worse

--fail-if ends with exit code 1 if a condition holds: METRIC OP VALUE, where METRIC
is requests, retried, final, wait (ms), tokens, lost, changed, faults or
unavailable; OP is > or <; and VALUE is a number, +N or -N against the log, or a
percentage of the log's: --fail-if 'requests>+20%' --fail-if 'lost>0'.`

func (a *app) simulateCommand() *cobra.Command {
	var s Simulation
	var session, config string
	var all bool
	var gates []string
	c := &cobra.Command{
		Use: "simulate FILE [--session ID | --all]", Short: "What a policy would have decided on the failures that the log holds", Long: simulateHelp,
		Args: between(1, 1, "one file, or builtin:NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			s.File = args[0]
			parsed, err := parseGates(gates)
			switch {
			case err != nil:
				return err
			case (session != "") == all:
				return Usagef("dsh policy simulate needs --session ID or --all")
			case config != "" && !json.Valid([]byte(config)):
				return Usagef("--policy-config is not JSON")
			case config != "":
				s.Config = json.RawMessage(config)
			}
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error {
				if session != "" {
					h, err := find(ctx, log, session)
					if err != nil {
						return err
					}
					s.Sessions = []dsh.SessionID{h.ID}
				}
				return a.simulate(ctx, log, s, parsed)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&session, "session", "", "one session: an `ID`, a beginning of it, or last")
	f.BoolVar(&all, "all", false, "every session that met a failure")
	f.StringVar(&s.Name, "as", "", "the `name` under which it would be asked (default: the module's own)")
	f.StringVar(&config, "policy-config", "", "its config, a `JSON` object (default: that of the listed policy of the name)")
	f.BoolVar(&s.Alone, "alone", false, "no other policy is asked")
	f.StringArrayVar(&gates, "fail-if", nil, "a `condition` that ends with exit code 1, repeatable")
	return c
}

// maxShownFailures bounds how many failures are listed for a person.
const maxShownFailures = 20

func (a *app) simulate(ctx context.Context, log dsh.Log, s Simulation, gates []gate) error {
	var rows table
	rows.add("SESSION", "TURN", "STEP", "ATTEMPT", "CODE", "IN THE LOG", "CANDIDATE", "WHY")
	hidden := 0
	s.Failure = func(f SimulatedFailure) error {
		switch {
		case a.common.JSON:
			return writeJSON(a.out, f)
		case !f.Differs:
		case len(rows) > maxShownFailures && !a.common.Verbose:
			hidden++
		default:
			rows.add(f.row()...)
		}
		return nil
	}
	r, err := a.program.Workshop.Simulate(ctx, a.common, log, s)
	if err != nil {
		return err
	}
	if a.common.JSON {
		err = a.simulatedJSON(r)
	} else {
		err = a.simulatedText(r, rows, hidden)
	}
	if err != nil {
		return err
	}
	failed := false
	for _, g := range gates {
		if why := g.fails(r); why != "" {
			failed = true
			a.say.line(red, "dsh: --fail-if "+why)
		}
	}
	if failed {
		return exit(ExitError)
	}
	return nil
}

func (a *app) simulatedJSON(r Simulated) error {
	for _, l := range append(r.Codes, r.Providers...) {
		if err := writeJSON(a.out, l); err != nil {
			return err
		}
	}
	return writeJSON(a.out, r)
}

func (a *app) simulatedText(r Simulated, rows table, hidden int) error {
	if len(rows) > 1 {
		if err := rows.write(a.out); err != nil {
			return err
		}
		if hidden > 0 {
			a.progress(plain, fmt.Sprintf("and %d more that differ: --verbose lists them, --json all", hidden))
		}
		if _, err := fmt.Fprintln(a.out); err != nil {
			return err
		}
	}
	var t table
	t.add("", "FAILURES", "RETRIED", "FINAL", "REQUESTS", "WAITED", "TOKENS SENT AGAIN")
	t.addSides("all", r.Recorded, r.Candidate)
	for _, l := range r.Codes {
		t.addSides(l.Key, l.Recorded, l.Candidate)
	}
	for _, l := range r.Providers {
		t.addSides("provider "+l.Key, l.Recorded, l.Candidate)
	}
	if err := t.write(a.out); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.out, strings.Join(r.notes(), "\n"))
	return err
}

// notes say in words what the figures rest on.
func (r Simulated) notes() []string {
	notes := []string{fmt.Sprintf("%s in %s, %d of them decided otherwise or after another delay (log -> candidate)",
		count(r.Recorded.Failures, "failure", "failures"), count(r.Sessions, "session", "sessions"), r.Changed)}
	for _, n := range []struct {
		n    int
		text string
	}{
		{r.Lost, "turns that had an answer and would have ended before it"},
		{r.Skipped, "failures that the candidate would not have met, having ended the turn"},
		{r.Unbounded, "chains that would not have ended in 50 requests"},
		{r.Unknown, "chains that go on behind a repair of the candidate, and are not followed"},
		{r.Faults, "decisions that were faults, which delegate"},
		{r.Refused, "retries that the host would have refused"},
		{r.Rebuilt, "inputs made of what the log tells, since it holds none"},
		{r.Unasked, "answers of other policies that the log does not hold, taken to delegate"},
		{r.Unavailable, "host calls that were refused, since the log holds no answer"},
	} {
		if n.n > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d", n.text, n.n))
		}
	}
	if b := r.Beyond; b.Requests > 0 {
		notes = append(notes, fmt.Sprintf("of the candidate's, %s, %s of waiting and %d tokens are beyond the log: the last failure is taken to go on",
			count(b.Requests, "request", "requests"), simulatedWait(b.WaitMs), b.Tokens))
	}
	return notes
}

func (t *table) addSides(name string, was, is SimulatedSide) {
	both := func(a, b string) string {
		if a == b {
			return a
		}
		return a + " -> " + b
	}
	n := func(a, b int64) string { return both(fmt.Sprint(a), fmt.Sprint(b)) }
	t.add(oneLine(name, 60), n(int64(was.Failures), int64(is.Failures)), n(int64(was.Retried), int64(is.Retried)), n(int64(was.Final), int64(is.Final)),
		n(int64(was.Requests), int64(is.Requests)), both(simulatedWait(was.WaitMs), simulatedWait(is.WaitMs)), n(was.Tokens, is.Tokens))
}

func simulatedWait(n float64) string { return ms(n).Round(time.Millisecond).String() }

func (f SimulatedFailure) row() []string {
	why := f.Candidate.Reason
	switch {
	case f.Candidate.Fault != "":
		why = "fault: " + f.Candidate.Fault
	case f.Candidate.Refused != "":
		why = "refused: " + f.Candidate.Refused
	}
	return []string{string(f.Session), fmt.Sprint(f.Turn), fmt.Sprint(f.Step), fmt.Sprint(f.Attempt), string(f.Code),
		f.Recorded.words(), f.Candidate.words(), orDash(oneLine(why, 120))}
}

func (o SimulatedOutcome) words() string {
	if o.Answer != "retry" {
		return o.Answer
	}
	return fmt.Sprintf("retry after %s (%s)", simulatedWait(o.DelayMs), oneLine(o.Policy, 40))
}
