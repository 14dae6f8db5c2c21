package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

func (a *app) logCommand() *cobra.Command {
	tail := a.showCommand("tail", true)
	tail.Hidden = true // show --follow, by the name that other tools have for it
	verify := &cobra.Command{
		Use: "verify [ID…]", Short: "Check the chain and the rules of one session, or of all", Args: between(0, -1, "sessions, or none for all"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error { return a.verifyLog(ctx, log, args) })
		},
	}
	return a.group("log", "Show, check, export, import and back up the log", a.showCommand("show", false), verify,
		a.exportCommand(), a.importCommand(), a.backupCommand(), a.restoreCommand(), tail)
}

// showCommand shows a session's events; follow is what it does without the flag.
func (a *app) showCommand(word string, follow bool) *cobra.Command {
	var filter logFilter
	c := &cobra.Command{
		Use: word + " ID", Short: "Show a session's events, a line each (--json: as they are)",
		Args: between(1, 1, "one session: an ID, a beginning of it, or last"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := filter.check(c, time.Now()); err != nil {
				return err
			}
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error {
				return a.showLog(ctx, log, args[0], follow, filter.fits)
			})
		},
	}
	filter.flags(c)
	c.Flags().BoolVar(&follow, "follow", follow, "goes on with what is appended, until Ctrl-C")
	return c
}

func (a *app) showLog(ctx context.Context, log dsh.Log, word string, follow bool, fits func(dsh.Event) bool) error {
	h, err := find(ctx, log, word)
	if err != nil {
		return err
	}
	events := log.Read(ctx, h.ID, 0)
	if follow {
		events = log.Follow(ctx, h.ID, 0)
	}
	out := bufio.NewWriter(a.out)
	defer out.Flush() //nolint:errcheck // stdout's first error stays, and is looked at
	shown := 0
	for e, err := range events {
		if err != nil {
			return err
		}
		if !fits(e) {
			continue
		}
		shown++
		if a.common.JSON {
			out.Write(e.Line()) //nolint:errcheck // as above
			out.WriteByte('\n') //nolint:errcheck // as above
		} else {
			out.WriteString(eventLine(e)) //nolint:errcheck // as above
		}
		if follow {
			out.Flush() //nolint:errcheck // as above
		}
		if err := a.out.err(); err != nil {
			return err
		}
	}
	if shown == 0 {
		a.progress(plain, fmt.Sprintf("none of the %s of session %s is of that kind", count(int(h.Seq), "event", "events"), h.ID))
	}
	return nil
}

// eventLine is an event for a person: seq, time, type, and what it tells.
func eventLine(e dsh.Event) string {
	return fmt.Sprintf("%6d  %s  %-22s %s\n", e.Seq, e.Time().Local().Format("15:04:05.000"), oneLine(string(e.Type), 60), summary(e))
}

// A verified is one line of `dsh log verify --json`.
type verified struct {
	ID      dsh.SessionID `json:"id"`
	OK      bool          `json:"ok"`
	Events  uint64        `json:"events"`  // that the log should have
	Through uint64        `json:"through"` // the last event that is proven whole
	Seq     uint64        `json:"seq,omitempty"`
	Rule    string        `json:"rule,omitempty"`
}

// verifyLog holds sessions to the chain and to the rules. One that is damaged
// does not hide the others.
func (a *app) verifyLog(ctx context.Context, log dsh.Log, words []string) error {
	heads, damage, err := chosen(ctx, log, words)
	if err != nil {
		return err
	}
	bad := 0
	for _, h := range heads {
		v, err := verifySession(ctx, log, h)
		if err != nil {
			return err
		}
		if d := damage[h.ID]; v.OK && d != nil {
			v.OK, v.Seq, v.Rule = false, d.Seq, d.Reason
		}
		delete(damage, h.ID)
		if !v.OK {
			bad++
		}
		if a.common.JSON {
			err = writeJSON(a.out, v)
		} else {
			_, err = io.WriteString(a.out, v.String())
		}
		if err != nil {
			return err
		}
	}
	for _, d := range damage {
		a.say.error("%s", d.Error())
		bad++
	}
	switch {
	case bad > 0:
		return &LogError{fmt.Errorf("damaged: %s", count(bad, "session", "sessions"))}
	case len(heads) == 0:
		a.progress(plain, "there is no session to verify")
	}
	return nil
}

