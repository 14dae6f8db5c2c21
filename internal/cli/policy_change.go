package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// changeCommands are those that change the policies folder.
func (a *app) changeCommands() []*cobra.Command {
	var i Installation
	install := &cobra.Command{
		Use: "install FILE|oci://…", Short: "Put a policy in place; a running dsh decides with it from the next failure on",
		Args: between(1, 1, "one file, or oci://HOST/NAME@sha256:DIGEST"),
		RunE: func(c *cobra.Command, args []string) error {
			i.File = args[0]
			if c.Flags().Changed("name") && i.Name == "" {
				return Usagef("--name needs a name")
			}
			change, err := a.program.Install(c.Context(), a.common, i)
			return a.changed(change, err)
		},
	}
	install.Flags().StringVar(&i.Name, "name", "", "the `name` under which it decides (default: the module's own)")
	install.Flags().BoolVar(&i.Accept, "accept", false, "vouches for it: it may have what the configuration grants its name, and be older than the one before")
	rollback := &cobra.Command{
		Use: "rollback NAME", Short: "Bring back what was in a policy's place before", Args: between(1, 1, "the name of one policy"),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := a.program.Rollback(c.Context(), a.common, args[0])
			return a.changed(change, err)
		},
	}
	remove := &cobra.Command{
		Use: "remove NAME", Short: "Take an installed policy out; a listed one of its name decides again", Args: between(1, 1, "the name of one policy"),
		RunE: func(c *cobra.Command, args []string) error {
			change, err := a.program.Remove(c.Context(), a.common, args[0])
			return a.changed(change, err)
		},
	}
	return []*cobra.Command{install, rollback, remove}
}

// changed says what became of a policy.
func (a *app) changed(c Change, err error) error {
	if err != nil {
		return err
	}
	if a.common.JSON {
		c.Granted, c.Withheld = listed(c.Granted), listed(c.Withheld)
		return writeJSON(a.out, c)
	}
	text := c.Did + " " + oneLine(c.Name, 64)
	if c.Digest == "" {
		text += ": " + instead(c.After)
	} else {
		text += described(c)
	}
	_, err = fmt.Fprintln(a.out, text)
	if err == nil && len(c.Withheld) > 0 {
		a.progress(yellow, fmt.Sprintf("dsh: it is neither pinned, signed by a listed key nor accepted, and goes without %s: dsh policy install --accept grants it", strings.Join(c.Withheld, ", ")))
	}
	return err
}

// described is which module is in place now.
func described(c Change) string {
	text := ""
	if c.Version != "" {
		text += " " + oneLine(c.Version, 64)
	}
	text += fmt.Sprintf(" (sha256 %.12s", c.Digest)
	if c.Signer != "" {
		text += ", signed by " + oneLine(c.Signer, 80)
	}
	if c.Accepted {
		text += ", accepted"
	}
	text += ")"
	if c.Before != "" {
		text += " in the place of " + oneLine(c.Before, 200)
	}
	return text + ", granted " + orNothing(c.Granted)
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// instead is what decides under a name that has no file any more.
func instead(source string) string {
	if source == "" {
		return "nothing decides under this name now"
	}
	return oneLine(source, 200) + " decides under this name again"
}
