package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	var repair bool
	c := &cobra.Command{
		Use: "doctor", Short: "Look at all that dsh needs, and say what to do", Args: between(0, 0, "no argument"),
		Long: `Looks at the version, the configuration, the provider's key (which is never
shown), the data folder, the disk, the log, its socket and the policies; each is
good, or comes with what to do. It changes nothing, and exits with 1 if
something is bad.

With --repair it mends the log: sessions that are damaged end where they are
proven whole, and what follows is moved to the folder "repaired" in the data
folder. Nothing is deleted. No other process may have the log open.`,
		RunE: func(c *cobra.Command, _ []string) error {
			look := a.program.Upkeep.Doctor
			if repair {
				look = a.program.Upkeep.Repair
			}
			findings, err := look(c.Context(), a.common)
			if err != nil {
				return err
			}
			return a.tellFindings(findings, repair)
		},
	}
	c.Flags().BoolVar(&repair, "repair", false, "mends the log, and sets aside what is damaged")
	return c
}

func (a *app) tellFindings(findings []Finding, repair bool) error {
	bad := 0
	var b strings.Builder
	for _, f := range findings {
		if f.State == FindingBad {
			bad++
		}
		if a.common.JSON {
			if err := writeJSON(a.out, f); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(&b, "%-5s %-14s %s\n", f.State, f.What, oneLine(f.Detail, longMessage))
		if f.Advice != "" {
			fmt.Fprintf(&b, "%-20s to do: %s\n", "", oneLine(f.Advice, longMessage))
		}
	}
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return err
	}
	switch {
	case bad == 0:
		return nil
	case repair:
		return &LogError{errors.New("not all could be repaired")}
	}
	return fmt.Errorf("%s not as it should be", count(bad, "thing is", "things are"))
}
