package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	resyntax "regexp/syntax"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// read holds a tree to the contract, table by table.
func (l *loader) read(root *node) *Config {
	cfg := &Config{}
	top := &section{l: l, node: root}
	agent := top.child("agent")
	l.readProviders(top, cfg)
	l.readAgent(agent, cfg)
	l.readRecovery(top.child("recovery"), cfg)
	l.readCompaction(top, cfg)
	l.giveCompaction(cfg)
	l.readTools(top.child("tools"), cfg)
	l.readStore(top.child("store"), cfg)
	l.readPoliciesDir(cfg)
	top.close()
	l.checkAlways(cfg)
	return cfg
}

func (l *loader) readAgent(s *section, cfg *Config) {
	cfg.Agent.Provider = l.chooseProvider(s, cfg)
	cfg.Agent.Model = l.chooseModel(s, cfg)
	cfg.Agent.MaxSteps = int(s.integer("max_steps", byDefault(int64(100)), 1, math.MaxInt32))
	cfg.Agent.System = s.text("system", byDefault(""), nil)
	cfg.Agent.MaxOutputTokens = s.integer("max_output_tokens", byDefault(int64(0)), 0, maxSafeInt)
	s.close()
}

// chooseProvider reads agent.provider; where it is not set, it takes the first
// provider whose key variable is set: of the file, then of the presets.
func (l *loader) chooseProvider(s *section, cfg *Config) string {
	def := byDefault("")
	if s.node == nil || s.node.table["provider"] == nil {
		def = l.providerByKey(cfg)
	}
	v := s.text("provider", def, func(name string) string { return l.noProvider(name, cfg) })
	if v != "" {
		last := l.settings[len(l.settings)-1]
		cfg.chosen = last.Origin
		l.settings = append(l.settings, l.presetSettings(cfg, v)...)
	}
	return v
}

func (l *loader) providerByKey(cfg *Config) fallback[string] {
	for _, name := range cfg.names {
		p := cfg.providers[name]
		if p.APIKey.Variable == "" {
			if slices.Contains(l.listed, name) {
				return byDefault(name)
			}
			continue // a local server that nobody spoke of
		}
		if p.APIKey.IsSet() {
			return fallback[string]{name, Origin{Kind: FromVariable, Name: p.APIKey.Variable}}
		}
		if !slices.Contains(cfg.looked, p.APIKey.Variable) {
			cfg.looked = append(cfg.looked, p.APIKey.Variable)
		}
	}
	return byDefault("")
}

// noProvider says why a name is that of no provider.
func (l *loader) noProvider(name string, cfg *Config) string {
	p := cfg.providers[name]
	if p != nil && slices.Contains(l.listed, name) || slices.Contains(cfg.names, name) {
		return "" // what is wrong with one of the file is said there
	}
	what := shortQuote(name) + " names no provider"
	if p != nil {
		what = fmt.Sprintf("%q is not yet supported, since its adapter %q is not", name, p.Adapter)
	} else if near := nearest(name, cfg.names); near != "" {
		what += fmt.Sprintf(" (did you mean %q?)", near)
	}
	return what + "; allowed: a key of [providers], or a preset: " + list(cfg.names)
}

// chooseModel reads agent.model; where it is not set, the preset's holds.
func (l *loader) chooseModel(s *section, cfg *Config) string {
	def := byDefault("")
	for _, p := range l.src.Presets {
		if p.Name == cfg.Agent.Provider && p.Model != "" {
			def = fallback[string]{p.Model, Origin{Kind: FromPreset, Name: p.Name}}
		}
	}
	v := s.text("model", def, func(v string) string {
		if strings.TrimSpace(v) == "" || oneLine(v) != v {
			return shortQuote(v) + " is no name of a model; allowed: a name as the provider writes it"
		}
		return ""
	})
	return v
}

// The defaults of [compaction], which are also the policy's own.
const (
	defaultThreshold = 0.8
	defaultRetain    = 0.16
	defaultSummary   = 8192
)

