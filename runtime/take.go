package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// A file is one of the policies folder, and what became of it.
type file struct {
	info    os.FileInfo // as it was read; nil: not yet
	failed  string      // why it could not be looked at; "" with info
	pending os.FileInfo // as it was seen while it was not at rest
	since   time.Time   // of pending
	version *version    // the last good one; nil: none
	refusal *Refusal    // why what is there now is not the version
}

// A Refusal says which module of the policies folder was not taken in.
type Refusal struct {
	Policy string // the name that it would have
	File   string // its path
	Digest string // of its bytes, hex; "": they could not be read
	Kind   dsh.FaultKind
	Reason string // one line
}

// readAtOnce reads the folder when the set is opened, and waits for a moment
// for files that are not at rest.
func (s *Set) readAtOnce(ctx context.Context) {
	for range maxGlances {
		if s.readFolder(ctx) || ctx.Err() != nil {
			return
		}
		time.Sleep(glance)
	}
}

// readFolder takes in what has changed in the folder, and reports whether every
// file is at rest. s.update is held.
func (s *Set) readFolder(ctx context.Context) bool {
	names, err := s.opts.Folder.files()
	if err != nil {
		s.crowd = nil
		s.folderFailed(err)
		return true
	}
	s.gone = ""
	there := names
	names = s.seats(names)
	rest := true
	for _, name := range names {
		f := s.files[name]
		if f == nil {
			f = &file{}
			s.files[name] = f
		}
		rest = s.readFile(ctx, name, f) && rest
	}
	for name, f := range s.files {
		switch {
		case slices.Contains(names, name):
		case slices.Contains(there, name):
			delete(s.files, name) // there is no room for it any more
		default:
			s.left(name, f)
		}
	}
	return rest
}

// maxFiles bounds the modules of the folder: each is asked about each failure,
// and may take its deadline for that.
const maxFiles = 64

