package main

import (
	"context"
	"net/http"
	"slices"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/anthropic"
	"github.com/dsh-agent/dsh/adapters/openaichat"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/config"
)

// The adapters of this build, as a configuration names them.
const (
	adapterOpenAI    = "openai-chat"
	adapterAnthropic = "anthropic-messages"
	adapterScripted  = "scripted"
)

// adapterNames are those that speak to a provider.
func adapterNames() []string { return []string{adapterOpenAI, adapterAnthropic} }

// newAdapter makes the adapter of a provider. Nothing is sent.
func newAdapter(p config.Provider) (dsh.Adapter, error) {
	header := http.Header{}
	for name, value := range p.Headers {
		header.Set(name, value)
	}
	for name, secret := range p.SecretHeaders {
		header.Set(name, secret.Reveal())
	}
	var (
		adapter dsh.Adapter
		err     error
	)
	switch p.Adapter {
	case adapterAnthropic:
		adapter, err = anthropic.New(anthropic.Settings{
			BaseURL: p.BaseURL, Key: p.APIKey.Reveal(), Header: header, AllowInsecureHTTP: p.AllowInsecureHTTP,
			StreamIdle: p.StreamIdleTimeout, Keepalive: p.KeepaliveTimeout, Window: p.ContextWindow,
		})
	case adapterScripted:
		adapter, err = scripted.Open(p.Script, func(url string) (dsh.Adapter, error) {
			return openaichat.New(openaichat.Settings{BaseURL: url, StreamIdle: p.StreamIdleTimeout, Keepalive: p.KeepaliveTimeout, Window: p.ContextWindow})
		})
	default: // a configuration names no others
		s := openaichat.Settings{
			BaseURL: p.BaseURL, Key: p.APIKey.Reveal(), Header: header, AllowInsecureHTTP: p.AllowInsecureHTTP,
			StreamIdle: p.StreamIdleTimeout, Keepalive: p.KeepaliveTimeout, Window: p.ContextWindow,
		}
		if slices.Contains(openaichat.QuirkNames(), p.Name) {
			s.Quirks = p.Name
		}
		adapter, err = openaichat.New(s)
	}
	if err != nil {
		return nil, cli.Usagef("providers.%s: %v", p.Name, err)
	}
	return adapter, nil
}

// classify says what an adapter makes of a recorded response.
func classify(_ context.Context, adapter string, r cli.Response) (*dsh.Failure, string, error) {
	judge := openaichat.Classify
	if adapter == adapterAnthropic {
		judge = anthropic.Classify
	}
	f, rule := judge(r.Status, r.Header, r.Body)
	return f, rule, nil
}
