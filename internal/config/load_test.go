package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/config"
)

// values are the settings of a configuration without their origins.
func values(cfg *config.Config) map[string]any {
	out := map[string]any{}
	for _, s := range cfg.Settings {
		out[s.Key] = s.Value
	}
	return out
}

func origins(cfg *config.Config) map[string]string {
	out := map[string]string{}
	for _, s := range cfg.Settings {
		out[s.Key] = s.Origin.String()
	}
	return out
}

// differences lists the keys whose values differ.
func differences(a, b *config.Config) []string {
	x, y := values(a), values(b)
	var out []string
	for k, v := range x {
		if !reflect.DeepEqual(v, y[k]) {
			out = append(out, fmt.Sprintf("%s: %#v and %#v", k, v, y[k]))
		}
	}
	for k := range y {
		if _, ok := x[k]; !ok {
			out = append(out, k+": only in the second")
		}
	}
	slices.Sort(out)
	return out
}

// repositoryFile is the dsh.toml of the project.
func repositoryFile(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "dsh.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFileOfDefaults(t *testing.T) {
	without := newWorld(t)
	without.src.Support = complete()
	none := without.load()
	with := without.named(repositoryFile(t)).load()
	if none.Agent.Provider != "deepseek" || none.File != "" || with.File == "" {
		t.Fatalf("provider %q, files %q and %q", none.Agent.Provider, none.File, with.File)
	}
	if d := differences(none, with); len(d) > 0 {
		t.Errorf("the file is not the defaults:\n%s", strings.Join(d, "\n"))
	}
	if !reflect.DeepEqual(none.Recovery.Limits, with.Recovery.Limits) || !reflect.DeepEqual(none.Store, with.Store) {
		t.Error("the structs differ")
	}
	if len(with.Hazards) > 0 {
		t.Errorf("hazards: %v", with.Hazards)
	}
}

// TestFileHasEveryKey also uncomments what is not yet supported.
func TestFileHasEveryKey(t *testing.T) {
	text := repositoryFile(t)
	for _, key := range config.Keys() {
		last := key[strings.LastIndexByte(key, '.')+1:]
		if !strings.Contains(text, last) {
			t.Errorf("dsh.toml does not speak of %s", key)
		}
	}
	w := newWorld(t)
	w.src.Support = complete()
	for _, r := range []struct{ old, new string }{
		{"# keys = []", "keys = []"},
	} {
		if !strings.Contains(text, r.old) {
			t.Errorf("dsh.toml does not hold %q", r.old)
		}
		text = strings.Replace(text, r.old, r.new, 1)
	}
	none := w.load()
	if d := differences(none, w.named(text).load()); len(d) > 0 {
		t.Errorf("with all supported, the file is not the defaults:\n%s", strings.Join(d, "\n"))
	}
}

// TestKeys holds the list of keys to what is really read.
func TestKeys(t *testing.T) {
	w := newWorld(t)
	w.src.Support = complete()
	zeros := strings.Repeat("0", 64)
	w.write("conf/tool.wasm", "")
	w.named("[[recovery.policy]]\nname = \"a\"\nmodule = \"builtin:compaction\"\nsha256 = \"" + zeros + "\"\nconfig = { x = 1 }\n" +
		"[[tools.wasm]]\nname = \"w\"\nmodule = \"tool.wasm\"\nsha256 = \"" + zeros + "\"\nparameters = { properties = {} }\n" +
		"[[tools.mcp]]\nname = \"m\"\ncommand = \"./tool.wasm\"\n[[tools.mcp]]\nname = \"n\"\nurl = \"http://localhost:1/mcp\"\n")
	var read []string
	for _, s := range w.load().Settings {
		k := strings.NewReplacer("providers.deepseek.", "providers.NAME.", "recovery.policy.a.", "recovery.policy.",
			"tools.wasm.w.", "tools.wasm.", "tools.mcp.m.", "tools.mcp.", "tools.mcp.n.", "tools.mcp.").Replace(s.Key)
		if !slices.Contains(read, k) {
			read = append(read, k)
		}
	}
	listed := config.Keys()
	slices.Sort(read)
	slices.Sort(listed)
	if !slices.Equal(read, listed) {
		t.Errorf("read\n%q\nlisted\n%q", read, listed)
	}
}

