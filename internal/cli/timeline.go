package cli

import (
	"fmt"
	"time"

	"github.com/dsh-agent/dsh"
)

// A moment is one line of a session's timeline.
type moment struct {
	Seq  uint64        `json:"seq"`
	At   int64         `json:"at"` // Unix ms
	Type dsh.EventType `json:"type"`
	Text string        `json:"text"`

	style string
}

// A timeline folds events into what happened, when, and who decided.
type timeline struct {
	began  int64 // Unix ms, of the first event
	chunks int   // of the attempt under way
	told   progress
	usage  dsh.Usage
	size   contextSize
}

// add takes the next event, and returns what it adds to the timeline.
func (t *timeline) add(e dsh.Event) ([]moment, error) {
	if t.began == 0 {
		t.began = e.At
	}
	if e.Type == dsh.TypeAssistantChunk {
		t.chunks++
		return nil, nil
	}
	if err := t.size.add(e); err != nil {
		return nil, err
	}
	said, err := t.told.lines(e)
	if err != nil {
		return nil, err
	}
	style, text, err := t.describe(e, said)
	if err != nil || text == "" {
		return nil, err
	}
	return []moment{{e.Seq, e.At, e.Type, text, style}}, nil
}

// describe puts an event into words; said is what progress tells of it, which
// is enough for many.
func (t *timeline) describe(e dsh.Event, said []line) (style, text string, err error) {
	switch e.Type {
	case dsh.TypeTurnStart:
		return told(e, func(d dsh.TurnStart) (string, string) {
			if d.Continues > 0 {
				return bold, fmt.Sprintf("turn %d takes up turn %d again", d.Turn, d.Continues)
			}
			return bold, fmt.Sprintf("turn %d", d.Turn)
		})
	case dsh.TypeUserMessage:
		return told(e, func(d dsh.UserMessage) (string, string) {
			return plain, "prompt: " + oneLine(dsh.Text(d.Content), longReason)
		})
	case dsh.TypeAttemptStart:
		t.chunks = 0
		return plain, "", nil
	case dsh.TypeAttemptEnd:
		return told(e, t.attempt)
	case dsh.TypePoliciesChanged:
		if len(said) > 0 && !said[0].verbose {
			return said[0].style, said[0].text, nil
		}
		return plain, "", nil
	case dsh.TypeRetry:
		return told(e, func(d dsh.Retry) (string, string) {
			return yellow, fmt.Sprintf("wait %s before %s, decided by %s", seconds(ms(d.DelayMs)), ofRetries(d), oneLine(d.Policy, longArgument))
		})
	case dsh.TypeRetryCancelled:
		return told(e, func(d dsh.RetryCancelled) (string, string) {
			return yellow, fmt.Sprintf("retry %d does not take place: %s", d.Retry, oneLine(d.Reason, longArgument))
		})
	case dsh.TypeAssistantMessage:
		return told(e, func(d dsh.AssistantMessage) (string, string) {
			if text := oneLine(dsh.Text(d.Content), longReason); text != "" {
				return plain, "answer: " + text
			}
			return plain, ""
		})
	case dsh.TypeTurnEnd:
		return told(e, func(d dsh.TurnEnd) (string, string) { return ended(d) })
	}
	if len(said) > 0 {
		return said[0].style, said[0].text, nil
	}
	return plain, "", nil
}

// told gives an event's payload to f.
func told[T any](e dsh.Event, f func(T) (style, text string)) (string, string, error) {
	var d T
	if err := e.Decode(&d); err != nil {
		return "", "", err
	}
	style, text := f(d)
	return style, text, nil
}

func (t *timeline) attempt(d dsh.AttemptEnd) (style, text string) {
	text = fmt.Sprintf("%s %d", t.told.attemptWord(), d.Attempt)
	if d.Step > 1 {
		text = fmt.Sprintf("step %d, %s", d.Step, text)
	}
	text += " (" + seconds(ms(float64(d.DurationMs))) + ")"
	switch f := d.Finish.Failure; {
	case d.Finish.Kind.Good():
		style, text = green, text+": "+string(d.Finish.Kind)
	case f != nil:
		style, text = red, text+": "+failureLine(*f)
	default:
		style, text = yellow, text+": "+string(d.Finish.Kind)
	}
	if !d.Finish.Kind.Good() && t.chunks > 0 {
		text += fmt.Sprintf(", %s of its answer taken back", count(t.chunks, "piece", "pieces"))
	}
	if u := d.Usage; u != nil {
		t.usage = t.usage.Add(*u)
		text += fmt.Sprintf(", %d tokens in, %d out", u.InputTokens, u.OutputTokens)
	}
	return style, text
}

func ended(d dsh.TurnEnd) (style, text string) {
	text = fmt.Sprintf("turn %d %s", d.Turn, endWords(d.Reason.Kind))
	switch {
	case d.Reason.Kind == dsh.EndCompleted:
		return green, text
	case d.Reason.Failure != nil:
		return red, text + ": " + failureLine(*d.Reason.Failure)
	case d.Reason.Message != "":
		return red, text + ": " + oneLine(d.Reason.Message, longMessage)
	}
	return red, text
}

func endWords(k dsh.EndKind) string {
	switch k {
	case dsh.EndMaxSteps:
		return "was cut by max_steps"
	case dsh.EndLength:
		return "was cut by the output limit"
	case dsh.EndError:
		return "ended by an error"
	case dsh.EndAborted:
		return "was stopped"
	}
	return oneLine(string(k), longArgument)
}

// offset is a moment's distance from the first, as a column of text.
func (t *timeline) offset(at int64) string {
	d := time.Duration(at-t.began) * time.Millisecond
	if d < time.Minute {
		return fmt.Sprintf("%7.2f s", d.Seconds())
	}
	return fmt.Sprintf("%9s", d.Round(time.Second))
}
