package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/shared"
)

// A ward is what the doctor found so far.
type ward struct {
	program  program
	common   cli.Common
	findings []cli.Finding
}

func (w *ward) good(what, format string, args ...any) {
	w.findings = append(w.findings, cli.Finding{What: what, State: cli.FindingGood, Detail: fmt.Sprintf(format, args...)})
}

func (w *ward) note(what, detail, advice string) {
	w.findings = append(w.findings, cli.Finding{What: what, State: cli.FindingNote, Detail: detail, Advice: advice})
}

func (w *ward) bad(what, detail, advice string) {
	w.findings = append(w.findings, cli.Finding{What: what, State: cli.FindingBad, Detail: detail, Advice: advice})
}

// doctor looks at all that dsh needs. What is wrong is a finding; it has no
// error but that of a context that ended.
func (p program) doctor(ctx context.Context, c cli.Common) ([]cli.Finding, error) {
	c.Warn = func(string) {} // it is found below
	w := &ward{program: p, common: c}
	b := build()
	w.good("version", "%s, %s, %s, ABI %s, engines %s", b.Version, b.Go, b.Platform, strings.Join(b.ABIs, " "), strings.Join(b.Engines, " "))
	cfg := w.configuration()
	if cfg == nil {
		return w.findings, ctx.Err()
	}
	w.provider(cfg)
	if cfg.Store.Backend != backendMemory {
		w.folder(cfg.Store.Dir)
		w.store(ctx, cfg)
	}
	w.policies(ctx)
	return w.findings, ctx.Err()
}

func (w *ward) configuration() *config.Config {
	cfg, notices, err := config.Load(w.program.sources(w.common, ""))
	var problems config.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			w.bad("configuration", p.Error(), "mend it: dsh config check says all of it")
		}
		return nil
	case err != nil:
		w.bad("configuration", err.Error(), "mend it: dsh config check says all of it")
		return nil
	}
	file := cfg.File
	if file == "" {
		file = "no file, so the defaults"
	}
	w.good("configuration", "%s", file)
	for _, n := range notices {
		w.note("configuration", n, "")
	}
	for _, h := range cfg.Hazards {
		w.note("configuration", h.Error(), "")
	}
	return cfg
}

// provider says whether a turn has somebody to ask. A key is never shown.
func (w *ward) provider(cfg *config.Config) {
	var problems config.Problems
	if err := cfg.Ready(); errors.As(err, &problems) {
		for _, p := range problems {
			w.bad("provider", p.Error(), "set the key's variable, or choose another provider")
		}
		return
	} else if err != nil {
		w.bad("provider", err.Error(), "")
		return
	}
	p, err := cfg.Provider(cfg.Agent.Provider)
	switch {
	case err != nil:
		w.bad("provider", err.Error(), "")
	case p.APIKey.Variable == "":
		w.good("provider", "%s, model %s, at %s; it takes no key", p.Name, cfg.Agent.Model, p.BaseURL)
	case p.APIKey.Reveal() == "":
		w.bad("provider", fmt.Sprintf("%s: %s is not set", p.Name, p.APIKey.Variable), "set "+p.APIKey.Variable+" to the key")
	default:
		w.good("provider", "%s, model %s, at %s; %s is set", p.Name, cfg.Agent.Model, p.BaseURL, p.APIKey.Variable)
	}
}

// modes says that this system has modes for others than a file's owner.
const modes = runtime.GOOS != "windows"

// folder looks at who can read the data folder, and at its disk.
func (w *ward) folder(dir string) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		w.good("data folder", "%s is not there yet: the first run makes it", dir)
		return
	}
	if err != nil {
		w.bad("data folder", err.Error(), "make it yours, or choose another one with --data-dir or DSH_DATA_DIR")
		return
	}
	w.modes(dir, info.Mode())
	w.disk(dir)
	if entries, err := os.ReadDir(filepath.Join(dir, "repaired")); err == nil && len(entries) > 0 {
		w.note("repaired", fmt.Sprintf("%d files that repairs have set aside are in %s", len(entries), filepath.Join(dir, "repaired")), "delete them when nothing of them is needed")
	}
}