func TestNoFile(t *testing.T) {
	for _, c := range []struct {
		name     string
		env      map[string]string
		provider string
		ready    string // the error of Ready
	}{
		{"one key", map[string]string{"OPENAI_API_KEY": "k"}, "openai", ""},
		{"two keys", map[string]string{"OPENAI_API_KEY": "k", "DEEPSEEK_API_KEY": "k"}, "deepseek", ""},
		{"an empty key", map[string]string{"OPENAI_API_KEY": "", "DEEPSEEK_API_KEY": "k"}, "deepseek", ""},
		{"a preset without a model", map[string]string{"OPENROUTER_API_KEY": "k"}, "openrouter",
			"$OPENROUTER_API_KEY: agent.model: no model is set, and openrouter has no default; set agent.model, --model or DSH_MODEL"},
		{"no key", nil, "", "agent.provider: no provider is set, and no key that would choose one: none of the variables DEEPSEEK_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY is set; set one of them, or agent.provider"},
		{"a key of what is not there yet", map[string]string{"ANTHROPIC_API_KEY": "k"}, "", "agent.provider: no provider is set, and no key that would choose one: none of the variables DEEPSEEK_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY is set; set one of them, or agent.provider"},
		{"a provider by variable", map[string]string{"DSH_PROVIDER": "openai"}, "openai",
			"preset openai: providers.openai.api_key_env: the variable OPENAI_API_KEY, which holds the key of openai, is not set"},
		{"no key needed", map[string]string{"DSH_PROVIDER": "ollama", "DSH_MODEL": "m"}, "ollama", ""},
		{"a key with a line end", map[string]string{"OPENAI_API_KEY": "k\n"}, "openai",
			"preset openai: providers.openai.api_key_env: the variable OPENAI_API_KEY, which holds the key of openai, begins or ends with white space or a line end"},
		{"a key with a control", map[string]string{"OPENAI_API_KEY": "k\x01k"}, "openai",
			"preset openai: providers.openai.api_key_env: the variable OPENAI_API_KEY, which holds the key of openai, holds characters that no header can carry"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			delete(w.env, "DEEPSEEK_API_KEY")
			for k, v := range c.env {
				w.env[k] = v
			}
			cfg := w.load()
			if cfg.Agent.Provider != c.provider {
				t.Errorf("provider %q, want %q", cfg.Agent.Provider, c.provider)
			}
			got := ""
			if err := cfg.Ready(); err != nil {
				got = err.Error()
			}
			if got != c.ready {
				t.Errorf("ready: %s\nwant   %s", got, c.ready)
			}
			if p := "$" + strings.TrimPrefix(origins(cfg)["agent.provider"], "$"); c.provider != "" && !strings.HasSuffix(p, "KEY") && p != "$DSH_PROVIDER" {
				t.Errorf("origin %s", p)
			}
		})
	}
}

