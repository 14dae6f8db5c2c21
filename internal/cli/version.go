package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which build of dsh this is", Args: between(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			b := a.program.Build
			if a.common.JSON {
				return writeJSON(a.out, map[string]any{
					"version": b.Version, "revision": b.Revision, "go": b.Go, "platform": b.Platform,
					"logSchema": dsh.Schema, "guestABIs": listed(b.ABIs), "engines": listed(b.Engines),
				})
			}
			text := "dsh " + b.Version
			if b.Revision != "" {
				text += " (" + b.Revision + ")"
			}
			_, err := fmt.Fprintf(a.out, "%s\n%s, %s\nlog schema %d, guests %s, engines %s\n",
				text, b.Go, b.Platform, dsh.Schema, strings.Join(b.ABIs, ", "), strings.Join(b.Engines, ", "))
			return err
		},
	}
}

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion SHELL", Short: "Write a completion script for a shell", ValidArgs: shells,
		Long: `Writes a script that completes dsh's words: bash, zsh, fish or powershell.
As one line of bash's start file: source <(dsh completion bash)`,
		Args: between(1, 1, "one shell: "+strings.Join(shells, ", ")),
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.out, true)
			case "zsh":
				return root.GenZshCompletion(a.out)
			case "fish":
				return root.GenFishCompletion(a.out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.out)
			}
			return Usagef("no shell %q is known: %s", oneLine(args[0], 40), strings.Join(shells, ", "))
		},
	}
}
