package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dsh-agent/dsh"
)

// A line of progress. A verbose one shows with --verbose only.
type line struct {
	style   string
	text    string
	verbose bool
}

// progress folds a turn's events into what a person is told of it.
type progress struct {
	provider string
	purpose  dsh.Purpose // of the last attempt
	good     bool        // the last attempt ended well
	retry    dsh.Retry   // the last one
	asked    []answer    // what the policies said to the last failure
	tools    map[string]string
}

// An answer is what a policy said to a failure, or what became of it.
type answer struct {
	policy string
	said   string // delegated, asked for a retry, faulted, refused
	why    string
}

func (a answer) String() string {
	s := a.policy + " " + a.said
	if a.why != "" {
		s += " (" + a.why + ")"
	}
	return s
}

// lines takes the next event, and returns what to say of it.
func (p *progress) lines(e dsh.Event) ([]line, error) {
	switch e.Type {
	case dsh.TypeTurnStart:
		return decoded(e, p.turn)
	case dsh.TypeAttemptStart:
		return decoded(e, p.attemptStart)
	case dsh.TypeAttemptEnd:
		return decoded(e, p.attemptEnd)
	case dsh.TypePolicyDecision:
		return decoded(e, p.decision)
	case dsh.TypePolicyFault:
		return decoded(e, p.fault)
	case dsh.TypePolicyRefused:
		return decoded(e, p.refused)
	case dsh.TypePoliciesChanged:
		return decoded(e, p.changed)
	case dsh.TypeRetry:
		return decoded(e, p.retries)
	case dsh.TypeRetryCancelled:
		return decoded(e, p.cancelled)
	case dsh.TypeCompactionStart:
		return decoded(e, p.compacts)
	case dsh.TypeCompactionSummary:
		return decoded(e, p.summarised)
	case dsh.TypeCompactionEnd:
		return decoded(e, p.compacted)
	case dsh.TypeToolCall:
		return decoded(e, p.toolCall)
	case dsh.TypeToolResult:
		if e.Surface != nil && e.Surface.Op == dsh.SurfaceReplace {
			return []line{{dim, fmt.Sprintf("the tool result of event %d is shortened for the model", e.Surface.From), false}}, nil
		}
		return decoded(e, p.toolResult)
	}
	return nil, nil
}

// decoded gives an event's payload to f.
func decoded[T any](e dsh.Event, f func(T) []line) ([]line, error) {
	var d T
	if err := e.Decode(&d); err != nil {
		return nil, err
	}
	return f(d), nil
}

func (p *progress) turn(d dsh.TurnStart) []line {
	if d.Continues == 0 {
		return nil
	}
	return []line{{dim, fmt.Sprintf("turn %d takes up turn %d again", d.Turn, d.Continues), true}}
}

func (p *progress) attemptStart(d dsh.AttemptStart) []line {
	p.provider, p.purpose, p.asked = d.Provider, d.Purpose, nil
	text := fmt.Sprintf("step %d, %s %d: %d bytes to %s, model %s", d.Step, p.attemptWord(), d.Attempt, d.RequestBytes, oneLine(d.Provider, longArgument), oneLine(d.Model, longArgument))
	return []line{{dim, text, true}}
}

// attemptWord tells an attempt at an answer from one at a summary.
func (p *progress) attemptWord() string {
	if p.purpose == dsh.PurposeCompaction {
		return "summary attempt"
	}
	return "attempt"
}

func (p *progress) attemptEnd(d dsh.AttemptEnd) []line {
	p.good = d.Finish.Kind.Good()
	which := fmt.Sprintf("step %d, %s %d (%s): ", d.Step, p.attemptWord(), d.Attempt, seconds(ms(float64(d.DurationMs))))
	switch {
	case p.good:
		text := which + string(d.Finish.Kind)
		if u := d.Usage; u != nil {
			text += fmt.Sprintf(", %d tokens in, %d out", u.InputTokens, u.OutputTokens)
		}
		return []line{{dim, text, true}}
	case d.Finish.Kind == dsh.FinishInterrupted:
		return []line{{yellow, fmt.Sprintf("attempt %d was cut when its process ended: the request is sent again", d.Attempt), false}}
	case d.Finish.Failure != nil:
		return []line{{dim, which + failureLine(*d.Finish.Failure), true}}
	}
	return nil
}

func (p *progress) decision(d dsh.PolicyDecision) []line {
	a := answer{policy: oneLine(d.Policy, longArgument)}
	a.said, a.why = decisionWords(d)
	if d.Hook == dsh.HookRecover {
		p.asked = append(p.asked, a)
	}
	return []line{{dim, "policy " + a.String(), true}}
}

