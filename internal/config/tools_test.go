package config_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/internal/config"
)

// TestOffer holds what a model is shown to what is said of it.
func TestOffer(t *testing.T) {
	const server = "[[tools.mcp]]\nname = \"srv\"\nurl = \"http://localhost:1/mcp\"\n"
	for _, c := range []struct {
		name, file   string
		flag         []string // of --tools; nil: it is not given
		allow, offer string
	}{
		{"nothing", "", nil, "read list search", "read list search write edit shell"},
		{"a grant", "[tools]\nallow = [\"read\", \"shell\"]\n", nil, "read shell", "read write edit shell"},
		{"none", "[tools]\nallow = []\n", nil, "", ""},
		{"none of the built-in ones", "[tools]\nallow = []\n" + server, nil, "", "srv"},
		{"a server alone", "[tools]\nallow = [\"srv\"]\n" + server, nil, "srv", "srv"},
		{"a server", server, nil, "read list search", "read list search write edit shell srv"},
		{"an offer", "[tools]\noffer = [\"read\", \"srv\"]\n" + server, nil, "read list search", "read srv"},
		{"a tool of a server", "[tools]\nallow = [\"srv__one\", \"srv\"]\noffer = [\"srv__two\"]\n" + server, nil, "srv__one srv", "srv__two"},
		{"a flag", "[tools]\nallow = [\"shell\"]\n", []string{"read"}, "shell", "read"},
		{"a flag of none", server, []string{}, "read list search", ""},
	} {
		w := newWorld(t).named(c.file)
		w.src.Support = complete()
		if c.flag != nil {
			w.src.Flags = []config.Flag{{Name: "--tools", Key: "tools.offer", Value: c.flag}}
		}
		cfg := w.load()
		if got := strings.Join(cfg.Tools.Allow, " "); got != c.allow {
			t.Errorf("%s: allowed are %s", c.name, got)
		}
		if got := strings.Join(cfg.Tools.Offer, " "); got != c.offer {
			t.Errorf("%s: offered are %s", c.name, got)
		}
	}
}

func TestToolTables(t *testing.T) {
	w := newWorld(t)
	w.src.Support = complete()
	w.env["GH_TOKEN"] = "canary"
	module, data := w.write("conf/plug.wasm", ""), w.write("conf/data/x", "")
	program := w.write("conf/bin/server", "")
	w.named(`
[tools.shell]
timeout_ms = 1500
env = ["SSH_AUTH_SOCK"]
[[tools.wasm]]
name = "plug"
module = "plug.wasm"
description = "Does it"
parameters = { properties = { text = { type = "string" } }, required = ["text"] }
allowed_hosts = ["api.example.com", "*.example.org"]
read = ["data"]
write = ["data:/mnt"]
config = { greeting = "hello" }
memory_mb = 8
timeout_ms = 2000
[[tools.mcp]]
name = "local"
command = "bin/server"
args = ["-v", "-v"]
env = ["GH_TOKEN", "MODE=fast"]
call_timeout_ms = 3000
[[tools.mcp]]
name = "far"
url = "https://example.com/mcp"
headers = { X-Plain = "a" }
headers_env = { Authorization = "GH_TOKEN" }
`)
	tools := w.load().Tools
	if s := tools.Shell; s.Timeout != 1500*time.Millisecond || s.MaxTimeout != 600*time.Second || !slices.Equal(s.Env, []string{"SSH_AUTH_SOCK"}) {
		t.Errorf("%+v", s)
	}
	folder := strings.TrimSuffix(data, "/x")
	p := tools.Wasm[0]
	p.Origin = config.Origin{}
	if want := (config.WasmTool{
		Name: "plug", Module: module, Function: "plug", Description: "Does it",
		Schema: []byte(`{"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}`),
		Hosts:  []string{"api.example.com", "*.example.org"}, Read: []string{folder}, Write: []string{folder + ":/mnt"},
		Config: map[string]string{"greeting": "hello"}, MemoryMB: 8, Timeout: 2 * time.Second,
	}); !reflect.DeepEqual(p, want) {
		t.Errorf("got\n%+v\nwant\n%+v", p, want)
	}
	local, far := tools.MCP[0], tools.MCP[1]
	if local.Command != program || !slices.Equal(local.Args, []string{"-v", "-v"}) || !slices.Equal(local.Env, []string{"GH_TOKEN", "MODE=fast"}) ||
		local.StartTimeout != 30*time.Second || local.CallTimeout != 3*time.Second {
		t.Errorf("%+v", local)
	}
	if far.URL != "https://example.com/mcp" || far.Headers["X-Plain"] != "a" || far.SecretHeaders["Authorization"].Reveal() != "canary" {
		t.Errorf("%+v", far)
	}
	if got := w.load().SecretVariables(); !slices.Contains(got, "GH_TOKEN") || !slices.Contains(got, "DEEPSEEK_API_KEY") {
		t.Errorf("%q", got)
	}
}