// modes looks for what others can read.
func (w *ward) modes(dir string, mode fs.FileMode) {
	open := 0
	example := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the log's files come and go
		}
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && !d.IsDir() && info.Mode().Perm()&0o077 != 0 && info.Mode()&fs.ModeSymlink == 0 {
			open++
			example = path
		}
		return nil
	})
	switch {
	case err != nil:
		w.bad("data folder", err.Error(), "make it yours, or choose another one with --data-dir or DSH_DATA_DIR")
	case open > 0 && mode.Perm()&0o077 != 0 && modes:
		w.bad("data folder", fmt.Sprintf("others can enter %s, and read %d of its files, as %s", dir, open, example), "chmod -R go= "+dir)
	case mode.Perm()&0o077 != 0 && modes:
		w.note("data folder", fmt.Sprintf("others can enter %s, and read none of its files", dir), "chmod go= "+dir)
	case open > 0 && modes:
		w.note("data folder", fmt.Sprintf("%d files in %s are open to others, who cannot enter it, as %s", open, dir, example), "chmod -R go= "+dir)
	default:
		w.good("data folder", "%s, for its owner only", dir)
	}
}

func (w *ward) disk(dir string) {
	switch free, reserve, err := badger.Room(dir); {
	case err != nil:
		w.bad("disk", err.Error(), "")
	case free < reserve:
		w.bad("disk", fmt.Sprintf("%d MiB are free, and an append leaves %d", free>>20, reserve>>20), "make room")
	default:
		w.good("disk", "%d MiB are free", free>>20)
	}
}

// store opens the log, or goes to who has it open, and looks at every session
// as far as that takes no reading of it.
func (w *ward) store(ctx context.Context, cfg *config.Config) {
	if _, err := os.Stat(cfg.Store.Dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	var said []string
	c := w.common
	c.Warn = func(s string) { said = append(said, s) }
	log, err := openStore(ctx, cfg, c)
	if err != nil {
		var open *badger.OpenError
		advice := "see what it says; dsh doctor --repair mends what can be mended"
		if errors.As(err, &open) && open.Kind == badger.ErrFolder {
			advice = open.Advice
		}
		w.bad("log", err.Error(), advice)
		return
	}
	defer log.Close() //nolint:errcheck // nothing was written
	for _, s := range said {
		w.note("log", s, "")
	}
	n, damaged := 0, 0
	for h, err := range log.Heads(ctx) {
		var damage *dsh.DamageError
		switch {
		case errors.As(err, &damage):
			damaged++
			w.bad("session", err.Error(), "dsh log export "+string(h.ID)+" writes what is whole of it; dsh doctor --repair lets it go on from there")
		case err != nil:
			w.bad("log", err.Error(), "")
			return
		default:
			n++
		}
	}
	if damaged == 0 {
		w.good("log", "%s; dsh log verify reads all of each", sessions(n))
	}
	w.socket(ctx, cfg.Store.Dir, log)
}

func sessions(n int) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}

func (w *ward) socket(ctx context.Context, dir string, log dsh.Log) {
	keeper, ok := log.(interface{ KeptBy(context.Context) int })
	if !ok {
		return
	}
	path, err := shared.SocketPath(dir)
	switch pid := keeper.KeptBy(ctx); {
	case err != nil:
		w.bad("socket", err.Error(), "set XDG_RUNTIME_DIR to a short folder of yours: without a socket one process at a time can use the log")
	case pid == os.Getpid():
		w.good("socket", "%s; no other process has the log open", path)
	default:
		w.good("socket", "process %d keeps the log, and serves it", pid)
	}
}

func (w *ward) policies(ctx context.Context) {
	list, err := w.program.policies(ctx, w.common)
	if err != nil {
		w.bad("policies", err.Error(), "dsh policy list says all of it")
		return
	}
	var names []string
	for _, q := range list {
		names = append(names, q.Name)
		if q.State != "ready" {
			w.bad("policy", q.Name+": "+q.State, "dsh policy list says all of it")
		}
	}
	if len(names) == 0 {
		w.note("policies", "there are none: every failure is final", "")
		return
	}
	w.good("policies", "%s", strings.Join(names, ", "))
}

