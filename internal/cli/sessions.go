package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

func (a *app) sessionsCommand() *cobra.Command {
	list := func(c *cobra.Command, _ []string) error { return a.withLog(c, a.listSessions) }
	c := &cobra.Command{Use: "sessions", Short: "List sessions, show one, remove one", Args: a.unknown, RunE: list}
	c.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List the sessions, the last written to first", Args: between(0, 0, "no argument"), RunE: list,
		},
		&cobra.Command{
			Use: "show ID", Short: "Show a session: its facts, and what happened when", Args: between(1, 1, "one session: an ID, a beginning of it, or last"),
			RunE: func(c *cobra.Command, args []string) error {
				return a.withLog(c, func(ctx context.Context, log dsh.Log) error { return a.showSession(ctx, log, args[0]) })
			},
		},
		a.removeCommand())
	return c
}

// withLog opens the log for a command and closes it after.
func (a *app) withLog(c *cobra.Command, f func(context.Context, dsh.Log) error) error {
	return a.withOpened(c, a.program.Log, f)
}

func (a *app) withOpened(c *cobra.Command, open func(context.Context, Common) (dsh.Log, error), f func(context.Context, dsh.Log) error) error {
	opened, err := open(c.Context(), a.common)
	if err != nil {
		return err
	}
	log := markLog(opened)
	err = f(c.Context(), log)
	if closed := log.Close(); err == nil {
		err = closed
	}
	return err
}

// A listedSession is one line of `dsh sessions list --json`.
type listedSession struct {
	ID          dsh.SessionID `json:"id"`
	Title       string        `json:"title"`
	State       dsh.State     `json:"state"`
	UpdatedAt   int64         `json:"updatedAt"`
	Turns       int           `json:"turns"`
	Attempts    int           `json:"attempts"`
	Retries     int           `json:"retries"`
	LastFailure *dsh.Code     `json:"lastFailure"`
}

func listedHead(h dsh.Head) listedSession {
	l := listedSession{h.ID, h.Title, h.State, h.UpdatedAt, h.Turns, h.Attempts, h.Retries, nil}
	if h.LastFailure != "" {
		l.LastFailure = &h.LastFailure
	}
	return l
}

func (a *app) listSessions(ctx context.Context, log dsh.Log) error {
	var rows table
	rows.add("ID", "STATE", "TURNS", "ATTEMPTS", "RETRIES", "LAST FAILURE", "UPDATED", "TITLE")
	var damage error
	for h, err := range log.Heads(ctx) {
		if isDamage(err) {
			damage = a.damaged(damage, err)
			continue
		}
		if err != nil {
			return err
		}
		if h.ID.Reserved() {
			continue // the memory of a policy
		}
		if a.common.JSON {
			if err := writeJSON(a.out, listedHead(h)); err != nil {
				return err
			}
			continue
		}
		rows.add(string(h.ID), string(h.State), strconv.Itoa(h.Turns), strconv.Itoa(h.Attempts), strconv.Itoa(h.Retries),
			orDash(string(h.LastFailure)), time.UnixMilli(h.UpdatedAt).Local().Format("2006-01-02 15:04:05"), oneLine(h.Title, 60))
	}
	switch {
	case a.common.JSON:
		return damage
	case len(rows) == 1:
		a.progress(plain, "there is no session yet: dsh run makes one, and so does dsh demo")
		return damage
	}
	if err := rows.write(a.out); err != nil {
		return err
	}
	return damage
}

// damaged keeps the last damage that was met, and says the one before.
func (a *app) damaged(before, err error) error {
	if before != nil {
		a.say.error("%s", words(before))
	}
	return err
}

// progress says something that --quiet silences.
func (a *app) progress(style, text string) {
	if !a.common.Quiet {
		a.say.line(style, text)
	}
}

// A shownSession is `dsh sessions show --json`.
type shownSession struct {
	listedSession
	Cwd       string    `json:"cwd"`
	StartedAt int64     `json:"startedAt"`
	Events    uint64    `json:"events"`
	Usage     dsh.Usage `json:"usage"`
	Context   int64     `json:"contextTokens"` // an estimate of what the next request has; 0: not known
	Timeline  []moment  `json:"timeline"`
}

func (a *app) showSession(ctx context.Context, log dsh.Log, word string) error {
	h, err := find(ctx, log, word)
	if err != nil {
		return err
	}
	var (
		t       timeline
		moments []moment
		damage  error
	)
	for e, err := range log.Read(ctx, h.ID, 0) {
		if err != nil {
			damage = err
			break
		}
		m, err := t.add(e)
		if err != nil {
			damage = &LogError{err}
			break
		}
		moments = append(moments, m...)
	}
	if a.common.JSON {
		err = writeJSON(a.out, shownSession{listedHead(h), h.Cwd, h.StartedAt, h.Seq, t.usage, t.size.tokens, listed(moments)})
	} else {
		err = a.writeSession(h, &t, moments)
	}
	if err != nil {
		return err
	}
	return damage
}

// writeSession shows a session to a person.
func (a *app) writeSession(h dsh.Head, t *timeline, moments []moment) error {
	var b strings.Builder
	fact := func(name, value string) { fmt.Fprintf(&b, "%-9s %s\n", name, value) }
	at := func(ms int64) string { return time.UnixMilli(ms).Local().Format("2006-01-02 15:04:05") }
	fact("session", string(h.ID))
	fact("title", oneLine(h.Title, 200))
	fact("state", string(h.State))
	fact("folder", oneLine(h.Cwd, 200))
	fact("began", at(h.StartedAt))
	fact("updated", at(h.UpdatedAt))
	fact("turns", fmt.Sprintf("%d, with %s and %s", h.Turns, count(h.Attempts, "attempt", "attempts"), count(h.Retries, "retry", "retries")))
	if h.LastFailure != "" {
		fact("failure", fmt.Sprintf("%s was the last: %s", h.LastFailure, meaning(h.LastFailure)))
	}
	if t.usage != (dsh.Usage{}) {
		fact("tokens", fmt.Sprintf("%d in, %d out", t.usage.InputTokens, t.usage.OutputTokens))
	}
	if t.size.tokens > 0 {
		how := "an estimate"
		if t.size.counted {
			how = "as the provider counted"
		}
		fact("context", fmt.Sprintf("about %d tokens, %s", t.size.tokens, how))
	}
	fact("events", strconv.FormatUint(h.Seq, 10))
	b.WriteByte('\n')
	for _, m := range moments {
		fmt.Fprintf(&b, "%s  %s\n", t.offset(m.At), m.Text)
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// A table is rows of cells, the first one of headings.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

// write puts the columns under each other. The last one is not filled up.
func (t table) write(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range t {
		for i, c := range row {
			b.WriteString(c)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
