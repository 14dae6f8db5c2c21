package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/registry"
	"github.com/dsh-agent/dsh/internal/signature"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
)

// openPolicies loads the configured waterfall and the policies folder. What is
// wrong with the configuration is a *cli.UsageError that names the places.
func (p program) openPolicies(ctx context.Context, cfg *config.Config, c cli.Common) (*runtime.Set, error) {
	opts, err := p.policyOptions(cfg, c)
	if err != nil {
		return nil, err
	}
	opts.Folder = folderOf(cfg)
	return openSet(ctx, cfg, opts)
}

// folderOf is the policies folder.
func folderOf(cfg *config.Config) runtime.Folder { return runtime.Folder(cfg.Recovery.Dir) }

func openSet(ctx context.Context, cfg *config.Config, opts runtime.Options) (*runtime.Set, error) {
	set, err := runtime.Open(ctx, specs(cfg), opts)
	if err != nil {
		return nil, loadProblems(cfg, err)
	}
	return set, nil
}

// specs are the policies that a configuration lists.
func specs(cfg *config.Config) []runtime.Spec {
	list := make([]runtime.Spec, len(cfg.Recovery.Policies))
	for i, q := range cfg.Recovery.Policies {
		list[i] = runtime.Spec{
			Name: q.Name, Module: q.Path, SHA256: q.SHA256, Capabilities: q.Capabilities, Config: q.Config,
			FailOnFault: q.FailOnFault, MemoryMB: q.MemoryMB, HostCalls: q.HostCalls,
			Process: q.Process,
		}
		if q.Path == "" {
			list[i].Module = q.Module
		}
	}
	return list
}

// loadProblems gives what is wrong with listed policies its place in the
// configuration.
func loadProblems(cfg *config.Config, err error) error {
	var failed *runtime.LoadError
	if !errors.As(err, &failed) {
		return err
	}
	var problems config.Problems
	for _, f := range failed.Problems {
		problems = append(problems, cfg.Recovery.Policies[f.Index].Problem(f.Key, f.Message))
	}
	return usage(problems)
}

// policyOptions are what guests run with, without the policies folder.
func (p program) policyOptions(cfg *config.Config, c cli.Common) (runtime.Options, error) {
	v, err := verifier(cfg)
	return runtime.Options{
		Verify: v.Verify, Fetch: p.registries(c).Pull,
		Engine: p.engine(cfg, c), Isolated: p.isolated(cfg.Recovery.Engine),
		Builtin: guests.Builtin, Modules: runtime.ModuleStore(modulesDir(cfg)), Record: record(cfg), Warn: c.Warn,
		Logged: func(policy string, l runtime.LogLine) {
			c.Tell(fmt.Sprintf("policy %s logs (%s): %s", policy, l.Level, l.Text))
		},
	}, err
}

// engine is what runs guests.
func (p program) engine(cfg *config.Config, c cli.Common) runtime.Engine {
	if cfg.Recovery.Engine == extism.Name {
		return extism.New(extism.Options{CacheDir: p.cacheDir(), Logs: c.Verbose, Warn: c.Warn})
	}
	return native.New(native.Options{CacheDir: p.cacheDir(), Logs: c.Verbose, Warn: c.Warn})
}

// record is where it is remembered which modules were let in: beside the
// policies folder and not in it, so that who can write a module cannot accept
// it.
func record(cfg *config.Config) runtime.Record {
	return runtime.Record(filepath.Join(cfg.Store.Dir, "accepted"))
}

// cacheDir is where compiled guests are kept: the user's cache folder. "":
// there is none, and each process compiles anew.
func (p program) cacheDir() string {
	dir, _ := p.env("XDG_CACHE_HOME")
	if !filepath.IsAbs(dir) {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return ""
		}
	}
	return filepath.Join(dir, "dsh", "guests")
}

// policies lists the waterfall, and what was refused.
func (p program) policies(ctx context.Context, c cli.Common) ([]cli.Policy, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	said := c.Warn
	c.Warn = func(string) {} // the list says it
	set, err := p.openPolicies(ctx, cfg, c)
	if err != nil {
		return nil, err
	}
	if text := set.FolderProblem(); text != "" {
		said(text)
	}
	var list []cli.Policy
	for _, e := range set.Entries() {
		list = append(list, listedPolicy(e))
	}
	return list, set.Close()
}

func listedPolicy(e runtime.Entry) cli.Policy {
	q := cli.Policy{Origin: "folder", Signer: e.Standing.Signer, State: "ready"}
	if e.Listed {
		q.Origin = "config"
	}
	if r := e.Refusal; r != nil {
		q.State = "refused: " + r.Reason
		q.PolicyInfo = dsh.PolicyInfo{Name: r.Policy, Digest: r.Digest, Source: r.File}
	}
	if e.Policy == nil {
		q.Refused = true
		return q
	}
	q.PolicyInfo = e.Policy.Info()
	if e.Listed && e.Refusal != nil {
		q.State = "ready; " + q.State
	}
	switch {
	case strings.HasPrefix(q.Source, "builtin:"):
		q.Trust = "built-in"
	case e.Standing.Signer != "":
		q.Trust = "signed"
	case e.Standing.Pinned:
		q.Trust = "pinned"
	case e.Standing.Accepted:
		q.Trust = "accepted"
	}
	return q
}

