package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// Options are what a Set runs with.
type Options struct {
	Engine Engine // required

	// Isolated runs the policies that are to have a process of their own. nil:
	// those are refused.
	Isolated Engine

	// Builtin finds the modules that builtin:NAME names. nil: there are none.
	Builtin func(name string) ([]byte, bool)

	// Modules keeps each module that has decided something, by digest.
	Modules ModuleStore

	// Deadline is how long a decision may take on the wall. 0: one second.
	Deadline time.Duration

	// Folder is the policies folder. "": there is none.
	Folder Folder

	// Record says what was let in from the folder before.
	Record Record

	// Verify is asked before anything else looks at a module. nil: nobody signs.
	Verify Verify

	// Fetch gets the module that a reference with a scheme names. nil: such
	// references are refused.
	Fetch func(ctx context.Context, reference string) ([]byte, error)

	// Warn is told, in one line, what goes on without something. nil: nobody.
	Warn func(string)

	// Logged is told what a policy logs, after each decision. It may be called
	// from several goroutines. nil: nobody.
	Logged func(policy string, line LogLine)
}

// A Verify says which listed key has signed a module for a name, and for which
// version; "" for none. Its error refuses the module.
type Verify func(name string, wasm []byte) (signer, version string, err error)

// A Set is a waterfall of guests, which the policies folder may change. It may
// be used by several goroutines.
type Set struct {
	opts Options
	stop context.CancelFunc // ends what runs for the set

	begin    sync.Once     // the folder is watched from the first call of Policies on
	beginCh  chan struct{} // closed then
	begun    chan struct{} // closed when that call may go on
	watching sync.WaitGroup
	freeing  sync.WaitGroup // of retired versions

	update sync.Mutex // one update at a time; it guards what follows
	listed []listed
	files  map[string]*file // of the policies folder, by file name
	gone   string           // why the folder cannot be read; "": it can, or was never there
	crowd  *Refusal         // of the files for which there is no room; nil: there is

	mu       sync.Mutex
	live     map[*version]struct{} // that are not freed
	policies []dsh.Policy
	changed  chan struct{} // closed when there is something new to look at
	entries  []Entry
	refusals []Refusal
	closed   bool
}

// listed is a policy that the configuration lists.
type listed struct {
	print   string // tells it from any other: see fingerprint
	version *version
}

var (
	_ dsh.Waterfall = (*Set)(nil)
	_ dsh.Refuser   = (*Set)(nil)
)

// Open loads the policies of a waterfall, in the order of the specs, and before
// them what else is in the policies folder. Its error is a *LoadError with
// everything that is wrong with any of the specs; what is wrong with a file of
// the folder is a refusal. A policy that comes with the program and has no
// config is compiled at its first decision, every other one now. The caller
// closes the set.
func Open(ctx context.Context, specs []Spec, opts Options) (*Set, error) {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Set{
		opts: opts, stop: stop, beginCh: make(chan struct{}), begun: make(chan struct{}),
		files: map[string]*file{}, live: map[*version]struct{}{}, changed: make(chan struct{}),
	}
	list, err := s.loadListed(ctx, specs)
	if err != nil {
		if closed := s.Close(); closed != nil {
			opts.Warn(closed.Error())
		}
		return nil, err
	}
	s.listed = list
	s.readAtOnce(ctx)
	s.publish()
	if opts.Folder != "" {
		s.watching.Go(func() { s.watch(background) })
	}
	return s, nil
}

// loadListed makes a version of each spec. One that is in the waterfall already
// stays as it is. Its error is a *LoadError, and nothing new is left then.
func (s *Set) loadListed(ctx context.Context, specs []Spec) ([]listed, error) {
	list := make([]listed, len(specs))
	problems := make([][]Problem, len(specs))
	var loads sync.WaitGroup
	for i, spec := range specs {
		loads.Go(func() { list[i], problems[i] = s.load(ctx, spec) })
	}
	loads.Wait()
	failed := &LoadError{}
	for i, spec := range specs {
		if slices.ContainsFunc(specs[:i], func(e Spec) bool { return e.Name == spec.Name }) {
			problems[i] = append(problems[i], Problem{Policy: spec.Name, Key: "name", Message: "an earlier policy has this name, and names are unique"})
		}
		for _, p := range problems[i] {
			p.Index = i
			failed.Problems = append(failed.Problems, p)
		}
	}
	if len(failed.Problems) == 0 {
		return list, nil
	}
	for _, l := range list {
		if l.version != nil && !s.holds(l) {
			s.retire(l.version)
		}
	}
	return nil, failed
}

