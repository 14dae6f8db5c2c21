package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/config"
)

// support is a build as the spine is.
func support() config.Support {
	return config.Support{
		Adapters:     []string{"openai-chat"},
		Engines:      []string{"extism"},
		Builtins:     []config.Builtin{{Name: "retry", Default: true}},
		Tools:        []string{"read", "list", "search"},
		DefaultTools: []string{"read", "list", "search"},
		Backends:     []string{"badger", "memory"},
	}
}

// compacting is a build that can compact.
func compacting() config.Support {
	s := support()
	s.Compaction, s.Capabilities = true, []string{"surface.read", "repair.prune", "repair.compact"}
	s.Builtins = []config.Builtin{{Name: "compaction", Default: true, Capabilities: s.Capabilities}, {Name: "retry", Default: true}}
	return s
}

// complete is a build in which everything of the contract is there.
func complete() config.Support {
	s := support()
	s.Adapters = append(s.Adapters, "anthropic-messages", "scripted")
	s.Engines = []string{"native", "extism"}
	s.Builtins = []config.Builtin{
		{Name: "compaction", Default: true, Capabilities: []string{"surface.read", "repair.prune", "repair.compact"}},
		{Name: "retry", Default: true},
	}
	s.Capabilities = []string{"log.read", "surface.read", "surface.content", "state.session", "state.shared", "log.append", "repair.prune", "repair.compact"}
	s.Tools = append(s.Tools, "write", "edit", "shell")
	s.Signatures, s.Registries, s.ProcessIsolation, s.Compaction, s.Instructions = true, true, true, true, true
	s.WasmTools, s.MCP = true, true
	return s
}

func presets() []config.Preset {
	return []config.Preset{
		{Name: "deepseek", Adapter: "openai-chat", BaseURL: "https://api.deepseek.com", APIKeyEnv: "DEEPSEEK_API_KEY", Model: "deepseek-chat", ContextWindow: 131072},
		{Name: "openai", Adapter: "openai-chat", BaseURL: "https://api.openai.com/v1", APIKeyEnv: "OPENAI_API_KEY", Model: "gpt-x", ContextWindow: 400000},
		{Name: "anthropic", Adapter: "anthropic-messages", BaseURL: "https://api.anthropic.com", APIKeyEnv: "ANTHROPIC_API_KEY", Model: "claude-x"},
		{Name: "openrouter", Adapter: "openai-chat", BaseURL: "https://openrouter.ai/api/v1", APIKeyEnv: "OPENROUTER_API_KEY"},
		{Name: "ollama", Adapter: "openai-chat", BaseURL: "http://localhost:11434/v1"},
	}
}

const canary = "sk-canary-77aa"

// world is a folder with a home, a working folder and variables.
type world struct {
	t    *testing.T
	home string
	cwd  string
	env  map[string]string
	src  config.Sources
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, home: filepath.Join(root, "home"), cwd: filepath.Join(root, "work")}
	w.env = map[string]string{"HOME": w.home, "DEEPSEEK_API_KEY": canary}
	for _, dir := range []string{w.home, w.cwd} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.src = config.Sources{Cwd: w.cwd, Support: support(), Presets: presets(), Env: func(k string) (string, bool) { v, ok := w.env[k]; return v, ok }}
	return w
}

// write puts a file into the world's folder, from the root of the world.
func (w *world) write(path, text string) string {
	w.t.Helper()
	full := filepath.Join(filepath.Dir(w.home), path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return full
}

// named makes a file the one of --config.
func (w *world) named(text string) *world {
	w.src.File = w.write("conf/dsh.toml", text)
	return w
}

func (w *world) load() *config.Config {
	w.t.Helper()
	cfg, _, err := config.Load(w.src)
	if err != nil {
		w.t.Fatalf("refused:\n%v", err)
	}
	return cfg
}

// problems loads what must not hold, and gives the lines without the folder.
func (w *world) problems() []string {
	w.t.Helper()
	_, _, err := config.Load(w.src)
	if err == nil {
		w.t.Fatal("it holds")
	}
	if strings.Contains(err.Error(), canary) {
		w.t.Fatalf("the key is in the message: %v", err)
	}
	return strings.Split(strings.ReplaceAll(err.Error(), filepath.Dir(w.home)+string(filepath.Separator), ""), "\n")
}
