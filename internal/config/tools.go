package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// Tools is [tools].
type Tools struct {
	Allow []string // what runs without a question: names of tools, of servers, or SERVER__TOOL
	Offer []string // what the model is shown, by the same names
	Shell ShellTool
	Wasm  []WasmTool
	MCP   []MCPServer
}

// ShellTool is [tools.shell].
type ShellTool struct {
	Timeout    time.Duration // of a command that asks for none
	MaxTimeout time.Duration // that one may ask for
	Env        []string      // variables that look like secrets and are given all the same
}

// A WasmTool is one [[tools.wasm]]: a function of an Extism plugin.
type WasmTool struct {
	Name        string
	Module      string // absolute
	SHA256      string // that the module must have; "": any
	Function    string // the export that is called
	Description string
	Schema      json.RawMessage   // of the arguments; nil: one text, "input", is handed over as it is
	Hosts       []string          // it may speak to by HTTP; may hold * for a part of a name
	Read        []string          // folders it may read, as PATH or PATH:PLACE, absolute
	Write       []string          // folders it may read and change, as well
	Config      map[string]string // handed to the plugin
	MemoryMB    int
	Timeout     time.Duration
	Origin      Origin // where the table stands
}

// An MCPServer is one [[tools.mcp]]. Of Command and URL one is set.
type MCPServer struct {
	Name          string
	Command       string // a program: absolute, or to be found in PATH
	Args          []string
	Env           []string // NAME (taken over) or NAME=VALUE
	URL           string
	Headers       map[string]string
	SecretHeaders map[string]Secret
	StartTimeout  time.Duration
	CallTimeout   time.Duration
	Origin        Origin // where the table stands
}

const (
	maxServers   = 32
	maxWasmTools = 32
	maxTimeoutMs = 24 * 60 * 60 * 1000
)

const toolRule = "a-z, 0-9, _ and -, up to 32, the first a letter, and no __"

func builtinTools() []string { return []string{"read", "list", "search", "write", "edit", "shell"} }

func (l *loader) readTools(s *section, cfg *Config) {
	t := &cfg.Tools
	wasm, mcp := l.tables(s, "wasm", l.src.Support.WasmTools, maxWasmTools), l.tables(s, "mcp", l.src.Support.MCP, maxServers)
	var names []string // that may be spoken of
	names = append(names, l.src.Support.Tools...)
	var added []string
	for _, n := range slices.Concat(wasm, mcp) {
		if name, ok := n.table["name"].textOf(); ok && isToolName(name) {
			added = append(added, name)
		}
	}
	names = append(names, added...)
	known := func(v string) string {
		if server, _, ok := strings.Cut(v, "__"); ok && slices.Contains(added, server) {
			return ""
		}
		return choice(v, names, builtinTools())
	}
	t.Allow = s.texts("allow", byDefault(slices.Clone(l.src.Support.DefaultTools)), known)
	t.Offer = s.texts("offer", byDefault(l.offered(t.Allow, added)), known)
	if l.src.Support.Shell() {
		l.readShell(s.child("shell"), &t.Shell)
	} else if n := s.get("shell"); n != nil {
		s.problem("shell", n, "the tool shell is not yet supported; allowed today: the built-in tools in tools.allow: %s", list(l.src.Support.Tools))
	} else {
		s.known = slices.DeleteFunc(s.known, func(k string) bool { return k == "shell" })
	}
	for i, n := range wasm {
		l.readWasmTool(n, i, cfg)
	}
	for i, n := range mcp {
		l.readMCPServer(n, i, cfg)
	}
	s.close()
}

// offered are the tools that a model is shown where nothing is said: what is
// allowed, what can be asked for, and what is added. Where none of the built-in
// ones is allowed there is none of them.
func (l *loader) offered(allow, added []string) []string {
	out := []string{}
	builtin := func(name string) bool { return slices.Contains(l.src.Support.Tools, name) }
	if slices.ContainsFunc(allow, builtin) {
		for _, name := range l.src.Support.Tools {
			if slices.Contains(allow, name) || !slices.Contains(l.src.Support.DefaultTools, name) {
				out = append(out, name)
			}
		}
	}
	return append(out, added...)
}