func TestStructs(t *testing.T) {
	w := newWorld(t)
	w.write("conf/p.wasm", "x")
	w.env["SECRET"] = "s3"
	cfg := w.named(`
[agent]
provider = "mine"
model = "m"
system = """a
b"""
[providers.mine]
base_url = "http://[::1]:80/v1/"
api_key_env = ""
headers = { "X-Title" = "t" }
headers_env = { X-Auth = "SECRET" }
stream_idle_timeout_ms = 0.5
keepalive_timeout_ms = 700
retry_policy = { mode = "always", backoff = { initial_delay_ms = 1.5, jitter_ratio = 1 } }
[recovery]
dir = "pol"
[recovery.limits]
max_attempts_per_step = 7
max_wait_per_turn_ms = 1500
min_delay_ms = 2.5
[[recovery.policy]]
name = "mine"
module = "p.wasm"
sha256 = "` + strings.Repeat("AB", 32) + `"
on_fault = "fail"
config = { b = [1, 2.5, "x"], a = 2024-01-02T03:04:05Z }
limits.memory_mb = 32
[store]
backend = "memory"
dir = "data"
`).load()
	p, err := cfg.Provider("mine")
	if err != nil {
		t.Fatal(err)
	}
	if p.BaseURL != "http://[::1]:80/v1" || p.APIKey.Variable != "" || p.Headers["X-Title"] != "t" || p.SecretHeaders["X-Auth"].Reveal() != "s3" {
		t.Errorf("%+v", p)
	}
	if p.StreamIdleTimeout != 500*time.Microsecond || p.KeepaliveTimeout != 700*time.Millisecond {
		t.Errorf("timeouts %v %v", p.StreamIdleTimeout, p.KeepaliveTimeout)
	}
	if r := p.RetryPolicy; r.Mode != dsh.ModeAlways || r.InitialDelayMs != 1.5 || r.MaxDelayMs != 10000 || r.JitterRatio != 1 || r.Key() != `["always",1.5,10000,1]` {
		t.Errorf("%+v", r)
	}
	if l := cfg.Recovery.Limits; l != (config.Limits{MaxAttemptsPerStep: 7, MaxWaitPerTurn: 1500 * time.Millisecond, MinDelay: 2500 * time.Microsecond}) {
		t.Errorf("%+v", l)
	}
	conf := filepath.Dir(w.src.File)
	q := cfg.Recovery.Policies[0]
	if q.Path != filepath.Join(conf, "p.wasm") || q.SHA256 != strings.Repeat("ab", 32) || !q.FailOnFault || q.MemoryMB != 32 || q.HostCalls != 64 || string(q.Config) != `{"a":"2024-01-02T03:04:05Z","b":[1,2.5,"x"]}` {
		t.Errorf("%+v", q)
	}
	if got := q.Problem("sha256", "differs").Error(); !strings.HasSuffix(got, "dsh.toml:24:1: recovery.policy.mine.sha256: differs") {
		t.Errorf("a later problem: %s", got)
	}
	if !reflect.DeepEqual(cfg.Store, config.Store{Backend: "memory", Dir: filepath.Join(conf, "data"), Redact: []string{}}) || cfg.Recovery.Dir != filepath.Join(conf, "data", "pol") {
		t.Errorf("%+v %s", cfg.Store, cfg.Recovery.Dir)
	}
	if cfg.Agent != (config.Agent{Provider: "mine", Model: "m", MaxSteps: 100, System: "a\nb"}) {
		t.Errorf("%+v", cfg.Agent)
	}
}

func TestWaterfall(t *testing.T) {
	names := func(cfg *config.Config) string {
		var out []string
		for _, p := range cfg.Recovery.Policies {
			out = append(out, p.Name+"="+p.Module+strings.Join(p.Capabilities, "+"))
		}
		return strings.Join(out, " ")
	}
	w := newWorld(t)
	if got := names(w.load()); got != "retry=builtin:retry" {
		t.Errorf("default: %s", got)
	}
	if cfg := w.named("[recovery]\npolicy = []\n").load(); len(cfg.Recovery.Policies) != 0 {
		t.Error("policy = [] is not none")
	}
	w.src.Support = complete()
	if got := names(w.named("").load()); got != "compaction=builtin:compactionsurface.read+repair.prune+repair.compact retry=builtin:retry" {
		t.Errorf("default of all: %s", got)
	}
	cfg := w.named("recovery.policy = [{ name = \"x\", module = \"builtin:retry\" }, { name = \"r\", module = \"oci://h/n@sha256:" + strings.Repeat("0", 64) + "\" }]\n").load()
	if got := cfg.Recovery.Policies[1].Reference; !strings.HasPrefix(got, "oci://h/n") {
		t.Errorf("reference %q", got)
	}
}