func (v verified) String() string {
	if v.OK {
		return fmt.Sprintf("%s  whole: %s, proven through event %d\n", v.ID, count(int(v.Events), "event", "events"), v.Through)
	}
	return fmt.Sprintf("%s  damaged: proven through event %d; event %d: %s\n", v.ID, v.Through, v.Seq, oneLine(v.Rule, longMessage))
}

// verifySession checks one session. Its error is that of a context that ended;
// all else is a finding.
func verifySession(ctx context.Context, log dsh.Log, h dsh.Head) (verified, error) {
	tail, err := loop.Verify(log.Read(ctx, h.ID, 0))
	v := verified{ID: h.ID, Events: h.Seq, Through: tail.Seq, Seq: tail.Seq + 1}
	var (
		damage *dsh.DamageError
		rule   *loop.InvariantError
	)
	switch {
	case err == nil && tail != h.Tail():
		v.Rule = fmt.Sprintf("the session was written up to event %d", h.Seq)
	case err == nil:
		v.OK, v.Seq = true, 0
	case stopped(err) && ctx.Err() != nil:
		return v, err
	case errors.As(err, &damage):
		v.Seq, v.Rule = damage.Seq, damage.Reason
	case errors.As(err, &rule):
		v.Seq, v.Rule = rule.Seq, rule.Rule
	default:
		v.Rule = err.Error()
	}
	return v, nil
}

// exportLog writes sessions byte for byte. One that is damaged is written as
// far as it is whole, and does not hide the others.
func (a *app) exportLog(ctx context.Context, log dsh.Log, words []string, to io.Writer) error {
	heads, damage, err := chosen(ctx, log, words)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(to, 64<<10)
	var first error
	for _, h := range heads {
		n := uint64(0)
		for e, err := range log.Read(ctx, h.ID, 0) {
			if err != nil {
				if stopped(err) {
					return err
				}
				a.say.error("session %s is cut in the export after event %d: %s", h.ID, n, oneLine(err.Error(), longMessage))
				first = &LogError{errors.New("the export is not whole")}
				break
			}
			n = e.Seq
			out.Write(e.Line())                         //nolint:errcheck // it stays, and is returned below
			if err := out.WriteByte('\n'); err != nil { // the first error stays
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if first == nil && len(damage) > 0 {
		for _, d := range damage {
			a.say.error("%s", d.Error())
		}
		first = &LogError{errors.New("the export is not whole")}
	}
	return first
}

// chosen are the sessions that words mean, or all; the oldest first. Where all
// are meant, what is known of damaged ones comes with them.
func chosen(ctx context.Context, log dsh.Log, words []string) ([]dsh.Head, map[dsh.SessionID]*dsh.DamageError, error) {
	var heads []dsh.Head
	damaged := map[dsh.SessionID]*dsh.DamageError{}
	for _, w := range words {
		h, err := find(ctx, log, w)
		if err != nil {
			return nil, nil, err
		}
		heads = append(heads, h)
	}
	if len(words) == 0 {
		for h, err := range log.Heads(ctx) {
			var damage *dsh.DamageError
			switch {
			case errors.As(err, &damage):
				damaged[damage.Session] = damage
			case err != nil:
				return nil, nil, err
			default:
				heads = append(heads, h)
			}
		}
	}
	slices.SortFunc(heads, func(a, b dsh.Head) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return slices.CompactFunc(heads, func(a, b dsh.Head) bool { return a.ID == b.ID }), damaged, nil
}
