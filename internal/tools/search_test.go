package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

func TestSearch(t *testing.T) {
	b := newBox(t, map[string]string{
		"main.go": "package main\n\nfunc main() {\r\n\tprintln(\"hi\")\n}", "lib/a.go": "package lib\nfunc A() {}\n", "lib/a_test.go": "package lib\nfunc TestA() {}\n",
		"web/app.ts": "function main() {}\n", "web/app.tsx": "function main() {}\n", "vendor/v/v.go": "func main() {}\n",
		"out/gen.go": "func main() {}\n", "out/keep.go": "func main() {}\n", ".gitignore": "/vendor/\nout/*\n!out/keep.go\n", "lib/.gitignore": "*.tmp\n", "lib/x.tmp": "func main\n",
		".git/config": "func main\n", ".git/info/exclude": "secret.txt\n", "secret.txt": "func main\n", ".github/ci.yml": "run: func main\n",
		"binary": "func main\x00", "latin": "func ma\xefn\n", "sub/.git": "gitdir: func main\n",
	})
	for _, c := range []struct{ arguments, want string }{
		{`{"pattern":"func main"}`, ".github/ci.yml:1:run: func main\nmain.go:3:func main() {\nout/keep.go:1:func main() {}\n[binary files that were not searched: 1]"},
		{`{"pattern":"func main","ignored":true,"glob":"*.{go,txt,tmp}"}`, "lib/x.tmp:1:func main\nmain.go:3:func main() {\nout/gen.go:1:func main() {}\nout/keep.go:1:func main() {}\nsecret.txt:1:func main\nvendor/v/v.go:1:func main() {}\n"},
		{`{"pattern":"^func \\w+\\(","glob":"*.go"}`, "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\nmain.go:3:func main() {\nout/keep.go:1:func main() {}\n"},
		{`{"pattern":"^func","path":"lib"}`, "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\n"},
		{`{"pattern":"^func","path":"lib","glob":"!*_test.go"}`, "lib/a.go:2:func A() {}\n"},
		{`{"pattern":"^func","path":"lib","glob":"lib/*.go"}`, "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\n"},
		{`{"pattern":"^func","path":"lib","glob":"/a.go"}`, "lib/a.go:2:func A() {}\n"},
		{`{"pattern":"main","path":"vendor"}`, "vendor/v/v.go:1:func main() {}\n"},
		{`{"pattern":"main","path":"out"}`, "out/keep.go:1:func main() {}\n"},
		{`{"pattern":"main","path":"out/gen.go"}`, "out/gen.go:1:func main() {}\n"},
		{`{"glob":"**/*.{ts,tsx}"}`, "web/app.ts\nweb/app.tsx\n"},
		{`{"glob":"*.rs"}`, "[no file has such a path]"},
		{`{"pattern":"nothing at all"}`, "[no match; files searched: 10]\n[binary files that were not searched: 1]"},
		{`{"pattern":"x","path":"binary"}`, "[no match; files searched: 0]\n[binary files that were not searched: 1]"},
		{`{"pattern":"main\\(\\) \\{$"}`, "main.go:3:func main() {\n[binary files that were not searched: 1]"},
		{`{"pattern":"(?i)FUNC MA.N$"}`, ".github/ci.yml:1:run: func main\nlatin:1:func ma\ufffdn\n[binary files that were not searched: 1]"},
		{`{"pattern":"^func","limit":2,"glob":"*.go"}`, "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\n[the first 2 are shown, and there are more: narrow the pattern, the glob or the path, or raise limit]"},
		{`{"pattern":"^func","limit":4,"glob":"*.go"}`, "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\nmain.go:3:func main() {\nout/keep.go:1:func main() {}\n"},
		{`{"pattern":"^$","glob":"main.go"}`, "main.go:2:\n"},
		{object("pattern", "A", "path", filepath.Join(b.dir, "lib")), "lib/a.go:2:func A() {}\nlib/a_test.go:2:func TestA() {}\n"},
	} {
		if got := b.good("search", c.arguments); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.arguments, got, c.want)
		}
	}
}

