package config

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

const (
	builtinPrefix  = "builtin:"
	registryPrefix = "oci://"

	// The most that a policy may be given; abi.md has the defaults.
	maxMemoryMB  = 1024
	maxHostCalls = 64

	maxPolicies = 64 // of a waterfall: each is compiled and kept warm
)

const policyRule = "a-z, 0-9, _, - and ., up to 64, the first a letter or a digit"

// capabilities are those of the guest ABI.
func capabilities() []string {
	return []string{"log.read", "surface.read", "surface.content", "state.session", "state.shared", "log.append", "repair.prune", "repair.compact"}
}

func (l *loader) readRecovery(s *section, cfg *Config) {
	have, r := l.src.Support, &cfg.Recovery
	r.Dir = s.text("dir", byDefault("policies"), func(v string) string {
		if strings.TrimSpace(v) == "" || strings.ContainsRune(v, 0) {
			return "is no folder; allowed: a path, relative to the data folder"
		}
		return ""
	})
	r.Engine = s.oneOf("engine", byDefault(first(have.Engines, "extism")), have.Engines, []string{"native", "extism"})
	r.RequireSignature = s.boolean("require_signature", byDefault(false))
	if r.RequireSignature && !have.Signatures {
		s.problem("require_signature", s.get("require_signature"), "true is not yet supported: no signature is checked; allowed: false (sha256 pins a module)")
	}
	l.readKeys(s, cfg)
	policies := s.get("policy")
	if policies != nil && policies.kind == arrayNode && len(policies.array) == 0 {
		s.record("policy", []string{}, policies.origin)
	}
	l.readLimits(s.child("limits"), cfg)
	l.readPolicies(s, policies, cfg)
	s.close()
}

// readPoliciesDir resolves the folder, which is beside the data if relative.
func (l *loader) readPoliciesDir(cfg *Config) {
	if !filepath.IsAbs(cfg.Recovery.Dir) {
		cfg.Recovery.Dir = filepath.Join(cfg.Store.Dir, cfg.Recovery.Dir)
	}
}

func (l *loader) readKeys(s *section, cfg *Config) {
	n := s.get("keys")
	if !l.src.Support.Signatures {
		if n != nil && (n.kind != arrayNode || len(n.array) > 0) {
			s.problem("keys", n, "signatures are not yet supported; allowed: no keys (sha256 pins a module)")
		}
		return
	}
	cfg.Recovery.Keys = s.texts("keys", byDefault([]string{}), badKey)
	if cfg.Recovery.RequireSignature && len(cfg.Recovery.Keys) == 0 {
		s.problem("keys", s.either("keys", "require_signature"), "is empty, so that no module could be loaded; allowed: one minisign public key at least")
	}
}

func (l *loader) readLimits(s *section, cfg *Config) {
	limits := &cfg.Recovery.Limits
	limits.MaxAttemptsPerStep = int(s.integer("max_attempts_per_step", byDefault(int64(50)), 0, math.MaxInt32))
	limits.MaxWaitPerTurn = millis(s.number("max_wait_per_turn_ms", byDefault(0.0), span{0, maxMillis, false}))
	limits.MaxResentTokensPerTurn = s.integer("max_resent_tokens_per_turn", byDefault(int64(0)), 0, maxSafeInt)
	limits.MinDelay = millis(s.number("min_delay_ms", byDefault(0.0), span{0, dsh.MaxDelayMs, false}))
	s.close()
}

func (l *loader) readPolicies(s *section, n *node, cfg *Config) {
	if n == nil {
		root := newTable(Origin{Kind: FromDefault})
		l.seedPolicies(root)
		n = root.table["recovery"].table["policy"]
	}
	if n.kind != arrayNode {
		s.problem("policy", n, "%s; allowed: [[recovery.policy]] tables, or policy = [] for none", n.what())
		return
	}
	if len(n.array) > maxPolicies {
		s.problem("policy", n.array[maxPolicies], "%d policies; allowed: up to %d", len(n.array), maxPolicies)
		return
	}
	for i, item := range n.array {
		if item.kind != tableNode {
			s.problem("policy", item, "%s; allowed: a table with name and module", item.what())
			continue
		}
		l.readPolicy(item, i, cfg)
	}
}

