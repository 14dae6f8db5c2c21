package main

import (
	"context"
	"os"
	"slices"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/tools"
)

// supervise is the first argument of a dsh that watches over one command of
// the tool shell.
const supervise = "supervise-command"

// tools are those that the model is shown, each behind the permission that it
// needs. Without any the folder is left alone.
func (r *rooms) tools(ctx context.Context, cwd string) ([]dsh.Tool, error) {
	offer := r.cfg.Tools.Offer
	if len(offer) == 0 {
		return nil, nil
	}
	folder, err := tools.Open(cwd)
	if err != nil {
		return nil, cli.Usagef("the tools cannot work in %s: %v", cwd, err)
	}
	r.folder = folder
	folder.Protect(append(r.cfg.Own, r.program.cacheDir())...)
	may := &tools.Permission{Yes: r.options.Yes, Granted: r.cfg.Tools.Allow, Ask: question(r.options.Ask)}
	var all []dsh.Tool
	offered := func(t dsh.Tool, server string, guard bool) {
		name := t.Spec().Name
		if !slices.Contains(offer, name) && (server == "" || !slices.Contains(offer, server)) {
			return
		}
		if guard {
			t = may.Guard(t, server)
		}
		all = append(all, t)
	}
	for _, t := range folder.ReadOnly() {
		offered(t, "", false)
	}
	for _, t := range folder.Changing() {
		offered(t, "", true)
	}
	if slices.Contains(offer, "shell") && tools.CanShell() {
		hideSecrets(r.secrets())
		offered(folder.Shell(r.shell()), "", true)
	}
	for _, t := range r.wasmTools(offer) {
		offered(t, "", !t.Spec().ReadOnly)
	}
	for _, s := range r.serverTools(ctx, offer, cwd) {
		offered(s.tool, s.server, true)
	}
	return all, nil
}

// question puts the command line's question in the words of the tools.
func question(ask func(context.Context, string, string) (cli.Answer, error)) func(context.Context, tools.Question) (tools.Reply, error) {
	if ask == nil {
		return nil
	}
	return func(ctx context.Context, q tools.Question) (tools.Reply, error) {
		a, err := ask(ctx, q.Tool, q.Text)
		switch a {
		case cli.AnswerYes:
			return tools.ReplyYes, err
		case cli.AnswerAlways:
			return tools.ReplyAlways, err
		}
		return tools.ReplyNo, err
	}
}

// secrets are the variables that hold keys: of the presets, and those that the
// configuration names.
func (r *rooms) secrets() []string {
	var names []string
	for _, p := range presets() {
		if p.APIKeyEnv != "" {
			names = append(names, p.APIKeyEnv)
		}
	}
	return append(names, r.cfg.SecretVariables()...)
}

func (r *rooms) shell() tools.Shell {
	return tools.Shell{
		Supervisor: []string{executable(), supervise}, Name: os.Args[0],
		Env: os.Environ(), Secrets: r.secrets(), Pass: r.cfg.Tools.Shell.Env,
		Timeout: r.cfg.Tools.Shell.Timeout, MaxTimeout: r.cfg.Tools.Shell.MaxTimeout,
	}
}
