package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// adapters are the wire protocols of the contract.
func adapters() []string { return []string{"openai-chat", "anthropic-messages", scripted} }

// scripted is the adapter that plays a script in place of a provider.
const scripted = "scripted"

const nameRule = "letters, digits, _, - and ., up to 64, the first a letter or a digit"

// readProviders reads those of the file, and makes one of each other preset.
func (l *loader) readProviders(top *section, cfg *Config) {
	cfg.providers = map[string]*Provider{}
	all := top.child("providers")
	if all.node != nil {
		for _, name := range all.node.order {
			if !isProviderName(name) {
				all.problem(name, all.node.table[name], "is no name of a provider; allowed: %s", nameRule)
				all.known = append(all.known, name)
				continue
			}
			cfg.providers[name] = l.readProvider(all, name)
			l.listed = append(l.listed, name)
		}
	}
	for _, p := range l.src.Presets {
		if cfg.providers[p.Name] == nil {
			kept := l.settings
			cfg.providers[p.Name] = l.readProvider(all, p.Name)
			l.settings = kept
		}
	}
	all.close()
	cfg.names = l.usable(cfg)
}

// usable lists the providers whose adapter is there: the file's, then the
// presets, each in its order.
func (l *loader) usable(cfg *Config) []string {
	names := slices.Clone(l.listed)
	for _, p := range l.src.Presets {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return choice(cfg.providers[name].Adapter, l.src.Support.Adapters, nil) != ""
	})
}

// presetSettings are the settings of a provider that no file mentions.
func (l *loader) presetSettings(cfg *Config, name string) []Setting {
	if slices.Contains(l.listed, name) {
		return nil
	}
	kept := l.settings
	l.settings = nil
	l.readProvider(&section{l: l, key: "providers"}, name)
	got := l.settings
	l.settings = kept
	return got
}

func (l *loader) preset(name string) (Preset, Origin) {
	for _, p := range l.src.Presets {
		if p.Name == name {
			return p, Origin{Kind: FromPreset, Name: name}
		}
	}
	return Preset{Adapter: first(l.src.Support.Adapters, "openai-chat")}, Origin{Kind: FromDefault}
}

func (l *loader) readProvider(all *section, name string) *Provider {
	s := all.child(name)
	preset, from := l.preset(name)
	p := &Provider{Name: name, origins: map[string]Origin{}}
	begin := len(l.settings)
	adapter := func(v string) string { return choice(v, l.src.Support.Adapters, adapters()) }
	p.Adapter = s.text("adapter", fallback[string]{preset.Adapter, from}, adapter)
	p.BaseURL = strings.TrimRight(s.text("base_url", fallback[string]{preset.BaseURL, from}, badURL), "/")
	if script := s.text("script", byDefault(""), nil); script != "" {
		p.Script = l.absolute(script, l.settings[len(l.settings)-1].Origin)
	}
	p.APIKey = l.secret(s.text("api_key_env", fallback[string]{preset.APIKeyEnv, from}, badVariable))
	l.markSecret(p.APIKey)
	l.readHeaders(s, p)
	p.AllowInsecureHTTP = s.boolean("allow_insecure_http", byDefault(false))
	positive := span{0, maxMillis, true}
	p.StreamIdleTimeout = millis(s.number("stream_idle_timeout_ms", byDefault(300000.0), positive))
	p.KeepaliveTimeout = millis(s.number("keepalive_timeout_ms", byDefault(600000.0), positive))
	p.ContextWindow = s.integer("context_window", fallback[int64]{preset.ContextWindow, from}, 0, maxSafeInt)
	p.RetryPolicy = l.readRetryPolicy(s.child("retry_policy"))
	for _, set := range l.settings[begin:] {
		p.origins[set.name] = set.Origin
	}
	l.checkProvider(s, p, adapter)
	s.close()
	return p
}

// maxMillis is the most that a time.Duration holds.
const maxMillis = 9223372036854

// millis is never 0 for what is positive.
func millis(ms float64) time.Duration {
	if d := dsh.FromMillis(ms); d > 0 || ms <= 0 {
		return d
	}
	return 1
}

func (l *loader) secret(variable string) Secret {
	if variable == "" {
		return Secret{}
	}
	return newSecret(variable, l.variable(variable))
}