// seats are the files that are looked at, by name. Where there are more than may
// be, the first of the others is refused for all: what the configuration lists
// comes before what it does not, and who is in before who comes.
func (s *Set) seats(names []string) []string {
	before := s.crowd
	s.crowd = nil
	if len(names) <= maxFiles {
		return names
	}
	rank := func(name string) int {
		switch _, in := s.files[name]; {
		case s.indexOf(policyOf(name)) >= 0:
			return 0
		case in:
			return 1
		}
		return 2
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	first := names[maxFiles]
	s.crowd = &Refusal{
		Policy: policyOf(first), File: filepath.Join(string(s.opts.Folder), first), Kind: dsh.FaultDenied,
		Reason: fmt.Sprintf("%s has over %d modules, and no more are looked at: not this one, nor what follows it; take out what is not needed", s.opts.Folder, maxFiles),
	}
	if before == nil || *before != *s.crowd {
		s.opts.Warn(refusedText(s.crowd, "the others go on as they were"))
	}
	names = names[:maxFiles]
	slices.Sort(names)
	return names
}

func refusedText(r *Refusal, instead string) string {
	return fmt.Sprintf("policy %q is refused: %s; %s", r.Policy, r.Reason, instead)
}

// folderFailed says, once, that the folder cannot be read any more.
func (s *Set) folderFailed(err error) {
	if errors.Is(err, fs.ErrNotExist) && len(s.files) == 0 {
		return // there has never been anything
	}
	if text := goneText(string(s.opts.Folder), err); text != s.gone {
		s.gone = text
		s.opts.Warn(text)
	}
}

// left forgets a file that has left the folder.
func (s *Set) left(name string, f *file) {
	if f.version != nil {
		s.keepPrevious(f.version)
	}
	delete(s.files, name)
}

func (s *Set) keepPrevious(v *version) {
	if err := s.opts.Folder.keepPrevious(v.spec.Name, v.spec.Wasm); err != nil {
		s.opts.Warn(fmt.Sprintf("policy %q: the version before cannot be kept, and not be rolled back to: %v", v.spec.Name, err))
	}
}

// readFile looks at one file, and loads it if it has changed and is at rest.
func (s *Set) readFile(ctx context.Context, name string, f *file) bool {
	path := filepath.Join(string(s.opts.Folder), name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false // it left between two looks
	}
	info, err := os.Stat(path) // through links: what they lead to is the module
	switch {
	case err != nil:
		if why := err.Error(); why != f.failed {
			f.failed, f.info = why, nil
			_, err := ReadFile(path)
			s.refuse(name, f, "", dsh.FaultUnavailable, err)
		}
		return true
	case sameInfo(info, f.info):
		return true
	case info.Mode().IsRegular() && !f.atRest(info, time.Now()):
		return false
	}
	f.failed = ""
	wasm, err := ReadFile(path)
	if after, e := os.Stat(path); e != nil || !sameInfo(info, after) {
		f.pending = nil
		return false
	}
	f.info, f.pending = info, nil
	if err != nil {
		s.refuse(name, f, "", dsh.FaultUnavailable, err)
		return true
	}
	s.take(ctx, name, path, f, wasm)
	return true
}

// atRest reports whether a file has been the same for a moment: by its time,
// or, where that is in the future, as it was seen.
func (f *file) atRest(info os.FileInfo, now time.Time) bool {
	if age := now.Sub(info.ModTime()); age >= settle {
		return true
	}
	if !sameInfo(info, f.pending) {
		f.pending, f.since = info, now
	}
	return now.Sub(f.since) >= settle
}

func sameInfo(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && a.Mode() == b.Mode()
}

// take loads a file's module into the place of what the file had before, or
// refuses it and leaves that in its place.
func (s *Set) take(ctx context.Context, name, path string, f *file, wasm []byte) {
	sum := digest(wasm)
	policy := policyOf(name)
	if !hostabi.IsPolicyName(policy) || policy+moduleSuffix != name {
		s.refuse(name, f, sum, dsh.FaultUnavailable, fmt.Errorf("%s: its name is none of a policy's: %s, then %s", path, nameRule, moduleSuffix))
		return
	}
	known, err := s.opts.Record.Of(policy)
	if err != nil {
		s.refuse(name, f, sum, dsh.FaultUnavailable, err)
		return
	}
	standing, err := s.judge(policy, path, wasm, known)
	if err != nil {
		s.refuse(name, f, sum, dsh.FaultDenied, err)
		return
	}
	spec := s.specOf(policy, path, wasm, standing)
	if v := f.version; v != nil && fingerprint(v.spec) == fingerprint(spec) && v.standing == standing {
		f.refusal = nil
		return
	}
	v, problems := s.loadVersion(ctx, spec, standing)
	if len(problems) > 0 {
		s.refuse(name, f, sum, kindOf(problems), errors.New(problemText(problems)+s.howToGrant(policy, standing)))
		return
	}
	old := f.version
	f.version, f.refusal = v, nil
	if old != nil {
		s.keepPrevious(old)
	}
	if lost := s.lost(v.info, standing); len(lost) > 0 {
		s.opts.Warn(fmt.Sprintf("policy %q: %s is neither pinned, signed by a listed key nor accepted, and goes without %s: dsh policy install --accept grants it", policy, path, strings.Join(lost, ", ")))
	}
}

// problemText is what is wrong with a module, in one line.
func problemText(problems []Problem) string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.Message)
	}
	return strings.Join(lines, "; ")
}

// kindOf is what the log calls what keeps a module from being loaded.
func kindOf(problems []Problem) dsh.FaultKind {
	for _, p := range problems {
		if p.Key == "sha256" {
			return dsh.FaultDenied
		}
	}
	return dsh.FaultUnavailable
}

// judge says who vouches for a module of the folder, or why it is not to be
// looked at.
func (s *Set) judge(policy, path string, wasm []byte, known Acceptance) (Standing, error) {
	standing, err := s.verify(policy, wasm)
	if err != nil {
		return standing, fmt.Errorf("%s: %w", path, err)
	}
	sum := digest(wasm)
	standing.Pinned = s.pinned(policy)
	standing.Accepted = slices.Contains(known.Digests, sum)
	version := standing.Version
	if version == "" {
		m, err := hostabi.ParseModule(wasm)
		if err != nil {
			return standing, nil // loading says what it is
		}
		version = versionOf(m)
	}
	if why := known.downgrade(version, sum); why != "" {
		return standing, fmt.Errorf("%s: %s", path, why)
	}
	return standing, nil
}

