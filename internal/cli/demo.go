package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

// demoPrompt is what the demo asks its provider, which answers from a script.
const demoPrompt = "What does dsh do when a model request fails?"

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo", Short: "Show how a turn gets over failures: no key and no network needed",
		Long: `Starts a provider on a loopback port that fails on cue, and runs one real session
against it through the real adapter and the built-in policies. Then it shows
what happened, when, and who decided. The session stays in the log.`,
		Args: between(0, 0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return a.demo(c.Context()) },
	}
}

func (a *app) demo(ctx context.Context) error {
	setup, err := a.program.Demo(ctx, a.common)
	if err != nil {
		return err
	}
	t := turn{app: a, setup: setup, log: markLog(setup.Log), output: outputText, prompt: demoPrompt, given: true}
	if a.common.JSON {
		t.output = outputJSON
	} else {
		a.progress(bold, "A provider on this machine will fail on cue. The prompt: "+demoPrompt)
	}
	err = t.inSession(ctx, "", "")
	if err == nil && !a.common.JSON {
		err = a.demoStory(ctx, t.log, t.session.ID())
	}
	return a.closing(err, setup)
}

// demoStory shows what the log has of the demo's session, and what to try.
func (a *app) demoStory(ctx context.Context, log dsh.Log, id dsh.SessionID) error {
	var (
		t timeline
		b strings.Builder
	)
	b.WriteString("\nWhat happened, as the log tells it:\n")
	for e, err := range log.Read(ctx, id, 0) {
		if err != nil {
			return err
		}
		moments, err := t.add(e)
		if err != nil {
			return err
		}
		for _, m := range moments {
			fmt.Fprintf(&b, "%s  %s\n", t.offset(m.At), m.Text)
		}
	}
	fmt.Fprintf(&b, "\nThe session is %s. Try next:\n  dsh log show last        every event of it\n  dsh run \"your prompt\"     with a key, as in $DEEPSEEK_API_KEY or $OPENAI_API_KEY\n", id)
	_, err := io.WriteString(a.out, b.String())
	return err
}
