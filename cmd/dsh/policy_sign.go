package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/signature"
	"github.com/dsh-agent/dsh/runtime"
)

// verifier is what a configuration asks of signatures.
func verifier(cfg *config.Config) (signature.Verifier, error) {
	v := signature.Verifier{Required: cfg.Recovery.RequireSignature}
	for i, text := range cfg.Recovery.Keys {
		k, err := signature.ParseKey(text)
		if err != nil {
			return v, cli.Usagef("recovery.keys: the key %d is not one: %v", i+1, err)
		}
		v.Keys = append(v.Keys, k)
	}
	return v, nil
}

// sign signs a module, attaches a signature to it, or makes a key.
func (p program) sign(_ context.Context, _ cli.Common, s cli.Signing) (cli.Signed, error) {
	password := ""
	if s.PasswordEnv != "" {
		if password, _ = p.env(s.PasswordEnv); password == "" {
			return cli.Signed{}, cli.Usagef("--password-env %s: the variable is not set", s.PasswordEnv)
		}
	}
	if s.NewKey != "" {
		return newKey(s.NewKey, password)
	}
	wasm, err := runtime.ReadFile(s.File)
	if err != nil {
		return cli.Signed{}, cli.Usagef("%v", err)
	}
	if s.Name == "" {
		s.Name = nameOf(s.File, wasm)
	}
	if m, err := hostabi.ParseModule(wasm); s.Version == "" && err == nil && m.Manifest != nil {
		s.Version = m.Manifest.Version
	}
	signed, err := signatureOf(s, wasm, password)
	if err != nil {
		return cli.Signed{}, cli.Usagef("%s is not signed: %v", s.File, err)
	}
	made, err := signature.Of(signed)
	if err != nil {
		return cli.Signed{}, err
	}
	out := s.Out
	if out == "" {
		out = s.File
	}
	if err := replaceFile(out, signed); err != nil {
		return cli.Signed{}, fmt.Errorf("%s cannot be written: %w", out, err)
	}
	return cli.Signed{File: out, Name: made.Name, Version: made.Version, Digest: digestOf(signed), Key: made.KeyID}, nil
}

func signatureOf(s cli.Signing, wasm []byte, password string) ([]byte, error) {
	file := s.Key
	if s.Attach != "" {
		file = s.Attach
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if s.Attach != "" {
		return signature.Attach(wasm, text)
	}
	return signature.Sign(wasm, s.Name, s.Version, string(text), password, time.Now())
}

// newKey makes a pair of keys. A key that is there is never written over.
func newKey(path, password string) (cli.Signed, error) {
	public, secret, err := signature.Generate(password)
	if err != nil {
		return cli.Signed{}, err
	}
	for _, f := range []struct {
		path, text string
		mode       os.FileMode
	}{{path, secret, 0o600}, {path + ".pub", public.File(), 0o644}} {
		file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if errors.Is(err, os.ErrExist) {
			return cli.Signed{}, cli.Usagef("%s is there already, and a key is not written over", f.path)
		}
		if err != nil {
			return cli.Signed{}, err
		}
		_, err = file.WriteString(f.text)
		if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
			return cli.Signed{}, err
		}
	}
	return cli.Signed{File: path, Key: public.ID(), Public: public.String()}, nil
}

// replaceFile puts a file in place at once, with the mode of the one before.
func replaceFile(path string, data []byte) error {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}
