package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// The verdicts of `dsh policy explain`.
const (
	verdictRetry = "retry"
	verdictFinal = "final"
)

// An explanation is `dsh policy explain --json`.
type explanation struct {
	Verdict string  `json:"verdict"`
	Policy  string  `json:"policy"`  // whose retry it is; "": nobody's
	DelayMs float64 `json:"delayMs"` // 0 of a final one
	Asked   []said  `json:"asked"`   // in order
}

// said is what became of one policy that was asked.
type said struct {
	Policy string `json:"policy"`
	Answer string `json:"answer"` // retry, delegate, fault or refused
	Reason string `json:"reason"`
}

// explainCommand walks the waterfall for a failure that is only thought of.
func (a *app) explainCommand() *cobra.Command {
	var status int
	var after float64
	c := &cobra.Command{
		Use: "explain CODE", Short: "Say who handles a failure, after what wait, and why the others do not",
		Args: between(1, 1, "the code of one failure, such as RATE_LIMIT"),
		RunE: func(c *cobra.Command, args []string) error {
			f := dsh.Failure{Code: dsh.Code(strings.ToUpper(strings.TrimSpace(args[0]))), Message: "a failure that is only thought of"}
			if !slices.Contains(dsh.Codes(), f.Code) {
				return Usagef("%q is no code of a failure: %s", oneLine(args[0], 60), codeNames())
			}
			if c.Flags().Changed("status") {
				if status < 100 || status > 599 {
					return Usagef("--status %d is no HTTP status: 100 to 599", status)
				}
				f.Status = status
			}
			if c.Flags().Changed("retry-after") {
				if !(after > 0 && after <= float64(dsh.MaxDelayMs)) {
					return Usagef("--retry-after %v is no wait in ms: more than 0, up to %d", after, dsh.MaxDelayMs)
				}
				f.RetryAfter = dsh.FromMillis(after)
			}
			return a.explain(c.Context(), f)
		},
	}
	c.Flags().IntVar(&status, "status", 0, "the HTTP `status` that came with it")
	c.Flags().Float64Var(&after, "retry-after", 0, "the wait that the provider asked for, in `ms`")
	return c
}

func codeNames() string {
	var names []string
	for _, c := range dsh.Codes() {
		names = append(names, string(c))
	}
	return strings.Join(names, ", ")
}

// explain plays the failure in a session that is kept nowhere, and tells what
// the log of it says.
func (a *app) explain(ctx context.Context, f dsh.Failure) error {
	play, err := a.program.Explain(ctx, a.common, f)
	if err != nil {
		return err
	}
	e := explanation{Verdict: verdictFinal, Asked: []said{}}
	stop, end := context.WithCancelCause(ctx)
	defer end(nil)
	err = play(stop, func(event dsh.Event) error {
		done, err := e.take(event)
		if done {
			end(loop.ErrAbort)
		}
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	if a.common.JSON {
		return writeJSON(a.out, e)
	}
	return e.write(a.out, f)
}

// take takes the next event. It reports whether it is the verdict.
func (e *explanation) take(event dsh.Event) (bool, error) {
	switch event.Type {
	case dsh.TypePolicyDecision:
		var d dsh.PolicyDecision
		if err := event.Decode(&d); err != nil || d.Hook != dsh.HookRecover {
			return false, err
		}
		decision, err := dsh.ParseDecision(d.Decision)
		if err != nil {
			return false, err
		}
		e.Asked = append(e.Asked, saidOf(d.Policy, decision))
	case dsh.TypePolicyFault:
		var d dsh.PolicyFault
		if err := event.Decode(&d); err != nil || d.Hook != dsh.HookRecover {
			return false, err
		}
		e.Asked = append(e.Asked, said{d.Policy, "fault", string(d.Kind) + ": " + d.Message})
	case dsh.TypePolicyRefused:
		var d dsh.PolicyRefused
		if err := event.Decode(&d); err != nil {
			return false, err
		}
		e.refused(said{d.Policy, "refused", string(d.Rule) + ": " + d.Message})
	case dsh.TypeRetry:
		var d dsh.Retry
		if err := event.Decode(&d); err != nil {
			return false, err
		}
		e.Verdict, e.Policy, e.DelayMs = verdictRetry, d.Policy, d.DelayMs
		return true, nil
	case dsh.TypeTurnEnd:
		return true, nil
	}
	return false, nil
}

// refused takes the place of what the policy asked for.
func (e *explanation) refused(s said) {
	if n := len(e.Asked); n > 0 && e.Asked[n-1].Policy == s.Policy && e.Asked[n-1].Answer == verdictRetry {
		e.Asked[n-1] = s
		return
	}
	e.Asked = append(e.Asked, s)
}

func saidOf(policy string, d dsh.Decision) said {
	s := said{policy, string(d.Kind), d.Reason}
	if len(d.Repairs) > 0 {
		s.Reason = strings.TrimPrefix(s.Reason+"; after "+count(len(d.Repairs), "repair", "repairs"), "; ")
	}
	if d.Fallback != nil && s.Reason == "" {
		s.Reason = "it retries if no other policy does"
	}
	return s
}

// write tells it to a person.
func (e *explanation) write(w io.Writer, f dsh.Failure) error {
	var b strings.Builder
	name := string(f.Code)
	if f.Status != 0 {
		name += fmt.Sprintf(" (HTTP %d)", f.Status)
	}
	if f.RetryAfter > 0 {
		name += " with a wait of " + seconds(f.RetryAfter)
	}
	switch {
	case e.Verdict == verdictRetry:
		fmt.Fprintf(&b, "%s: %s retries after %s\n", name, oneLine(e.Policy, 64), seconds(ms(e.DelayMs).Round(time.Millisecond)))
	case len(e.Asked) == 0 && f.Code == dsh.CodeAborted:
		fmt.Fprintf(&b, "%s: final: the caller's own stop is put to no policy\n", name)
	case len(e.Asked) == 0:
		fmt.Fprintf(&b, "%s: final: no policy is configured\n", name)
	default:
		fmt.Fprintf(&b, "%s: final: nobody retries\n", name)
	}
	for i, s := range e.Asked {
		line := fmt.Sprintf("%3d. %s: %s", i+1, oneLine(s.Policy, 64), s.Answer)
		if s.Reason != "" {
			line += " (" + oneLine(s.Reason, longMessage) + ")"
		}
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
