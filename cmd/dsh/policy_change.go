package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/runtime"
)

// A bench is the waterfall as it is configured, without the policies folder: on
// it a module is tried before it is put into the folder.
type bench struct {
	cfg    *config.Config
	set    *runtime.Set
	folder runtime.Folder
	record runtime.Record
}

func (p program) bench(ctx context.Context, c cli.Common) (*bench, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	opts, err := p.policyOptions(cfg, c)
	if err != nil {
		return nil, err
	}
	opts.Modules = "" // nothing decides here
	set, err := openSet(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	return &bench{cfg, set, folderOf(cfg), record(cfg)}, nil
}

// install puts a module into the policies folder, once it was tried.
func (p program) install(ctx context.Context, c cli.Common, r cli.Installation) (cli.Change, error) {
	wasm, err := p.module(ctx, c, r.File)
	if err != nil {
		return cli.Change{}, cli.Usagef("%v", err)
	}
	b, err := p.bench(ctx, c)
	if err != nil {
		return cli.Change{}, err
	}
	change, err := b.install(ctx, r, wasm)
	return change, errors.Join(err, b.set.Close())
}

func (b *bench) install(ctx context.Context, r cli.Installation, wasm []byte) (cli.Change, error) {
	name := r.Name
	if name == "" {
		name = nameOf(r.File, wasm)
	}
	known, err := b.record.Of(name)
	if err != nil {
		return cli.Change{}, err
	}
	if sum := digestOf(wasm); r.Accept && !slices.Contains(known.Digests, sum) {
		known.Digests = append(known.Digests, sum)
	}
	info, standing, err := b.set.Try(ctx, name, r.File, wasm, known)
	if err != nil {
		return cli.Change{}, cli.Usagef("%s is not installed: %v", oneName(name), err)
	}
	change := b.change(info, standing)
	change.Did, change.Before = "installed", b.source(name)
	return change, b.place(info, known, r.Accept, wasm)
}

// place remembers what was let in and puts the file in place, in an order in
// which whoever watches the folder judges it rightly at any moment.
func (b *bench) place(info dsh.PolicyInfo, known runtime.Acceptance, accept bool, wasm []byte) error {
	if accept {
		if err := b.record.Put(info.Name, known); err != nil {
			return err
		}
	}
	if err := b.folder.Install(info.Name, wasm); err != nil {
		return err
	}
	if info.Version == known.Version || info.Version == "" && !accept {
		return nil
	}
	known.Version = info.Version
	return b.record.Put(info.Name, known)
}

// source is what decides under a name now; "": nothing.
func (b *bench) source(name string) string {
	if b.folder.Has(name) {
		return b.folder.File(name)
	}
	for _, e := range b.set.Entries() {
		if e.Name == name {
			return e.Policy.Info().Source
		}
	}
	return ""
}

func (b *bench) change(info dsh.PolicyInfo, standing runtime.Standing) cli.Change {
	return cli.Change{
		Name: info.Name, File: b.folder.File(info.Name), Version: info.Version, Digest: info.Digest,
		Granted: info.Granted, Withheld: b.set.Lost(info, standing), Signer: standing.Signer, Accepted: standing.Accepted,
	}
}

// nameOf is the name that a module goes by where none is given: that of its
// manifest, or of its file.
func nameOf(file string, wasm []byte) string {
	if i, err := runtime.Inspect(wasm); err == nil && i.Name != "" {
		return i.Name
	}
	base, _, _ := strings.Cut(filepath.Base(file), "@")
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// oneName is a name for a line of text; what is none is not shown.
func oneName(name string) string {
	if len(name) > 64 || strings.ContainsFunc(name, unicode.IsControl) {
		return "the policy"
	}
	return name
}

func digestOf(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// rollback exchanges a name's file with the one before.
func (p program) rollback(ctx context.Context, c cli.Common, name string) (cli.Change, error) {
	b, err := p.bench(ctx, c)
	if err != nil {
		return cli.Change{}, err
	}
	change, err := b.rollback(ctx, name)
	return change, errors.Join(err, b.set.Close())
}

func (b *bench) rollback(ctx context.Context, name string) (cli.Change, error) {
	now, before, err := b.folder.Previous(name)
	switch {
	case err != nil:
		return cli.Change{}, cli.Usagef("%v", err)
	case now == nil && before == nil:
		return cli.Change{}, cli.Usagef("there is no version of %q before this one: dsh policy install puts one in place", name)
	}
	if before == nil {
		change := cli.Change{Did: "rolled back", Name: name, File: b.folder.File(name), Before: b.source(name)}
		_, err := b.folder.Rollback(name)
		change.After = b.source(name)
		return change, err
	}
	known, err := b.record.Of(name)
	if err != nil {
		return cli.Change{}, err
	}
	version := known.Version
	known.Version = "" // that it is older is the user's wish
	info, standing, err := b.set.Try(ctx, name, "the "+name+" before", before, known)
	if err != nil {
		return cli.Change{}, cli.Usagef("%s is not rolled back: %v", name, err)
	}
	change := b.change(info, standing)
	change.Did, change.Before = "rolled back", b.source(name)
	if known.Version = info.Version; known.Version != version {
		if err := b.record.Put(name, known); err != nil { // before the file, which would be too old else
			return cli.Change{}, err
		}
	}
	_, err = b.folder.Rollback(name)
	return change, err
}

// remove takes a name's file out of the policies folder.
func (p program) remove(ctx context.Context, c cli.Common, name string) (cli.Change, error) {
	b, err := p.bench(ctx, c)
	if err != nil {
		return cli.Change{}, err
	}
	change := cli.Change{Did: "removed", Name: name, File: b.folder.File(name)}
	err = b.folder.Remove(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.source(name) != "":
		err = cli.Usagef("%q is not in the policies folder %s but in the configuration: take it out there", name, b.cfg.Recovery.Dir)
	case errors.Is(err, fs.ErrNotExist):
		err = cli.Usagef("there is no policy %q in the policies folder %s: dsh policy list shows what there is", name, b.cfg.Recovery.Dir)
	}
	change.After = b.source(name)
	return change, errors.Join(err, b.set.Close())
}
