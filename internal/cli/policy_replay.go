package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

// A Replayer runs logged decisions again. It is closed by who has it.
type Replayer interface {
	// Replay says in which way a module of the logged digest decides otherwise
	// than the log has it; "": it does not. Its error says why the decision
	// cannot be run.
	Replay(ctx context.Context, log dsh.Log, id dsh.SessionID, d dsh.PolicyDecision) (difference string, err error)
	Close() error
}

// A replayed is a line of `dsh policy replay --json`.
type replayed struct {
	Seq     uint64   `json:"seq"`
	Policy  string   `json:"policy"`
	Digest  string   `json:"digest"`
	Hook    dsh.Hook `json:"hook"`
	Result  string   `json:"result"` // same, different or unavailable
	Message string   `json:"message,omitempty"`
}

// The results of a replay.
const (
	replaySame        = "same"
	replayDifferent   = "different"
	replayUnavailable = "unavailable"
)

func (a *app) replayCommand() *cobra.Command {
	return &cobra.Command{
		Use: "replay ID", Short: "Run every recorded decision of a session again, and compare",
		Args: between(1, 1, "one session: an ID, a beginning of it, or last"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withLog(c, func(ctx context.Context, log dsh.Log) error { return a.replay(ctx, log, args[0]) })
		},
	}
}

// replay ends with ExitError where a decision came out otherwise, or could not
// be run.
func (a *app) replay(ctx context.Context, log dsh.Log, word string) error {
	h, err := find(ctx, log, word)
	if err != nil {
		return err
	}
	r, err := a.program.Replayer(ctx, a.common)
	if err != nil {
		return err
	}
	results := map[string]int{}
	err = a.replayAll(ctx, log, h.ID, r, results)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	n := results[replaySame] + results[replayDifferent] + results[replayUnavailable]
	text := fmt.Sprintf("%s: %d the same", count(n, "decision", "decisions"), results[replaySame])
	if d := results[replayDifferent]; d > 0 {
		text += fmt.Sprintf(", %d different", d)
	}
	if u := results[replayUnavailable]; u > 0 {
		text += fmt.Sprintf(", %d could not be run", u)
	}
	if results[replaySame] < n {
		return errors.New("session " + string(h.ID) + ": " + text)
	}
	if !a.common.JSON {
		_, err = fmt.Fprintln(a.out, text)
	}
	return err
}

func (a *app) replayAll(ctx context.Context, log dsh.Log, id dsh.SessionID, r Replayer, results map[string]int) error {
	for e, err := range log.Read(ctx, id, 0) {
		if err != nil {
			return err
		}
		if e.Type != dsh.TypePolicyDecision {
			continue
		}
		var d dsh.PolicyDecision
		if err := e.Decode(&d); err != nil {
			return err
		}
		l := replayed{Seq: e.Seq, Policy: d.Policy, Digest: d.Digest, Hook: d.Hook, Result: replaySame}
		difference, err := r.Replay(ctx, log, id, d)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			l.Result, l.Message = replayUnavailable, err.Error()
		case difference != "":
			l.Result, l.Message = replayDifferent, difference
		}
		results[l.Result]++
		if err := a.writeReplayed(l); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) writeReplayed(l replayed) error {
	if a.common.JSON {
		return writeJSON(a.out, l)
	}
	text := fmt.Sprintf("%6d  %s (%.12s) %s: %s", l.Seq, oneLine(l.Policy, 64), l.Digest, oneLine(string(l.Hook), 40), l.Result)
	if l.Message != "" {
		text += ": " + oneLine(l.Message, longError)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}
