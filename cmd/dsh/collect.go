package main

import (
	"context"
	"fmt"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/runtime"
)

// collecting is a log that, when it is closed, lets go of the modules that only
// the sessions that were removed from it have named.
type collecting struct {
	dsh.Log
	modules runtime.ModuleStore
	warn    func(string)
	freed   map[string]bool // digests that removed sessions have named
}

func collect(log dsh.Log, modules runtime.ModuleStore, c cli.Common) dsh.Log {
	if modules == "" {
		return log
	}
	return &collecting{log, modules, c.Warn, map[string]bool{}}
}

// Remove notes what the session names before it is gone. What cannot be read is
// not noted, and its modules stay.
func (l *collecting) Remove(ctx context.Context, id dsh.SessionID) error {
	named := map[string]bool{}
	_ = eachDigest(ctx, l.Log, id, func(digest string) bool { // what is damaged names what it names until there
		named[digest] = true
		return true
	})
	if err := l.Log.Remove(ctx, id); err != nil {
		return err
	}
	for d := range named {
		l.freed[d] = true
	}
	return nil
}

// Close collects, and closes the log.
func (l *collecting) Close() error {
	if len(l.freed) > 0 {
		if err := l.collect(context.Background()); err != nil { // it is short, and nobody waits for it but the end
			l.warn(fmt.Sprintf("modules that no session names any more are not removed: %v", err))
		}
	}
	return l.Log.Close()
}

// manyModules is how many modules are kept before all of them are looked for in
// the log, and not only those of removed sessions: a session that was removed on
// the day of its last decision has left them. To look is to read the whole log,
// if one is nowhere.
const manyModules = 32

// candidates adds what else may be named by nobody.
func (l *collecting) candidates() error {
	old, err := l.modules.Digests()
	if len(old) <= manyModules {
		return err
	}
	for _, d := range old {
		l.freed[d] = true
	}
	return err
}

// collect removes the modules that no other session names. It reads sessions,
// the newest first, until each is found or all are read; one that cannot be
// read may name any.
func (l *collecting) collect(ctx context.Context) error {
	if err := l.candidates(); err != nil {
		return err
	}
	for h, err := range l.Heads(ctx) {
		if err != nil {
			return err
		}
		if err := eachDigest(ctx, l.Log, h.ID, func(digest string) bool {
			delete(l.freed, digest)
			return len(l.freed) > 0
		}); err != nil || len(l.freed) == 0 {
			return err
		}
	}
	var digests []string
	for d := range l.freed {
		digests = append(digests, d)
	}
	_, err := l.modules.Collect(digests)
	return err
}

// eachDigest tells the digests of a session's decisions, until it is told to
// stop.
func eachDigest(ctx context.Context, log dsh.Log, id dsh.SessionID, tell func(digest string) bool) error {
	for e, err := range log.Read(ctx, id, 0) {
		if err != nil {
			return err
		}
		if e.Type != dsh.TypePolicyDecision {
			continue
		}
		var d struct {
			Digest string `json:"digest"`
		}
		if err := e.Decode(&d); err != nil {
			return err
		}
		if !tell(d.Digest) {
			return nil
		}
	}
	return nil
}