// versionOf is what a module's manifest calls its version; "" if it has none.
func versionOf(m *hostabi.Module) string {
	if m.Manifest == nil {
		return ""
	}
	return m.Manifest.Version
}

// specOf is how a module of the folder is run: as the configuration lists its
// name, and with its grants if somebody vouches for it. A name that is not
// listed has none.
func (s *Set) specOf(policy, path string, wasm []byte, standing Standing) Spec {
	spec := Spec{Name: policy}
	if i := s.indexOf(policy); i >= 0 {
		spec = s.listed[i].version.spec
	}
	spec.Module, spec.Wasm = path, wasm
	if !standing.Trusted() {
		spec.Capabilities = nil
	}
	return spec
}

// pinned reports whether the configuration pins the bytes of a name's module.
func (s *Set) pinned(policy string) bool {
	i := s.indexOf(policy)
	return i >= 0 && s.listed[i].version.spec.SHA256 != ""
}

func (s *Set) indexOf(policy string) int {
	return slices.IndexFunc(s.listed, func(l listed) bool { return l.version.spec.Name == policy })
}

// howToGrant is what to do for a module that may have failed for want of
// grants.
func (s *Set) howToGrant(policy string, standing Standing) string {
	if i := s.indexOf(policy); i < 0 || standing.Trusted() || len(s.listed[i].version.spec.Capabilities) == 0 {
		return ""
	}
	return "; the grants of this name are for modules that are pinned, signed by a listed key, or accepted (dsh policy install --accept)"
}

func policyOf(name string) string { return name[:len(name)-len(moduleSuffix)] }

// refuse leaves a file's last good version in place, and says why, once.
func (s *Set) refuse(name string, f *file, sum string, kind dsh.FaultKind, err error) {
	path := filepath.Join(string(s.opts.Folder), name)
	r := &Refusal{Policy: policyOf(name), File: path, Digest: sum, Kind: kind, Reason: Printable(err.Error(), 1024)}
	if f.refusal != nil && *f.refusal == *r {
		return
	}
	f.refusal = r
	s.opts.Warn(refusedText(r, s.instead(f, r.Policy)))
	if v := f.version; v != nil && v.info.Digest != sum {
		s.keepPrevious(v) // this process goes on with it, and is the only one that has it
	}
}

// instead says what decides in the place of a refused module.
func (s *Set) instead(f *file, policy string) string {
	switch i := s.indexOf(policy); {
	case f.version != nil:
		return fmt.Sprintf("the one before (%.12s) goes on", f.version.info.Digest)
	case i >= 0:
		return s.listed[i].version.info.Source + " goes on"
	}
	return "the others go on as they were"
}

// An Entry is one policy of a waterfall, or a file that is refused.
type Entry struct {
	Policy   dsh.Policy // nil: a refused file, in whose place there is nothing
	Name     string
	Standing Standing
	Listed   bool     // by the configuration
	Refusal  *Refusal // of the file that would decide in its place; nil: none
}

// publish makes what was read the waterfall. s.update is held.
func (s *Set) publish() {
	var entries []Entry
	var refusals []Refusal
	names := make([]string, 0, len(s.files))
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	placed := map[string]*file{}
	for _, name := range names {
		f := s.files[name]
		if f.refusal != nil {
			refusals = append(refusals, *f.refusal)
		}
		if s.indexOf(policyOf(name)) >= 0 && policyOf(name)+moduleSuffix == name {
			placed[policyOf(name)] = f
			continue
		}
		if e := entryOf(policyOf(name), f.version, f.refusal); e.Policy != nil || e.Refusal != nil {
			entries = append(entries, e)
		}
	}
	if s.crowd != nil {
		refusals = append(refusals, *s.crowd)
		entries = append(entries, Entry{Name: s.crowd.Policy, Refusal: s.crowd})
	}
	for _, l := range s.listed {
		e := entryOf(l.version.spec.Name, l.version, nil)
		if f := placed[e.Name]; f != nil && f.version != nil {
			e = entryOf(e.Name, f.version, f.refusal)
		} else if f != nil {
			e.Refusal = f.refusal
		}
		e.Listed = true
		entries = append(entries, e)
	}
	s.replace(entries, refusals)
	s.retireOthers()
}