func TestBadTools(t *testing.T) {
	const wasm, mcp = "[[tools.wasm]]\nname = \"w\"\nmodule = \"plug.wasm\"\n", "[[tools.mcp]]\nname = \"m\"\n"
	for _, c := range []struct{ file, want string }{
		{"[tools]\nallow = [\"raed\"]\n", `tools.allow: "raed" is not known (did you mean "read"?)`},
		{"[tools]\noffer = [\"srv__x\"]\n", `tools.offer: "srv__x" is not known`},
		{"[tools]\noffers = []\n", `tools.offers: unknown key (did you mean "offer"?)`},
		{"[tools.shell]\ntimeout_ms = 0\n", `tools.shell.timeout_ms: 0 is out of range`},
		{"[tools.shell]\ntimeout_ms = 5000\nmax_timeout_ms = 1000\n", `tools.shell.timeout_ms: 5000 is over max_timeout_ms (1000)`},
		{"[tools.shell]\nenv = [\"a b\"]\n", `tools.shell.env: is no name of a variable`},
		{"[tools]\nwasm = 3\n", `tools.wasm: 3 is a whole number; allowed: [[tools.wasm]] tables`},
		{"[[tools.wasm]]\nmodule = \"plug.wasm\"\n", `tools.wasm[0].name: is missing`},
		{"[[tools.wasm]]\nname = \"w\"\n", `tools.wasm.w.module: is missing`},
		{"[[tools.wasm]]\nname = \"w\"\nmodule = \"none.wasm\"\n", `none.wasm" cannot be read: no such file or directory`},
		{"[[tools.wasm]]\nname = \"read\"\nmodule = \"plug.wasm\"\n", `tools.wasm.read.name: "read" is the name of another`},
		{"[[tools.wasm]]\nname = \"a__b\"\nmodule = \"plug.wasm\"\n", `"a__b" is no name of a tool`},
		{wasm + wasm, `tools.wasm.w.name: "w" is the name of another`},
		{wasm + "[[tools.mcp]]\nname = \"w\"\nurl = \"http://h/\"\n", `tools.mcp.w.name: "w" is the name of another`},
		{wasm + "allowed_hosts = [\"https://x.com\"]\n", `"https://x.com" is no host`},
		{wasm + "allowed_hosts = [\"*\"]\n", `"*" is no host`},
		{wasm + "read = [\"none\"]\n", `"none" cannot be read`},
		{wasm + "write = [\"plug.wasm:/mnt\"]\n", `"plug.wasm" is no folder`},
		{wasm + "parameters = { type = \"string\" }\n", `is no schema of an object`},
		{wasm + "parameters = \"x\"\n", `allowed: a table: the JSON Schema of the arguments`},
		{wasm + "sha256 = \"12\"\n", `"12" is no sha256`},
		{wasm + "memory_mb = 0\n", `tools.wasm.w.memory_mb: 0 is out of range`},
		{wasm + "config = { key = \"sk-0123456789abc\" }\n", `would put a secret in the file`},
		{mcp, `tools.mcp.m.command: is missing`},
		{mcp + "command = \"sh\"\nurl = \"http://x/\"\n", `stands beside command`},
		{mcp + "command = \"no-such-program-at-all\"\n", `"no-such-program-at-all" is not found in PATH`},
		{mcp + "command = \"sh -c x\"\n", `is not found in PATH; allowed: a program (its arguments belong into args)`},
		{mcp + "command = \"./none\"\n", `"./none" cannot be read`},
		{mcp + "command = \"sh\"\nargs = [\"--token\", \"ghp_0123456789abcdef\"]\n", `would put a secret in the file; allowed: its variable's name in env`},
		{mcp + "command = \"sh\"\nenv = [\"KEY=ghp_0123456789abcdef\"]\n", `would put a secret in the file`},
		{mcp + "command = \"sh\"\nheaders = { A = \"b\" }\n", `tools.mcp.m.headers: unknown table`},
		{mcp + "url = \"ftp://x/\"\n", `"ftp://x/" is no URL`},
		{mcp + "url = \"http://me:pass@x/\"\n", `holds a user or a password`},
		{mcp + "url = \"http://x/\"\nheaders_env = { Authorization = \"NOT_SET\" }\n", `the variable NOT_SET is not set`},
		{mcp + "url = \"http://x.com/\"\nheaders_env = { Authorization = \"DEEPSEEK_API_KEY\" }\n", `would be sent in clear text to another machine`},
		{mcp + "url = \"http://x/\"\ncall_timeout_ms = -1\n", `tools.mcp.m.call_timeout_ms: -1 is out of range`},
	} {
		w := newWorld(t).named(c.file)
		w.src.Support = complete()
		w.write("conf/plug.wasm", "")
		_, _, err := config.Load(w.src)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngave %v\nwant %s", c.file, err, c.want)
		}
	}
}

