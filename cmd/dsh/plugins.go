package main

import (
	"slices"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime/extism"
)

// wasmTools loads the plugins that are offered. One that cannot be loaded is
// said, and left out.
func (r *rooms) wasmTools(offer []string) []dsh.Tool {
	var all []dsh.Tool
	for _, w := range r.cfg.Tools.Wasm {
		if !slices.Contains(offer, w.Name) {
			continue
		}
		t, err := extism.NewTool(extism.ToolSpec{
			Name: w.Name, Module: w.Module, SHA256: w.SHA256, Function: w.Function, Description: w.Description, Schema: w.Schema,
			Hosts: w.Hosts, Read: w.Read, Write: w.Write, Config: w.Config, MemoryMB: w.MemoryMB, Timeout: w.Timeout, CacheDir: r.program.cacheDir(),
		})
		if err != nil {
			r.warn("the tool " + w.Name + " is left out: " + err.Error())
			continue
		}
		r.plugins = append(r.plugins, t)
		all = append(all, t)
	}
	return all
}
