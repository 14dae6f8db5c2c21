package main

import (
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/tools"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
)

// The backends of the store.
const (
	backendBadger = "badger"
	backendMemory = "memory"
)

// support is what a configuration may name in this build.
func support() config.Support {
	s := config.Support{
		Adapters:     append(adapterNames(), adapterScripted),
		Engines:      []string{native.Name, extism.Name},
		Tools:        []string{"read", "list", "search", "write", "edit"},
		DefaultTools: []string{"read", "list", "search"},
		Backends:     []string{backendBadger, backendMemory},
		Instructions: true,
		Compaction:   true,
		Signatures:   true,
		MCP:          true,
		WasmTools:    true,
		Registries:   true,
		Capabilities: hostabi.Capabilities(),
	}
	if tools.CanShell() {
		s.Tools = append(s.Tools, "shell")
	}
	for _, name := range guests.Names() {
		b := config.Builtin{Name: name, Default: true}
		if name == "compaction" {
			b.Capabilities = []string{hostabi.CapSurfaceRead, hostabi.CapRepairPrune, hostabi.CapRepairCompact}
		}
		s.Builtins = append(s.Builtins, b)
	}
	s.ProcessIsolation = hasWorkers
	return s
}

// presets are the providers that need no table. Base URLs, the names of the
// variables and DeepSeek's model are those of the providers' own pages:
// api-docs.deepseek.com, platform.openai.com/docs, docs.anthropic.com,
// openrouter.ai/docs, docs.ollama.com (2025). A model stands only where its
// name is an alias that the provider keeps up.
func presets() []config.Preset {
	return []config.Preset{
		{Name: "deepseek", Adapter: adapterOpenAI, BaseURL: "https://api.deepseek.com", APIKeyEnv: "DEEPSEEK_API_KEY", Model: "deepseek-chat", ContextWindow: 131072},
		{Name: "openai", Adapter: adapterOpenAI, BaseURL: "https://api.openai.com/v1", APIKeyEnv: "OPENAI_API_KEY"},
		{Name: "anthropic", Adapter: adapterAnthropic, BaseURL: "https://api.anthropic.com", APIKeyEnv: "ANTHROPIC_API_KEY"},
		{Name: "openrouter", Adapter: adapterOpenAI, BaseURL: "https://openrouter.ai/api/v1", APIKeyEnv: "OPENROUTER_API_KEY", Model: "openrouter/auto"},
		{Name: "ollama", Adapter: adapterOpenAI, BaseURL: "http://127.0.0.1:11434/v1"},
	}
}
