package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

func (a *app) removeCommand() *cobra.Command {
	var old string
	var dry bool
	c := &cobra.Command{
		Use: "rm ID…", Short: "Remove sessions, with all that the log has of them", Args: between(0, -1, "sessions: IDs, beginnings of them, or last"),
		Example: `  dsh sessions rm 20260131
  dsh sessions rm --older-than 30d --dry-run`,
		RunE: func(c *cobra.Command, args []string) error {
			var age time.Duration
			switch given := c.Flags().Changed("older-than"); {
			case given && len(args) > 0:
				return Usagef("--older-than and sessions exclude each other")
			case !given && len(args) == 0:
				return Usagef("%s needs sessions: IDs, beginnings of them, or last; or --older-than", c.CommandPath())
			case given:
				var err error
				if age, err = ago(old); err != nil || age == 0 {
					return Usagef("--older-than %q is no duration: 36h, 30d or 8w are", oneLine(old, 40))
				}
			}
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error {
				if age > 0 {
					return a.removeOlder(ctx, log, time.Now().Add(-age), dry)
				}
				return a.removeSessions(ctx, log, args, dry)
			})
		},
	}
	c.Flags().StringVar(&old, "older-than", "", "removes the sessions that were last written to longer ago than this `duration`, as 36h or 30d")
	c.Flags().BoolVar(&dry, "dry-run", false, "says what would be removed, and removes nothing")
	return c
}

func (a *app) removeSessions(ctx context.Context, log dsh.Log, ids []string, dry bool) error {
	var heads []dsh.Head
	for _, id := range ids { // all are found before any is removed
		h, err := find(ctx, log, id)
		if err != nil {
			return err
		}
		heads = append(heads, h)
	}
	removed := map[dsh.SessionID]bool{}
	for _, h := range heads {
		if removed[h.ID] {
			continue
		}
		if !dry {
			if err := log.Remove(ctx, h.ID); err != nil {
				return fmt.Errorf("session %s was not removed: %w", h.ID, err)
			}
		}
		removed[h.ID] = true
		if err := a.tellRemoved(h, dry); err != nil {
			return err
		}
	}
	return nil
}

// removeOlder removes what was last written to before a time. Sessions that are
// in use and damaged ones stay.
func (a *app) removeOlder(ctx context.Context, log dsh.Log, before time.Time, dry bool) error {
	var old []dsh.Head
	damaged := map[dsh.SessionID]bool{}
	for h, err := range log.Heads(ctx) {
		if isDamage(err) {
			damaged[h.ID] = true
			continue
		}
		if err != nil {
			return err
		}
		if h.UpdatedAt < before.UnixMilli() && !h.ID.Reserved() { // what policies keep has no age
			old = append(old, h)
		}
	}
	n := 0
	for _, h := range old {
		if damaged[h.ID] {
			a.progress(yellow, fmt.Sprintf("session %s stays: it is damaged; dsh sessions rm %s removes it", h.ID, h.ID))
			continue
		}
		if !dry {
			var held *dsh.HeldError
			err := log.Remove(ctx, h.ID)
			if errors.As(err, &held) {
				a.progress(yellow, fmt.Sprintf("session %s stays: process %d has it", h.ID, held.PID))
				continue
			}
			if errors.Is(err, dsh.ErrNoSession) {
				continue // another process was faster
			}
			if err != nil {
				return fmt.Errorf("session %s was not removed: %w", h.ID, err)
			}
		}
		n++
		if err := a.tellRemoved(h, dry); err != nil {
			return err
		}
	}
	if n == 0 && !a.common.JSON {
		a.progress(plain, "no session was last written to before "+before.Local().Format("2006-01-02 15:04:05"))
	}
	return nil
}

func (a *app) tellRemoved(h dsh.Head, dry bool) error {
	word, text := "removed", "removed "
	if dry {
		word, text = "wouldRemove", "would remove "
	}
	if a.common.JSON {
		return writeJSON(a.out, map[string]any{word: h.ID})
	}
	a.progress(plain, text+candidate(h))
	return nil
}