// holds reports whether a listed policy is the one that the set has.
func (s *Set) holds(l listed) bool { return slices.Contains(s.listed, l) }

// load makes a version of a spec, or says why not. Who vouches for a module is
// looked at before the module is.
func (s *Set) load(ctx context.Context, spec Spec) (listed, []Problem) {
	l := listed{print: fingerprint(spec)}
	if strings.HasPrefix(spec.Module, builtinPrefix) {
		if i := slices.IndexFunc(s.listed, func(old listed) bool { return old.print == l.print }); i >= 0 {
			return s.listed[i], nil
		}
		var problems []Problem
		l.version, problems = s.loadVersion(ctx, spec, Standing{Pinned: spec.SHA256 != ""})
		return l, problems
	}
	if err := s.fetch(ctx, &spec); err != nil {
		_, problems := spec.check(nil)
		problems = slices.DeleteFunc(problems, func(p Problem) bool { return p.Key == "module" })
		return l, append(problems, Problem{Policy: spec.Name, Key: "module", Message: err.Error()})
	}
	standing, err := s.verify(spec.Name, spec.Wasm)
	if err != nil {
		return l, []Problem{{Policy: spec.Name, Key: "module", Message: spec.Module + ": " + Printable(err.Error(), 512)}}
	}
	standing.Pinned = spec.SHA256 != "" || strings.Contains(spec.Module, "://") // a reference has a digest
	l.print = fingerprint(spec)
	if i := slices.IndexFunc(s.listed, func(old listed) bool { return old.print == l.print && old.version.standing == standing }); i >= 0 {
		return s.listed[i], nil
	}
	var problems []Problem
	l.version, problems = s.loadVersion(ctx, spec, standing)
	return l, problems
}

// fingerprint tells specs apart by all that a version depends on.
func fingerprint(spec Spec) string {
	wasm := spec.Wasm
	spec.Wasm = nil
	return fmt.Sprintf("%s %+v", digest(wasm), spec)
}

// fetch gets the bytes of a spec's module, unless they are at hand.
func (s *Set) fetch(ctx context.Context, spec *Spec) (err error) {
	switch {
	case spec.Wasm != nil:
	case s.opts.Fetch != nil && strings.Contains(spec.Module, "://"):
		spec.Wasm, err = s.opts.Fetch(ctx, spec.Module)
	default:
		spec.Wasm, err = readModule(spec.Module, nil)
	}
	return err
}

// verify asks who has signed a module.
func (s *Set) verify(name string, wasm []byte) (Standing, error) {
	if s.opts.Verify == nil {
		return Standing{}, nil
	}
	signer, version, err := s.opts.Verify(name, wasm)
	return Standing{Signer: signer, Version: version}, err
}

// loadVersion checks, compiles, warms and asks what it thinks of its config
// what does not come with the program.
func (s *Set) loadVersion(ctx context.Context, spec Spec, standing Standing) (*version, []Problem) {
	c, problems := spec.check(s.opts.Builtin)
	if len(problems) > 0 {
		return nil, problems
	}
	opts := s.opts
	if spec.Process && opts.Isolated == nil {
		return nil, []Problem{{Policy: spec.Name, Key: "isolation", Message: "a process of its own is not there on this system: in-process is allowed"}}
	}
	v := &version{set: s, spec: spec, info: c.info(opts.engine(spec).Name()), standing: standing, make: func() *policy {
		c, _ := spec.check(opts.Builtin) // it has held before
		return newPolicy(c, opts)
	}}
	if v.info.Version == "" {
		v.info.Version = standing.Version
	}
	v.policy = newPolicy(c, opts)
	s.mu.Lock()
	s.live[v] = struct{}{}
	s.mu.Unlock()
	if c.checkedAhead() {
		return v, nil
	}
	if problems = v.policy.checkConfig(ctx); len(problems) == 0 {
		problems = v.policy.makeReady(ctx)
	}
	if len(problems) > 0 {
		s.retire(v)
		return nil, problems
	}
	return v, nil
}