// TestCompactionReachesItsPolicy: the values of [compaction] that are not the
// defaults become the built-in policy's config, under its own.
func TestCompactionReachesItsPolicy(t *testing.T) {
	const own = "[[recovery.policy]]\nname = \"c\"\nmodule = \"builtin:compaction\"\nconfig = { retainRatio = 0.3 }\n" +
		"[[recovery.policy]]\nname = \"r\"\nmodule = \"builtin:retry\"\n"
	for text, want := range map[string]string{
		"":                                      `{}`,
		"[compaction]\nthreshold_ratio = 0.8\n": `{}`,
		"[compaction]\nthreshold_ratio = 0.5\nretain_ratio = 0.25\nsummary_max_tokens = 100\n": `{"retainRatio":0.25,"summaryMaxTokens":100,"thresholdRatio":0.5}`,
		"[compaction]\nthreshold_ratio = 0.5\nretain_ratio = 0.25\n" + own:                     `{"retainRatio":0.3,"thresholdRatio":0.5}`,
	} {
		w := newWorld(t)
		w.src.Support = compacting()
		cfg := w.named(text).load()
		if got := string(cfg.Recovery.Policies[0].Config); got != want {
			t.Errorf("%q: config %s, want %s", text, got, want)
		}
		if got := string(cfg.Recovery.Policies[1].Config); got != "{}" {
			t.Errorf("%q: the retry's config is %s", text, got)
		}
	}
}

func TestOrigins(t *testing.T) {
	w := newWorld(t).named("[agent]\nprovider = \"openai\"\nmodel = \"file\"\nmax_steps = 5\n[tools]\nallow = []\n[store]\ndir = \"d\"\n")
	w.env["OPENAI_API_KEY"] = "k"
	file := w.src.File
	check := func(key, value, origin string) {
		t.Helper()
		cfg := w.load()
		if got := fmt.Sprint(values(cfg)[key]); got != value {
			t.Errorf("%s is %s, want %s", key, got, value)
		}
		if got := origins(cfg)[key]; got != origin {
			t.Errorf("%s is from %s, want %s", key, got, origin)
		}
	}
	check("agent.model", "file", file+":3")
	check("agent.max_output_tokens", "0", "default")
	check("providers.openai.base_url", "https://api.openai.com/v1", "preset openai")
	check("store.dir", filepath.Join(filepath.Dir(file), "d"), file+":8")
	w.env["DSH_MODEL"], w.env["DSH_DATA_DIR"], w.env["DSH_PROVIDER"] = "variable", "rel", "deepseek"
	check("agent.model", "variable", "$DSH_MODEL")
	check("agent.provider", "deepseek", "$DSH_PROVIDER")
	check("store.dir", filepath.Join(w.cwd, "rel"), "$DSH_DATA_DIR")
	w.src.Sets = []string{"agent.model=set", "agent.max_steps=6"}
	check("agent.model", "set", "--set")
	check("agent.max_steps", "6", "--set")
	w.src.Flags = []config.Flag{
		{Name: "--model", Key: "agent.model", Value: "flag"}, {Name: "--max-steps", Key: "agent.max_steps", Value: 7},
		{Name: "--tools", Key: "tools.allow", Value: []string{"read"}}, {Name: "--data-dir", Key: "store.dir", Value: "/x"},
	}
	check("agent.model", "flag", "--model")
	check("agent.max_steps", "7", "--max-steps")
	check("tools.allow", "[read]", "--tools")
	check("store.dir", "/x", "--data-dir")
}

