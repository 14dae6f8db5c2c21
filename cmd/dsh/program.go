package main

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
)

// program is the real dsh behind the command line.
type program struct {
	env    func(string) (string, bool)
	wrap   func(dsh.Log) dsh.Log // what tests put around the log of a turn; nil: nothing
	reload <-chan struct{}       // a wish to load the policies anew; nil: it never comes
	told   *sync.Map             // the notices of a configuration that were told, which some commands load twice; nil: each is
}

// commands hands the rooms to the command line.
func (p program) commands() cli.Program {
	p.told = new(sync.Map)
	return cli.Program{
		Build:    build(),
		Log:      p.openLog,
		Upkeep:   p.upkeep(),
		Setup:    p.setup,
		Demo:     p.demo,
		Policies: p.policies,
		Inspect:  p.inspect,
		Install:  p.install,
		Rollback: p.rollback,
		Remove:   p.remove,
		Explain:  p.explain,
		Replayer: p.replayer,
		Sign:     p.sign,
		Push:     p.push,
		Workshop: p.workshop(),
		Adapters: adapterNames(),
		Classify: classify,
		Config:   p.config,
		Trust:    p.trust,
	}
}

// build reads which build this is from what the toolchain has put in.
func build() cli.Build {
	b := cli.Build{
		Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		ABIs: []string{hostabi.ABI}, Engines: []string{native.Name, extism.Name},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	changed := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			changed = s.Value == "true"
		}
	}
	if b.Revision != "" && changed {
		b.Revision += ", changed"
	}
	return b
}

// sources are where the configuration of a command comes from.
func (p program) sources(c cli.Common, cwd string) config.Sources {
	src := config.Sources{File: c.ConfigFile, Cwd: cwd, Env: p.env, Sets: c.Set, Support: support(), Presets: presets()}
	for _, f := range []struct{ name, key, value string }{
		{"--provider", "agent.provider", c.Provider},
		{"--model", "agent.model", c.Model},
		{"--data-dir", "store.dir", c.DataDir},
	} {
		if f.value != "" {
			src.Flags = append(src.Flags, config.Flag{Name: f.name, Key: f.key, Value: f.value})
		}
	}
	return src
}

// load reads the configuration, and warns of what was left aside. Its error is
// a *cli.UsageError.
func (p program) load(c cli.Common, cwd string, flags ...config.Flag) (*config.Config, error) {
	src := p.sources(c, cwd)
	src.Flags = append(src.Flags, flags...)
	cfg, notices, err := config.Load(src)
	for _, n := range notices {
		if p.told != nil {
			if _, before := p.told.LoadOrStore(n, true); before {
				continue
			}
		}
		c.Warn(n)
	}
	return cfg, usage(err)
}

// usage makes problems of a configuration what the command line calls them.
func usage(err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	u := &cli.UsageError{}
	for _, p := range problems {
		u.Problems = append(u.Problems, p.Error())
	}
	return u
}

func (p program) config(_ context.Context, c cli.Common) (cli.Resolved, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return cli.Resolved{}, err
	}
	r := cli.Resolved{File: cfg.File, WriteText: cfg.WriteText, WriteJSON: cfg.WriteJSON}
	for _, h := range cfg.Hazards {
		r.Hazards = append(r.Hazards, h.Error())
	}
	return r, nil
}

func (p program) trust(_ context.Context, c cli.Common) ([]string, error) {
	record, cfg, err := config.Trust(p.sources(c, ""))
	if err != nil {
		return nil, usage(err)
	}
	lines := []string{"trusted in " + record.Folder + ", as they are now:"}
	for _, f := range record.Files {
		lines = append(lines, "  "+f.SHA256[:12]+"  "+f.Path)
	}
	for _, h := range cfg.Hazards {
		lines = append(lines, "hazard: "+h.Error())
	}
	return lines, nil
}