// TestTrustTools holds that the plugins and the programs which a working
// folder's file names count as they were trusted.
func TestTrustTools(t *testing.T) {
	for _, c := range []struct{ file, changes string }{
		{"[[tools.wasm]]\nname = \"w\"\nmodule = \"plug.wasm\"\n", "plug.wasm"},
		{"[[tools.mcp]]\nname = \"m\"\ncommand = \"./server\"\n", "server"},
		{"[[tools.mcp]]\nname = \"m\"\ncommand = \"sh\"\nargs = [\"-e\", \"lib/server.sh\"]\n", "lib/server.sh"},
	} {
		w := newWorld(t)
		w.src.Support = complete()
		w.write("work/dsh.toml", c.file)
		for _, name := range []string{"plug.wasm", "server", "lib/server.sh"} {
			w.write("work/"+name, "one")
		}
		record, _, err := config.Trust(w.src)
		if err != nil || len(record.Files) != 2 {
			t.Fatalf("%s: %v %v", c.changes, record, err)
		}
		if tools := w.load().Tools; len(tools.Wasm)+len(tools.MCP) != 1 {
			t.Errorf("%+v", tools)
		}
		w.write("work/"+c.changes, "two")
		cfg, notices, err := config.Load(w.src)
		if err != nil || len(cfg.Tools.Wasm)+len(cfg.Tools.MCP) != 0 || !strings.Contains(strings.Join(notices, "\n"), c.changes+" that it names has changed") {
			t.Errorf("%v %q %v", cfg.Tools, notices, err)
		}
	}
}

func TestToolHazards(t *testing.T) {
	w := newWorld(t)
	w.src.Support = complete()
	w.env["KEY"] = "canary"
	w.write("conf/plug.wasm", "")
	w.named("[tools]\nallow = [\"read\", \"shell\", \"w\"]\n[[tools.wasm]]\nname = \"w\"\nmodule = \"plug.wasm\"\nallowed_hosts = [\"a.com\"]\n" +
		"[[tools.mcp]]\nname = \"n\"\nurl = \"http://localhost/mcp\"\nheaders_env = { A = \"KEY\" }\n")
	var got []string
	for _, h := range w.load().Hazards {
		got = append(got, h.Error())
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{"tools.allow: any command of the model's runs without a question", "tools.wasm.w.module: a grant without a pin"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "tools.mcp.n") {
		t.Error(text)
	}
}