// markSecret notes on the last setting that it names a variable.
func (l *loader) markSecret(s Secret) {
	if s.Variable != "" {
		l.settings[len(l.settings)-1].Secret = &s
	}
}

// checkProvider looks at what several keys say together.
func (l *loader) checkProvider(s *section, p *Provider, adapter func(string) string) {
	if s.node == nil {
		return
	}
	if fault := adapter(p.Adapter); fault != "" && p.origins["adapter"].Kind == FromPreset {
		s.problem("adapter", nil, "the preset's %s", fault)
	}
	base, script := s.get("base_url"), s.get("script")
	if p.Adapter == scripted {
		if p.Script == "" {
			s.problem("script", script, "is missing; allowed: the path of a script for adapter %q to play", scripted)
		}
		if base != nil {
			s.problem("base_url", base, "does not go with adapter %q, which is its own provider; allowed: script", scripted)
		}
		return
	}
	if p.Script != "" {
		s.problem("script", script, "goes with adapter %q only; allowed: base_url", scripted)
	}
	if p.BaseURL == "" && base == nil {
		s.problem("base_url", nil, "is missing; allowed: http(s)://HOST[:PORT][/PATH]")
	}
	if p.plainRemote() && p.sendsSecrets() && !p.AllowInsecureHTTP {
		s.problem("base_url", s.either("base_url", "api_key_env"), "would send a key over plain http to another machine; allowed: https, a loopback address, api_key_env = \"\", or allow_insecure_http = true")
	}
}

func (p *Provider) sendsSecrets() bool { return p.APIKey.Variable != "" || len(p.SecretHeaders) > 0 }

// plainRemote reports whether requests go over plain http to another machine.
func (p *Provider) plainRemote() bool {
	u, err := url.Parse(p.BaseURL)
	return err == nil && u.Scheme == "http" && !loopback(u.Hostname())
}

func loopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// badURL says why a text is no base URL. It never repeats one that may hold a
// password.
func badURL(v string) string {
	const allowed = "; allowed: http(s)://HOST[:PORT][/PATH]"
	u, err := url.Parse(v)
	switch {
	case err != nil || strings.TrimSpace(v) != v || oneLine(v) != v:
		return "is no URL" + allowed
	case u.User != nil || strings.Contains(u.Host, "@"):
		return "holds a user name or a password" + allowed + ", and the key in the variable of api_key_env"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(v, "#"):
		return "holds a query or a fragment" + allowed
	case u.Scheme != "http" && u.Scheme != "https":
		return shortQuote(v) + " is no absolute http or https URL" + allowed
	case u.Hostname() == "" || u.Opaque != "" || strings.ContainsAny(u.Hostname(), " \t"):
		return shortQuote(v) + " names no host" + allowed
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return shortQuote(v) + " has a port out of range; allowed: 1 to 65535"
		}
	}
	return ""
}

// badVariable says why a text is no name of a variable. It does not repeat
// what may be a key.
func badVariable(v string) string {
	if v == "" {
		return ""
	}
	const allowed = "; allowed: the name of an environment variable (letters, digits and _), or \"\""
	switch {
	case looksLikeKey(v):
		return "holds what looks like a key itself: secrets never stand in the file" + allowed
	case !isVariable(v):
		return "is no name of a variable" + allowed
	}
	return ""
}