// retireOthers takes out of use what has no place any more.
func (s *Set) retireOthers() {
	placed := map[*version]bool{}
	for _, l := range s.listed {
		placed[l.version] = true
	}
	for _, f := range s.files {
		placed[f.version] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for v := range s.live {
		if !placed[v] {
			v.retired = true
			s.freeIfDone(v)
		}
	}
}

func entryOf(name string, v *version, r *Refusal) Entry {
	e := Entry{Name: name, Refusal: r}
	if v != nil {
		e.Policy, e.Standing = v, v.standing
	}
	return e
}

// replace moves the pointer, if there is anything new.
func (s *Set) replace(entries []Entry, refusals []Refusal) {
	var policies []dsh.Policy
	for _, e := range entries {
		if e.Policy != nil {
			policies = append(policies, e.Policy)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = entries
	if slices.Equal(policies, s.policies) && slices.Equal(refusals, s.refusals) {
		return
	}
	s.policies, s.refusals = policies, refusals
	close(s.changed)
	s.changed = make(chan struct{})
}

// Entries returns the waterfall with what is known of each policy, and what was
// refused. It does not begin to watch.
func (s *Set) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries)
}

// FolderProblem says, in one line, why the policies folder cannot be read; "" if
// it can, or has never been there.
func (s *Set) FolderProblem() string {
	s.update.Lock()
	defer s.update.Unlock()
	return s.gone
}

// Refusals returns what was not taken in, as the log keeps it.
func (s *Set) Refusals() []dsh.PolicyFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []dsh.PolicyFault
	for _, r := range s.refusals {
		faults = append(faults, dsh.PolicyFault{Hook: dsh.HookCheckConfig, Policy: r.Policy, Digest: r.Digest, Kind: r.Kind, Message: r.Reason})
	}
	return faults
}

// Try says what a module would be in the folder under a name, and who vouches
// for it, if known is what the user has let in; it is not put there. Its error
// is one line.
func (s *Set) Try(ctx context.Context, policy, source string, wasm []byte, known Acceptance) (dsh.PolicyInfo, Standing, error) {
	s.update.Lock()
	defer s.update.Unlock()
	var none dsh.PolicyInfo
	if !hostabi.IsPolicyName(policy) {
		return none, Standing{}, fmt.Errorf("%q is no name of a policy: %s", policy, nameRule)
	}
	standing, err := s.judge(policy, source, wasm, known)
	if err != nil {
		return none, standing, err
	}
	v, problems := s.loadVersion(ctx, s.specOf(policy, source, wasm, standing), standing)
	if len(problems) > 0 {
		return none, standing, errors.New(problemText(problems) + s.howToGrant(policy, standing))
	}
	defer s.retire(v)
	return v.info, standing, nil
}

// Lost names the grants that the configuration has for a policy's name, that
// the policy asks for, and that it has not because nobody vouches for it.
func (s *Set) Lost(info dsh.PolicyInfo, standing Standing) []string {
	s.update.Lock()
	defer s.update.Unlock()
	return s.lost(info, standing)
}

func (s *Set) lost(info dsh.PolicyInfo, standing Standing) []string {
	i := s.indexOf(info.Name)
	if i < 0 || standing.Trusted() {
		return nil
	}
	var lost []string
	for _, c := range s.listed[i].version.spec.Capabilities {
		if slices.Contains(info.Asked, c) {
			lost = append(lost, c)
		}
	}
	return lost
}