func TestSet(t *testing.T) {
	for _, c := range []struct{ set, key, want string }{
		{`agent.model=a-b/c:d`, "agent.model", "a-b/c:d"},
		{`agent.model="quoted"`, "agent.model", "quoted"},
		{`agent.model=4`, "agent.model", "4"},
		{`agent.model=2024-01-01`, "agent.model", "2024-01-01"},
		{`agent.model=a=b`, "agent.model", "a=b"},
		{`agent.system=`, "agent.system", ""},
		{`agent.system=two words, and = more # all`, "agent.system", "two words, and = more # all"},
		{`agent.system=true`, "agent.system", "true"},
		{` agent . max_steps = 3 `, "agent.max_steps", "3"},
		{`tools.allow=["read"]`, "tools.allow", "[read]"},
		{`tools.allow=[]`, "tools.allow", "[]"},
		{`providers.deepseek.retry_policy.max_retries=2`, "providers.deepseek.retry_policy.max_retries", "2"},
		{`providers.deepseek.headers={ "X-A" = "b" }`, "providers.deepseek.headers", "map[X-A:b]"},
		{`providers.deepseek.headers.X-A=b`, "providers.deepseek.headers", "map[X-A:b]"},
		{`recovery.policy.retry.on_fault=fail`, "recovery.policy.retry.on_fault", "fail"},
		{`recovery.policy.0.on_fault=fail`, "recovery.policy.retry.on_fault", "fail"},
		{`recovery.policy=[{name="x", module="builtin:retry"}]`, "recovery.policy.x.module", "builtin:retry"},
		{`recovery.limits.min_delay_ms=1.5`, "recovery.limits.min_delay_ms", "1.5"},
	} {
		t.Run(c.set, func(t *testing.T) {
			w := newWorld(t)
			w.src.Sets = []string{c.set}
			cfg := w.load()
			if got := fmt.Sprint(values(cfg)[c.key]); got != c.want {
				t.Errorf("%s is %s, want %s", c.key, got, c.want)
			}
			if got := origins(cfg)[c.key]; got != "--set" {
				t.Errorf("its origin is %s", got)
			}
		})
	}
}

func TestBadLayers(t *testing.T) {
	for _, c := range []struct {
		name string
		sets []string
		env  string // DSH_PROVIDER
		want []string
	}{
		{"no equals sign", []string{"agent.model"}, "", []string{`--set: wants KEY=VALUE with a dotted key, such as --set agent.model=NAME`}},
		{"no key", []string{"=x"}, "", []string{`--set: wants KEY=VALUE with a dotted key, such as --set agent.model=NAME`}},
		{"unknown key", []string{"agent.modle=x"}, "", []string{`--set: agent.modle: unknown key (did you mean "model"?); allowed: provider, model, max_steps, system, max_output_tokens`}},
		{"wrong type", []string{"agent.max_steps=many"}, "", []string{`--set: agent.max_steps: "many" is text; allowed: a whole number from 1 to 2147483647`}},
		{"half an array", []string{"tools.allow=[read]"}, "", []string{`--set: tools.allow: the value begins as TOML does and is none; text needs quotes, as do texts in [ ] and { }`}},
		{"two documents", []string{"agent.max_steps=5\n[tools]\nallow=[]"}, "", []string{`--set: agent.max_steps: "5\n[tools]\nallow=[]" is text; allowed: a whole number from 1 to 2147483647`}},
		{"no such policy", []string{"recovery.policy.x.on_fault=fail"}, "", []string{`--set: recovery.policy.x.on_fault: "x" names nothing in recovery.policy`}},
		{"under a value", []string{"agent.model=x", "agent.model.y=1"}, "", []string{`--set: agent.model.y: agent.model is no table`}},
		{"a bad variable", nil, "nowhere", []string{`$DSH_PROVIDER: agent.provider: "nowhere" names no provider; allowed: a key of [providers], or a preset: "deepseek", "openai", "openrouter", "ollama"`}},
		{"all in their order", []string{"agent.max_steps=0", "tools.allow=1"}, "nowhere", []string{
			`conf/dsh.toml:1:1: x: unknown key; allowed: agent, providers, recovery, compaction, tools, store`,
			`$DSH_PROVIDER: agent.provider: "nowhere" names no provider; allowed: a key of [providers], or a preset: "deepseek", "openai", "openrouter", "ollama"`,
			`--set: agent.max_steps: 0 is out of range; allowed: a whole number from 1 to 2147483647`,
			`--set: tools.allow: 1 is a whole number; allowed: an array of texts`}},
		{"a secret", []string{"providers.deepseek.api_key_env=" + canary}, "", []string{`--set: providers.deepseek.api_key_env: holds what looks like a key itself: secrets never stand in the file; allowed: the name of an environment variable (letters, digits and _), or ""`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t).named("x = 1\n")
			if len(c.want) == 1 {
				w.named("")
			}
			w.src.Sets, w.env["DSH_PROVIDER"] = c.sets, c.env
			if got := w.problems(); !slices.Equal(got, c.want) {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
		})
	}
}

