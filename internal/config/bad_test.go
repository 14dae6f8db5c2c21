package config_test

import (
	"slices"
	"strings"
	"testing"
)

type badCase struct {
	name, text string
	want       []string // each after the file's name
}

func badCases() []badCase {
	const p = "[agent]\nprovider = \"p\"\nmodel = \"m\"\n[providers.p]\nbase_url = \"http://127.0.0.1:1/v1\"\n"
	return []badCase{
		{"unknown key", "[agent]\nprovder = \"x\"\n", []string{
			`2:1: agent.provder: unknown key (did you mean "provider"?); allowed: provider, model, max_steps, system, max_output_tokens`,
		}},
		{"unknown key in camel case", p + "[providers.p.retry_policy]\nmaxRetries = 1\n", []string{
			`7:1: providers.p.retry_policy.maxRetries: unknown key (did you mean "max_retries"?); allowed: mode, max_retries, retryable_codes, backoff`,
		}},
		{"unknown key that is far from all", "[agent]\nfoo = 1\n", []string{
			`2:1: agent.foo: unknown key; allowed: provider, model, max_steps, system, max_output_tokens`,
		}},
		{"unknown table", "[agents]\nmodel = \"m\"\n", []string{
			`1:2: agents: unknown table (did you mean "agent"?); allowed: agent, providers, recovery, compaction, tools, store`,
		}},
		{"unknown key at the top", "model = \"m\"\n", []string{
			`1:1: model: unknown key: it belongs under [agent]; allowed: agent, providers, recovery, compaction, tools, store`,
		}},
		{"a key of another table", p + "max_retries = 3\n", []string{
			`6:1: providers.p.max_retries: unknown key: it belongs under [providers.p.retry_policy]; allowed: adapter, base_url, script, api_key_env, headers, headers_env, allow_insecure_http, stream_idle_timeout_ms, keepalive_timeout_ms, context_window, retry_policy`,
		}},
		{"a table in the wrong place", p + "[retry_policy]\nmode = \"normal\"\n", []string{
			`6:2: retry_policy: unknown table: it belongs under [providers.NAME.retry_policy]; allowed: agent, providers, recovery, compaction, tools, store`,
		}},
		{"a backoff key one level too high", p + "[providers.p.retry_policy]\ninitial_delay_ms = 5\n", []string{
			`7:1: providers.p.retry_policy.initial_delay_ms: unknown key: it belongs under [providers.p.retry_policy.backoff]; allowed: mode, max_retries, retryable_codes, backoff`,
		}},
		{"unknown key in an inline table", p + "[providers.p.retry_policy]\nbackoff = { initial_delay_ms = 5,\n  jitter = 0.1 }\n", []string{
			`8:3: providers.p.retry_policy.backoff.jitter: unknown key (did you mean "jitter_ratio"?); allowed: initial_delay_ms, max_delay_ms, jitter_ratio`,
		}},
		{"unknown key in an array of tables", "[[recovery.policy]]\nname = \"a\"\nmodule = \"builtin:retry\"\n\n[[recovery.policy]]\nname = \"b\"\nmodule = \"builtin:retry\"\nonfault = \"fail\"\n", []string{
			`8:1: recovery.policy.b.onfault: unknown key (did you mean "on_fault"?); allowed: name, module, sha256, capabilities, on_fault, isolation, config, limits`,
		}},
		{"unknown dotted key", "agent.max_step = 4\n", []string{
			`1:7: agent.max_step: unknown key (did you mean "max_steps"?); allowed: provider, model, max_steps, system, max_output_tokens`,
		}},
		{"unknown quoted key", "[agent]\n\"max steps\\u0000\" = 4\n", []string{
			`2:1: agent."max steps\x00": unknown key (did you mean "max_steps"?); allowed: provider, model, max_steps, system, max_output_tokens`,
		}},
		{"a secret in the file", p + "api_key = \"sk-canary-77aa\"\n", []string{
			`6:1: providers.p.api_key: unknown key: secrets never stand in the file; a provider's api_key_env and headers_env name variables; allowed: adapter, base_url, script, api_key_env, headers, headers_env, allow_insecure_http, stream_idle_timeout_ms, keepalive_timeout_ms, context_window, retry_policy`,
		}},
		{"text for a number", "[agent]\nmax_steps = \"many\"\n", []string{
			`2:1: agent.max_steps: "many" is text; allowed: a whole number from 1 to 2147483647`,
		}},
		{"a point in a whole number", "[agent]\nmax_steps = 10.0\n", []string{
			`2:1: agent.max_steps: 10 is a number with a point; allowed: a whole number from 1 to 2147483647`,
		}},
		{"zero steps", "[agent]\nmax_steps = 0\n", []string{
			`2:1: agent.max_steps: 0 is out of range; allowed: a whole number from 1 to 2147483647`,
		}},
		{"a huge number", "[agent]\nmax_steps = 99999999999\n", []string{
			`2:1: agent.max_steps: 99999999999 is out of range; allowed: a whole number from 1 to 2147483647`,
		}},
		{"a number for text", "[agent]\nmodel = 4\n", []string{
			`2:1: agent.model: 4 is a whole number; allowed: text in quotes`,
		}},
		{"a table for text", "[agent]\nmodel = { name = \"x\" }\n", []string{
			`2:1: agent.model: is a table; allowed: text in quotes`,
		}},
		{"text for a table", "agent = \"x\"\n", []string{
			`1:1: agent: "x" is text; allowed: a table`,
		}},
		{"an array for a table", "[[agent]]\nmodel = \"m\"\n", []string{
			`1:3: agent: is an array; allowed: a table`,
		}},
		{"a date", "[agent]\nmax_steps = 2024-01-01\n", []string{
			`2:1: agent.max_steps: is a date or time; allowed: a whole number from 1 to 2147483647`,
		}},
		{"an empty model", "[agent]\nmodel = \" \"\n", []string{
			`2:1: agent.model: " " is no name of a model; allowed: a name as the provider writes it`,
		}},
		{"negative output", "[agent]\nmax_output_tokens = -1\n", []string{
			`2:1: agent.max_output_tokens: -1 is out of range; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"no such provider", "[agent]\nprovider = \"nowhere\"\n", []string{
			`2:1: agent.provider: "nowhere" names no provider; allowed: a key of [providers], or a preset: "deepseek", "openai", "openrouter", "ollama"`,
		}},
		{"a provider misspelt", "[agent]\nprovider = \"depseek\"\n", []string{
			`2:1: agent.provider: "depseek" names no provider (did you mean "deepseek"?); allowed: a key of [providers], or a preset: "deepseek", "openai", "openrouter", "ollama"`,
		}},
		{"an adapter to come", "[agent]\nprovider = \"anthropic\"\n", []string{
			`2:1: agent.provider: "anthropic" is not yet supported, since its adapter "anthropic-messages" is not; allowed: a key of [providers], or a preset: "deepseek", "openai", "openrouter", "ollama"`,
		}},
		{"an adapter to come, by its preset", "[providers.anthropic]\nheaders = {}\n", []string{
			`1:12: providers.anthropic.adapter: the preset's "anthropic-messages" is not yet supported; allowed: "openai-chat"`,
		}},
		{"an adapter to come, by name", p + "adapter = \"anthropic-messages\"\n", []string{
			`6:1: providers.p.adapter: "anthropic-messages" is not yet supported; allowed: "openai-chat"`,
		}},
		{"no such adapter", p + "adapter = \"openai\"\n", []string{
			`6:1: providers.p.adapter: "openai" is not known (did you mean "openai-chat"?); allowed: "openai-chat"`,
		}},
		{"no base URL", "[providers.p]\napi_key_env = \"K\"\n", []string{
			`1:12: providers.p.base_url: is missing; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"providers is no table", "providers = 3\n", []string{
			`1:1: providers: 3 is a whole number; allowed: a table`,
		}},
		{"a provider is no table", "[providers]\np = \"x\"\n", []string{
			`2:1: providers.p: "x" is text; allowed: a table`,
		}},
		{"a bad provider name", "[providers.\"a b\"]\nbase_url = \"http://x\"\n", []string{
			`1:12: providers."a b": is no name of a provider; allowed: letters, digits, _, - and ., up to 64, the first a letter or a digit`,
		}},
		{"a relative URL", "[providers.p]\nbase_url = \"api.example.com/v1\"\n", []string{
			`2:1: providers.p.base_url: "api.example.com/v1" is no absolute http or https URL; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"another scheme", "[providers.p]\nbase_url = \"ftp://example.com\"\n", []string{
			`2:1: providers.p.base_url: "ftp://example.com" is no absolute http or https URL; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"a URL without a host", "[providers.p]\nbase_url = \"https:///v1\"\n", []string{
			`2:1: providers.p.base_url: "https:///v1" names no host; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"a password in the URL", "[providers.p]\nbase_url = \"https://u:sk-canary-77aa@example.com\"\n", []string{
			`2:1: providers.p.base_url: holds a user name or a password; allowed: http(s)://HOST[:PORT][/PATH], and the key in the variable of api_key_env`,
		}},
		{"a query in the URL", "[providers.p]\nbase_url = \"https://example.com/?key=sk-canary-77aa\"\n", []string{
			`2:1: providers.p.base_url: holds a query or a fragment; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"a bad port", "[providers.p]\nbase_url = \"https://example.com:99999\"\n", []string{
			`2:1: providers.p.base_url: "https://example.com:99999" has a port out of range; allowed: 1 to 65535`,
		}},
		{"a space in the URL", "[providers.p]\nbase_url = \"https://exa mple.com\"\n", []string{
			`2:1: providers.p.base_url: is no URL; allowed: http(s)://HOST[:PORT][/PATH]`,
		}},
		{"a key over plain http", "[providers.p]\nbase_url = \"http://example.com/v1\"\napi_key_env = \"K\"\n", []string{
			`2:1: providers.p.base_url: would send a key over plain http to another machine; allowed: https, a loopback address, api_key_env = "", or allow_insecure_http = true`,
		}},
		{"a secret header over plain http", "[providers.p]\nbase_url = \"http://10.0.0.1/v1\"\nheaders_env = { X-Auth = \"K\" }\n", []string{
			`2:1: providers.p.base_url: would send a key over plain http to another machine; allowed: https, a loopback address, api_key_env = "", or allow_insecure_http = true`,
		}},
		{"a preset turned to plain http", "[providers.deepseek]\nbase_url = \"http://example.com\"\n", []string{
			`2:1: providers.deepseek.base_url: would send a key over plain http to another machine; allowed: https, a loopback address, api_key_env = "", or allow_insecure_http = true`,
		}},
		{"a key for a variable", p + "api_key_env = \"sk-canary-77aa\"\n", []string{
			`6:1: providers.p.api_key_env: holds what looks like a key itself: secrets never stand in the file; allowed: the name of an environment variable (letters, digits and _), or ""`,
		}},
		{"no name of a variable", p + "api_key_env = \"MY KEY\"\n", []string{
			`6:1: providers.p.api_key_env: is no name of a variable; allowed: the name of an environment variable (letters, digits and _), or ""`,
		}},
		{"headers are no table", p + "headers = \"Bearer sk-canary-77aa\"\n", []string{
			`6:1: providers.p.headers: is no table; allowed: { NAME = "…" }`,
		}},
		{"a header name", p + "headers = { \"a b\" = \"x\" }\n", []string{
			`6:13: providers.p.headers."a b": is no name of a header; allowed: letters, digits and - (a token of RFC 9110)`,
		}},
		{"a header of the connection", p + "headers = { Host = \"x\" }\n", []string{
			`6:13: providers.p.headers.Host: is the connection's own; allowed: any other header`,
		}},
		{"a header value", p + "headers = { X-A = \"a\\nb\" }\n", []string{
			`6:13: providers.p.headers.X-A: holds characters that no header can carry`,
		}},
		{"a header that is no text", p + "headers = { X-A = 1 }\n", []string{
			`6:13: providers.p.headers.X-A: is no text; allowed: text in quotes`,
		}},
		{"a header twice", p + "[providers.p.headers]\nX-A = \"1\"\nx-a = \"2\"\n", []string{
			`8:1: providers.p.headers.x-a: stands there twice; names of headers do not differ by case`,
		}},
		{"a header in both", p + "headers = { X-A = \"1\" }\nheaders_env = { x-a = \"V\" }\n", []string{
			`7:17: providers.p.headers_env: "x-a" stands in headers too; allowed: in one of them`,
		}},
		{"an authorization in the file", p + "headers = { Authorization = \"Bearer sk-canary-77aa\" }\n", []string{
			`6:13: providers.p.headers.Authorization: would put a secret in the file; allowed: its variable's name in headers_env`,
		}},
		{"a secret under another header", p + "headers = { X-Custom = \"sk-canary-77aa\" }\n", []string{
			`6:13: providers.p.headers.X-Custom: would put a secret in the file; allowed: its variable's name in headers_env`,
		}},
		{"two authorizations", p + "api_key_env = \"K\"\nheaders_env = { Authorization = \"V\" }\n", []string{
			`7:17: providers.p.headers_env: "Authorization" is what the key of api_key_env is sent in; allowed: one of them (api_key_env = "")`,
		}},
		{"headers_env without a name", p + "headers_env = { X-A = \"\" }\n", []string{
			`6:17: providers.p.headers_env.X-A: names no variable; allowed: the name of an environment variable`,
		}},
		{"text for true", p + "allow_insecure_http = \"yes\"\n", []string{
			`6:1: providers.p.allow_insecure_http: "yes" is text; allowed: true or false`,
		}},
		{"idle timeout zero", p + "stream_idle_timeout_ms = 0\n", []string{
			`6:1: providers.p.stream_idle_timeout_ms: 0 is out of range; allowed: a number over 0 and up to 9223372036854`,
		}},
		{"idle timeout infinite", p + "stream_idle_timeout_ms = inf\n", []string{
			`6:1: providers.p.stream_idle_timeout_ms: +Inf is out of range; allowed: a number over 0 and up to 9223372036854`,
		}},
		{"keepalive nan", p + "keepalive_timeout_ms = nan\n", []string{
			`6:1: providers.p.keepalive_timeout_ms: NaN is out of range; allowed: a number over 0 and up to 9223372036854`,
		}},
		{"keepalive over all clocks", p + "keepalive_timeout_ms = 1e300\n", []string{
			`6:1: providers.p.keepalive_timeout_ms: 1e+300 is out of range; allowed: a number over 0 and up to 9223372036854`,
		}},
		{"negative window", p + "context_window = -1\n", []string{
			`6:1: providers.p.context_window: -1 is out of range; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"mode", p + "[providers.p.retry_policy]\nmode = \"sometimes\"\n", []string{
			`7:1: providers.p.retry_policy.mode: "sometimes" is not known; allowed: "normal", "always"`,
		}},
		{"negative retries", p + "[providers.p.retry_policy]\nmax_retries = -1\n", []string{
			`7:1: providers.p.retry_policy.max_retries: -1 is out of range; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"half retries", p + "[providers.p.retry_policy]\nmax_retries = 1.5\n", []string{
			`7:1: providers.p.retry_policy.max_retries: 1.5 is a number with a point; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"too many retries", p + "[providers.p.retry_policy]\nmax_retries = 9007199254740992\n", []string{
			`7:1: providers.p.retry_policy.max_retries: 9007199254740992 is out of range; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"no codes", p + "[providers.p.retry_policy]\nretryable_codes = []\n", []string{
			`7:1: providers.p.retry_policy.retryable_codes: is empty; allowed: one code at least (max_retries = 0 retries nothing)`,
		}},
		{"a code twice", p + "[providers.p.retry_policy]\nretryable_codes = [\"SERVER\",\n  \"TIMEOUT\",\n  \"SERVER\"]\n", []string{
			`9:3: providers.p.retry_policy.retryable_codes: "SERVER" stands there twice; allowed: no duplicates`,
		}},
		{"an unknown code", p + "[providers.p.retry_policy]\nretryable_codes = [\"SERVR\"]\n", []string{
			`7:20: providers.p.retry_policy.retryable_codes: "SERVR" is not known (did you mean "SERVER"?); allowed: "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "EMPTY_RESPONSE", "CONTEXT_WINDOW_EXCEEDED", "AUTH", "QUOTA", "INVALID_REQUEST", "CONTENT_FILTER", "PROTOCOL", "ABORTED", "UNKNOWN"`,
		}},
		{"a code that is no text", p + "[providers.p.retry_policy]\nretryable_codes = [429]\n", []string{
			`7:20: providers.p.retry_policy.retryable_codes: 429 is a whole number; allowed: text in quotes`,
		}},
		{"codes are no array", p + "[providers.p.retry_policy]\nretryable_codes = \"SERVER\"\n", []string{
			`7:1: providers.p.retry_policy.retryable_codes: "SERVER" is text; allowed: an array of texts`,
		}},
		{"initial over max", p + "[providers.p.retry_policy.backoff]\ninitial_delay_ms = 20\nmax_delay_ms = 10\n", []string{
			`7:1: providers.p.retry_policy.backoff.initial_delay_ms: 20 is over max_delay_ms (10); allowed: up to it`,
		}},
		{"max under the default initial", p + "[providers.p.retry_policy.backoff]\nmax_delay_ms = 10\n", []string{
			`7:1: providers.p.retry_policy.backoff.initial_delay_ms: 500 is over max_delay_ms (10); allowed: up to it`,
		}},
		{"initial zero", p + "[providers.p.retry_policy.backoff]\ninitial_delay_ms = 0\n", []string{
			`7:1: providers.p.retry_policy.backoff.initial_delay_ms: 0 is out of range; allowed: a number over 0 and up to 2147483647`,
		}},
		{"max too large", p + "[providers.p.retry_policy.backoff]\nmax_delay_ms = 2147483648\n", []string{
			`7:1: providers.p.retry_policy.backoff.max_delay_ms: 2147483648 is out of range; allowed: a number over 0 and up to 2147483647`,
		}},
		{"jitter", p + "[providers.p.retry_policy.backoff]\njitter_ratio = 1.1\n", []string{
			`7:1: providers.p.retry_policy.backoff.jitter_ratio: 1.1 is out of range; allowed: a number from 0 to 1`,
		}},
		{"negative jitter inline", p + "retry_policy = { backoff = { jitter_ratio = -0.1 } }\n", []string{
			`6:30: providers.p.retry_policy.backoff.jitter_ratio: -0.1 is out of range; allowed: a number from 0 to 1`,
		}},
		{"always without a ceiling", p + "[providers.p.retry_policy]\nmode = \"always\"\n", []string{
			`7:1: providers.p.retry_policy.mode: "always" retries without a count: set recovery.limits.max_attempts_per_step on purpose; allowed: a number of attempts, or 0 for no ceiling`,
		}},
		{"always, by default ceiling of an empty table", p + "retry_policy.mode = \"always\"\n[recovery.limits]\nmin_delay_ms = 1\n", []string{
			`6:14: providers.p.retry_policy.mode: "always" retries without a count: set recovery.limits.max_attempts_per_step on purpose; allowed: a number of attempts, or 0 for no ceiling`,
		}},
		{"an engine to come", "[recovery]\nengine = \"native\"\n", []string{
			`2:1: recovery.engine: "native" is not yet supported; allowed: "extism"`,
		}},
		{"no such engine", "[recovery]\nengine = \"wasmtime\"\n", []string{
			`2:1: recovery.engine: "wasmtime" is not known; allowed: "extism"`,
		}},
		{"signatures", "[recovery]\nrequire_signature = true\n", []string{
			`2:1: recovery.require_signature: true is not yet supported: no signature is checked; allowed: false (sha256 pins a module)`,
		}},
		{"keys", "[recovery]\nkeys = [\"RWQ\"]\n", []string{
			`2:1: recovery.keys: signatures are not yet supported; allowed: no keys (sha256 pins a module)`,
		}},
		{"no policies folder", "[recovery]\ndir = \"\"\n", []string{
			`2:1: recovery.dir: is no folder; allowed: a path, relative to the data folder`,
		}},
		{"attempts", "[recovery.limits]\nmax_attempts_per_step = -1\n", []string{
			`2:1: recovery.limits.max_attempts_per_step: -1 is out of range; allowed: a whole number from 0 to 2147483647`,
		}},
		{"wait", "[recovery.limits]\nmax_wait_per_turn_ms = -0.5\n", []string{
			`2:1: recovery.limits.max_wait_per_turn_ms: -0.5 is out of range; allowed: a number from 0 to 9223372036854`,
		}},
		{"tokens", "[recovery.limits]\nmax_resent_tokens_per_turn = 1.5\n", []string{
			`2:1: recovery.limits.max_resent_tokens_per_turn: 1.5 is a number with a point; allowed: a whole number from 0 to 2^53-1`,
		}},
		{"least delay", "[recovery.limits]\nmin_delay_ms = 2147483648\n", []string{
			`2:1: recovery.limits.min_delay_ms: 2147483648 is out of range; allowed: a number from 0 to 2147483647`,
		}},
		{"policy is a table", "[recovery.policy]\nname = \"retry\"\n", []string{
			`1:11: recovery.policy: is a table; allowed: [[recovery.policy]] tables, or policy = [] for none`,
		}},
		{"policy is text", "[recovery]\npolicy = [\"retry\"]\n", []string{
			`2:11: recovery.policy: "retry" is text; allowed: a table with name and module`,
		}},
		{"a policy without anything", "[[recovery.policy]]\n", []string{
			`1:12: recovery.policy[0].name: is missing; allowed: a-z, 0-9, _, - and ., up to 64, the first a letter or a digit`,
			`1:12: recovery.policy[0].module: is missing; allowed: builtin:retry, a path`,
		}},
		{"a policy name", "[[recovery.policy]]\nname = \"../x\"\nmodule = \"builtin:retry\"\n", []string{
			`2:1: recovery.policy[0].name: "../x" is no name of a policy; allowed: a-z, 0-9, _, - and ., up to 64, the first a letter or a digit`,
		}},
		{"a policy name twice", "[[recovery.policy]]\nname = \"r\"\nmodule = \"builtin:retry\"\n[[recovery.policy]]\nname = \"r\"\nmodule = \"builtin:retry\"\n", []string{
			`5:1: recovery.policy.r.name: "r" stands there twice; allowed: a name of its own for each policy`,
		}},
		{"a built-in to come", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:compaction\"\n", []string{
			`3:1: recovery.policy.c.module: "builtin:compaction" is not yet supported; allowed: "builtin:retry"`,
		}},
		{"no such built-in", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:rety\"\n", []string{
			`3:1: recovery.policy.c.module: "builtin:rety" is not known (did you mean "builtin:retry"?); allowed: "builtin:retry"`,
		}},
		{"a registry", "[[recovery.policy]]\nname = \"c\"\nmodule = \"oci://example.com/p@sha256:00\"\n", []string{
			`3:1: recovery.policy.c.module: "oci://example.com/p@sha256:00": modules of a registry are not yet supported; allowed: builtin:retry, a path`,
		}},
		{"a URL for a module", "[[recovery.policy]]\nname = \"c\"\nmodule = \"https://example.com/p.wasm\"\n", []string{
			`3:1: recovery.policy.c.module: "https://example.com/p.wasm" is no form of a module; allowed: builtin:retry, a path`,
		}},
		{"no such file", "[[recovery.policy]]\nname = \"c\"\nmodule = \"nowhere.wasm\"\n", []string{
			`3:1: recovery.policy.c.module: "conf/nowhere.wasm" cannot be read: no such file or directory; allowed: builtin:retry, a path`,
		}},
		{"a folder for a module", "[[recovery.policy]]\nname = \"c\"\nmodule = \".\"\n", []string{
			`3:1: recovery.policy.c.module: "conf" is no file; allowed: builtin:retry, a path`,
		}},
		{"a digest", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:retry\"\nsha256 = \"00\"\n", []string{
			`4:1: recovery.policy.c.sha256: "00" is no sha256; allowed: 64 hex digits`,
		}},
		{"a grant to come", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:retry\"\ncapabilities = [\"log.read\"]\n", []string{
			`4:17: recovery.policy.c.capabilities: "log.read" is not yet supported; allowed: nothing yet`,
		}},
		{"on_fault", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:retry\"\non_fault = \"retry\"\n", []string{
			`4:1: recovery.policy.c.on_fault: "retry" is not known; allowed: "delegate", "fail"`,
		}},
		{"isolation to come", "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:retry\"\nisolation = \"process\"\n", []string{
			`4:1: recovery.policy.c.isolation: "process" is not yet supported; allowed: "in-process"`,
		}},
		{"a retry policy on the guest", p + "[[recovery.policy]]\nname = \"retry\"\nmodule = \"builtin:retry\"\n[recovery.policy.config.retry_policy]\nmode = \"normal\"\n", []string{
			`9:25: recovery.policy.retry.config.retry_policy: the built-in retry takes no config; settings of retries belong under each provider: [providers.NAME.retry_policy]`,
		}},
		{"a setting on the guest", "[[recovery.policy]]\nname = \"retry\"\nmodule = \"builtin:retry\"\nconfig = { retryPolciy = 1 }\n", []string{
			`4:12: recovery.policy.retry.config.retryPolciy: unknown key retryPolciy (did you mean "retry_policy"?): the built-in retry takes no config; settings of retries belong under each provider: [providers.NAME.retry_policy]`,
		}},
		{"config is no table", "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\nconfig = 3\n", []string{
			`4:1: recovery.policy.x.config: 3 is a whole number; allowed: a table`,
		}},
		{"config without a form in JSON", "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\n[recovery.policy.config]\na = { b = [1.0, nan] }\n", []string{
			`5:17: recovery.policy.x.config.a.b: NaN has no form in JSON; allowed: finite numbers`,
		}},
		{"memory", "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\nlimits = { memory_mb = 0, host_calls = 65 }\n", []string{
			`4:12: recovery.policy.x.limits.memory_mb: 0 is out of range; allowed: a whole number from 1 to 1024`,
			`4:27: recovery.policy.x.limits.host_calls: 65 is out of range; allowed: a whole number from 1 to 64`,
		}},
		{"compaction", "[compaction]\nthreshold_ratio = 0.5\n", []string{
			`1:2: compaction: compaction is not yet supported: an overflow of the context is final; remove the table`,
		}},
		{"a tool to come", "[tools]\nallow = [\"read\", \"shell\"]\n", []string{
			`2:18: tools.allow: "shell" is not yet supported; allowed: "read", "list", "search"`,
		}},
		{"no such tool", "[tools]\nallow = [\"raed\"]\n", []string{
			`2:10: tools.allow: "raed" is not known (did you mean "read"?); allowed: "read", "list", "search"`,
		}},
		{"tools that are no array", "[tools]\nallow = \"read\"\n", []string{
			`2:1: tools.allow: "read" is text; allowed: an array of texts`,
		}},
		{"Wasm tools", "[[tools.wasm]]\nname = \"x\"\n", []string{
			`1:9: tools.wasm: [[tools.wasm]] is not yet supported; allowed today: the built-in tools in tools.allow: "read", "list", "search"`,
		}},
		{"MCP tools", "[tools]\nallow = []\n[[tools.mcp]]\nname = \"x\"\n", []string{
			`3:9: tools.mcp: [[tools.mcp]] is not yet supported; allowed today: the built-in tools in tools.allow: "read", "list", "search"`,
		}},
		{"a backend", "[store]\nbackend = \"postgres\"\n", []string{
			`2:1: store.backend: "postgres" is not known; allowed: "badger", "memory"`,
		}},
		{"patterns", "[store]\nredact = [\"good\", \"(\", \"x*\"]\n", []string{
			`2:19: store.redact: "(" is no regular expression (missing closing )); allowed: RE2`,
			`2:24: store.redact: "x*" matches the empty text; allowed: what does not`,
		}},
		{"two keys", "[store]\nkey_env = \"K\"\nkey_file = \"k\"\n", []string{
			`3:1: store.key_file: key_env names a key already; allowed: one of the two`,
		}},
		{"all at once", "[agent]\nmax_steps = 0\nmodell = \"m\"\n[providers.p]\nbase_url = 3\nstream_idle_timeout_ms = -1\n[recovery.limits]\nmin_delay_ms = \"x\"\n[tools]\nallow = [1]\n", []string{
			`2:1: agent.max_steps: 0 is out of range; allowed: a whole number from 1 to 2147483647`,
			`3:1: agent.modell: unknown key (did you mean "model"?); allowed: provider, model, max_steps, system, max_output_tokens`,
			`5:1: providers.p.base_url: 3 is a whole number; allowed: text in quotes`,
			`6:1: providers.p.stream_idle_timeout_ms: -1 is out of range; allowed: a number over 0 and up to 9223372036854`,
			`8:1: recovery.limits.min_delay_ms: "x" is text; allowed: a number from 0 to 2147483647`,
			`10:10: tools.allow: 1 is a whole number; allowed: text in quotes`,
		}},
		{"syntax", "[agent\n", []string{
			`1:7: syntax: line 1: expected '.' or ']' to end table name, but got '\n' instead`,
		}},
		{"syntax: a bare word", "[agent]\nmodel = deepseek-chat\n", []string{
			`2:9: syntax: line 2: expected a value; text needs quotes around it (the last key before it is agent.model)`,
		}},
		{"syntax: a pasted key", "[providers.p]\napi_key_env = skcanary77aa\n", []string{
			`2:15: syntax: line 2: expected a value; text needs quotes around it (the last key before it is providers.p.api_key_env)`,
		}},
		{"syntax: a key twice", "[agent]\nmodel = \"a\"\nsystem = \"x\"\nmodel = \"b\"\n", []string{
			`4:14: syntax: line 4: Key 'agent.model' has already been defined (the last key before it is agent.model)`,
		}},
		{"syntax: no value", "[agent]\nmodel =\n", []string{
			`2:8: syntax: line 2: expected value but found '\n' instead (the last key before it is agent.model)`,
		}},
		{"syntax: an open text", "[agent]\nmodel = \"a\nsystem = \"\"\n", []string{
			`2:11: syntax: line 2: strings cannot contain newlines (the last key before it is agent.model)`,
		}},
		{"syntax: an open array", "[tools]\nallow = [\"read\",\n", []string{
			`2:17: syntax: line 2: unexpected EOF; expected value (the last key before it is tools.allow)`,
		}},
		{"syntax: a table over a value", "[agent]\nmodel = \"m\"\n[agent.model]\nx = 1\n", []string{
			`3:2: syntax: line 3: Key 'agent.model' has already been defined (the last key before it is agent)`,
		}},
		{"a byte that is no UTF-8", "[agent]\nmodel = \"a\"\n# \xff\n", []string{
			`3: line 3 is not valid UTF-8`,
		}},
		{"too deep", "[agent]\nmodel = " + strings.Repeat("[", 200) + strings.Repeat("]", 200), []string{
			`2:42: syntax: line 2, column 42: values nested more than 32 deep`,
		}},
		{"too many parts", strings.Repeat("a.", 200) + "a = 1", []string{
			`1:65: syntax: line 1, column 65: a key of more than 32 parts`,
		}},
	}
}

// TestBad holds every way in which a file can be wrong to the exact lines that
// are said of it.
func TestBad(t *testing.T) {
	for _, c := range badCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t).named(c.text)
			w.write("conf/ok.wasm", "")
			got := w.problems()
			for i := range c.want {
				c.want[i] = "conf/dsh.toml:" + c.want[i]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
