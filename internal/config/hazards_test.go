package config_test

import (
	"slices"
	"strings"
	"testing"
)

type hazardCase struct {
	name, text string
	sets, want []string
}

func hazardCases() []hazardCase {
	const p = "[agent]\nprovider = \"p\"\nmodel = \"m\"\n[providers.p]\nbase_url = \"https://h/v1\"\n"
	const retry = "[[recovery.policy]]\nname = \"retry\"\nmodule = \"builtin:retry\"\n"
	return []hazardCase{
		{"nothing", p, nil, nil},
		{"unbounded", p + "retry_policy.mode = \"always\"\n[recovery.limits]\nmax_attempts_per_step = 0\n", nil, []string{
			`6:14: providers.p.retry_policy.mode: "always" without a ceiling is unbounded: recovery.limits.max_attempts_per_step is 0`,
			`8:1: recovery.limits.max_attempts_per_step: 0 is no ceiling: a policy may retry unbounded`}},
		{"unbounded in effect", p + "retry_policy.max_retries = 9007199254740991\n[recovery.limits]\nmax_attempts_per_step = 0\n" + retry + "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\n", nil, []string{
			`6:14: providers.p.retry_policy.max_retries: 9007199254740991 without a ceiling is unbounded in effect: recovery.limits.max_attempts_per_step is 0`,
			`8:1: recovery.limits.max_attempts_per_step: 0 is no ceiling: a policy may retry unbounded`,
			`12:12: recovery.policy.x: is never reached for the retryable codes of the provider p: "retry" before it answers them first, and does not run out`}},
		{"no retry at all", p + "[recovery.limits]\nmax_attempts_per_step = 1\n", nil, []string{
			`7:1: recovery.limits.max_attempts_per_step: 1 is the first request alone: no policy can ever retry`}},
		{"a grant without a pin", p + "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\ncapabilities = [\"log.read\"]\n" + retry, nil, []string{
			`9:1: recovery.policy.x.capabilities: a grant without a pin: whatever bytes come to stand in conf/ok.wasm get log.read; sha256 pins them`}},
		{"a pinned grant", p + "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\ncapabilities = [\"log.read\"]\nsha256 = \"" + strings.Repeat("0", 64) + "\"\n" + retry, nil, nil},
		{"a module twice", p + retry + strings.Replace(retry, "\"retry\"", "\"again\"", 1), nil, []string{
			`9:12: recovery.policy.again: is the same module with the same config as "retry" before it: it is never reached with another answer, and its retries come on top`}},
		{"never reached", p + "[providers.p.retry_policy]\nmax_retries = 50\nretryable_codes = [\"RATE_LIMIT\", \"SERVER\", \"TIMEOUT\", \"TRANSPORT\", \"EMPTY_RESPONSE\", \"CONTEXT_WINDOW_EXCEEDED\", \"AUTH\", \"QUOTA\", \"INVALID_REQUEST\", \"CONTENT_FILTER\", \"PROTOCOL\", \"UNKNOWN\"]\n" + retry + "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\n", nil, []string{
			`7:1: providers.p.retry_policy.max_retries: 50 is never reached: recovery.limits.max_attempts_per_step (50) ends a step before`,
			`12:12: recovery.policy.x: is never reached for the provider p: "retry" before it answers every failure first, and does not run out`}},
		{"never reached for some", p + "[providers.p.retry_policy]\nmax_retries = 60\n" + retry + "[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\n", nil, []string{
			`7:1: providers.p.retry_policy.max_retries: 60 is never reached: recovery.limits.max_attempts_per_step (50) ends a step before`,
			`11:12: recovery.policy.x: is never reached for the retryable codes of the provider p: "retry" before it answers them first, and does not run out`}},
		{"an own stop", p + "retry_policy.retryable_codes = [\"ABORTED\"]\n", nil, []string{
			`6:14: providers.p.retry_policy.retryable_codes: "ABORTED" is the caller's own stop, which is never put to a policy`}},
		{"waits over the limit", p + "[recovery.limits]\nmax_wait_per_turn_ms = 5000\n", nil, []string{
			`default: providers.p.retry_policy.backoff.max_delay_ms: 10000 ms is over recovery.limits.max_wait_per_turn_ms (5000): a wait of that length is refused`}},
		{"the first wait over the limit", p + "[providers.p.retry_policy.backoff]\ninitial_delay_ms = 900\n[recovery.limits]\nmax_wait_per_turn_ms = 800\n", nil, []string{
			`7:1: providers.p.retry_policy.backoff.initial_delay_ms: 900 ms is over recovery.limits.max_wait_per_turn_ms (800): already the first retry is refused`}},
		{"waits under the least", p + "[recovery.limits]\nmin_delay_ms = 20000\n", nil, []string{
			`default: providers.p.retry_policy.backoff.max_delay_ms: 10000 ms is under recovery.limits.min_delay_ms (20000), which holds instead`}},
		{"settings that reach nobody", p + "retry_policy.max_retries = 3\n[recovery]\npolicy = []\n", nil, []string{
			`6:14: providers.p.retry_policy.max_retries: reaches nobody: the waterfall is empty, every failure is final`}},
		{"settings as data", p + "retry_policy.max_retries = 3\n[[recovery.policy]]\nname = \"x\"\nmodule = \"ok.wasm\"\n", nil, []string{
			`6:14: providers.p.retry_policy.max_retries: reaches the policies as data only: the built-in retry, which acts on it, is not in the waterfall`}},
		{"a fault ends the turn", p + retry + "on_fault = \"fail\"\n", nil, []string{
			`9:1: recovery.policy.retry.on_fault: "fail": a fault of this policy ends the turn instead of asking the next`}},
		{"compaction settings that reach nobody", p + retry + "[compaction]\nretain_ratio = 0.2\n", nil, []string{
			`10:1: compaction.retain_ratio: reaches nobody: builtin:compaction is not in the waterfall`}},
		{"a compaction without its grants", p + "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:compaction\"\ncapabilities = [\"repair.prune\"]\n" + retry, nil, []string{
			`9:1: recovery.policy.c.capabilities: repair.compact is not granted: what this policy asks for is refused, and an overflow is final`}},
		{"clear text", strings.Replace(p, "https", "http", 1) + "api_key_env = \"HOME\"\nallow_insecure_http = true\n", nil, []string{
			`7:1: providers.p.base_url: the key is sent in clear text to another machine`}},
		{"clear text at home", strings.Replace(p, "https://h", "http://127.0.0.1:1", 1) + "api_key_env = \"HOME\"\n", nil, []string{
			`5:1: providers.p.base_url: the key is sent over plain http, if only to this machine: whatever listens on that port reads it`}},
		{"what sounds like a secret", p + "headers = { X-Session-Key = \"abc\" }\n", nil, []string{
			`6:1: providers.p.headers.X-Session-Key: sounds like a secret in the file; headers_env takes it from a variable`}},
		{"no key", p + "api_key_env = \"NOT_THERE\"\n", nil, []string{
			`6:1: providers.p.api_key_env: the variable NOT_THERE, which holds the key of p, is not set: till then no turn can run`}},
		{"no model", strings.Replace(p, "model = \"m\"\n", "", 1), nil, []string{
			`2:1: agent.model: no model is set, and p has no default; set agent.model, --model or DSH_MODEL: till then no turn can run`}},
		{"another provider, the same model", p, []string{"agent.provider=deepseek"}, []string{
			`3:1: agent.model: the model is the file's, the provider (deepseek) is of --set: it may not have the model "m"`}},
	}
}

func TestHazards(t *testing.T) {
	for _, c := range hazardCases() {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.src.Support = complete()
			w.src.Sets = c.sets
			w.named(c.text)
			w.write("conf/ok.wasm", "")
			var got []string
			for _, h := range w.load().Hazards {
				line := strings.ReplaceAll(h.Error(), strings.TrimSuffix(w.src.File, "conf/dsh.toml"), "")
				got = append(got, strings.TrimPrefix(line, "conf/dsh.toml:"))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}