func (l *loader) readRetryPolicy(s *section) dsh.RetryPolicy {
	def := dsh.DefaultRetryPolicy()
	var p dsh.RetryPolicy
	p.Mode = dsh.RetryMode(s.oneOf("mode", byDefault(string(def.Mode)), []string{string(dsh.ModeNormal), string(dsh.ModeAlways)}, nil))
	p.MaxRetries = s.integer("max_retries", byDefault(def.MaxRetries), 0, maxSafeInt)
	known := words(dsh.Codes())
	codes := s.texts("retryable_codes", byDefault(words(def.RetryableCodes)), func(v string) string { return choice(v, known, nil) })
	if n := s.get("retryable_codes"); n != nil && n.kind == arrayNode && len(n.array) == 0 {
		s.problem("retryable_codes", n, "is empty; allowed: one code at least (max_retries = 0 retries nothing)")
	}
	for _, c := range codes {
		p.RetryableCodes = append(p.RetryableCodes, dsh.Code(c))
	}
	b := s.child("backoff")
	delay := span{0, dsh.MaxDelayMs, true}
	p.InitialDelayMs = b.number("initial_delay_ms", byDefault(def.InitialDelayMs), delay)
	p.MaxDelayMs = b.number("max_delay_ms", byDefault(def.MaxDelayMs), delay)
	p.JitterRatio = b.number("jitter_ratio", byDefault(def.JitterRatio), span{0, 1, false})
	if p.InitialDelayMs > p.MaxDelayMs {
		b.problem("initial_delay_ms", b.either("initial_delay_ms", "max_delay_ms"), "%s is over max_delay_ms (%s); allowed: up to it", formatFloat(p.InitialDelayMs), formatFloat(p.MaxDelayMs))
	}
	b.close()
	s.close()
	return p
}

func words(codes []dsh.Code) []string {
	out := make([]string, len(codes))
	for i, c := range codes {
		out[i] = string(c)
	}
	return out
}

// checkAlways wants a ceiling that was set on purpose where retries have no
// count of their own.
func (l *loader) checkAlways(cfg *Config) {
	for _, s := range l.settings {
		if s.Key == "recovery.limits.max_attempts_per_step" && s.Origin.Kind != FromDefault {
			return
		}
	}
	for _, s := range l.settings {
		if strings.HasPrefix(s.Key, "providers.") && s.name == "mode" && s.Value == string(dsh.ModeAlways) {
			l.problem(s.Origin, s.Key, `"always" retries without a count: set recovery.limits.max_attempts_per_step on purpose; allowed: a number of attempts, or 0 for no ceiling`)
		}
	}
}

func (l *loader) readHeaders(s *section, p *Provider) {
	p.Headers = s.pairs("headers", headerFault, func(name, v string) string {
		switch {
		case secretHeader(name) || looksSecret(v):
			return "would put a secret in the file; allowed: its variable's name in headers_env"
		case !headerValue(v):
			return "holds characters that no header can carry"
		}
		return ""
	})
	named := s.pairs("headers_env", headerFault, func(_, v string) string {
		if v == "" {
			return "names no variable; allowed: the name of an environment variable"
		}
		return badVariable(v)
	})
	open := map[string]bool{}
	for name := range p.Headers {
		open[strings.ToLower(name)] = true
	}
	for name, variable := range named {
		if p.SecretHeaders == nil {
			p.SecretHeaders = map[string]Secret{}
		}
		p.SecretHeaders[name] = l.secret(variable)
		if open[strings.ToLower(name)] {
			s.problem("headers_env", s.get("headers_env").table[name], "%s stands in headers too; allowed: in one of them", shortQuote(name))
		}
		if p.APIKey.Variable != "" && slices.Contains(keyHeaders(p.Adapter), strings.ToLower(name)) {
			s.problem("headers_env", s.get("headers_env").table[name], "%s is what the key of api_key_env is sent in; allowed: one of them (api_key_env = \"\")", shortQuote(name))
		}
	}
}

// keyHeaders are the headers in which an adapter sends its key.
func keyHeaders(adapter string) []string {
	if adapter == "anthropic-messages" {
		return []string{"x-api-key", "authorization"}
	}
	return []string{"authorization"}
}

// pairs reads a table of texts, in which names differ by more than case.
func (s *section) pairs(key string, badName func(string) string, badValue func(name, value string) string) map[string]string {
	n := s.get(key)
	o := Origin{Kind: FromDefault}
	var out map[string]string
	if n != nil && n.kind != tableNode {
		s.l.problem(n.origin, s.path(key), "is no table; allowed: { NAME = \"…\" }")
	} else if n != nil {
		o, out = n.origin, map[string]string{}
		seen := map[string]bool{}
		for _, name := range n.order {
			fault := badName(name)
			v, ok := n.table[name].text()
			switch {
			case fault != "":
			case !ok:
				fault = "is no text; allowed: text in quotes"
			default:
				fault = badValue(name, v)
			}
			if low := strings.ToLower(name); seen[low] {
				fault = "stands there twice; names of headers do not differ by case"
			} else {
				seen[low] = true
			}
			if fault != "" {
				s.l.problem(n.table[name].origin, joinKey(s.path(key), name), fault)
				continue
			}
			out[name] = v
		}
	}
	s.record(key, copyOf(out), o)
	return out
}

