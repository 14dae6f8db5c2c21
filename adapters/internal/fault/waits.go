package fault

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// maxWait is the longest wait that is believed (failures.md: over ten years is
// absurd).
const maxWait = 10 * 365 * 24 * time.Hour

// wait finds how long the provider asked to wait: in the header that is made
// for it, then in the body's fields, then in its words, then in the headers
// that tell when an exhausted limit comes back. What cannot be read is absent.
func wait(e Evidence, r *report, code dsh.Code) time.Duration {
	now := e.Now
	if now.IsZero() {
		now = time.Now()
	}
	for _, h := range []http.Header{e.Header, r.headers} {
		if d := headerWait(h, now); d > 0 {
			return d
		}
	}
	for _, f := range r.waits {
		if d := fieldWait(f, now); d > 0 {
			return d
		}
	}
	for _, t := range r.texts {
		if d := spokenWait(t); d > 0 {
			return d
		}
		if m := spokenMoment().FindStringSubmatch(t); m != nil {
			if d := moment(m[1], now); d > 0 {
				return d
			}
		}
	}
	if code != dsh.CodeRateLimit && code != dsh.CodeQuota {
		return 0
	}
	for _, h := range []http.Header{e.Header, r.headers} {
		if d := resetWait(h, r.limitHit, now); d > 0 {
			return d
		}
	}
	return 0
}

// headerWait reads retry-after-ms (Azure, OpenAI) and Retry-After (RFC 9110,
// 10.2.3; fractions of a second are sent in practice).
func headerWait(h http.Header, now time.Time) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if d := seconds(h.Get(name), time.Millisecond); d > 0 {
			return d
		}
	}
	s := strings.TrimSpace(h.Get("Retry-After"))
	if numeric(s) {
		return seconds(s, time.Second)
	}
	if t, err := http.ParseTime(s); err == nil {
		return until(t, now)
	}
	return 0
}

// numeric reports whether s would be a number to somebody: such a value never
// reaches the date parser.
func numeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || s != "" && strings.Trim(s, "0123456789.+-eE") == ""
}

var plainNumber = lazily(`^\d{1,18}(\.\d{1,18})?$`)

// seconds reads a plain decimal number of a unit. Anything else is 0.
func seconds(s string, unit time.Duration) time.Duration {
	s = strings.TrimSpace(s)
	if !plainNumber().MatchString(s) {
		return 0
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0
	}
	return sane(n * float64(unit))
}

func sane(ns float64) time.Duration {
	if !(ns >= 1) || ns > float64(maxWait) {
		return 0
	}
	return time.Duration(math.Round(ns))
}

