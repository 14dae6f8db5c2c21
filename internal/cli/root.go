package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app is one run of the command line.
type app struct {
	program    Program
	in         io.Reader
	inTerminal bool
	out        *output
	say        *screen
	common     Common
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "dsh",
		Short: "An agent runtime whose recovery from model failures is a plugin",
		Long: `dsh runs a turn with a model, and puts every failure of a request to sandboxed
policies that answer "retry" or leave it to the next one. Every decision and
wait is in the log before it happens: a killed dsh goes on where it was.

Start with "dsh demo": it needs no key and no network.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          a.unknown,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	f := root.PersistentFlags()
	f.StringVar(&a.common.ConfigFile, "config", "", "the configuration `file` (else $DSH_CONFIG, ./dsh.toml, $XDG_CONFIG_HOME/dsh/dsh.toml)")
	f.StringVar(&a.common.DataDir, "data-dir", "", "the data `folder` (else $DSH_DATA_DIR, the configuration, $XDG_DATA_HOME/dsh)")
	f.StringVar(&a.common.Provider, "provider", "", "the provider's `name`: a key of [providers], or a preset")
	f.StringVar(&a.common.Model, "model", "", "the model's `name`")
	f.StringArrayVar(&a.common.Set, "set", nil, "sets a value of the configuration: `KEY=VALUE`, repeatable")
	f.BoolVar(&a.common.Quiet, "quiet", false, "no progress on stderr, errors only")
	f.BoolVar(&a.common.Verbose, "verbose", false, "more progress on stderr")
	f.BoolVar(&a.common.JSON, "json", false, "one JSON value a line on stdout")
	root.AddCommand(a.demoCommand(), a.runCommand(), a.compactCommand(), a.sessionsCommand(), a.logCommand(), a.policyCommand(),
		a.classifyCommand(), a.configCommand(), a.doctorCommand(), a.versionCommand(), a.completionCommand())
	for _, w := range []string{"chat", "acp", "serve"} {
		root.AddCommand(later(w))
	}
	return root
}

// group is a command that only holds others.
func (a *app) group(use, short string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: a.unknown}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return Usagef("%s needs one of: %s", c.CommandPath(), strings.Join(visible(c), ", "))
	}
	c.AddCommand(sub...)
	return c
}

// later is a word that is settled and whose command is not built yet.
func later(word string) *cobra.Command {
	return &cobra.Command{
		Use: word, Hidden: true, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return Usagef("%s is not yet supported by this version", c.CommandPath())
		},
	}
}

// visible are the subcommands that a person can choose from.
func visible(c *cobra.Command) []string {
	var names []string
	for _, s := range c.Commands() {
		if !s.Hidden {
			names = append(names, s.Name())
		}
	}
	return names
}

// unknown refuses a word that is no command, and names the nearest ones.
func (a *app) unknown(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, s := range c.Commands() {
		names = append(names, s.Name())
	}
	hint := fmt.Sprintf("the commands are %s", strings.Join(visible(c), ", "))
	if n := near(args[0], names); len(n) > 0 {
		hint = "did you mean " + strings.Join(n, " or ") + "?"
	}
	return Usagef("unknown command %q of %s: %s", oneLine(args[0], 60), c.CommandPath(), hint)
}

// wanted is what the values of flags of a type are; "": their error says it.
func wanted(typ string) string {
	switch typ {
	case "int":
		return "a whole number"
	case "uint64":
		return "a whole number of 0 or more"
	case "float64":
		return "a number"
	case "duration":
		return "a duration, as 500ms, 30s or 5m"
	case "bool":
		return "true or false"
	}
	return ""
}

// flagError makes a UsageError of pflag's, with the nearest flags.
func flagError(c *cobra.Command, err error) error {
	msg := oneLine(err.Error(), 200)
	var bad *pflag.InvalidValueError
	if errors.As(err, &bad) {
		if want := wanted(bad.GetFlag().Value.Type()); want != "" {
			msg = fmt.Sprintf("--%s %q: it takes %s", bad.GetFlag().Name, oneLine(bad.GetValue(), 60), want)
		}
	}
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if n := near(name, names); len(n) > 0 {
			msg += "; did you mean --" + strings.Join(n, " or --") + "?"
		} else {
			msg += "; see " + c.CommandPath() + " --help"
		}
	}
	return Usagef("%s", msg)
}

// between checks the number of arguments, and says what they are.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if most >= 0 && len(args) > most {
			return Usagef("%s takes %s, and %q is too much", c.CommandPath(), what, oneLine(args[most], 60))
		}
		if len(args) < least {
			return Usagef("%s needs %s", c.CommandPath(), what)
		}
		return nil
	}
}

// reorder puts the flags of a command line behind its words, so that they may
// stand anywhere: cobra finds a command only where no flag that it does not
// know yet stands before it.
func reorder(root *cobra.Command, args []string) []string {
	if len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		return args // cobra's own, for shells
	}
	takesValue := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.PersistentFlags(), c.LocalFlags()} {
			set.VisitAll(func(f *pflag.Flag) {
				takesValue["--"+f.Name] = takesValue["--"+f.Name] || f.NoOptDefVal == ""
				takesValue["-"+f.Shorthand] = takesValue["-"+f.Shorthand] || f.NoOptDefVal == ""
			})
		}
		for _, s := range c.Commands() {
			visit(s)
		}
	}
	visit(root)
	var flags, words []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return slices.Concat(words, flags, args[i:])
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			words = append(words, arg)
			continue
		}
		flags = append(flags, arg)
		if takesValue[arg] && i+1 < len(args) { // one with a = in it has its value
			i++
			flags = append(flags, args[i])
		}
	}
	return slices.Concat(words, flags)
}
