package cli

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	none := between(0, 0, "no argument")
	return a.group("config", "Check and show the configuration, and trust the one of this folder",
		&cobra.Command{
			Use: "check", Short: "Say whether the configuration holds, and what in it is likely not meant", Args: none,
			RunE: func(c *cobra.Command, _ []string) error { return a.checkConfig(c) },
		},
		&cobra.Command{
			Use: "show", Short: "Show every setting, and where its value comes from", Args: none,
			RunE: func(c *cobra.Command, _ []string) error { return a.showConfig(c) },
		},
		&cobra.Command{
			Use: "trust", Short: "Let this folder's dsh.toml, and what it names, count", Args: none,
			RunE: func(c *cobra.Command, _ []string) error { return a.trustConfig(c) },
		})
}

func (a *app) checkConfig(c *cobra.Command) error {
	r, err := a.program.Config(c.Context(), a.common)
	if err != nil {
		return err
	}
	if a.common.JSON {
		return writeJSON(a.out, map[string]any{"ok": true, "file": r.File, "hazards": listed(r.Hazards)})
	}
	says := "the configuration holds: " + r.File
	if r.File == "" {
		says = "there is no file, and the defaults hold"
	}
	if _, err := fmt.Fprintln(a.out, clean(says)); err != nil {
		return err
	}
	for _, h := range r.Hazards {
		if _, err := fmt.Fprintln(a.out, "hazard: "+clean(h)); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showConfig(c *cobra.Command) error {
	r, err := a.program.Config(c.Context(), a.common)
	if err != nil {
		return err
	}
	write := r.WriteText
	if a.common.JSON {
		write = r.WriteJSON
	}
	var b bytes.Buffer // what the file holds is shown clean, and at once
	if err := write(&b); err != nil {
		return err
	}
	_, err = io.WriteString(a.out, clean(b.String()))
	return err
}

func (a *app) trustConfig(c *cobra.Command) error {
	lines, err := a.program.Trust(c.Context(), a.common)
	if err != nil {
		return err
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(a.out, clean(l)); err != nil {
			return err
		}
	}
	return nil
}
