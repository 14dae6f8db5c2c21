package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests/sdk"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/workshop"
	"github.com/dsh-agent/dsh/runtime"
)

// workshop is what policies are made and tried with.
func (p program) workshop() cli.Workshop {
	return cli.Workshop{Languages: sdk.Languages(), New: newProject, Pack: p.pack, Test: p.test, Simulate: p.simulate}
}

func newProject(parent, name, language string) (cli.Project, error) {
	made, err := workshop.New(parent, name, language)
	return cli.Project{Dir: made.Dir, Name: name, Language: language, Files: made.Files}, wording(err)
}

// wording makes what the workshop says of the user's words a *cli.UsageError.
func wording(err error) error {
	var w *workshop.WordError
	if errors.As(err, &w) {
		return cli.Usagef("%s", w.Text)
	}
	return err
}

// pack writes a module with a manifest.
func (p program) pack(ctx context.Context, c cli.Common, file, manifest, out string) (cli.Module, error) {
	wasm, err := moduleBytes(file)
	if err != nil {
		return cli.Module{}, cli.Usagef("%v", err)
	}
	raw, err := smallFile(manifest, hostabi.MaxManifestBytes)
	if err != nil {
		return cli.Module{}, cli.Usagef("the manifest cannot be read: %v", err)
	}
	m, err := hostabi.ParseManifest(raw)
	if err != nil {
		return cli.Module{}, cli.Usagef("%s: %v", manifest, err)
	}
	packed, err := hostabi.Pack(wasm, *m)
	if err != nil {
		return cli.Module{}, cli.Usagef("%s: %v", file, err)
	}
	if err := overwrite(out, packed); err != nil {
		return cli.Module{}, fmt.Errorf("the module cannot be written: %w", err)
	}
	return p.inspect(ctx, c, out)
}

// maxCasesBytes bounds a file of cases.
const maxCasesBytes = 64 << 20

// test holds a policy to cases.
func (p program) test(ctx context.Context, c cli.Common, file, cases string, update bool) (cli.Tested, error) {
	wasm, err := moduleBytes(file)
	if err != nil {
		return cli.Tested{}, cli.Usagef("%v", err)
	}
	text, err := smallFile(cases, maxCasesBytes)
	if err != nil {
		return cli.Tested{}, cli.Usagef("the cases cannot be read: %v", err)
	}
	list, err := workshop.ParseCases(bytes.NewReader(text))
	if err != nil {
		return cli.Tested{}, caseProblems(cases, err)
	}
	name := nameOf(file, wasm)
	load, err := p.loader(c, name, file, wasm)
	if err != nil {
		return cli.Tested{}, err
	}
	results, err := workshop.Run(ctx, load, name, list)
	if err != nil {
		return cli.Tested{}, wording(err)
	}
	t := cli.Tested{}
	for _, r := range results {
		t.Cases = append(t.Cases, testedCase(r))
	}
	if update {
		now, changed, err := workshop.Update(text, results)
		if err != nil {
			return t, err
		}
		t.Updated = changed
		if changed > 0 {
			if err := overwrite(cases, now); err != nil {
				return t, fmt.Errorf("the cases cannot be written: %w", err)
			}
		}
	}
	return t, nil
}

// smallFile reads a regular file of at most so many bytes. A folder, a device or
// a pipe is not opened.
func smallFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > limit:
		return nil, fmt.Errorf("%s has %d bytes, and at most %d are allowed", path, info.Size(), limit)
	}
	return os.ReadFile(path)
}

// caseProblems gives what is wrong with cases the name of their file.
func caseProblems(file string, err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return cli.Usagef("%s: %v", file, err)
	}
	u := &cli.UsageError{}
	for _, e := range joined.Unwrap() {
		u.Problems = append(u.Problems, fmt.Sprintf("%s: %v", file, e))
	}
	return u
}

func testedCase(r workshop.Result) cli.TestedCase {
	t := cli.TestedCase{Line: r.Case.Line, Name: r.Case.Name, OK: len(r.Differences) == 0, Answer: r.Answer, Fuel: r.Fuel}
	for _, d := range r.Differences {
		t.Differences = append(t.Differences, cli.CaseDifference(d))
	}
	if r.Fault != nil {
		t.Fault = r.Fault.Error()
	}
	return t
}

// loader loads a module for trial: with every capability that it asks for, kept
// nowhere, without the policies folder and whatever the configuration lists.
func (p program) loader(c cli.Common, name, file string, wasm []byte) (workshop.Load, error) {
	cfg, err := p.untouched(c)
	if err != nil {
		return nil, err
	}
	opts, err := p.policyOptions(cfg, c)
	if err != nil {
		return nil, err
	}
	opts.Modules, opts.Folder, opts.Record, opts.Verify = "", "", "", nil
	inspected, err := runtime.Inspect(wasm)
	if err != nil {
		return nil, cli.Usagef("%s: %v", file, err)
	}
	return func(ctx context.Context, config json.RawMessage) (workshop.Loaded, error) {
		spec := runtime.Spec{Name: name, Module: file, Wasm: wasm, Config: config, Capabilities: inspected.Capabilities}
		set, err := runtime.Open(ctx, []runtime.Spec{spec}, opts)
		var failed *runtime.LoadError
		if !errors.As(err, &failed) {
			if err != nil {
				return workshop.Loaded{}, err
			}
			policies, _ := set.Policies()
			return workshop.Loaded{Policy: patient{policies[0]}, Free: set.Close}, nil
		}
		var l workshop.Loaded
		u := &cli.UsageError{}
		for _, problem := range failed.Problems {
			if problem.Key == "config" {
				l.Problems = append(l.Problems, problem.Message)
			} else {
				u.Problems = append(u.Problems, problem.Message)
			}
		}
		if len(u.Problems) > 0 {
			return l, u
		}
		return l, nil
	}, nil
}

// patient is a policy that is asked again whatever it does: on trial every fault
// is an answer to look at.
type patient struct{ dsh.Policy }

// Decide puts the question.
func (q patient) Decide(ctx context.Context, question dsh.Question) (dsh.Verdict, error) {
	v, err := q.Policy.Decide(ctx, question)
	if err != nil {
		runtime.Reset(q.Policy)
	}
	return v, err
}

// untouched is the configuration of a dsh that nobody has configured: what a
// policy answers on trial depends on no file, and on no variable but those that
// say where the data is.
func (p program) untouched(c cli.Common) (*config.Config, error) {
	src := p.sources(cli.Common{DataDir: c.DataDir, Set: c.Set}, "")
	src.NoFile, src.Support.Instructions = true, false
	src.Env = func(name string) (string, bool) {
		if name == "DSH_CONFIG" || name == "DSH_PROVIDER" || name == "DSH_MODEL" || strings.HasSuffix(name, "_API_KEY") {
			return "", false
		}
		return p.env(name)
	}
	cfg, _, err := config.Load(src)
	return cfg, usage(err)
}

// overwrite puts a file in the place of what is there at once: who is stopped in
// the middle has the old one. It has the mode of the one before.
func overwrite(path string, data []byte) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