// tables are the tables of an array, if the build supports it.
func (l *loader) tables(s *section, key string, supported bool, most int) []*node {
	n := s.get(key)
	if n == nil {
		if !supported { // nobody is told of what is not there
			s.known = slices.DeleteFunc(s.known, func(k string) bool { return k == key })
		}
		return nil
	}
	switch {
	case !supported:
		s.problem(key, n, "[[tools.%s]] is not yet supported; allowed today: the built-in tools in tools.allow: %s", key, list(l.src.Support.Tools))
		return nil
	case n.kind != arrayNode:
		s.problem(key, n, "%s; allowed: [[tools.%s]] tables", n.what(), key)
		return nil
	case len(n.array) > most:
		s.problem(key, n.array[most], "%d of them; allowed: up to %d", len(n.array), most)
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.array), func(item *node) bool {
		if item.kind != tableNode {
			s.problem(key, item, "%s; allowed: a table", item.what())
		}
		return item.kind != tableNode
	})
}

func (l *loader) readShell(s *section, t *ShellTool) {
	t.Timeout = millis(s.number("timeout_ms", byDefault(120000.0), span{0, maxTimeoutMs, true}))
	t.MaxTimeout = millis(s.number("max_timeout_ms", byDefault(600000.0), span{0, maxTimeoutMs, true}))
	if t.Timeout > t.MaxTimeout {
		s.problem("timeout_ms", s.either("timeout_ms", "max_timeout_ms"), "%s is over max_timeout_ms (%s); allowed: up to it", formatFloat(dsh.Millis(t.Timeout)), formatFloat(dsh.Millis(t.MaxTimeout)))
	}
	t.Env = s.texts("env", byDefault([]string{}), needVariable)
	s.close()
}

func needVariable(v string) string {
	if v == "" {
		return "names no variable; allowed: the name of an environment variable"
	}
	return badVariable(v)
}

// added is the section of one element of an array of tools, with its name.
func (l *loader) added(n *node, i int, kind string, cfg *Config) (*section, string) {
	s := &section{l: l, key: fmt.Sprintf("tools.%s[%d]", kind, i), title: "[[tools." + kind + "]]", node: n}
	if name, ok := n.table["name"].textOf(); ok && isToolName(name) {
		s.key = joinKey("tools."+kind, name)
	}
	name := s.text("name", fallback[string]{}, func(v string) string {
		taken := builtinTools()
		for _, w := range cfg.Tools.Wasm {
			taken = append(taken, w.Name)
		}
		for _, m := range cfg.Tools.MCP {
			taken = append(taken, m.Name)
		}
		switch {
		case !isToolName(v) || strings.Contains(v, "__"):
			return shortQuote(v) + " is no name of a tool; allowed: " + toolRule
		case slices.Contains(taken, v):
			return shortQuote(v) + " is the name of another; allowed: a name of its own"
		}
		return ""
	})
	if n.table["name"] == nil {
		s.problem("name", nil, "is missing; allowed: %s", toolRule)
	}
	return s, name
}

func (l *loader) readWasmTool(n *node, i int, cfg *Config) {
	s, name := l.added(n, i, "wasm", cfg)
	t := WasmTool{Name: name, Origin: n.origin}
	module := s.text("module", fallback[string]{}, func(v string) string {
		path := l.absolute(v, n.table["module"].origin)
		if info, err := os.Stat(path); err != nil {
			return readFault(path, err)
		} else if !info.Mode().IsRegular() {
			return shortQuote(path) + " is no file"
		}
		return ""
	})
	if n.table["module"] == nil {
		s.problem("module", nil, "is missing; allowed: the path of an Extism plugin")
	} else if module != "" {
		t.Module = l.absolute(module, n.table["module"].origin)
		if l.found.fromHere {
			t.Module = resolved(t.Module)
		}
	}
	t.SHA256 = strings.ToLower(s.optional("sha256", badDigest))
	if t.SHA256 == "" {
		t.SHA256 = l.found.pins[t.Module]
	}
	t.Function = s.text("function", byDefault(name), nil)
	t.Description = s.text("description", byDefault(""), nil)
	if p := s.get("parameters"); p != nil && p.kind != tableNode {
		s.wrong("parameters", p, "a table: the JSON Schema of the arguments")
	} else if p != nil {
		t.Schema = s.schema(p)
	}
	t.Hosts = s.texts("allowed_hosts", byDefault([]string{}), badHost)
	t.Read, t.Write = l.folders(s, "read"), l.folders(s, "write")
	t.Config = s.pairs("config", func(string) string { return "" }, func(name, v string) string {
		if looksSecret(v) {
			return "would put a secret in the file, and into the hands of the plugin"
		}
		return ""
	})
	t.MemoryMB = int(s.integer("memory_mb", byDefault(int64(64)), 1, maxMemoryMB))
	t.Timeout = millis(s.number("timeout_ms", byDefault(10000.0), span{0, maxTimeoutMs, true}))
	s.close()
	cfg.Tools.Wasm = append(cfg.Tools.Wasm, t)
}

