package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// rich is a configuration that sets about everything.
const rich = `
[agent]
provider = "a.b"
model = "m"
system = "two\nlines \"quoted\" \\ \u0007 ü"
[providers."a.b"]
base_url = "https://h/v1"
api_key_env = "DEEPSEEK_API_KEY"
headers = { X-B = "2", X-A = "1" }
headers_env = { X-Auth = "OTHER" }
stream_idle_timeout_ms = 1234.5
[providers."a.b".retry_policy]
mode = "always"
[providers.deepseek]
context_window = 5
[recovery.limits]
max_attempts_per_step = 3
[[recovery.policy]]
name = "one"
module = "ok.wasm"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
config = { a = [1, 2.5, "x", { "b c" = true }], "d.e" = {} }
[[recovery.policy]]
name = "two"
module = "builtin:retry"
limits.host_calls = 3
[tools]
allow = []
`

func TestShowIsAFile(t *testing.T) {
	for name, text := range map[string]string{"rich": rich, "empty": "", "no policies": "[recovery]\npolicy = []\n"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).named(text)
			w.write("conf/ok.wasm", "")
			cfg := w.load()
			var b strings.Builder
			if err := cfg.WriteText(&b); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(b.String(), canary) {
				t.Error("the key is shown")
			}
			again := w.named(b.String()).load()
			if d := differences(cfg, again); len(d) > 0 {
				t.Errorf("%s\nread again differs:\n%s", b.String(), strings.Join(d, "\n"))
			}
		})
	}
}

func TestShowLines(t *testing.T) {
	w := newWorld(t).named(rich + "[store]\ndir = \"/d\"\n")
	w.write("conf/ok.wasm", "")
	cfg := w.load()
	var text, lines strings.Builder
	if err := cfg.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := cfg.WriteJSON(&lines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"[providers.\"a.b\"]\nadapter = \"openai-chat\"                      # default\n",
		"api_key_env = \"DEEPSEEK_API_KEY\"             # " + w.src.File + ":8; the variable is set\n",
		"dir = \"/d\"                                   # " + w.src.File + ":30\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	for _, line := range strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n") {
		var v struct {
			Key, Origin string
			Value       any
			Set         *bool
		}
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.Key == "" || v.Origin == "" || v.Value == nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if want := `{"key":"providers.\"a.b\".api_key_env","value":"DEEPSEEK_API_KEY","origin":"` + w.src.File + `:8","set":true}`; !strings.Contains(lines.String(), want) {
		t.Errorf("%s is not in\n%s", want, lines.String())
	}
}

func TestShowHides(t *testing.T) {
	w := newWorld(t).named("[providers.deepseek]\nheaders = { X-Session-Token = \"hush-hush\", X-A = \"open\" }\n")
	cfg := w.load()
	var text, lines strings.Builder
	_ = cfg.WriteText(&text)
	_ = cfg.WriteJSON(&lines)
	all := text.String() + lines.String()
	if strings.Contains(all, "hush-hush") || !strings.Contains(all, "open") {
		t.Error(all)
	}
}

func TestSecretNeverPrints(t *testing.T) {
	w := newWorld(t)
	cfg := w.load()
	p, err := cfg.Provider("deepseek")
	if err != nil {
		t.Fatal(err)
	}
	if p.APIKey.Reveal() != canary {
		t.Fatal("the key is not there")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%t", "%p"} {
		for _, v := range []any{p.APIKey, &p.APIKey, p, &p, cfg} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, canary) || strings.Contains(out, fmt.Sprintf("%x", canary)) {
				t.Errorf("%s of %T shows it", verb, v)
			}
		}
	}
	if b, err := json.Marshal(p); err != nil || strings.Contains(string(b), canary) {
		t.Errorf("%v %s", err, b)
	}
	delete(w.env, "DEEPSEEK_API_KEY")
	_, err = w.load().Provider("deepseek")
	if err == nil || !strings.Contains(err.Error(), "the variable DEEPSEEK_API_KEY, which holds the key of deepseek, is not set") {
		t.Errorf("%v", err)
	}
	if _, err := cfg.Provider("nowhere"); err == nil || !strings.Contains(err.Error(), "no provider \"nowhere\"") {
		t.Errorf("%v", err)
	}
}
