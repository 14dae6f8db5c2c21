package main

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/seal"
	"github.com/dsh-agent/dsh/store/sqlite"
)

// upkeep is what the commands need that look after the log.
func (p program) upkeep() cli.Upkeep {
	return cli.Upkeep{
		Into:        p.openInto,
		Folders:     p.folders,
		IsSQLite:    sqlite.Is,
		WriteSQLite: sqlite.Write,
		ReadSQLite:  sqlite.Lines,
		Seal:        p.sealing,
		Open:        p.opening,
		Doctor:      p.doctor,
		Repair:      p.repair,
	}
}

// openInto opens the configured log for a command that brings sessions in. The
// data folder is made where it is not there yet.
func (p program) openInto(ctx context.Context, c cli.Common) (dsh.Log, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	return openStore(ctx, cfg, c)
}

// folders are those that go with the log into a backup.
func (p program) folders(_ context.Context, c cli.Common) (map[string]string, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	folders := map[string]string{"policies": cfg.Recovery.Dir}
	if dir := modulesDir(cfg); dir != "" {
		folders["modules"] = dir
	}
	return folders, nil
}

// sealing encrypts a backup where the log is encrypted.
func (p program) sealing(_ context.Context, c cli.Common, to io.Writer) (io.WriteCloser, error) {
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	key, err := storeKey(cfg)
	if key == nil || err != nil {
		return nil, err
	}
	return seal.NewWriter(key, to)
}

// opening decrypts a backup that is encrypted.
func (p program) opening(_ context.Context, c cli.Common, from io.Reader) (io.Reader, error) {
	in := bufio.NewReader(from)
	if begin, err := in.Peek(len(seal.StreamMagic)); err != nil || !seal.IsStream(begin) {
		return in, nil // what is wrong with it is told when it is read
	}
	cfg, err := p.load(c, "")
	if err != nil {
		return nil, err
	}
	key, err := storeKey(cfg)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, cli.Usagef("the backup is encrypted: name its key with store.key_env or store.key_file")
	}
	return seal.NewReader(key, in)
}

// storeKey is the key with which the log is encrypted; nil: it is not.
func storeKey(cfg *config.Config) ([]byte, error) {
	var text, from string
	switch s := cfg.Store; {
	case s.Key.Variable != "":
		text, from = s.Key.Reveal(), "store.key_env: the variable "+s.Key.Variable
		if text == "" {
			return nil, cli.Usagef("%s is not set", from)
		}
	case s.KeyFile != "":
		from = "store.key_file: " + s.KeyFile
		b, err := os.ReadFile(s.KeyFile)
		if err != nil {
			return nil, cli.Usagef("store.key_file: %v", err)
		}
		text = string(b)
	default:
		return nil, nil
	}
	key, err := seal.ParseKey(text)
	if err != nil {
		return nil, cli.Usagef("%s holds no key: %v", from, err)
	}
	return key, nil
}
