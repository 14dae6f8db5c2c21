package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/store/badger"
	"github.com/dsh-agent/dsh/store/memory"
	"github.com/dsh-agent/dsh/store/shared"
)

// openLog opens the configured log for a command that reads it. A data folder
// that is not there yet is an empty log, and is not made.
func (p program) openLog(ctx context.Context, c cli.Common) (dsh.Log, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(cfg.Store.Dir); errors.Is(err, fs.ErrNotExist) {
		return memory.New(), nil
	}
	log, err := openStore(ctx, cfg, c)
	if err != nil {
		return nil, err
	}
	return collect(log, runtime.ModuleStore(modulesDir(cfg)), c), nil
}

// openStore opens the log, or the way to the process that has it open. Its
// error is that of a log.
func openStore(ctx context.Context, cfg *config.Config, c cli.Common) (dsh.Log, error) {
	if cfg.Store.Backend == backendMemory {
		return memory.New(), nil
	}
	key, err := storeKey(cfg)
	if err != nil {
		return nil, err
	}
	warn := func(err error) { c.Warn(err.Error()) }
	log, err := shared.Open(ctx, shared.Options{
		Dir:  cfg.Store.Dir,
		Warn: warn,
		Tell: func(err error) { c.Tell(err.Error()) },
		Open: func() (dsh.Log, error) {
			log, err := badger.Open(cfg.Store.Dir, badger.Options{Key: key, Warn: warn})
			if err != nil {
				return nil, err
			}
			return log, nil
		},
	})
	if err != nil {
		return nil, &cli.LogError{Err: err}
	}
	return log, nil
}

// modulesDir is where modules are kept as long as a log names them; "" for a
// log that is not kept.
func modulesDir(cfg *config.Config) string {
	if cfg.Store.Backend == backendMemory {
		return ""
	}
	return filepath.Join(cfg.Store.Dir, "modules")
}