// schema is the JSON Schema that a table is.
func (s *section) schema(n *node) json.RawMessage {
	value := s.plainValue(s.path("parameters"), n)
	m, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	if _, ok := m["type"]; !ok {
		m["type"] = "object"
	}
	if m["type"] != "object" {
		s.problem("parameters", n, "is no schema of an object; allowed: type = \"object\"")
		return nil
	}
	raw, err := dsh.JSON(m)
	if err != nil {
		return nil // plainValue has said why
	}
	s.record("parameters", json.RawMessage(raw), n.origin)
	return raw
}

// badHost says why a text is no name of a host. A star stands for a part of a
// name, never for all of it.
func badHost(v string) string {
	if v == "" || strings.ContainsAny(v, "/:@? \t\n[]{}\\") || strings.Trim(v, "*.") == "" {
		return shortQuote(v) + " is no host; allowed: a name or an address without scheme and port, such as \"api.example.com\" or \"*.example.com\""
	}
	return ""
}

// folders reads the folders of a plugin, each as PATH or PATH:PLACE, where
// PLACE is what the plugin finds it under.
func (l *loader) folders(s *section, key string) []string {
	n := s.get(key)
	names := s.texts(key, byDefault([]string{}), func(v string) string {
		dir, _ := splitPlace(v)
		if info, err := os.Stat(l.absolute(dir, n.origin)); err != nil {
			return readFault(dir, err)
		} else if !info.IsDir() {
			return shortQuote(dir) + " is no folder"
		}
		return ""
	})
	for i, name := range names {
		dir, place := splitPlace(name)
		names[i] = l.absolute(dir, n.origin) + place
	}
	return names
}

// splitPlace cuts PATH:PLACE before the colon.
func splitPlace(v string) (dir, place string) {
	if i := strings.LastIndex(v, ":/"); i > 1 { // not that of a Windows volume
		return v[:i], v[i:]
	}
	return v, ""
}

func (l *loader) readMCPServer(n *node, i int, cfg *Config) {
	s, name := l.added(n, i, "mcp", cfg)
	m := MCPServer{Name: name, Origin: n.origin}
	m.Command = s.optional("command", func(v string) string { return l.badCommand(v, n.table["command"].origin) })
	m.URL = s.optional("url", badServerURL)
	switch {
	case n.table["command"] == nil && n.table["url"] == nil:
		s.problem("command", nil, "is missing; allowed: command, a program that speaks on stdio, or url, that of a server")
	case n.table["command"] != nil && n.table["url"] != nil:
		s.problem("url", n.table["url"], "stands beside command; allowed: one of them")
	}
	if strings.ContainsRune(m.Command, filepath.Separator) {
		m.Command = l.absolute(m.Command, n.table["command"].origin)
	}
	if n.table["url"] == nil {
		m.Args = s.words("args")
		m.Env = s.texts("env", byDefault([]string{}), badServerEnv)
	} else {
		p := Provider{}
		l.readHeaders(s, &p)
		m.Headers, m.SecretHeaders = p.Headers, p.SecretHeaders
		if p.BaseURL = m.URL; len(m.SecretHeaders) > 0 && p.plainRemote() {
			s.problem("url", n.table["url"], "the headers of headers_env would be sent in clear text to another machine; allowed: https, or a server on this machine")
		}
		for _, k := range slices.Sorted(maps.Keys(m.SecretHeaders)) {
			if fault := m.SecretHeaders[k].fault(); fault != "" {
				s.problem("headers_env", s.get("headers_env").table[k], "the variable %s %s", m.SecretHeaders[k].Variable, fault)
			}
		}
	}
	m.StartTimeout = millis(s.number("start_timeout_ms", byDefault(30000.0), span{0, maxTimeoutMs, true}))
	m.CallTimeout = millis(s.number("call_timeout_ms", byDefault(120000.0), span{0, maxTimeoutMs, true}))
	s.close()
	cfg.Tools.MCP = append(cfg.Tools.MCP, m)
}