// engine is what runs a policy.
func (o Options) engine(spec Spec) Engine {
	if spec.Process {
		return o.Isolated
	}
	return o.Engine
}

func newPolicy(c checked, opts Options) *policy {
	engine := opts.engine(c.spec)
	p := &policy{
		info: c.info(engine.Name()), checked: c, engine: engine, store: opts.Modules,
		deadline: opts.Deadline, warn: opts.Warn, logged: opts.Logged, turns: newTurns(),
	}
	if p.deadline <= 0 {
		p.deadline = defaultDeadline
	}
	if p.warn == nil {
		p.warn = func(string) {}
	}
	if p.logged == nil {
		p.logged = func(string, LogLine) {}
	}
	return p
}

// checkConfig compiles the module and asks it what it thinks of its config.
func (p *policy) checkConfig(ctx context.Context) []Problem {
	problem := func(key, format string, args ...any) Problem {
		return Problem{Policy: p.info.Name, Key: key, Message: fmt.Sprintf(format, args...)}
	}
	pool, err := p.program(ctx)
	if err != nil {
		return []Problem{problem("module", "%s: %s", p.info.Source, messageOf(err))}
	}
	if _, ok := p.checked.module.Export(hostabi.ExportCheckConfig); !ok {
		return nil
	}
	result, err := p.run(ctx, pool, Call{Export: hostabi.ExportCheckConfig, Input: p.checked.config}, noCalls{})
	if err != nil {
		return []Problem{problem("config", "%s failed to check it: %s", p.info.Source, messageOf(err))}
	}
	var answer hostabi.ConfigAnswer
	if err := json.Unmarshal(result.Output, &answer); err != nil {
		return []Problem{problem("config", "%s failed to check it: its answer is not of the contract's form: %s", p.info.Source, Printable(err.Error(), 256))}
	}
	var problems []Problem
	for k, text := range answer.Problems {
		if k == maxProblems {
			return append(problems, problem("config", "and %d more problems", len(answer.Problems)-k))
		}
		if text = Printable(text, 512); strings.TrimSpace(text) == "" {
			text = p.info.Source + " finds a problem, and has no words for it"
		}
		problems = append(problems, problem("config", "%s", text))
	}
	return problems
}

// maxProblems is how many problems of a configuration a module may tell: they
// are written to a terminal and into the log.
const maxProblems = 16

func messageOf(err error) string {
	var f *dsh.Fault
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// makeReady makes an instance ahead, so that what a module does in warm is known
// before it decides.
func (p *policy) makeReady(ctx context.Context) []Problem {
	pool, err := p.program(ctx)
	if err == nil {
		err = pool.ready(ctx)
	}
	if err != nil {
		return []Problem{{Policy: p.info.Name, Key: "module", Message: fmt.Sprintf("%s: %s", p.info.Source, messageOf(err))}}
	}
	return nil
}

// Policies returns the present list and a channel that is closed when another
// takes its place, or when there is a new refusal. The first call begins to
// watch the policies folder, and takes in what has come since Open.
func (s *Set) Policies() ([]dsh.Policy, <-chan struct{}) {
	if s.opts.Folder != "" {
		s.begin.Do(func() { close(s.beginCh) })
		<-s.begun
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policies, s.changed
}

// Close waits for the decisions under way and frees all policies, whose later
// decisions are faults of kind unavailable. Its error names the policies with
// a call that no engine could stop, which is left behind.
func (s *Set) Close() error {
	s.stop()
	s.watching.Wait()
	s.update.Lock() // what is being loaded is not taken away under it
	defer s.update.Unlock()
	s.mu.Lock()
	s.closed = true
	var policies []*policy
	for v := range s.live {
		policies = append(policies, v.policy)
	}
	clear(s.live)
	s.mu.Unlock()
	var errs []error
	for _, p := range policies {
		errs = append(errs, p.close())
	}
	s.freeing.Wait()
	return errors.Join(errs...)
}
