package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/store/badger"
)

// keepVariable names a folder in which tests leave the data folders that they
// made, for TestReplayEverySession: see `make replay`. Without it they go with
// the test.
const keepVariable = "DSH_TEST_KEEP"

// keepData leaves every data folder below dir to TestReplayEverySession, in a
// folder that is called after the test. The test does not need them any more.
func keepData(dir, test string) error {
	kept := os.Getenv(keepVariable)
	if kept == "" {
		return nil
	}
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "writers" { // which each log has
			found = append(found, filepath.Dir(path))
		}
		return nil // what a test locked up is no data folder
	})
	if err != nil || len(found) == 0 {
		return err
	}
	place, err := os.MkdirTemp(kept, strings.ReplaceAll(test, "/", "+")+"@")
	if err != nil {
		return err
	}
	for i, from := range found {
		to := filepath.Join(place, fmt.Sprint(i))
		if os.Rename(from, to) != nil { // it may be another disk
			err = errors.Join(err, os.CopyFS(to, os.DirFS(from)))
		}
	}
	return err
}

// keep has the data folders of a test kept when it ends.
func keep(t testing.TB, dir string) {
	t.Cleanup(func() {
		if err := keepData(dir, t.Name()); err != nil {
			t.Error(err)
		}
	})
}

// keepLog writes the sessions of a log in memory into a data folder that is kept.
func keepLog(t testing.TB, log dsh.Log, dir string) {
	t.Helper()
	if os.Getenv(keepVariable) == "" {
		return
	}
	disk, err := badger.Open(dir, badger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	for h, err := range log.Heads(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if err := copySession(ctx, disk, log, h.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
}

func copySession(ctx context.Context, to, from dsh.Log, id dsh.SessionID) error {
	var events []dsh.Event
	for e, err := range from.Read(ctx, id, 0) {
		if err != nil {
			return err
		}
		events = append(events, e)
	}
	w, err := to.Acquire(ctx, id)
	if err != nil {
		return err
	}
	return errors.Join(w.Append(ctx, events...), w.Release(ctx))
}

// spoiled are the tests that leave a log on purpose that does not open, or whose
// modules they removed: why, by the beginning of what keepData calls them.
var spoiled = map[string]string{
	"TestADamagedLog@":             "the newest events were cut off",
	"memory+script-breaker@":       "one of its logs was imported, where no module comes along",
	"script+script-encrypted@":     "its key is not kept",
	"script+script-policy_replay@": "its modules were removed",
}

// A judge runs the decisions of the kept sessions again on one engine.
type judge struct {
	name     string
	replayer *replayer
	rows     chan row
	wrong    []string
	same     int
}

// A row is one decision, with the log that it is of.
type row struct {
	place    string
	log      dsh.Log
	id       dsh.SessionID
	decision dsh.PolicyDecision
	module   []byte // that has decided, if no row before had it
	done     *sync.WaitGroup
}

// TestReplayEverySession runs every decision again that the tests before it have
// left in the folder $DSH_TEST_REPLAY, on both engines and on the interpreter.
func TestReplayEverySession(t *testing.T) {
	kept := os.Getenv("DSH_TEST_REPLAY")
	if kept == "" {
		t.Skip("make replay keeps the sessions of all tests and runs this on them")
	}
	folders, err := filepath.Glob(filepath.Join(kept, "*", "*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%v: nothing is kept in %s", err, kept)
	}
	began := time.Now()
	judges := []*judge{
		newJudge("native", native.New(native.Options{})),
		newJudge("extism", extism.New(extism.Options{})),
		newJudge("interpreter", native.New(native.Options{Interpreter: true})),
	}
	var work sync.WaitGroup
	for _, j := range judges {
		work.Go(func() { j.work(t.Context()) })
	}
	var all counts
	for _, folder := range folders {
		all.replay(t, folder, judges)
	}
	for _, j := range judges {
		close(j.rows)
	}
	work.Wait()
	for _, j := range judges {
		if err := j.replayer.Close(); err != nil {
			t.Error(err)
		}
		for _, text := range j.wrong {
			t.Errorf("%s: %s", j.name, text)
		}
		if j.same != all.decisions {
			t.Errorf("%s: %d of %d decisions are the same", j.name, j.same, all.decisions)
		}
	}
	if all.decisions < 100 {
		t.Errorf("only %d decisions were kept", all.decisions)
	}
	t.Logf("%d decisions of %d modules, in %d sessions of %d data folders, on native, extism and interpreter, in %v; %d sessions have none",
		all.decisions, len(all.modules), all.deciding, len(folders), time.Since(began).Round(time.Millisecond), all.sessions-all.deciding)
}

func newJudge(name string, e runtime.Engine) *judge {
	// It is fuel that ends a guest, and not how busy the machine is.
	j := &judge{name: name, rows: make(chan row, 64), replayer: &replayer{runtime.NewReplayer(runtime.Options{Engine: e, Deadline: time.Minute})}}
	for _, name := range guests.Names() {
		if wasm, ok := guests.Builtin(name); ok {
			j.replayer.Add(wasm)
		}
	}
	return j
}

func (j *judge) work(ctx context.Context) {
	for r := range j.rows {
		if r.module != nil {
			j.replayer.Add(r.module)
		}
		difference, err := j.replayer.Replay(ctx, r.log, r.id, r.decision)
		if err != nil {
			difference = err.Error()
		}
		if difference != "" {
			j.wrong = append(j.wrong, fmt.Sprintf("%s, session %s, attempt %d, policy %s (%.12s): %s", r.place, r.id, r.decision.Attempt, r.decision.Policy, r.decision.Digest, difference))
		} else {
			j.same++
		}
		r.done.Done()
	}
}

// counts are what was found in the kept folders.
type counts struct {
	sessions, deciding, decisions int
	modules                       map[string]bool
}

// replay hands the decisions of one data folder to all judges, and waits for
// them. A module is looked for where dsh looks: in the folder that has the log,
// and in dsh.
func (n *counts) replay(t *testing.T, folder string, judges []*judge) {
	place, err := filepath.Rel(filepath.Dir(filepath.Dir(folder)), folder)
	if err != nil {
		t.Fatal(err)
	}
	wrong := t.Errorf
	for name, why := range spoiled {
		if strings.HasPrefix(place, name) {
			wrong = func(format string, args ...any) { t.Helper(); t.Logf("on purpose, "+why+": "+format, args...) }
		}
	}
	log, err := badger.Open(folder, badger.Options{})
	if err != nil {
		wrong("%s: %v", place, err)
		return
	}
	defer log.Close() //nolint:errcheck // nothing was written
	var done sync.WaitGroup
	defer done.Wait()
	for h, err := range log.Heads(t.Context()) {
		if err != nil {
			wrong("%s: %v", place, err)
			return
		}
		n.session(t, folder, row{place: place, log: log, id: h.ID, done: &done}, judges, wrong)
	}
}

// session hands the decisions of one session to all judges.
func (n *counts) session(t *testing.T, folder string, r row, judges []*judge, wrong func(string, ...any)) {
	n.sessions++
	found := n.decisions
	for e, err := range r.log.Read(t.Context(), r.id, 0) {
		if err != nil {
			wrong("%s: session %s: %v", r.place, r.id, err)
			break
		}
		if e.Type != dsh.TypePolicyDecision {
			continue
		}
		r.decision = dsh.PolicyDecision{}
		if err := e.Decode(&r.decision); err != nil {
			t.Fatal(err)
		}
		if r.module, err = n.find(runtime.ModuleStore(filepath.Join(folder, "modules")), r.decision.Digest); err != nil {
			wrong("%s: session %s, policy %s: %v", r.place, r.id, r.decision.Policy, err)
			continue
		}
		n.decisions++
		for _, j := range judges {
			r.done.Add(1)
			j.rows <- r
		}
	}
	if n.decisions > found {
		n.deciding++
	}
}

// find returns the module of a digest where it is met first, and nil later. It is
// in each folder that has decisions of it, but for what comes with dsh.
func (n *counts) find(modules runtime.ModuleStore, digest string) ([]byte, error) {
	known := n.modules[digest]
	wasm, err := modules.Load(digest)
	if err != nil && !builtinDigests()[digest] {
		return nil, err
	}
	if n.modules == nil {
		n.modules = map[string]bool{}
	}
	n.modules[digest] = true
	if known {
		return nil, nil
	}
	return wasm, nil
}

func builtinDigests() map[string]bool {
	digests := map[string]bool{}
	for _, name := range guests.Names() {
		if wasm, ok := guests.Builtin(name); ok {
			digests[fmt.Sprintf("%x", sha256.Sum256(wasm))] = true
		}
	}
	return digests
}
