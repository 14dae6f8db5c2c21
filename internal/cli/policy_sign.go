package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// A Signing is what `dsh policy sign` is to do.
type Signing struct {
	File        string // the module
	Out         string // where the signed one goes; "": the file itself
	Key         string // the file of the secret key
	Attach      string // the file of a signature that was made elsewhere, in place of a key
	Name        string // for which it is signed; "": the module's own
	Version     string // "": the module's own
	PasswordEnv string // the variable with the key's password; "": it has none
	NewKey      string // the file of a key to make, in place of signing
}

// A Signed is what was signed, or the key that was made.
type Signed struct {
	File    string `json:"file"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Digest  string `json:"digest,omitempty"` // of the signed module
	Key     string `json:"key"`              // the key's id
	Public  string `json:"public,omitempty"` // the public key, in one line; "": it is not at hand
}

// A Pushed is what was put into a registry.
type Pushed struct {
	Reference string `json:"reference"` // by which it is installed: with the digest
	Name      string `json:"name"`
	Version   string `json:"version"`
	Digest    string `json:"digest"`        // of the module
	Key       string `json:"key,omitempty"` // that has signed it; "": it is not signed
}

func (a *app) pushCommand() *cobra.Command {
	return &cobra.Command{
		Use: "push FILE oci://HOST/NAME[:TAG]", Short: "Put a module into an OCI registry, its signature beside it",
		Args: between(2, 2, "one file and one reference"),
		RunE: func(c *cobra.Command, args []string) error {
			pushed, err := a.program.Push(c.Context(), a.common, args[0], args[1])
			if err != nil {
				return err
			}
			if a.common.JSON {
				return writeJSON(a.out, pushed)
			}
			if pushed.Key == "" {
				a.progress(dim, "it is not signed: dsh policy sign")
			}
			_, err = fmt.Fprintln(a.out, pushed.Reference)
			return err
		},
	}
}

func (a *app) signCommand() *cobra.Command {
	var s Signing
	c := &cobra.Command{
		Use: "sign FILE", Short: "Sign a module for a name and a version (--new-key FILE: make a key)",
		Args: between(0, 1, "one file"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				s.File = args[0]
			}
			if err := s.check(); err != nil {
				return err
			}
			done, err := a.program.Sign(c.Context(), a.common, s)
			if err != nil {
				return err
			}
			return a.signed(s, done)
		},
	}
	f := c.Flags()
	f.StringVar(&s.Key, "key", "", "the `file` of the secret key, in minisign's form")
	f.StringVarP(&s.Out, "out", "o", "", "where the signed module goes: a `file` (default: in place)")
	f.StringVar(&s.Name, "name", "", "the `name` of the policy (default: the module's own)")
	f.StringVar(&s.Version, "version", "", "the `version` (default: the module's own)")
	f.StringVar(&s.Attach, "attach", "", "puts in a signature that minisign has made: a `file`")
	f.StringVar(&s.PasswordEnv, "password-env", "", "the `variable` that holds the key's password")
	f.StringVar(&s.NewKey, "new-key", "", "makes a key: the `file` for the secret one; the public one goes beside it, with .pub")
	return c
}

// check holds the flags to what they may be together.
func (s Signing) check() error {
	switch {
	case s.NewKey != "" && (s.File != "" || s.Key != "" || s.Attach != ""):
		return Usagef("--new-key makes a key and signs nothing: leave out the file, --key and --attach")
	case s.NewKey != "":
		return nil
	case s.File == "":
		return Usagef("sign needs one file, or --new-key FILE")
	case (s.Key == "") == (s.Attach == ""):
		return Usagef("sign needs --key FILE or --attach FILE; dsh policy sign --new-key FILE makes a key")
	}
	return nil
}

func (a *app) signed(s Signing, done Signed) error {
	switch {
	case a.common.JSON:
		return writeJSON(a.out, done)
	case s.NewKey != "":
		_, err := fmt.Fprintf(a.out, "key %s: the secret one is in %s, the public one in %s.pub\nwho wants such signatures adds to dsh.toml:\n[recovery]\nrequire_signature = true\nkeys = [%q]\n",
			done.Key, oneLine(done.File, 200), oneLine(done.File, 200), done.Public)
		return err
	}
	version := ""
	if done.Version != "" {
		version = " " + oneLine(done.Version, 64)
	}
	_, err := fmt.Fprintf(a.out, "signed %s%s by key %s: %s (sha256 %.12s)\n", oneLine(done.Name, 64), version, done.Key, oneLine(done.File, 200), done.Digest)
	return err
}
