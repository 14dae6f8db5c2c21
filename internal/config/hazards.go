package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh"
)

// look names what holds and is likely not meant.
func (l *loader) look(cfg *Config) {
	l.lookAgent(cfg)
	for _, name := range l.used(cfg) {
		l.lookProvider(cfg.providers[name], cfg)
	}
	l.lookWaterfall(cfg)
	l.lookGrants(cfg)
	l.lookCompaction(cfg)
	l.lookTools(cfg)
}

// used are the providers of the file, and the one that was chosen.
func (l *loader) used(cfg *Config) []string {
	names := append([]string{}, l.listed...)
	if p := cfg.Agent.Provider; p != "" && l.presetSettings(cfg, p) != nil {
		names = append(names, p)
	}
	return names
}

func (l *loader) origin(key string) Origin {
	for _, s := range l.settings {
		if s.Key == key {
			return s.Origin
		}
	}
	return Origin{}
}

func (l *loader) lookAgent(cfg *Config) {
	provider, model := l.origin("agent.provider"), l.origin("agent.model")
	if (provider.Kind == FromFlag || provider.Name == "DSH_PROVIDER") && model.Kind == FromFile && cfg.Agent.Model != "" {
		l.hazard(model, "agent.model", "the model is the file's, the provider (%s) is of %s: it may not have the model %s", cfg.Agent.Provider, provider, shortQuote(cfg.Agent.Model))
	}
	for _, p := range cfg.missing() {
		l.hazard(p.Origin, p.Key, "%s: till then no turn can run", p.Message)
	}
}

func (l *loader) lookProvider(p *Provider, cfg *Config) {
	key := joinKey("providers", p.Name)
	at := func(k string) Origin {
		if o, ok := p.origins[k]; ok {
			return o
		}
		return Origin{Kind: FromDefault}
	}
	if p.sendsSecrets() && p.plainRemote() {
		l.hazard(at("allow_insecure_http"), key+".base_url", "the key is sent in clear text to another machine")
	} else if p.sendsSecrets() && strings.HasPrefix(p.BaseURL, "http:") {
		l.hazard(at("base_url"), key+".base_url", "the key is sent over plain http, if only to this machine: whatever listens on that port reads it")
	}
	for name := range p.Headers {
		if maybeSecretHeader(name) {
			l.hazard(at("headers"), joinKey(key+".headers", name), "sounds like a secret in the file; headers_env takes it from a variable")
		}
	}
	r, limits := p.RetryPolicy, cfg.Recovery.Limits
	wait := dsh.Millis(limits.MaxWaitPerTurn)
	switch {
	case wait > 0 && r.InitialDelayMs > wait:
		l.hazard(at("initial_delay_ms"), key+".retry_policy.backoff.initial_delay_ms", "%s ms is over recovery.limits.max_wait_per_turn_ms (%s): already the first retry is refused", formatFloat(r.InitialDelayMs), formatFloat(wait))
	case wait > 0 && r.MaxDelayMs > wait:
		l.hazard(at("max_delay_ms"), key+".retry_policy.backoff.max_delay_ms", "%s ms is over recovery.limits.max_wait_per_turn_ms (%s): a wait of that length is refused", formatFloat(r.MaxDelayMs), formatFloat(wait))
	}
	if least := dsh.Millis(limits.MinDelay); least > r.MaxDelayMs {
		l.hazard(at("max_delay_ms"), key+".retry_policy.backoff.max_delay_ms", "%s ms is under recovery.limits.min_delay_ms (%s), which holds instead", formatFloat(r.MaxDelayMs), formatFloat(least))
	}
	l.lookRetries(p, cfg, at)
}

// endless is a count of retries that nobody waits for.
const endless = 10000

func (l *loader) lookRetries(p *Provider, cfg *Config, at func(string) Origin) {
	key := joinKey("providers", p.Name) + ".retry_policy"
	r, limits := p.RetryPolicy, cfg.Recovery.Limits
	most := int64(limits.MaxAttemptsPerStep)
	switch {
	case r.Mode == dsh.ModeAlways && most == 0:
		l.hazard(at("mode"), key+".mode", `"always" without a ceiling is unbounded: recovery.limits.max_attempts_per_step is 0`)
	case r.Mode == dsh.ModeNormal && most == 0 && r.MaxRetries >= endless:
		l.hazard(at("max_retries"), key+".max_retries", "%d without a ceiling is unbounded in effect: recovery.limits.max_attempts_per_step is 0", r.MaxRetries)
	case r.Mode == dsh.ModeNormal && most > 0 && r.MaxRetries >= most && at("max_retries").Kind != FromDefault:
		l.hazard(at("max_retries"), key+".max_retries", "%d is never reached: recovery.limits.max_attempts_per_step (%d) ends a step before", r.MaxRetries, most)
	}
	for _, c := range r.RetryableCodes {
		if c == dsh.CodeAborted {
			l.hazard(at("retryable_codes"), key+".retryable_codes", `"ABORTED" is the caller's own stop, which is never put to a policy`)
		}
	}
}

