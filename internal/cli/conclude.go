package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// conclude says how a turn ended, and makes the exit code of it.
func (t *turn) conclude(ctx context.Context, o loop.Outcome) error {
	if t.manual && (o.Status != dsh.EndFailed || o.Failure == nil) {
		return t.concludeCompaction(o)
	}
	switch o.Status {
	case dsh.EndCompleted:
		if t.verbose() {
			t.say.line(dim, "completed after "+effort(o))
		}
		return nil
	case dsh.EndFailed:
		if o.Failure != nil {
			t.failure(o)
			if o.Failure.Code.Transient() {
				return exit(ExitTransient)
			}
			return exit(ExitFailed)
		}
	case dsh.EndAborted:
		t.progress(plain, fmt.Sprintf("dsh: stopped; dsh run --resume %s takes the turn up again", o.Session))
		return exit(ExitInterrupted)
	case dsh.EndMaxSteps, dsh.EndLength:
		t.say.error("%s: %s", cutWords(o.Status), oneLine(o.Message, longMessage))
		t.say.line(plain, fmt.Sprintf("  to go on: dsh run --resume %s", o.Session))
		return exit(ExitCut)
	}
	t.say.error("the turn ended by an error: %s; to try again: dsh run --resume %s", oneLine(o.Message, longMessage), o.Session)
	return exit(ExitError)
}

func cutWords(kind dsh.EndKind) string {
	if kind == dsh.EndMaxSteps {
		return "the turn was cut by max_steps"
	}
	return "the answer was cut by the output limit"
}

// effort is what a turn took.
func effort(o loop.Outcome) string {
	s := count(o.Attempts, "attempt", "attempts") + " and " + count(o.Retries, "retry", "retries")
	if o.WaitedMs > 0 {
		s += ", " + seconds(ms(float64(o.WaitedMs))) + " of waiting"
	}
	if o.Usage.InputTokens+o.Usage.OutputTokens > 0 {
		s += fmt.Sprintf(", %d tokens in and %d out", o.Usage.InputTokens, o.Usage.OutputTokens)
	}
	return s
}

// failure says what a failed turn met, who was asked, and what to do.
func (t *turn) failure(o loop.Outcome) {
	f := *o.Failure
	provider := t.front.told.provider
	if provider == "" {
		provider = t.cfg.Provider
	}
	t.say.error("%s", failureLine(f))
	say := func(format string, args ...any) { t.say.line(plain, "  "+fmt.Sprintf(format, args...)) }
	say("%s (provider %s)", meaning(f.Code), oneLine(provider, longArgument))
	if f.RetryAfter > 0 {
		say("%s", t.askedWait(f, provider))
	}
	if f.Code == dsh.CodeContextWindow && o.Message != "" {
		// It names the largest parts, and what was done about them.
		say("%s", whoWasAsked(nil, t.policyNames(), o.Message))
	} else {
		say("%s", whoWasAsked(t.front.told.asked, t.policyNames(), o.Message))
	}
	say("after %s", effort(o))
	if f.RequestID != "" {
		say("the provider's id of the request: %s", oneLine(string(f.RequestID), longArgument))
	}
	var facts ProviderFacts
	if t.setup.Describe != nil {
		facts = t.setup.Describe(provider)
	}
	if t.manual {
		say("the session is as it was; to try again: dsh compact %s", o.Session)
		return
	}
	say("%s", advice(f, facts, o.Session, o.RetryAt, time.Now()))
}

// askedWait compares the wait that a provider asked for with the longest that
// its retry policy allows.
func (t *turn) askedWait(f dsh.Failure, provider string) string {
	asked := "the provider asked for a wait of " + seconds(f.RetryAfter)
	p, err := t.cfg.Providers(provider)
	if limit := ms(p.Retry.MaxDelayMs); err == nil && limit > 0 && f.RetryAfter > limit {
		return fmt.Sprintf("%s, and the longest that is waited is %s (max_delay_ms of [providers.%s.retry_policy.backoff])",
			asked, seconds(limit), oneLine(provider, longArgument))
	}
	return asked
}

func (t *turn) policyNames() []string {
	if t.cfg.Policies == nil {
		return nil
	}
	var names []string
	policies, _ := t.cfg.Policies.Policies()
	for _, p := range policies {
		names = append(names, p.Info().Name)
	}
	return names
}

// whoWasAsked says what each policy answered.
func whoWasAsked(asked []answer, configured []string, reasons string) string {
	switch {
	case len(asked) > 0:
		var said []string
		for _, a := range asked {
			said = append(said, a.String())
		}
		return "policies asked: " + strings.Join(said, "; ")
	case len(configured) == 0:
		return "no policy was asked: none is configured, so that every failure is final"
	case reasons != "":
		return "policies asked: " + oneLine(reasons, longError)
	}
	return "policies asked: " + strings.Join(configured, ", ")
}