func (l *loader) readPolicy(n *node, i int, cfg *Config) {
	s := &section{l: l, key: fmt.Sprintf("recovery.policy[%d]", i), title: "[[recovery.policy]]", node: n}
	if name, ok := n.table["name"].textOf(); ok && hostabi.IsPolicyName(name) {
		s.key = joinKey("recovery.policy", name)
	}
	p := Policy{Origin: n.origin, node: n}
	p.Name = s.text("name", fallback[string]{}, func(v string) string { return l.badPolicyName(v, cfg) })
	p.Module = s.text("module", fallback[string]{}, func(v string) string { return l.badModule(v, n.table["module"].origin) })
	for _, key := range []string{"name", "module"} {
		if n.table[key] == nil {
			s.problem(key, nil, "is missing; allowed: %s", map[string]string{"name": policyRule, "module": l.moduleForms()}[key])
		}
	}
	l.resolveModule(&p, n)
	p.SHA256 = strings.ToLower(s.optional("sha256", badDigest))
	p.Capabilities = s.texts("capabilities", byDefault([]string{}), func(v string) string {
		return choice(v, l.src.Support.Capabilities, capabilities())
	})
	p.FailOnFault = s.oneOf("on_fault", byDefault("delegate"), []string{"delegate", "fail"}, nil) == "fail"
	isolations := []string{"in-process"}
	if l.src.Support.ProcessIsolation {
		isolations = append(isolations, "process")
	}
	p.Process = s.oneOf("isolation", byDefault("in-process"), isolations, []string{"process"}) == "process"
	p.Config = l.readPolicyConfig(s, p.Builtin)
	limits := s.child("limits")
	limits.title = "[recovery.policy.limits]"
	p.MemoryMB = int(limits.integer("memory_mb", byDefault(int64(16)), 1, maxMemoryMB))
	p.HostCalls = int(limits.integer("host_calls", byDefault(int64(maxHostCalls)), 1, maxHostCalls))
	limits.close()
	s.close()
	if p.SHA256 == "" && p.Path != "" {
		p.SHA256 = l.found.pins[p.Path]
	}
	cfg.Recovery.Policies = append(cfg.Recovery.Policies, p)
}

func (n *node) textOf() (string, bool) {
	if n == nil {
		return "", false
	}
	return n.text()
}

// optional is text that is recorded only where it is set.
func (s *section) optional(key string, check func(string) string) string {
	v := s.text(key, fallback[string]{}, check)
	if s.get(key) == nil {
		s.l.settings = s.l.settings[:len(s.l.settings)-1]
	}
	return v
}

func (l *loader) badPolicyName(v string, cfg *Config) string {
	if !hostabi.IsPolicyName(v) {
		return shortQuote(v) + " is no name of a policy; allowed: " + policyRule
	}
	for _, p := range cfg.Recovery.Policies {
		if p.Name == v {
			return shortQuote(v) + " stands there twice; allowed: a name of its own for each policy"
		}
	}
	return ""
}

func (l *loader) moduleForms() string {
	var names []string
	for _, b := range l.src.Support.Builtins {
		names = append(names, builtinPrefix+b.Name)
	}
	forms := strings.Join(append(names, "a path"), ", ")
	if l.src.Support.Registries {
		forms += ", oci://REGISTRY/NAME@sha256:DIGEST"
	}
	return forms
}

