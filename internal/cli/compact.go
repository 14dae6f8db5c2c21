package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

func (a *app) compactCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compact ID", Short: "Put a summary in the place of all but the newest part of a session",
		Long: `Asks the model for a summary of a session at rest, and puts it in the place of all
but the newest part of the conversation. The log keeps what was there. Where
the summary fails, or would not be smaller, the session stays as it was.

Exit codes are those of dsh run; 1 also where there is nothing to summarise.`,
		Args: between(1, 1, "one session: an ID, a beginning of it, or last"),
		RunE: func(c *cobra.Command, args []string) error { return a.compact(c.Context(), args[0]) },
	}
}

func (a *app) compact(ctx context.Context, word string) error {
	setup, err := a.program.Setup(ctx, a.common, RunOptions{Tools: &[]string{}})
	if err != nil {
		return err
	}
	t := turn{app: a, setup: setup, log: markLog(setup.Log), output: outputText, manual: true}
	if a.common.JSON {
		t.output = outputJSON
	}
	return a.closing(t.compact(ctx, word), setup)
}

// compact runs the compaction, unless a turn of the session is still open.
func (t *turn) compact(ctx context.Context, word string) error {
	h, err := find(ctx, t.log, word)
	if err != nil {
		return err
	}
	if h.State == dsh.StateOpen || h.State == dsh.StateWaiting {
		return Usagef("a turn of session %s is still open, and a session is compacted at rest: dsh run --resume %s finishes the turn", h.ID, h.ID)
	}
	return t.inSession(ctx, string(h.ID), "")
}

// concludeCompaction says how a compaction by hand ended, where that is not
// the failure of its request.
func (t *turn) concludeCompaction(o loop.Outcome) error {
	switch o.Status {
	case dsh.EndCompleted:
		t.progress(plain, fmt.Sprintf("session %s is compacted, after %s", o.Session, effort(o)))
		return nil
	case dsh.EndAborted:
		t.progress(plain, fmt.Sprintf("dsh: stopped; session %s is as it was", o.Session))
		return exit(ExitInterrupted)
	}
	t.say.error("session %s was not compacted and is as it was: %s", o.Session, oneLine(o.Message, longMessage))
	return exit(ExitError)
}
