package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

// A logFilter chooses events of a session.
type logFilter struct {
	types []string // "llm/retry", or "llm/" for all that begin so
	turn  int      // 0: all
	since string

	after int64 // Unix ms, of since; 0: all
}

func (f *logFilter) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringSliceVar(&f.types, "type", nil, "shows events of these `types` only, as llm/retry, or llm/ for all that begin so; repeatable")
	fl.IntVar(&f.turn, "turn", 0, "shows the events of turn `N` only")
	fl.StringVar(&f.since, "since", "", "shows the events of the last `time` (90s, 2h, 7d), or since one (2026-01-31, 2026-01-31T15:04:05)")
}

// check reads the flags.
func (f *logFilter) check(c *cobra.Command, now time.Time) error {
	if c.Flags().Changed("turn") && f.turn <= 0 {
		return Usagef("--turn %d is not positive", f.turn)
	}
	for i, t := range f.types {
		if f.types[i] = strings.TrimSpace(t); f.types[i] == "" {
			return Usagef("--type needs the type of an event, as llm/retry")
		}
	}
	if f.since == "" {
		return nil
	}
	since, err := instant(f.since, now)
	if err != nil {
		return Usagef("--since %q is no time: 90s, 2h, 7d, 2026-01-31 or 2026-01-31T15:04:05 are", oneLine(f.since, 40))
	}
	f.after = since.UnixMilli()
	return nil
}

func (f *logFilter) fits(e dsh.Event) bool {
	if e.At < f.after {
		return false
	}
	if len(f.types) > 0 && !slices.ContainsFunc(f.types, func(t string) bool {
		return t == string(e.Type) || strings.HasSuffix(t, "/") && strings.HasPrefix(string(e.Type), t)
	}) {
		return false
	}
	if f.turn == 0 {
		return true
	}
	var d struct {
		Turn int `json:"turn"`
	}
	return e.Decode(&d) == nil && d.Turn == f.turn
}

// instant is the time that words mean: a while ago, a day, or a time of a day,
// in this machine's zone unless they name another.
func instant(s string, now time.Time) (time.Time, error) {
	if d, err := ago(s); err == nil {
		return now.Add(-d), nil
	}
	var first error
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02"} {
		t, err := time.ParseInLocation(layout, s, now.Location())
		if err == nil {
			return t, nil
		}
		if first == nil {
			first = err
		}
	}
	return time.Time{}, first
}

// ago reads a positive duration, which may be in days or weeks.
func ago(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			k, err := strconv.ParseFloat(n, 64)
			if err != nil || k < 0 || k*float64(unit) > 1<<62 {
				return 0, strconv.ErrRange
			}
			return time.Duration(k * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(s)
	if err == nil && d < 0 {
		return 0, strconv.ErrRange
	}
	return d, err
}
