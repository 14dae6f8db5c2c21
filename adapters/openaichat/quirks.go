package openaichat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sashabaranov/go-openai"
)

// A quirk is what one provider does differently. The zero value is the
// protocol as most local servers have it.
type quirk struct {
	name  string
	hosts []string // a host, or a parent domain with a leading dot

	// outputCap is the name of the output limit; "" is max_tokens.
	outputCap string

	// reasoning is the field in which an assistant's reasoning goes back; "":
	// it is not sent. reasoningTurn: only that of the turn under way, which is
	// since the last message of a user.
	reasoning     string
	reasoningTurn bool

	// details is the field in which the opaque part of a reasoning goes back.
	details string

	// parsesArguments: the arguments of earlier calls must be a JSON object,
	// since the server reads them; others are wrapped in one.
	parsesArguments bool

	// noUsage: stream_options is refused.
	noUsage bool

	// keyHeader has the key; "" is Authorization: Bearer.
	keyHeader string
}

// quirks returns the table. A new provider is one line here, and a case in
// quirks_test.go. One that does nothing differently needs none.
func quirks() []quirk {
	return []quirk{
		{name: "openai", hosts: []string{"api.openai.com"}, outputCap: "max_completion_tokens"},
		// Azure's /openai/v1 and its older deployments alike.
		{name: "azure", hosts: []string{".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"}, outputCap: "max_completion_tokens", keyHeader: openai.AzureAPIKeyHeader},
		// A thinking model wants its reasoning back between tool calls, and not
		// after: https://api-docs.deepseek.com/guides/thinking_mode
		{name: "deepseek", hosts: []string{".deepseek.com"}, reasoning: "reasoning_content", reasoningTurn: true},
		{name: "moonshot", hosts: []string{".moonshot.ai", ".moonshot.cn", ".kimi.com"}, reasoning: "reasoning_content"},
		{name: "zhipu", hosts: []string{".bigmodel.cn", ".z.ai"}, reasoning: "reasoning_content", reasoningTurn: true},
		{name: "minimax", hosts: []string{".minimax.io", ".minimaxi.com"}, details: "reasoning_details"},
		// https://openrouter.ai/docs/use-cases/reasoning-tokens
		{name: "openrouter", hosts: []string{"openrouter.ai"}, reasoning: "reasoning", details: "reasoning_details"},
		{name: "vllm", reasoning: "reasoning", reasoningTurn: true, parsesArguments: true},
		{name: "ollama", hosts: []string{"ollama.com"}, parsesArguments: true},
		{name: "llama.cpp", reasoning: "reasoning_content", reasoningTurn: true, parsesArguments: true},
		{name: "gemini", hosts: []string{"generativelanguage.googleapis.com", ".aiplatform.googleapis.com", "aiplatform.googleapis.com"}, parsesArguments: true},
		{name: "mistral", hosts: []string{".mistral.ai"}, parsesArguments: true},
		{name: "groq", hosts: []string{"api.groq.com"}, outputCap: "max_completion_tokens"},
		{name: "cerebras", hosts: []string{"api.cerebras.ai"}, outputCap: "max_completion_tokens"},
		{name: "xai", hosts: []string{"api.x.ai"}, outputCap: "max_completion_tokens"},
		{name: "plain"},
		{name: "plain-without-usage", noUsage: true}, // refuses stream_options
	}
}

// QuirkNames returns the names that Settings.Quirks may have, in order.
func QuirkNames() []string {
	var names []string
	for _, q := range quirks() {
		names = append(names, q.name)
	}
	slices.Sort(names)
	return names
}

func quirksOf(name, host string) (quirk, error) {
	for _, q := range quirks() {
		if name != "" && q.name == name || name == "" && slices.ContainsFunc(q.hosts, func(h string) bool { return within(host, h) }) {
			return q, nil
		}
	}
	if name != "" {
		return quirk{}, fmt.Errorf("no quirks are known by the name %q; there are %s", name, strings.Join(QuirkNames(), ", "))
	}
	return quirk{}, nil
}

func within(host, h string) bool {
	if domain, ok := strings.CutPrefix(h, "."); ok {
		return host == domain || strings.HasSuffix(host, h)
	}
	return host == h
}
