package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Keys are all keys that dsh.toml can hold, in the order of the documentation.
// NAME stands for a provider's name; "recovery.policy." is any one policy,
// "tools.wasm." and "tools.mcp." any one tool or server.
func Keys() []string {
	return strings.Fields(`
		agent.provider agent.model agent.max_steps agent.system agent.max_output_tokens
		providers.NAME.adapter providers.NAME.base_url providers.NAME.script providers.NAME.api_key_env
		providers.NAME.headers providers.NAME.headers_env providers.NAME.allow_insecure_http
		providers.NAME.stream_idle_timeout_ms providers.NAME.keepalive_timeout_ms providers.NAME.context_window
		providers.NAME.retry_policy.mode providers.NAME.retry_policy.max_retries providers.NAME.retry_policy.retryable_codes
		providers.NAME.retry_policy.backoff.initial_delay_ms providers.NAME.retry_policy.backoff.max_delay_ms
		providers.NAME.retry_policy.backoff.jitter_ratio
		recovery.dir recovery.engine recovery.require_signature recovery.keys
		recovery.limits.max_attempts_per_step recovery.limits.max_wait_per_turn_ms
		recovery.limits.max_resent_tokens_per_turn recovery.limits.min_delay_ms
		recovery.policy.name recovery.policy.module recovery.policy.sha256 recovery.policy.capabilities
		recovery.policy.on_fault recovery.policy.isolation recovery.policy.config
		recovery.policy.limits.memory_mb recovery.policy.limits.host_calls
		compaction.threshold_ratio compaction.retain_ratio compaction.summary_max_tokens
		tools.allow tools.offer tools.shell.timeout_ms tools.shell.max_timeout_ms tools.shell.env
		tools.wasm.name tools.wasm.module tools.wasm.sha256 tools.wasm.function tools.wasm.description tools.wasm.parameters
		tools.wasm.allowed_hosts tools.wasm.read tools.wasm.write tools.wasm.config tools.wasm.memory_mb tools.wasm.timeout_ms
		tools.mcp.name tools.mcp.command tools.mcp.args tools.mcp.env
		tools.mcp.url tools.mcp.headers tools.mcp.headers_env tools.mcp.start_timeout_ms tools.mcp.call_timeout_ms
		store.backend store.dir store.redact store.key_env store.key_file`)
}

// unknown says what is likely meant by a key that there is none of.
func (s *section) unknown(key string) string {
	what := "unknown key"
	if s.node.table[key].kind == tableNode {
		what = "unknown table"
	}
	switch near := nearest(key, s.known); {
	case secretName(key):
		what += `: secrets never stand in the file; a provider's api_key_env and headers_env name variables`
	case near != "":
		what += fmt.Sprintf(" (did you mean %q?)", near)
	default:
		if home := s.home(key); home != "" {
			what += ": it belongs under " + home
		}
	}
	known := slices.Clone(s.known)
	return what + "; allowed: " + strings.Join(known, ", ")
}

func secretName(key string) bool {
	k := plain(key)
	return slices.Contains([]string{"apikey", "key", "token", "secret", "password", "apitoken", "authorization", "auth"}, k)
}

// home is the table in which a key would be known, if there is one.
func (s *section) home(key string) string {
	provider := "NAME"
	if parts := strings.Split(s.key, "."); parts[0] == "providers" && len(parts) > 1 {
		provider = parts[1]
	}
	for _, k := range Keys() {
		i := strings.LastIndexByte(k, '.')
		table := k[:i]
		if plain(k[i+1:]) != plain(key) {
			// The key may be a table that stands elsewhere.
			if j := strings.LastIndexByte(table, '.'); j >= 0 && plain(table[j+1:]) == plain(key) {
				return "[" + strings.Replace(table, "NAME", provider, 1) + "]"
			}
			continue
		}
		if slices.Contains([]string{"recovery.policy", "tools.wasm", "tools.mcp"}, table) {
			return "[[" + table + "]]"
		}
		return "[" + strings.Replace(table, "NAME", provider, 1) + "]"
	}
	return ""
}

// plain is a key without what people spell differently: case, - and _.
func plain(key string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
}

// nearest is the word that differs least, if it differs little, or the only
// one that word is a part of.
func nearest(word string, words []string) string {
	if len(word) > 64 {
		return ""
	}
	best, least := "", 1+max(1, utf8.RuneCountInString(word)/4)
	if part := plain(word); len(part) >= 5 {
		whole := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.Contains(plain(w), part) })
		if len(whole) == 1 {
			return whole[0]
		}
	}
	for _, w := range words {
		if d := distance(plain(word), plain(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that lead from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := make([][]int, len(x)+1)
	for i := range rows {
		rows[i] = make([]int, len(y)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(x)][len(y)]
}

// shortQuote quotes a value for a message, cut where it is long. What may be a
// secret is not repeated.
func shortQuote(s string) string {
	const most = 60
	if looksSecret(s) {
		return "(something that looks like a secret)"
	}
	if utf8.RuneCountInString(s) > most {
		return strconv.Quote(string([]rune(s)[:most])) + "…"
	}
	return strconv.Quote(s)
}