// lookWaterfall names policies that are never reached, and settings that reach
// none.
func (l *loader) lookWaterfall(cfg *Config) {
	policies, limits := cfg.Recovery.Policies, cfg.Recovery.Limits
	if limits.MaxAttemptsPerStep == 1 && len(policies) > 0 {
		l.hazard(l.origin("recovery.limits.max_attempts_per_step"), "recovery.limits.max_attempts_per_step", "1 is the first request alone: no policy can ever retry")
	}
	if limits.MaxAttemptsPerStep == 0 && len(policies) > 0 {
		l.hazard(l.origin("recovery.limits.max_attempts_per_step"), "recovery.limits.max_attempts_per_step", "0 is no ceiling: a policy may retry unbounded")
	}
	retry := ""
	for i, p := range policies {
		for _, q := range policies[:i] {
			if same(p, q) {
				l.hazard(p.Origin, "recovery.policy."+p.Name, "is the same module with the same config as %q before it: it is never reached with another answer, and its retries come on top", q.Name)
				break
			}
		}
		if p.Builtin == "retry" {
			retry = p.Name
			continue
		}
		if retry != "" {
			l.lookAfterRetry(p, retry, cfg)
		}
	}
	if retry == "" {
		l.lookWithoutRetry(cfg)
	}
}

func same(p, q Policy) bool {
	return p.Builtin == q.Builtin && p.Path == q.Path && p.Reference == q.Reference && string(p.Config) == string(q.Config)
}

// lookAfterRetry looks at a policy that stands after the built-in retry. That
// answers in mode normal until its retries are used up; in mode always it lets
// the others go first.
func (l *loader) lookAfterRetry(p Policy, retry string, cfg *Config) {
	most := int64(cfg.Recovery.Limits.MaxAttemptsPerStep)
	for _, name := range l.used(cfg) {
		r := cfg.providers[name].RetryPolicy
		if r.Mode != dsh.ModeNormal || r.MaxRetries < most || most == 0 && r.MaxRetries < endless {
			continue
		}
		rest := 0
		for _, c := range dsh.Codes() {
			found := c == dsh.CodeAborted
			for _, k := range r.RetryableCodes {
				found = found || k == c
			}
			if !found {
				rest++
			}
		}
		if rest == 0 {
			l.hazard(p.Origin, "recovery.policy."+p.Name, "is never reached for the provider %s: %q before it answers every failure first, and does not run out", name, retry)
		} else {
			l.hazard(p.Origin, "recovery.policy."+p.Name, "is never reached for the retryable codes of the provider %s: %q before it answers them first, and does not run out", name, retry)
		}
	}
}

func (l *loader) lookWithoutRetry(cfg *Config) {
	for _, s := range l.settings {
		if !strings.Contains(s.Key, ".retry_policy.") || s.Origin.Kind == FromDefault {
			continue
		}
		if len(cfg.Recovery.Policies) == 0 {
			l.hazard(s.Origin, s.Key, "reaches nobody: the waterfall is empty, every failure is final")
		} else {
			l.hazard(s.Origin, s.Key, "reaches the policies as data only: the built-in retry, which acts on it, is not in the waterfall")
		}
	}
}

func (l *loader) lookGrants(cfg *Config) {
	for _, p := range cfg.Recovery.Policies {
		if p.Builtin == "" && len(p.Capabilities) > 0 && p.SHA256 == "" && p.Reference == "" {
			l.hazards = append(l.hazards, p.Problem("capabilities", fmt.Sprintf("a grant without a pin: whatever bytes come to stand in %s get %s; sha256 pins them", p.Path, strings.Join(p.Capabilities, ", "))))
		}
		if p.FailOnFault {
			l.hazards = append(l.hazards, p.Problem("on_fault", `"fail": a fault of this policy ends the turn instead of asking the next`))
		}
	}
	if dir := l.origin("recovery.dir"); l.found.fromHere && dir.Kind == FromFile && within(cfg.Recovery.Dir, l.base) {
		l.hazard(dir, "recovery.dir", "lies inside the working folder: a module that comes to stand in it decides without \"dsh config trust\"")
	}
}

// lookCompaction names settings that reach nobody, and a compaction that may
// not do what it is there for.
func (l *loader) lookCompaction(cfg *Config) {
	found := false
	for _, p := range cfg.Recovery.Policies {
		if p.Builtin != "compaction" {
			continue
		}
		found = true
		for _, c := range []string{"repair.prune", "repair.compact"} {
			if !slices.Contains(p.Capabilities, c) {
				l.hazards = append(l.hazards, p.Problem("capabilities", c+" is not granted: what this policy asks for is refused, and an overflow is final"))
			}
		}
	}
	for _, s := range l.settings {
		if !found && strings.HasPrefix(s.Key, "compaction.") && s.Origin.Kind != FromDefault {
			l.hazard(s.Origin, s.Key, "reaches nobody: builtin:compaction is not in the waterfall")
		}
	}
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(resolved(path), resolved(folder)+string(filepath.Separator))
}