func TestSearchRefuses(t *testing.T) {
	b := newBox(t, map[string]string{"a": "x\n"})
	b.bad("search", `{}`, "needs a pattern")
	b.bad("search", `{"pattern":"","glob":""}`, "needs a pattern")
	b.bad("search", `{"pattern":"f("}`, "missing closing )", `write \( or \[`)
	b.bad("search", `{"pattern":"(?=x)"}`, "no look-around")
	b.bad("search", `{"pattern":"`+strings.Repeat("a", 1001)+`"}`, "at most 1000")
	b.bad("search", `{"pattern":"`+strings.Repeat("[a-z]{1000}", 50)+`"}`, "instructions, and at most 20000")
	b.bad("search", `{"glob":"[a"}`, "The glob [a cannot be used")
	b.bad("search", `{"pattern":"x","path":"b"}`, "b does not exist. There is a.")
}

func TestSearchLongLines(t *testing.T) {
	pad := strings.Repeat("é", 1000)
	b := newBox(t, map[string]string{
		"mid": pad + "needle" + pad + "\n", "end": pad + "needle", "start": "needle" + pad, "all": strings.Repeat("needle", 100) + "\n",
		"far": strings.Repeat("x", 2<<20) + "needle\n",
	})
	got := b.good("search", `{"pattern":"needle"}`)
	for line := range strings.SplitSeq(strings.TrimSpace(got), "\n") {
		if !strings.HasPrefix(line, "[") && (!strings.Contains(line, "needle") || len(line) > 320) {
			t.Errorf("%q", line)
		}
	}
	if strings.Count(got, "\n") != 4 || !strings.Contains(got, "in their first 1024 KiB: 1]") {
		t.Errorf("%q", got)
	}
	if got := b.good("search", `{"pattern":"(needle)+","path":"all"}`); !strings.HasPrefix(got, "all:1:needleneedle") || !strings.HasSuffix(got, "…\n") {
		t.Errorf("%q", got)
	}
}

func TestSearchIsCapped(t *testing.T) {
	b := newBox(t, map[string]string{"f": strings.Repeat(strings.Repeat("needle ", 40)+"\n", 1200)})
	got := b.good("search", `{"pattern":"needle","limit":1000}`)
	if n := strings.Count(got, "\nf:"); n < 150 || n > 300 || !strings.Contains(got, "there are more") {
		t.Errorf("%d matches", n)
	}
}

// TestSearchStops holds that a search ends with its context, within a line too.
func TestSearchStops(t *testing.T) {
	b := newBox(t, map[string]string{"f": strings.Repeat(strings.Repeat("a", 1<<20)+"\n", 8)})
	arguments := object("pattern", strings.Repeat("(a|aa)*?", 100)+"[a-z]{1000}[0-9]{1000}b")
	cause := errors.New("the user has left")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, cause)
	defer cancel()
	began := time.Now()
	_, err := b.tools["search"].Run(ctx, json.RawMessage(arguments))
	if !errors.Is(err, cause) || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestSearchUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("everything is readable to root")
	}
	b := newBox(t, map[string]string{"a": "x\n", "b": "x\n", "d/c": "x\n"})
	for _, name := range []string{"b", "d"} {
		if err := os.Chmod(filepath.Join(b.dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Join(b.dir, "d"), 0o755)
	if got := b.good("search", `{"pattern":"x"}`); got != "a:1:x\n[files that could not be read: 1]\n[folders and .gitignore files that could not be read: 1]" {
		t.Errorf("%q", got)
	}
}

func BenchmarkSearch(b *testing.B) {
	files := map[string]string{}
	for i := range 1000 {
		files[fmt.Sprintf("d%d/e%d/f%d.go", i%10, i%7, i)] = strings.Repeat("func something(in context.Context) error { return nil }\n", 200)
	}
	files[".gitignore"] = "*.log\n/build/\nnode_modules/\n*.tmp\n"
	box := newBox(b, files)
	b.SetBytes(1000 * 200 * 56)
	for b.Loop() {
		r, err := box.tools["search"].Run(b.Context(), json.RawMessage(`{"pattern":"func (nothing|none)\\("}`))
		if err != nil || r.IsError || !strings.HasPrefix(dsh.Text(r.Content), "[no match") {
			b.Fatal(err, dsh.Text(r.Content))
		}
	}
}

func BenchmarkRead(b *testing.B) {
	box := newBox(b, map[string]string{"f": numbered(2000)})
	for b.Loop() {
		if _, err := box.tools["read"].Run(b.Context(), json.RawMessage(`{"path":"f"}`)); err != nil {
			b.Fatal(err)
		}
	}
}
