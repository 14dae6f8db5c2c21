package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Load finds and reads a configuration. Notices are lines for stderr that hold
// whatever the outcome: what was left aside, and what to do about it. The
// error is Problems.
//
// A configuration without a provider, a model or a key is not refused, since
// many commands need none: Ready and Provider refuse it.
func Load(src Sources) (cfg *Config, notices []string, err error) {
	l := newLoader(src)
	found := l.find()
	if len(l.problems) == 0 {
		cfg = l.config(found)
	}
	if len(l.problems) > 0 {
		return nil, l.notices, l.problems.sorted()
	}
	return cfg, l.notices, nil
}

// loader is one reading of a configuration.
type loader struct {
	src      Sources
	cwd      string // absolute
	base     string // folder of the file
	found    found
	notices  []string
	problems Problems
	hazards  Problems
	settings []Setting
	listed   []string // providers of the file, as there
}

// found is a file that was read.
type found struct {
	name     string // for people; "": there is none
	path     string // absolute
	data     []byte
	pins     map[string]string // digests of trusted modules, by resolved path
	trusted  *Instructions
	fromHere bool // in the working folder
}

func newLoader(src Sources) *loader {
	l := &loader{src: src}
	if l.src.Env == nil {
		l.src.Env = os.LookupEnv
	}
	cwd, err := filepath.Abs(src.Cwd) // "" is the process's
	if err != nil {
		l.problem(Origin{}, "", "the working folder cannot be told: "+err.Error())
	}
	l.cwd = cwd
	return l
}

func (l *loader) variable(name string) string {
	v, _ := l.src.Env(name)
	return v
}

func (l *loader) problem(o Origin, key, message string) {
	l.problems = append(l.problems, Problem{o, key, message})
}

func (l *loader) hazard(o Origin, key, format string, args ...any) {
	l.hazards = append(l.hazards, Problem{o, key, fmt.Sprintf(format, args...)})
}

// config makes a Config of a file and what is laid over it.
func (l *loader) config(f found) *Config {
	l.found = f
	l.base = filepath.Dir(f.path)
	root := newTable(Origin{Kind: FromDefault})
	if f.name != "" {
		var ps Problems
		if root, ps = parse(f.name, f.data); ps != nil {
			l.problems = append(l.problems, ps...)
			return nil
		}
	}
	l.layers(root)
	cfg := l.read(root)
	cfg.File, cfg.Instructions = f.name, f.trusted
	cfg.Settings = inOrder(l.settings)
	cfg.Own = l.own(cfg)
	if len(l.problems) == 0 {
		l.look(cfg)
		cfg.Hazards = l.hazards.sorted()
	}
	return cfg
}

// inOrder sorts settings by the table that they are in, as documented.
func inOrder(settings []Setting) []Setting {
	tables := []string{"agent", "providers", "recovery", "compaction", "tools", "store"}
	rank := func(s Setting) int {
		top, _, _ := strings.Cut(s.Key, ".")
		return slices.Index(tables, top)
	}
	slices.SortStableFunc(settings, func(a, b Setting) int { return rank(a) - rank(b) })
	return settings
}

// folder is the folder that relative paths of an origin start from.
func (l *loader) folder(o Origin) string {
	if o.Kind == FromFile {
		return l.base
	}
	return l.cwd
}

func (l *loader) absolute(path string, o Origin) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.folder(o), path)
	}
	return filepath.Clean(path)
}

// home is a folder of the XDG base directory specification: the variable's,
// which must be absolute to count, or else under the user's home.
func (l *loader) home(variable string, under ...string) string {
	if v := l.variable(variable); filepath.IsAbs(v) {
		return filepath.Join(v, "dsh")
	}
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if v := l.variable(name); filepath.IsAbs(v) {
			return filepath.Join(append(append([]string{v}, under...), "dsh")...)
		}
	}
	return ""
}
