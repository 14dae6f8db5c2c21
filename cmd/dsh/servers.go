package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/config"
	"github.com/dsh-agent/dsh/internal/mcp"
	"github.com/dsh-agent/dsh/internal/tools"
)

// A serverTool is a tool with the server that it comes from.
type serverTool struct {
	tool   dsh.Tool
	server string
}

// serverTools starts the servers that are offered, all at the same time, and
// lists their tools.
func (r *rooms) serverTools(ctx context.Context, offer []string, cwd string) []serverTool {
	var starting sync.WaitGroup
	lists := make([][]dsh.Tool, len(r.cfg.Tools.MCP))
	for i, s := range r.cfg.Tools.MCP {
		if !slices.ContainsFunc(offer, func(name string) bool { return name == s.Name || strings.HasPrefix(name, s.Name+"__") }) {
			continue
		}
		c := mcp.New(r.server(s, cwd), mcp.Options{Warn: r.warn, Version: build().Version})
		r.servers = append(r.servers, c)
		starting.Go(func() { lists[i] = c.Tools(ctx) })
	}
	starting.Wait()
	var all []serverTool
	for i, list := range lists {
		for _, t := range list {
			all = append(all, serverTool{t, r.cfg.Tools.MCP[i].Name})
		}
	}
	return all
}

func (r *rooms) server(s config.MCPServer, cwd string) mcp.Server {
	out := mcp.Server{
		Name: s.Name, Command: s.Command, Args: s.Args, Dir: cwd, URL: s.URL, Headers: map[string]string{},
		StartTimeout: s.StartTimeout, CallTimeout: s.CallTimeout,
	}
	out.Env = tools.Environment(os.Environ(), r.secrets(), nil)
	for _, v := range s.Env {
		if name, _, given := strings.Cut(v, "="); !given {
			value, ok := r.program.env(name)
			if !ok {
				r.warn("the variable " + name + ", which the tool server " + s.Name + " is to be given, is not set")
				continue
			}
			v = name + "=" + value
		}
		out.Env = append(out.Env, v)
	}
	for name, value := range s.Headers {
		out.Headers[name] = value
	}
	for name, secret := range s.SecretHeaders {
		out.Headers[name] = secret.Reveal()
	}
	return out
}

// closeServers ends all servers at the same time.
func (r *rooms) closeServers() error {
	var closing sync.WaitGroup
	errs := make([]error, len(r.servers))
	for i, s := range r.servers {
		closing.Go(func() { errs[i] = s.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