func copyOf(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// headerFault says why a name cannot be that of a header of ours.
func headerFault(name string) string {
	if !isHeader(name) {
		return "is no name of a header; allowed: letters, digits and - (a token of RFC 9110)"
	}
	switch strings.ToLower(name) {
	case "host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "accept-encoding", "expect":
		return "is the connection's own; allowed: any other header"
	}
	return ""
}

func headerValue(v string) bool {
	for i := range len(v) {
		if c := v[i]; c < 0x20 && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// secretHeader reports whether a header is one that carries a credential.
func secretHeader(name string) bool {
	n := plain(name)
	switch n {
	case "authorization", "proxyauthorization", "cookie", "setcookie", "xapikey", "apikey", "xgoogapikey", "xauthtoken", "authtoken", "token", "ocpapimsubscriptionkey":
		return true
	}
	return strings.HasSuffix(n, "apikey") || strings.Contains(n, "authorization")
}

// maybeSecretHeader reports whether a header's name sounds like a secret's.
func maybeSecretHeader(name string) bool {
	n := plain(name)
	for _, w := range []string{"token", "secret", "password", "credential", "session", "key"} {
		if strings.Contains(n, w) {
			return true
		}
	}
	return false
}

// Provider gives a provider by its name: a key of [providers], or a preset. It
// fails, as Problems, for one that there is none of, and for one whose
// variables are not set: nothing could be sent to it.
func (c *Config) Provider(name string) (Provider, error) {
	p, err := c.ProviderAsWritten(name)
	if err != nil {
		return Provider{}, err
	}
	if ps := p.unset(); len(ps) > 0 {
		return Provider{}, ps
	}
	return p, nil
}

// ProviderAsWritten is Provider for who sends nothing: the variables that it
// needs may not be there.
func (c *Config) ProviderAsWritten(name string) (Provider, error) {
	p := c.providers[name]
	if p == nil {
		return Provider{}, Problems{{Message: fmt.Sprintf("no provider %s; allowed: %s", shortQuote(name), list(c.names))}}
	}
	return *p, nil
}

// unset names the variables that a provider needs and that are not there.
func (p *Provider) unset() Problems {
	var ps Problems
	key := joinKey("providers", p.Name)
	if fault := p.APIKey.fault(); fault != "" {
		ps = append(ps, Problem{p.origins["api_key_env"], key + ".api_key_env", fmt.Sprintf("the variable %s, which holds the key of %s, %s", p.APIKey.Variable, p.Name, fault)})
	}
	var names []string
	for name := range p.SecretHeaders {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if fault := p.SecretHeaders[name].fault(); fault != "" {
			ps = append(ps, Problem{p.origins["headers_env"], joinKey(key+".headers_env", name), fmt.Sprintf("the variable %s, which holds the header %s of %s, %s", p.SecretHeaders[name].Variable, name, p.Name, fault)})
		}
	}
	return ps
}

// Ready says, as Problems, what is missing for a turn: a provider, a model or
// a variable; nil if nothing is.
func (c *Config) Ready() error {
	if ps := c.missing(); len(ps) > 0 {
		return ps
	}
	return nil // and no Problems that are nil
}

func (c *Config) missing() Problems {
	if c.Agent.Provider == "" {
		if len(c.looked) == 0 {
			return Problems{{Key: "agent.provider", Message: "no provider is set; allowed: " + list(c.names)}}
		}
		return Problems{{Key: "agent.provider", Message: fmt.Sprintf("no provider is set, and no key that would choose one: none of the variables %s is set; set one of them, or agent.provider", strings.Join(c.looked, ", "))}}
	}
	var ps Problems
	if c.Agent.Model == "" {
		ps = append(ps, Problem{c.chosen, "agent.model", fmt.Sprintf("no model is set, and %s has no default; set agent.model, --model or DSH_MODEL", c.Agent.Provider)})
	}
	return append(ps, c.providers[c.Agent.Provider].unset()...)
}