// inspect reads a module and holds it to the contract. Nothing of it runs.
func (p program) inspect(ctx context.Context, c cli.Common, file string) (cli.Module, error) {
	wasm, err := p.module(ctx, c, file)
	if err != nil {
		return cli.Module{}, cli.Usagef("%v", err)
	}
	i, err := runtime.Inspect(wasm)
	if err != nil {
		return cli.Module{}, cli.Usagef("%s: %v", file, err)
	}
	m := cli.Module{
		File: file, Size: int64(i.Bytes), Digest: i.Digest, Name: i.Name, Version: i.Version, Description: i.Description,
		ABI: i.ABI, Asks: i.Capabilities, Functions: i.Functions, MemoryPages: i.MemoryPages, Problems: i.Problems,
	}
	for _, h := range i.Hooks {
		m.Hooks = append(m.Hooks, string(h))
	}
	for _, e := range i.Exports {
		m.Exports = append(m.Exports, extern(e))
	}
	for _, e := range i.Imports {
		m.Imports = append(m.Imports, extern(e))
	}
	m.Signature, err = p.inspectSignature(c, wasm)
	if err != nil {
		m.Problems = append(m.Problems, err.Error())
	}
	return m, nil
}

// inspectSignature says who is said to have signed a module, and whether that
// is so, where the configuration lists the key. Without one that holds no key
// is known.
func (p program) inspectSignature(c cli.Common, wasm []byte) (*cli.ModuleSignature, error) {
	s, err := signature.Of(wasm)
	if err != nil || s == nil {
		return nil, err
	}
	m := &cli.ModuleSignature{Key: s.KeyID, Name: s.Name, Version: s.Version}
	cfg, err := p.load(c, "")
	if err != nil {
		c.Warn("no key is known, since the configuration does not hold: " + problemsOf(err))
		return m, nil
	}
	v, err := verifier(cfg)
	for _, k := range v.Keys {
		if k.ID() == s.KeyID {
			good := s.Good(k) || m.Good != nil && *m.Good
			m.Good = &good
		}
	}
	return m, err
}

// extern is an import or export in words.
func extern(e runtime.Extern) string {
	name := e.Name
	if e.Module != "" {
		name = e.Module + "." + e.Name
	}
	if e.Type != "" {
		return name + " " + e.Type
	}
	return name + " (" + e.Kind + ")"
}

// registries is how modules are got from registries. They are kept beside the
// compiled guests.
func (p program) registries(c cli.Common) registry.Client {
	client := registry.Client{DockerAuth: true, Warn: c.Warn}
	if dir := p.cacheDir(); dir != "" {
		client.Cache = registry.Cache(filepath.Join(filepath.Dir(dir), "modules"))
	}
	return client
}

// module reads a module from a registry, a file, or a built-in one.
func (p program) module(ctx context.Context, c cli.Common, name string) ([]byte, error) {
	if strings.HasPrefix(name, registry.Prefix) {
		return p.registries(c).Pull(ctx, name)
	}
	return moduleBytes(name)
}

// moduleBytes reads a module from a file, or a built-in one.
func moduleBytes(name string) ([]byte, error) {
	if builtin, ok := strings.CutPrefix(name, "builtin:"); ok {
		wasm, ok := guests.Builtin(builtin)
		if !ok {
			return nil, fmt.Errorf("no policy %q ships with dsh: %s", builtin, strings.Join(guests.Names(), ", "))
		}
		return wasm, nil
	}
	return runtime.ReadFile(name)
}

// push puts a module into a registry.
func (p program) push(ctx context.Context, c cli.Common, file, reference string) (cli.Pushed, error) {
	wasm, err := p.module(ctx, c, file)
	if err != nil {
		return cli.Pushed{}, cli.Usagef("%v", err)
	}
	i, err := runtime.Inspect(wasm)
	if err != nil {
		return cli.Pushed{}, cli.Usagef("%s: %v", file, err)
	}
	if len(i.Problems) > 0 {
		return cli.Pushed{}, cli.Usagef("%s is not pushed, since nobody could load it: %s", file, strings.Join(i.Problems, "; "))
	}
	if _, err := registry.Parse(reference); err != nil {
		return cli.Pushed{}, cli.Usagef("%v", err)
	}
	r, err := p.registries(c).Push(ctx, reference, wasm)
	if err != nil {
		return cli.Pushed{}, err
	}
	r.Tag = "" // it is the digest that counts
	pushed := cli.Pushed{Reference: r.String(), Name: i.Name, Version: i.Version, Digest: i.Digest}
	if s, err := signature.Of(wasm); err == nil && s != nil {
		pushed.Key = s.KeyID
	}
	return pushed, nil
}