// repair mends the log. No other process may have it open.
func (p program) repair(ctx context.Context, c cli.Common) ([]cli.Finding, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	w := &ward{program: p, common: c}
	if _, err := os.Stat(cfg.Store.Dir); errors.Is(err, fs.ErrNotExist) || cfg.Store.Backend == backendMemory {
		w.good("log", "there is none yet")
		return w.findings, nil
	}
	key, err := storeKey(cfg)
	if err != nil {
		return nil, err
	}
	if done, err := badger.RestoreManifest(cfg.Store.Dir); err != nil {
		return nil, &cli.LogError{Err: err}
	} else if done {
		w.note("log", "the list of its tables was missing or damaged: its copy is in its place", "")
	}
	log, err := w.openOrSalvage(cfg.Store.Dir, badger.Options{Key: key, Warn: func(err error) { c.Warn(err.Error()) }})
	if err != nil {
		return nil, &cli.LogError{Err: err}
	}
	if err := w.sessions(ctx, log); err != nil {
		return nil, errors.Join(&cli.LogError{Err: err}, log.Close())
	}
	if err := log.Close(); err != nil {
		return nil, &cli.LogError{Err: err}
	}
	return w.findings, nil
}

// openOrSalvage opens the log, or a new one of all that can be read of one that
// cannot be opened, or has a table that cannot be read to its end.
func (w *ward) openOrSalvage(dir string, o badger.Options) (*badger.Log, error) {
	why := "the database could not be opened"
	bad, err := badger.DamagedTables(dir)
	if err != nil {
		return nil, err
	}
	if len(bad) == 0 {
		log, err := badger.Open(dir, o)
		if !errors.Is(err, badger.ErrDamaged) {
			return log, err
		}
	} else {
		why = "the database is damaged"
	}
	s, err := badger.Salvage(dir, o)
	if err != nil {
		return nil, fmt.Errorf("%s, and no new one can be made of what can be read of it: %w", why, err)
	}
	w.note("log", fmt.Sprintf("%s: a new one was made of %d entries of its tables; %d of the %d tables could not be read to their end", why, s.Entries, s.Damaged, s.Tables),
		"the old one is in "+s.Aside)
	return badger.Open(dir, o)
}

// sessions reads every session, and sets aside what is not proven.
func (w *ward) sessions(ctx context.Context, log *badger.Log) error {
	damaged := map[dsh.SessionID]bool{}
	var heads []dsh.Head
	for h, err := range log.Heads(ctx) {
		var damage *dsh.DamageError
		if errors.As(err, &damage) {
			damaged[damage.Session] = true
		} else if err != nil {
			return err
		} else {
			heads = append(heads, h)
		}
	}
	mended := 0
	for _, h := range heads {
		tail, err := loop.Verify(log.Read(ctx, h.ID, 0))
		var schema *dsh.SchemaError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &schema):
			w.note("session", fmt.Sprintf("%s: %v", h.ID, err), "")
			continue
		case err == nil && tail == h.Tail() && !damaged[h.ID]:
			continue
		}
		mended++
		w.setAside(ctx, log, h.ID, tail.Seq, err)
	}
	if mended == 0 {
		w.good("log", "%s, all whole", sessions(len(heads)))
	}
	return nil
}

func (w *ward) setAside(ctx context.Context, log *badger.Log, id dsh.SessionID, through uint64, cause error) {
	done, err := log.SetAside(ctx, id, through)
	if err != nil {
		w.bad("session", fmt.Sprintf("%s was not mended: %v", id, err), "")
		return
	}
	now := fmt.Sprintf("ends at event %d now", done.Through)
	if done.Through == 0 {
		now = "is not in the log any more: nothing of it is proven"
	}
	detail := fmt.Sprintf("%s %s", id, now)
	if cause != nil {
		detail += fmt.Sprintf(" (%v)", cause)
	}
	if done.Lost > done.Through {
		detail += fmt.Sprintf("; it had %d events", done.Lost)
	}
	w.note("session", detail, fmt.Sprintf("what followed (%d entries) is in %s", done.Moved, done.File))
}
