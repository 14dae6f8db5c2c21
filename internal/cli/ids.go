package cli

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// idEncoding is Crockford's base 32 in lower case: no letter is taken for
// another.
const idEncoding = "0123456789abcdefghjkmnpqrstvwxyz"

// newSessionID makes an id that sorts by the time of its making, to the
// millisecond, and ends in 30 random bits.
func newSessionID(now time.Time) dsh.SessionID {
	var random [5]byte
	rand.Read(random[:]) //nolint:errcheck // it never fails: see crypto/rand
	tail := base32.NewEncoding(idEncoding).EncodeToString(random[:])[:6]
	u := now.UTC()
	return dsh.SessionID(fmt.Sprintf("%s%03d-%s", u.Format("20060102-150405"), u.Nanosecond()/int(time.Millisecond), tail))
}

// lastID stands for the session that was last written to.
const lastID = "last"

// find is the session that an id, a unique beginning of one, or "last" means.
func find(ctx context.Context, log dsh.Log, word string) (dsh.Head, error) {
	word = strings.ToLower(strings.TrimSpace(word))
	if word == "" {
		return dsh.Head{}, Usagef("an empty session id: give one of dsh sessions, or last")
	}
	if word != lastID {
		h, err := log.Head(ctx, dsh.SessionID(word))
		if err == nil || !errors.Is(err, dsh.ErrNoSession) {
			return h, err
		}
	}
	var (
		all, fits []dsh.Head
		damage    error
	)
	for h, err := range log.Heads(ctx) {
		if isDamage(err) {
			damage = err // of another session, or of the one that is not found
			continue
		}
		if err != nil {
			return dsh.Head{}, err
		}
		if h.ID.Reserved() {
			continue // the memory of a policy, which is found by its whole id
		}
		if word == lastID {
			return h, nil
		}
		all = append(all, h)
		if strings.HasPrefix(string(h.ID), word) {
			fits = append(fits, h)
		}
	}
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) > 1:
		return dsh.Head{}, ambiguous(word, fits)
	case damage != nil:
		return dsh.Head{}, damage
	case len(all) == 0:
		return dsh.Head{}, Usagef("there is no session yet: dsh run makes one")
	}
	return dsh.Head{}, unknownID(word, all)
}

// isDamage reports whether an error of a list is that of one session, after
// which the list goes on.
func isDamage(err error) bool {
	var damage *dsh.DamageError
	return errors.As(err, &damage)
}

// ambiguous lists the sessions that a beginning may mean, the newest first.
func ambiguous(word string, fits []dsh.Head) error {
	const most = 10
	problems := []string{fmt.Sprintf("%q begins the ids of %d sessions: give more of it", oneLine(word, 60), len(fits))}
	for _, h := range fits[:min(most, len(fits))] {
		problems = append(problems, "  "+candidate(h))
	}
	if len(fits) > most {
		problems = append(problems, fmt.Sprintf("  and %d more", len(fits)-most))
	}
	return &UsageError{problems}
}

// unknownID lists the sessions that a wrong id is near to.
func unknownID(word string, all []dsh.Head) error {
	const most = 5
	type match struct {
		head   dsh.Head
		common int // bytes of the beginning that are the same
		far    int
	}
	found := make([]match, 0, len(all))
	for _, h := range all {
		m := match{head: h}
		for m.common < min(len(word), len(h.ID)) && word[m.common] == h.ID[m.common] {
			m.common++
		}
		m.far = distance(word, string(h.ID)[:min(len(h.ID), len(word))])
		if m.common >= 4 || m.far <= max(1, len(word)/3) {
			found = append(found, m)
		}
	}
	slices.SortStableFunc(found, func(a, b match) int {
		if a.far != b.far {
			return a.far - b.far
		}
		return b.common - a.common
	})
	if len(found) == 0 {
		return Usagef("there is no session %q: dsh sessions lists them", oneLine(word, 60))
	}
	problems := []string{fmt.Sprintf("there is no session %q; near to it:", oneLine(word, 60))}
	for _, m := range found[:min(most, len(found))] {
		problems = append(problems, "  "+candidate(m.head))
	}
	return &UsageError{problems}
}

func candidate(h dsh.Head) string {
	return strings.TrimSpace(fmt.Sprintf("%s  %s", h.ID, oneLine(h.Title, 60)))
}

// titleOf is the title of a session: the first line of its prompt that is not
// blank, cut.
func titleOf(prompt string) string {
	const longest = 80
	for l := range strings.Lines(prompt) {
		if t := oneLine(l, longest); t != "" {
			return t
		}
	}
	return ""
}