func TestFind(t *testing.T) {
	model := func(name string) string { return "[agent]\nmodel = \"" + name + "\"\n" }
	w := newWorld(t)
	if cfg := w.load(); cfg.File != "" {
		t.Errorf("found %s", cfg.File)
	}
	user := w.write("home/.config/dsh/dsh.toml", model("user"))
	if cfg := w.load(); cfg.Agent.Model != "user" || cfg.File != user {
		t.Errorf("%s of %s", cfg.Agent.Model, cfg.File)
	}
	w.env["XDG_CONFIG_HOME"] = filepath.Dir(filepath.Dir(w.write("xdg/dsh/dsh.toml", model("xdg"))))
	if cfg := w.load(); cfg.Agent.Model != "xdg" {
		t.Errorf("%s", cfg.Agent.Model)
	}
	w.env["DSH_CONFIG"] = filepath.Base(w.write("work/other.toml", model("variable")))
	if cfg := w.load(); cfg.Agent.Model != "variable" {
		t.Errorf("%s", cfg.Agent.Model)
	}
	if cfg := w.named(model("flag")).load(); cfg.Agent.Model != "flag" {
		t.Errorf("%s", cfg.Agent.Model)
	}
	w.src.NoFile = true
	if cfg := w.load(); cfg.Agent.Model != "deepseek-chat" {
		t.Errorf("%s", cfg.Agent.Model)
	}
}

func TestDataFolder(t *testing.T) {
	w := newWorld(t)
	if got, want := w.load().Store.Dir, filepath.Join(w.home, ".local", "share", "dsh"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.env["XDG_DATA_HOME"] = "relative" // does not count
	if got, want := w.load().Store.Dir, filepath.Join(w.home, ".local", "share", "dsh"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.env["XDG_DATA_HOME"] = filepath.Join(w.home, "x")
	cfg := w.load()
	if got, want := cfg.Store.Dir, filepath.Join(w.home, "x", "dsh"); got != want || cfg.Recovery.Dir != filepath.Join(want, "policies") {
		t.Errorf("%s, want %s; %s", got, want, cfg.Recovery.Dir)
	}
	clear(w.env)
	if got := w.problems(); len(got) != 1 || !strings.Contains(got[0], "set --data-dir") {
		t.Errorf("%q", got)
	}
}

func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	w.src.File = "nowhere.toml"
	if got := w.problems(); got[0] != `--config: "nowhere.toml" cannot be read: no such file or directory` {
		t.Errorf("%q", got)
	}
	w.src.File = "."
	if got := w.problems(); got[0] != `--config: "." cannot be read: it is a folder` {
		t.Errorf("%q", got)
	}
	w.src.File = ""
	w.env["DSH_CONFIG"] = "nowhere.toml"
	if got := w.problems(); got[0] != `$DSH_CONFIG: "nowhere.toml" cannot be read: no such file or directory` {
		t.Errorf("%q", got)
	}
	w.named("# " + strings.Repeat("x", 256<<10) + "\n")
	if got := w.problems(); !strings.Contains(got[0], "larger than 262144 bytes") {
		t.Errorf("%q", got)
	}
}

func TestFormsOfFiles(t *testing.T) {
	for name, text := range map[string]string{
		"CRLF":     "[agent]\r\nmodel = \"m\" # c\r\n\r\n[tools]\r\nallow = [ 'read',\r\n]\r\n",
		"BOM":      "\ufeff[agent]\nmodel = 'm'\n",
		"no end":   "agent.model = 'm'",
		"literals": "[agent]\nmodel = '''m'''\nsystem = \"\"\"\\\n  ends in two\"\"\"\"\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := newWorld(t).named(text).load().Agent.Model; got != "m" {
				t.Errorf("model %q", got)
			}
		})
	}
}