// decisionWords say what a policy answered, and why.
func decisionWords(d dsh.PolicyDecision) (said, why string) {
	var answered dsh.Decision
	if err := json.Unmarshal(d.Decision, &answered); err != nil {
		return "gave a decision that cannot be read", oneLine(err.Error(), longReason)
	}
	why = oneLine(answered.Reason, longReason)
	switch {
	case answered.Kind == dsh.KindProceed && len(answered.Repairs) == 0:
		return "lets the step go on", why
	case answered.Kind == dsh.KindProceed:
		return "asked for " + count(len(answered.Repairs), "repair", "repairs") + " before the step", why
	case answered.Kind == dsh.KindRetry && len(answered.Repairs) > 0:
		return fmt.Sprintf("asked for %s and a retry in %s", count(len(answered.Repairs), "repair", "repairs"), seconds(ms(answered.DelayMs))), why
	case answered.Kind == dsh.KindRetry:
		return "asked for a retry in " + seconds(ms(answered.DelayMs)), why
	case answered.Fallback != nil:
		return "let the others go first, and would retry in " + seconds(ms(answered.Fallback.DelayMs)), why
	}
	return "delegated", why
}

func (p *progress) compacts(d dsh.CompactionStart) []line {
	by := "by hand"
	if d.Policy != "" {
		by = "asked for by " + oneLine(d.Policy, longArgument)
	}
	text := fmt.Sprintf("compaction (%s), %s", oneLine(d.Trigger, longArgument), by)
	if d.To > 0 { // otherwise nothing was found to summarise, which its end says
		text += fmt.Sprintf(": the conversation up to event %d is summarised", d.To)
	}
	return []line{{yellow, text, false}}
}

func (p *progress) summarised(d dsh.CompactionSummary) []line {
	return []line{{dim, fmt.Sprintf("the summary stands for %s, about %d tokens", count(len(d.ShadowedSeqs), "message", "messages"), d.ShadowedTokens), false}}
}

func (p *progress) compacted(d dsh.CompactionEnd) []line {
	if d.Error == "" {
		return nil
	}
	return []line{{yellow, "the compaction did not take place: " + oneLine(d.Error, longMessage), false}}
}

func (p *progress) fault(d dsh.PolicyFault) []line {
	if d.Hook == dsh.HookCheckConfig { // a live dsh has said so when it saw the file
		return []line{{yellow, fmt.Sprintf("policy %s was not taken in (%s)", oneLine(d.Policy, longArgument), oneLine(d.Message, longReason)), true}}
	}
	a := answer{oneLine(d.Policy, longArgument), "gave no decision", string(d.Kind) + ": " + oneLine(d.Message, longReason)}
	p.asked = append(p.asked, a)
	return []line{{yellow, "policy " + a.String(), false}}
}

func (p *progress) refused(d dsh.PolicyRefused) []line {
	a := answer{oneLine(d.Policy, longArgument), "was refused", string(d.Rule) + ": " + oneLine(d.Message, longReason)}
	tripped := d.Rule == dsh.RuleTripped
	if tripped {
		a = answer{a.policy, "was not asked", oneLine(d.Message, longReason)}
	}
	if n := len(p.asked); n > 0 && p.asked[n-1].policy == a.policy {
		p.asked = p.asked[:n-1] // what it asked for
	}
	p.asked = append(p.asked, a)
	return []line{{yellow, "policy " + a.String(), tripped}} // that it has tripped was said when it did
}

func (p *progress) changed(d dsh.PoliciesChanged) []line {
	var names []string
	for _, r := range d.To {
		names = append(names, oneLine(r.Name, longArgument))
	}
	text := "no policies decide: every failure is final"
	if len(names) > 0 {
		text = "these policies decide: " + strings.Join(names, ", ")
	}
	return []line{{dim, text, len(d.From) == 0}}
}

func (p *progress) retries(d dsh.Retry) []line {
	p.retry = d
	return []line{{yellow, fmt.Sprintf("%s; %s in %s, decided by %s", strings.TrimRight(failureLine(d.Failure), ".;: "), ofRetries(d), seconds(ms(d.DelayMs)), oneLine(d.Policy, longArgument)), false}}
}

func (p *progress) cancelled(d dsh.RetryCancelled) []line {
	if d.Reason == dsh.CancelPoliciesChanged {
		return []line{{yellow, "the policies changed: the wait is decided anew", false}}
	}
	return []line{{yellow, "the wait was stopped", true}}
}

func (p *progress) toolCall(d dsh.ToolCall) []line {
	name := oneLine(d.Name, longArgument)
	if p.tools == nil {
		p.tools = map[string]string{}
	}
	p.tools[d.CallID] = name
	return []line{{dim, "tool " + name + " " + oneLine(d.Arguments, longArgument), false}}
}

func (p *progress) toolResult(d dsh.ToolResultEvent) []line {
	said := oneLine(dsh.Text(d.Content), longReason)
	if d.IsError {
		return []line{{yellow, "tool " + p.tools[d.CallID] + " failed: " + said, false}}
	}
	return []line{{dim, "tool " + p.tools[d.CallID] + " answered: " + said, true}}
}
