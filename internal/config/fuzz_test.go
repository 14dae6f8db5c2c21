package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"github.com/dsh-agent/dsh/internal/config"
)

// FuzzLoad: a configuration or a problem, never both, never a panic; each
// problem is one line, and one of a file has a place.
func FuzzLoad(f *testing.F) {
	if b, err := os.ReadFile(filepath.Join("..", "..", "dsh.toml")); err == nil {
		f.Add(string(b))
	}
	for _, s := range []string{
		rich, "", "[agent\n", "a.b.\"c\\u0041\" = [{x=1},{y=[2,{z='3'}]}]\n", "[[a]]\n[a.b]\n[[a]]\n", "\ufeffx = \"\"\"\n\\\n\"\"\"\"\"\n",
		"[agent]\r\nmodel = 'x'\r\n", "x = 1979-05-27 07:32:00 # c\n", "[recovery]\npolicy = [{ name = \"x\",\n module = \"builtin:retry\" }]\n",
		"a = { b = 1, # c\n c = 2,\n}\n", "\"\" = 1\n", "x = inf\ny = nan\n", "[a]\nb.c = 1\nb.d = 2\n", "x = ''''a'''''\n",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "dsh.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		src := config.Sources{File: path, Cwd: dir, Support: complete(), Presets: presets(), Env: func(k string) (string, bool) {
			if k == "HOME" {
				return dir, true
			}
			return "", false
		}}
		cfg, _, err := config.Load(src)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("%v and %v", cfg, err)
		}
		if err == nil {
			checkShown(t, src, cfg, dir)
			return
		}
		ps, ok := err.(config.Problems)
		if !ok || len(ps) == 0 {
			t.Fatalf("%T %v", err, err)
		}
		for _, p := range ps {
			if strings.ContainsAny(p.Error(), "\n\r\x1b") || p.Message == "" {
				t.Errorf("no line: %q", p.Error())
			}
			if p.Origin.Kind == config.FromFile && (p.Origin.Line < 0 || p.Origin.Line > 1+strings.Count(text, "\n")) {
				t.Errorf("line %d is not in the file: %s", p.Origin.Line, p)
			}
		}
		checkPlaced(t, text, ps)
	})
}

// checkShown reads what is shown of a configuration again.
func checkShown(t *testing.T, src config.Sources, cfg *config.Config, dir string) {
	t.Helper()
	for _, s := range cfg.Settings {
		if m, ok := s.Value.(map[string]string); ok && len(m) > 0 {
			return // may be hidden
		}
	}
	var b strings.Builder
	if err := cfg.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(src.File, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	again, _, err := config.Load(src)
	if err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	if d := differences(cfg, again); len(d) > 0 {
		t.Errorf("read again differs:\n%s", strings.Join(d, "\n"))
	}
}

// checkPlaced holds the place of an unknown key to the text: a key written
// plainly stands in its line, at its column.
func checkPlaced(t *testing.T, text string, ps config.Problems) {
	t.Helper()
	var doc map[string]any
	if _, err := toml.Decode(text, &doc); err != nil {
		return
	}
	lines := strings.Split(text, "\n")
	for _, p := range ps {
		if strings.HasPrefix(p.Message, "syntax: ") && !strings.Contains(p.Message, "more than 32") {
			t.Errorf("the library reads it: %s", p)
		}
		if p.Origin.Kind != config.FromFile || !strings.HasPrefix(p.Message, "unknown ") {
			continue
		}
		if p.Origin.Line == 0 || p.Origin.Column == 0 {
			t.Errorf("no place: %s", p)
			continue
		}
		key := p.Key[strings.LastIndexByte(p.Key, '.')+1:]
		line := []rune(strings.TrimPrefix(lines[p.Origin.Line-1], "\ufeff"))
		rest := string(line[min(p.Origin.Column-1, len(line)):])
		if strings.ContainsAny(key, "\"\\)(") {
			continue
		}
		if !strings.HasPrefix(strings.TrimLeft(rest, `"'`), key) && !strings.ContainsAny(rest, `\`) {
			t.Errorf("%s: there stands %q", p, rest)
		}
	}
}
