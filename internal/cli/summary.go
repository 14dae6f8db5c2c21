package cli

import (
	"fmt"
	"strings"

	"github.com/dsh-agent/dsh"
)

// summary is what an event tells, in one clean line. Of a type that it does
// not know it shows the data.
func summary(e dsh.Event) string {
	text, err := known(e)
	if err != nil {
		return "cannot be read: " + oneLine(err.Error(), longReason)
	}
	if text == "" {
		text = string(e.Data)
	}
	return oneLine(text, longReason)
}

func known(e dsh.Event) (string, error) {
	switch e.Type {
	case dsh.TypeSessionStart:
		return tell(e, func(d dsh.SessionStart) string { return fmt.Sprintf("%s in %s: %s", d.ID, d.Cwd, d.Title) })
	case dsh.TypeTurnStart:
		return tell(e, func(d dsh.TurnStart) string {
			if d.Continues > 0 {
				return fmt.Sprintf("turn %d, takes up turn %d", d.Turn, d.Continues)
			}
			return fmt.Sprintf("turn %d", d.Turn)
		})
	case dsh.TypeUserMessage:
		return tell(e, func(d dsh.UserMessage) string { return quoted(dsh.Text(d.Content)) })
	case dsh.TypeStepStart:
		return tell(e, func(d dsh.StepStart) string { return fmt.Sprintf("step %d", d.Step) })
	case dsh.TypeRequestHeader:
		return tell(e, func(d dsh.RequestHeader) string {
			return fmt.Sprintf("%s, model %s, %s", d.Provider, d.Model, count(len(d.Tools), "tool", "tools"))
		})
	case dsh.TypeAttemptStart:
		return tell(e, func(d dsh.AttemptStart) string {
			return fmt.Sprintf("step %d, attempt %d (%s): %d bytes, sha256 %.12s", d.Step, d.Attempt, d.Purpose, d.RequestBytes, d.RequestSHA256)
		})
	case dsh.TypeAssistantChunk:
		return tell(e, chunkWords)
	case dsh.TypeAttemptEnd:
		return tell(e, func(d dsh.AttemptEnd) string { _, text := (&timeline{}).attempt(d); return text })
	case dsh.TypeAssistantMessage:
		return tell(e, messageWords)
	case dsh.TypeToolCall:
		return tell(e, func(d dsh.ToolCall) string { return d.Name + " " + d.Arguments })
	case dsh.TypeToolResult:
		return tell(e, func(d dsh.ToolResultEvent) string {
			if d.IsError {
				return "error: " + quoted(dsh.Text(d.Content))
			}
			return quoted(dsh.Text(d.Content))
		})
	case dsh.TypeStepEnd:
		return tell(e, func(d dsh.StepEnd) string { return fmt.Sprintf("step %d", d.Step) })
	case dsh.TypeTurnEnd:
		return tell(e, func(d dsh.TurnEnd) string { _, text := ended(d); return text })
	}
	return recoveryWords(e)
}

// recoveryWords are those of the events that deal with a failure.
func recoveryWords(e dsh.Event) (string, error) {
	var p progress
	switch e.Type {
	case dsh.TypePolicyDecision:
		return tell(e, func(d dsh.PolicyDecision) string { return p.decision(d)[0].text })
	case dsh.TypePolicyFault:
		return tell(e, func(d dsh.PolicyFault) string { return p.fault(d)[0].text })
	case dsh.TypePolicyRefused:
		return tell(e, func(d dsh.PolicyRefused) string { return p.refused(d)[0].text })
	case dsh.TypePoliciesChanged:
		return tell(e, func(d dsh.PoliciesChanged) string { return p.changed(d)[0].text })
	case dsh.TypeCompactionStart:
		return tell(e, func(d dsh.CompactionStart) string { return p.compacts(d)[0].text })
	case dsh.TypeCompactionSummary:
		return tell(e, func(d dsh.CompactionSummary) string { return p.summarised(d)[0].text })
	case dsh.TypeCompactionEnd:
		return tell(e, func(d dsh.CompactionEnd) string {
			if d.Error != "" {
				return "it did not take place: " + d.Error
			}
			return "done"
		})
	case dsh.TypeRetry:
		return tell(e, func(d dsh.Retry) string { return p.retries(d)[0].text })
	case dsh.TypeRetryStarted:
		return tell(e, func(d dsh.RetryStarted) string { return fmt.Sprintf("retry %d of step %d", d.Retry, d.Step) })
	case dsh.TypeRetryCancelled:
		return tell(e, func(d dsh.RetryCancelled) string { return fmt.Sprintf("retry %d: %s", d.Retry, d.Reason) })
	}
	return "", nil
}

func tell[T any](e dsh.Event, f func(T) string) (string, error) {
	var d T
	if err := e.Decode(&d); err != nil {
		return "", err
	}
	return f(d), nil
}

// quoted shows a text so that its line ends can be told from spaces.
func quoted(s string) string {
	const enough = 4 * longReason
	if len(s) > enough {
		s = strings.ToValidUTF8(s[:enough], "")
	}
	return fmt.Sprintf("%q", s)
}

func chunkWords(d dsh.AssistantChunk) string {
	c := d.Chunk
	switch {
	case c.Type == dsh.ChunkToolCall && c.Name != "":
		return fmt.Sprintf("attempt %d, %s %s: %s", d.Attempt, c.Type, c.Name, quoted(c.Arguments))
	case c.Type == dsh.ChunkToolCall:
		return fmt.Sprintf("attempt %d, %s: %s", d.Attempt, c.Type, quoted(c.Arguments))
	}
	return fmt.Sprintf("attempt %d, %s: %s", d.Attempt, c.Type, quoted(c.Text))
}

func messageWords(d dsh.AssistantMessage) string {
	var parts []string
	for _, b := range d.Content {
		switch b.Type {
		case dsh.BlockToolCall:
			parts = append(parts, "calls "+b.Name+" "+b.Arguments)
		case dsh.BlockReasoning:
			parts = append(parts, "reasoning "+quoted(b.Text))
		default:
			parts = append(parts, quoted(b.Text))
		}
	}
	return strings.Join(parts, "; ")
}