func (l *loader) readCompaction(top *section, cfg *Config) {
	n := top.get("compaction")
	if !l.src.Support.Compaction {
		if n != nil {
			top.problem("compaction", n, "compaction is not yet supported: an overflow of the context is final; remove the table")
		}
		return
	}
	s := top.child("compaction")
	c := &cfg.Compaction
	c.ThresholdRatio = s.number("threshold_ratio", byDefault(defaultThreshold), span{0, 1, true})
	c.RetainRatio = s.number("retain_ratio", byDefault(defaultRetain), span{0, 1, true})
	c.SummaryMaxTokens = s.integer("summary_max_tokens", byDefault(int64(defaultSummary)), 1, maxSafeInt)
	if c.RetainRatio >= c.ThresholdRatio {
		s.problem("retain_ratio", s.either("retain_ratio", "threshold_ratio"), "%s is not under threshold_ratio (%s); allowed: less than it", formatFloat(c.RetainRatio), formatFloat(c.ThresholdRatio))
	}
	s.close()
}

// giveCompaction hands the values of [compaction] to the built-in policy, whose
// own config goes before them. What has its default is left out: a policy with
// no config is not compiled before it is needed.
func (l *loader) giveCompaction(cfg *Config) {
	c, values := cfg.Compaction, map[string]any{}
	if c.ThresholdRatio != defaultThreshold {
		values["thresholdRatio"] = c.ThresholdRatio
	}
	if c.RetainRatio != defaultRetain {
		values["retainRatio"] = c.RetainRatio
	}
	if c.SummaryMaxTokens != defaultSummary {
		values["summaryMaxTokens"] = c.SummaryMaxTokens
	}
	for i, p := range cfg.Recovery.Policies {
		if p.Builtin != "compaction" || !l.src.Support.Compaction {
			continue
		}
		merged := maps.Clone(values)
		if err := json.Unmarshal(p.Config, &merged); err != nil {
			continue // readPolicyConfig has said what is wrong with it
		}
		if raw, err := dsh.JSON(merged); err == nil {
			cfg.Recovery.Policies[i].Config = raw
		}
	}
}

// either is the node of the first of two keys that is set.
func (s *section) either(a, b string) *node {
	if n := s.get(a); n != nil {
		return n
	}
	return s.get(b)
}

func (l *loader) readStore(s *section, cfg *Config) {
	cfg.Store.Backend = s.oneOf("backend", byDefault(first(l.src.Support.Backends, "badger")), l.src.Support.Backends, []string{"badger", "memory"})
	dir := l.home("XDG_DATA_HOME", ".local", "share")
	s.text("dir", byDefault(dir), nil)
	last := &l.settings[len(l.settings)-1]
	named := last.Value.(string)
	switch {
	case named == "" && dir == "":
		l.problem(last.Origin, last.Key, "there is no folder for the data: set --data-dir, DSH_DATA_DIR, XDG_DATA_HOME or HOME")
	case named == "":
		cfg.Store.Dir, last.Value, last.Origin = dir, dir, Origin{Kind: FromDefault}
	default:
		cfg.Store.Dir = l.absolute(named, last.Origin)
		last.Value = cfg.Store.Dir
	}
	cfg.Store.Redact = s.texts("redact", byDefault([]string{}), badPattern)
	cfg.Store.Key = l.secret(s.text("key_env", byDefault(""), badVariable))
	l.markSecret(cfg.Store.Key)
	cfg.Store.KeyFile = s.text("key_file", byDefault(""), nil)
	if last = &l.settings[len(l.settings)-1]; cfg.Store.KeyFile != "" {
		cfg.Store.KeyFile = l.absolute(cfg.Store.KeyFile, last.Origin)
		last.Value = cfg.Store.KeyFile
	}
	if cfg.Store.KeyFile != "" && cfg.Store.Key.Variable != "" {
		s.problem("key_file", s.get("key_file"), "key_env names a key already; allowed: one of the two")
	}
	s.close()
}

// badPattern says why a text is no pattern of what is not to be logged.
func badPattern(text string) string {
	re, err := regexp.Compile(text)
	var bad *resyntax.Error
	switch {
	case errors.As(err, &bad):
		return fmt.Sprintf("%q is no regular expression (%s); allowed: RE2", text, bad.Code)
	case err == nil && re.MatchString(""):
		return fmt.Sprintf("%q matches the empty text; allowed: what does not", text)
	}
	return ""
}

func first(words []string, other string) string {
	if len(words) > 0 {
		return words[0]
	}
	return other
}