// until is the time from now to t, and 0 for a past or absurd one. It is kept
// to the millisecond, rounded up: a wait that ends early is no wait.
func until(t, now time.Time) time.Duration {
	d := t.Sub(now)
	if d <= 0 || d > maxWait {
		return 0
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// fieldWait reads a field of a body. Its unit is in its name; a bare
// retry_after is in seconds, and a retryDelay is a protobuf duration.
func fieldWait(f waitField, now time.Time) time.Duration {
	name := normal(f.name)
	switch {
	case name == "retrydelay":
		return span(f.value)
	case name == "resetsat":
		return moment(f.value, now)
	case strings.HasSuffix(name, "ms"):
		return seconds(f.value, time.Millisecond)
	}
	if d := seconds(f.value, time.Second); d > 0 {
		return d
	}
	return span(f.value)
}

// moment reads a point in time: RFC 3339, or Unix seconds or milliseconds.
func moment(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if plainNumber().MatchString(s) {
		n, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || n < 1e9: // 2001: too early for either
			return 0
		case n >= 1e12:
			n /= 1000
		}
		if n > 1e11 {
			return 0
		}
		whole := math.Floor(n)
		return until(time.Unix(int64(whole), int64((n-whole)*1e9)), now)
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return 0
	}
	return until(t, now)
}

var spanPart = lazily(`^(\d{1,15}(?:\.\d{1,15})?) ?(milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)(?:\b|(?:\d)|$)`)

// unitOf is the unit that a word for one means.
func unitOf(word string) time.Duration {
	switch {
	case strings.HasPrefix(word, "ms"), strings.HasPrefix(word, "mil"):
		return time.Millisecond
	case word[0] == 's':
		return time.Second
	case word[0] == 'm':
		return time.Minute
	case word[0] == 'h':
		return time.Hour
	}
	return 24 * time.Hour
}

// span reads a length of time as providers write it: 1.898s, 9m38.016s, 1d2h,
// 20ms, "58 hours", "1 minute and 20 seconds". The whole of s must be one.
func span(s string) time.Duration {
	d, rest := spanPrefix(strings.ToLower(strings.TrimSpace(s)))
	if rest != "" {
		return 0
	}
	return d
}

// spanPrefix reads the span at the beginning of s and returns what follows.
func spanPrefix(s string) (time.Duration, string) {
	total := 0.0
	rest := s
	for range 8 {
		m := spanPart().FindStringSubmatch(rest)
		if m == nil {
			break
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, s
		}
		total += n * float64(unitOf(m[2]))
		used := strings.Index(rest, m[2]) + len(m[2])
		rest = rest[used:]
		for _, joint := range []string{", and ", " and ", ", ", " "} {
			if after, ok := strings.CutPrefix(rest, joint); ok && spanPart().MatchString(after) {
				rest = after
				break
			}
		}
	}
	if total == 0 {
		return 0, s
	}
	return sane(total), rest
}

// waitWords finds the words before a wait in a message. A number without a
// unit is in seconds, and only after words that cannot mean anything else.
var waitWords = lazily(`(?i)(?:(?:try|retry|again|retrying|available|resets?|reset|back|resume|refresh\w*|renews?)\b[^.\n\d]{0,40}?\b(?:in|after|within)|\bwait(?:ing)?(?: for)?(?: at least| about| approximately)?|retry[ _-]?after|cool(?:ing)? ?down(?: for)?)[:=]?\s+(?:about |approximately |another |at least )?(\d{1,15}(?:\.\d{1,15})?[^\n]{0,60})`)

// waitHints are the words without which there is no wait in a message.
var waitHints = says(`again`, `retry`, `wait`, `reset`, `available`, `back`, `resume`, `refresh`, `renew`, `cool`, `[后後]`) //nolint:gochecknoglobals // compiled regexps

var bareSeconds = lazily(`^\d{1,15}(?:\.\d{1,15})?(?:[.,;)]|\s*$)`)

// spokenWait finds a wait in a message: "Please try again in 9m38.016s".
func spokenWait(text string) time.Duration {
	if !waitHints.in(strings.ToLower(ends(text))) {
		return 0
	}
	for _, m := range waitWords().FindAllStringSubmatch(ends(text), 4) {
		if d, _ := spanPrefix(strings.ToLower(m[1])); d > 0 {
			return d
		}
		if chinese := chineseWait().FindStringSubmatch(m[1]); chinese != nil {
			return seconds(chinese[1], time.Second)
		}
		if bareSeconds().MatchString(m[1]) && retryAfter().MatchString(m[0]) {
			return seconds(strings.TrimRight(strings.TrimSpace(m[1]), ".,;)"), time.Second)
		}
	}
	if m := colonWait().FindStringSubmatch(text); m != nil {
		if d := span(m[1]); d > 0 {
			return d
		}
		return seconds(m[1], time.Second)
	}
	if m := chineseAgain().FindStringSubmatch(text); m != nil {
		unit := map[string]time.Duration{"秒": time.Second, "分钟": time.Minute, "小时": time.Hour}[m[2]]
		return seconds(m[1], unit)
	}
	return 0
}

var (
	retryAfter   = lazily(`(?i)retry[ _-]?after`)
	colonWait    = lazily(`(?i)retry[ _-]?after["']?[:=] ?["']?(\d{1,15}(?:\.\d{1,15})?(?: ?[a-z]{1,12}\b)?)`)
	spokenMoment = lazily(`(?i)(?:resets?|again|available|retry|regain access)\b[^.\n]{0,40}?\b(?:at|after|on|until) (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))`)
	chineseWait  = lazily(`^(\d{1,9}) ?秒`)
	chineseAgain = lazily(`(\d{1,9}) ?(秒|分钟|小时)(?:钟)?(?:后|之后|以后)`)
)

// resetWait reads when the exhausted limits come back. A limit is exhausted if
// nothing of it remains, or if the error names it. Of several the last to come
// back counts.
func resetWait(h http.Header, hit string, now time.Time) time.Duration {
	var found []time.Duration
	for name := range h {
		lower := strings.ToLower(name)
		for _, family := range []struct{ remaining, reset string }{
			{"x-ratelimit-remaining", "x-ratelimit-reset"}, // OpenAI, Groq, GitHub, OpenRouter: x-ratelimit-remaining-tokens
			{"x-rate-limit-remaining", "x-rate-limit-reset"},
			{"ratelimit-remaining", "ratelimit-reset"},
		} {
			dimension, ok := strings.CutPrefix(lower, family.reset)
			if ok && exhausted(h.Get(family.remaining+dimension), strings.Trim(dimension, "-"), hit) {
				found = append(found, resetValue(h.Get(name), now))
			}
		}
		// Anthropic: anthropic-ratelimit-input-tokens-reset.
		if head, ok := strings.CutSuffix(lower, "-reset"); ok && strings.HasPrefix(head, "anthropic-ratelimit-") {
			if exhausted(h.Get(head+"-remaining"), "", "") || h.Get(head+"-status") == "rejected" {
				found = append(found, resetValue(h.Get(name), now))
			}
		}
	}
	// The draft standard's one header: limit=100, remaining=0, reset=30, and
	// later "default";r=0;t=30.
	if m := draftLimit().FindStringSubmatch(h.Get("RateLimit")); m != nil {
		found = append(found, seconds(m[1], time.Second))
	}
	// A ChatGPT plan's windows.
	for _, window := range []string{"primary", "secondary"} {
		if h.Get("X-Codex-"+window+"-Used-Percent") == "100" {
			found = append(found, seconds(h.Get("X-Codex-"+window+"-Reset-After-Seconds"), time.Second))
		}
	}
	if len(found) == 0 {
		return 0
	}
	return slices.Max(found)
}

var draftLimit = lazily(`\b(?:remaining|r)=0\b.*\b(?:reset|t)=(\d{1,12})\b`)

func exhausted(remaining, dimension, hit string) bool {
	remaining = strings.TrimSpace(remaining)
	if n, err := strconv.ParseFloat(remaining, 64); err == nil && n <= 0 {
		return true
	}
	return hit != "" && dimension == hit && remaining != ""
}

// resetValue reads the value of a reset header: a span (1m26.4s), a number of
// seconds (fewer than would be a moment), or a moment.
func resetValue(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if plainNumber().MatchString(s) {
		if d := moment(s, now); d > 0 {
			return d
		}
		if n, err := strconv.ParseFloat(s, 64); err != nil || n >= 1e9 {
			return 0
		}
		return seconds(s, time.Second)
	}
	if d := span(s); d > 0 {
		return d
	}
	return moment(s, now)
}