// badModule says why a text names no module.
func (l *loader) badModule(v string, o Origin) string {
	allowed := "; allowed: " + l.moduleForms()
	scheme, _, hasScheme := strings.Cut(v, "://")
	switch {
	case strings.HasPrefix(v, builtinPrefix):
		var names []string
		for _, b := range l.src.Support.Builtins {
			names = append(names, builtinPrefix+b.Name)
		}
		return choice(v, names, []string{"builtin:compaction", "builtin:retry"})
	case strings.HasPrefix(v, registryPrefix):
		if !l.src.Support.Registries {
			return shortQuote(v) + ": modules of a registry are not yet supported" + allowed
		}
		if _, digest, ok := strings.Cut(v, "@sha256:"); !ok || badDigest(digest) != "" {
			return shortQuote(v) + " names no digest" + allowed
		}
		return ""
	case hasScheme && !strings.ContainsAny(scheme, `/\`):
		return shortQuote(v) + " is no form of a module" + allowed
	case strings.TrimSpace(v) == "" || strings.ContainsRune(v, 0):
		return shortQuote(v) + " names no module" + allowed
	}
	path := l.absolute(v, o)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return readFault(path, err) + allowed
	case !info.Mode().IsRegular():
		return shortQuote(path) + " is no file" + allowed
	}
	return ""
}

func (l *loader) resolveModule(p *Policy, n *node) {
	switch {
	case strings.HasPrefix(p.Module, builtinPrefix):
		p.Builtin = strings.TrimPrefix(p.Module, builtinPrefix)
	case strings.HasPrefix(p.Module, registryPrefix):
		p.Reference = p.Module
	case p.Module != "":
		p.Path = l.absolute(p.Module, n.table["module"].origin)
		if l.found.fromHere {
			p.Path = resolved(p.Path) // what was trusted is what is loaded
		}
	}
}

func badDigest(v string) string {
	if b, err := hex.DecodeString(v); err != nil || len(b) != 32 {
		return shortQuote(v) + " is no sha256; allowed: 64 hex digits"
	}
	return ""
}

// badKey says why a text is no public key of minisign: the letters Ed, an id of
// 8 bytes and a key of 32, in base 64.
func badKey(v string) string {
	if b, err := base64.StdEncoding.DecodeString(v); err != nil || len(b) != 42 || string(b[:2]) != "Ed" {
		return shortQuote(v) + " is no minisign public key; allowed: one line of 56 characters, which begins with RW"
	}
	return ""
}

// readPolicyConfig gives what is handed to a guest, as JSON.
func (l *loader) readPolicyConfig(s *section, builtin string) json.RawMessage {
	n := s.get("config")
	empty := json.RawMessage("{}")
	switch {
	case n == nil:
		return empty
	case n.kind != tableNode:
		s.wrong("config", n, "a table")
		return empty
	case builtin == "retry":
		for _, key := range n.order {
			s.l.problem(n.table[key].origin, joinKey(s.path("config"), key), retryConfig(key))
		}
		return empty
	}
	value := s.plainValue(s.path("config"), n)
	raw, err := dsh.JSON(value)
	if err != nil {
		return empty // plainValue has said why
	}
	s.record("config", json.RawMessage(raw), n.origin)
	return raw
}

// retryConfig says where what was put into the built-in retry's config
// belongs.
func retryConfig(key string) string {
	const where = "settings of retries belong under each provider: [providers.NAME.retry_policy]"
	if plain(key) == "retrypolicy" {
		return "the built-in retry takes no config; " + where
	}
	what := "unknown key " + key
	if near := nearest(key, []string{"retry_policy"}); near != "" {
		what += fmt.Sprintf(" (did you mean %q?)", near)
	}
	return what + ": the built-in retry takes no config; " + where
}

// plainValue is a tree as JSON knows it.
func (s *section) plainValue(key string, n *node) any {
	switch n.kind {
	case tableNode:
		out := map[string]any{}
		for _, k := range n.order {
			out[k] = s.plainValue(joinKey(key, k), n.table[k])
		}
		return out
	case arrayNode:
		out := []any{}
		for _, item := range n.array {
			out = append(out, s.plainValue(key, item))
		}
		return out
	}
	switch v := n.value.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			s.l.problem(n.origin, key, formatFloat(v)+" has no form in JSON; allowed: finite numbers")
			return nil
		}
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return n.value
}

// Problem is what whoever loads the policy finds wrong with it, at the place
// of the key ("module", "sha256", "limits.memory_mb") that it is about.
func (p Policy) Problem(key, message string) Problem {
	o := p.Origin
	if n := p.node.under(strings.Split(key, ".")); n != nil {
		o = n.origin
	}
	return Problem{o, "recovery.policy." + p.Name + "." + key, message}
}

// under is the node of a dotted key in a table; nil if it is not set.
func (n *node) under(key []string) *node {
	for _, k := range key {
		if n == nil {
			return nil
		}
		n = n.table[k]
	}
	return n
}
