package tools_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/tools"
)

// BenchmarkReads is ten calls that read, one after the other and side by side.
func BenchmarkReads(b *testing.B) {
	const calls = 10
	files := map[string]string{}
	for i := range calls {
		files[fmt.Sprint(i)] = strings.Repeat(numbered(1000), 40)
	}
	box := newBox(b, files)
	one := func(i int) {
		r, err := box.tools["search"].Run(b.Context(), json.RawMessage(object("pattern", "no such line", "path", fmt.Sprint(i))))
		if err != nil || r.IsError {
			b.Error(r, err)
		}
	}
	b.Run("sequential", func(b *testing.B) {
		for b.Loop() {
			for i := range calls {
				one(i)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		for b.Loop() {
			var running sync.WaitGroup
			for i := range calls {
				running.Go(func() { one(i) })
			}
			running.Wait()
		}
	})
}

// BenchmarkCall is what a call of a tool costs over the work itself.
func BenchmarkCall(b *testing.B) {
	box := newBox(b, map[string]string{"f": "one line\n"})
	arguments := json.RawMessage(object("path", "f"))
	guarded := (&tools.Permission{Yes: true}).Guard(box.tools["read"], "")
	for _, c := range []struct {
		name string
		tool dsh.Tool
	}{{"read", box.tools["read"]}, {"read with a permission", guarded}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if r, err := c.tool.Run(b.Context(), arguments); err != nil || r.IsError {
					b.Fatal(r, err)
				}
			}
		})
	}
	b.Run("os.ReadFile", func(b *testing.B) {
		for b.Loop() {
			if _, err := os.ReadFile(filepath.Join(box.dir, "f")); err != nil {
				b.Fatal(err)
			}
		}
	})
	if !tools.CanShell() {
		return
	}
	b.Run("shell true", func(b *testing.B) {
		for b.Loop() {
			if r, err := box.tools["shell"].Run(b.Context(), json.RawMessage(`{"command":"true"}`)); err != nil || r.IsError {
				b.Fatal(r, err)
			}
		}
	})
	b.Run("exec true", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
