package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/dsh-agent/dsh"
)

// The longest pieces of foreign text that a line shows, in characters.
const (
	longError    = 2000
	longWarning  = 600
	longMessage  = 300
	longReason   = 160
	longArgument = 100
)

// failureLine is a failure in one line: RATE_LIMIT (HTTP 429): what was said.
func failureLine(f dsh.Failure) string {
	s := string(f.Code)
	if f.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d)", f.Status)
	}
	if m := oneLine(f.Message, longMessage); m != "" {
		s += ": " + m
	}
	return s
}

// meaning is what a code says, for a person.
func meaning(c dsh.Code) string {
	switch c {
	case dsh.CodeRateLimit:
		return "the provider takes no more requests or tokens for now"
	case dsh.CodeServer:
		return "the provider, or something before it, failed or is overloaded"
	case dsh.CodeTimeout:
		return "the provider did not answer in time"
	case dsh.CodeTransport:
		return "the connection to the provider failed"
	case dsh.CodeEmptyResponse:
		return "the provider answered, and said nothing"
	case dsh.CodeContextWindow:
		return "the conversation is too long for the model"
	case dsh.CodeAuth:
		return "the provider did not accept the key"
	case dsh.CodeQuota:
		return "the account is out of credit, or over a limit of its plan"
	case dsh.CodeInvalidRequest:
		return "the provider refused the request as it is"
	case dsh.CodeContentFilter:
		return "a content filter refused the request or the answer"
	case dsh.CodeProtocol:
		return "the provider broke its wire format"
	case dsh.CodeAborted:
		return "the request was stopped"
	}
	return "the request failed in a way that dsh does not know"
}

// advice is what to do about a failure that ended a turn.
func advice(f dsh.Failure, p ProviderFacts, id dsh.SessionID, retryAt int64, now time.Time) string {
	again := "dsh run --resume " + string(id)
	switch f.Code {
	case dsh.CodeAuth:
		if p.KeyVariable != "" {
			return fmt.Sprintf("check the key in $%s, then: %s", oneLine(p.KeyVariable, longArgument), again)
		}
		return "this provider is configured without a key: set its api_key_env, then: " + again
	case dsh.CodeQuota:
		return "see the account at the provider, or choose another with --provider, then: " + again
	case dsh.CodeInvalidRequest:
		return "check the model's name and the provider's settings (dsh config show), then: " + again
	case dsh.CodeContextWindow:
		return "begin a new session, or use a model with a larger context: " + again + " --model NAME"
	case dsh.CodeContentFilter:
		return "change the prompt: " + again + " PROMPT"
	case dsh.CodeProtocol, dsh.CodeUnknown, dsh.CodeAborted:
		return "dsh log show " + string(id) + " tells all that is known; to try again: " + again
	case dsh.CodeTransport:
		if p.BaseURL != "" {
			return fmt.Sprintf("check that %s can be reached, then: %s", oneLine(p.BaseURL, longReason), again)
		}
	}
	if retryAt > 0 {
		return fmt.Sprintf("come back at %s: %s", clock(time.UnixMilli(retryAt), now), again)
	}
	return "come back later: " + again
}

// ofRetries is "retry 1 of 5", or without the number where there is no limit.
func ofRetries(r dsh.Retry) string {
	if r.MaxRetries == nil {
		return fmt.Sprintf("retry %d", r.Retry)
	}
	return fmt.Sprintf("retry %d of %d", r.Retry, *r.MaxRetries)
}

// seconds is a duration as a person reads it: 0.5 s, 12 s, 3 min 5 s, 1 h.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond && d > 0:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < 10*time.Second:
		return strconv.FormatFloat(float64(d.Round(10*time.Millisecond))/float64(time.Second), 'f', -1, 64) + " s"
	}
	return wholeSeconds(d.Round(time.Second))
}

func wholeSeconds(d time.Duration) string {
	h, m, s := d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	text := ""
	add := func(n time.Duration, unit string) {
		if n == 0 {
			return
		}
		if text != "" {
			text += " "
		}
		text += fmt.Sprintf("%d %s", n, unit)
	}
	add(h, "h")
	add(m, "min")
	add(s, "s")
	if text == "" {
		return "0 s"
	}
	return text
}

// countdown is what is left of a wait, so that its last digit moves evenly.
func countdown(left time.Duration) string {
	switch {
	case left <= 0:
		return "0.0 s"
	case left < 10*time.Second:
		return strconv.FormatFloat(left.Seconds(), 'f', 1, 64) + " s"
	}
	return wholeSeconds(left.Round(time.Second))
}

// clock is a moment as a person reads it: the time of day, with the date where
// that is another one.
func clock(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func ms(n float64) time.Duration { return dsh.FromMillis(n) }