// words reads an array of texts in which one may stand twice.
func (s *section) words(key string) []string {
	n := s.get(key)
	out, o := []string{}, Origin{Kind: FromDefault}
	if n != nil && n.kind != arrayNode {
		s.wrong(key, n, "an array of texts")
	} else if n != nil {
		o = n.origin
		for _, item := range n.array {
			t, ok := item.text()
			switch {
			case !ok:
				s.wrong(key, item, "text in quotes")
			case looksSecret(t):
				s.problem(key, item, "would put a secret in the file; allowed: its variable's name in env")
			default:
				out = append(out, t)
			}
		}
	}
	s.record(key, slices.Clone(out), o)
	return out
}

func (l *loader) badCommand(v string, o Origin) string {
	switch {
	case strings.TrimSpace(v) == "" || strings.ContainsRune(v, 0):
		return shortQuote(v) + " is no program; allowed: a name in PATH, or a path"
	case strings.ContainsRune(v, filepath.Separator):
		if info, err := os.Stat(l.absolute(v, o)); err != nil {
			return readFault(v, err)
		} else if info.IsDir() {
			return shortQuote(v) + " is a folder; allowed: a program"
		}
	default:
		if _, err := exec.LookPath(v); err != nil {
			return shortQuote(v) + " is not found in PATH; allowed: a program (its arguments belong into args)"
		}
	}
	return ""
}

func badServerURL(v string) string {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return shortQuote(v) + " is no URL; allowed: http://… or https://…"
	}
	if u.User != nil {
		return "holds a user or a password; allowed: a URL without, and headers_env for what is secret"
	}
	return ""
}

func badServerEnv(v string) string {
	name, value, given := strings.Cut(v, "=")
	if fault := needVariable(name); fault != "" {
		return fault
	}
	if given && looksSecret(value) {
		return "would put a secret in the file; allowed: the variable's name alone, which takes it over"
	}
	return ""
}

// SecretVariables are the names of all variables that the configuration takes
// secrets from.
func (c *Config) SecretVariables() []string {
	var names []string
	take := func(s Secret) {
		if s.Variable != "" && !slices.Contains(names, s.Variable) {
			names = append(names, s.Variable)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.providers)) {
		p := c.providers[name]
		take(p.APIKey)
		for _, h := range slices.Sorted(maps.Keys(p.SecretHeaders)) {
			take(p.SecretHeaders[h])
		}
	}
	for _, m := range c.Tools.MCP {
		for _, h := range slices.Sorted(maps.Keys(m.SecretHeaders)) {
			take(m.SecretHeaders[h])
		}
	}
	return names
}

// lookTools names grants that reach further than they look.
func (l *loader) lookTools(cfg *Config) {
	t := cfg.Tools
	if slices.Contains(t.Allow, "shell") {
		l.hazard(l.origin("tools.allow"), "tools.allow", "any command of the model's runs without a question: \"shell\" is granted")
	}
	for _, w := range t.Wasm {
		if w.SHA256 == "" && len(w.Hosts)+len(w.Write) > 0 && slices.Contains(t.Allow, w.Name) {
			l.hazard(w.Origin, "tools.wasm."+w.Name+".module", "a grant without a pin: whatever bytes come to stand in %s reach its hosts and folders without a question; sha256 pins them", w.Module)
		}
	}
}

// own are the file that was read and the folders for configuration, data and
// state, as this process knows them.
func (l *loader) own(cfg *Config) []string {
	var paths []string
	for _, p := range []string{
		l.found.path, cfg.Store.Dir, cfg.Recovery.Dir,
		l.home("XDG_CONFIG_HOME", ".config"), l.home("XDG_STATE_HOME", ".local", "state"), l.home("XDG_DATA_HOME", ".local", "share"),
	} {
		if filepath.IsAbs(p) && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	return paths
}
