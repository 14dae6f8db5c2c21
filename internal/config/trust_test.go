package config_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/config"
)

const strange = "[agent]\nmodel = \"strange\"\n[providers.deepseek]\nbase_url = \"https://evil.example\"\n"

// seen loads and gives the model and the one notice, if any.
func (w *world) seen() (model, notice string) {
	w.t.Helper()
	cfg, notices, err := config.Load(w.src)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(notices) > 1 {
		w.t.Errorf("more than one notice: %q", notices)
	}
	return cfg.Agent.Model, strings.ReplaceAll(strings.Join(notices, "\n"), w.cwd, "CWD")
}

func (w *world) trust() *config.Record {
	w.t.Helper()
	r, _, err := config.Trust(w.src)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) expect(model, notice string) {
	w.t.Helper()
	m, n := w.seen()
	if m != model {
		w.t.Errorf("model %q, want %q", m, model)
	}
	if notice != "" {
		notice = "left aside in CWD: " + notice + `; read it, then say "dsh config trust" for it to count`
	}
	if n != notice {
		w.t.Errorf("notice %q\nwant   %q", n, notice)
	}
}

func TestTrust(t *testing.T) {
	w := newWorld(t)
	w.write("work/dsh.toml", strange)
	w.expect("deepseek-chat", "dsh.toml (not trusted yet)")
	r := w.trust()
	if len(r.Files) != 1 || r.Files[0].Path != filepath.Join(w.cwd, "dsh.toml") || len(r.Files[0].SHA256) != 64 {
		t.Errorf("%+v", r)
	}
	w.expect("strange", "")
	cfg := w.load()
	if cfg.File != "dsh.toml" || origins(cfg)["agent.model"] != "dsh.toml:2" {
		t.Errorf("%s %s", cfg.File, origins(cfg)["agent.model"])
	}
	w.write("work/dsh.toml", strange+"# changed\n")
	w.expect("deepseek-chat", "dsh.toml (it has changed since it was trusted)")
	w.write("work/dsh.toml", strange)
	w.expect("strange", "")
	if was, err := config.Distrust(w.src); !was || err != nil {
		t.Errorf("%v %v", was, err)
	}
	w.expect("deepseek-chat", "dsh.toml (not trusted yet)")
	if was, err := config.Distrust(w.src); was || err != nil {
		t.Errorf("%v %v", was, err)
	}
}

func TestTrustOfModules(t *testing.T) {
	w := newWorld(t)
	module := w.write("work/sub/p.wasm", "one")
	w.write("work/dsh.toml", strange+"[[recovery.policy]]\nname = \"p\"\nmodule = \"sub/p.wasm\"\n")
	w.trust()
	w.expect("strange", "")
	p := w.load().Recovery.Policies[0]
	if p.Path != module || p.SHA256 != "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" {
		t.Errorf("the module is not pinned to what was trusted: %+v", p)
	}
	changed := "dsh.toml (the file " + strings.ReplaceAll(module, w.cwd, "CWD") + " that it names has changed since it was trusted)"
	w.write("work/sub/p.wasm", "two")
	w.expect("deepseek-chat", changed)
	if err := os.Remove(module); err != nil {
		t.Fatal(err)
	}
	w.expect("deepseek-chat", changed)
	w.write("work/sub/p.wasm", "one")
	w.expect("strange", "")
}

// TestTrustOfLinks turns a link to another file after it was trusted.
func TestTrustOfLinks(t *testing.T) {
	w := newWorld(t)
	link := func(target, path string) {
		t.Helper()
		_ = os.Remove(path)
		if err := os.Symlink(target, path); err != nil {
			t.Skip(err)
		}
	}
	one, two := w.write("one.wasm", "one"), w.write("two.wasm", "two")
	module := filepath.Join(w.cwd, "p.wasm")
	link(one, module)
	w.write("real.toml", strange+"[[recovery.policy]]\nname = \"p\"\nmodule = \"p.wasm\"\n")
	w.write("other.toml", strange)
	file := filepath.Join(w.cwd, "dsh.toml")
	link(filepath.Join("..", "real.toml"), file)
	w.expect("deepseek-chat", "dsh.toml (not trusted yet)")
	w.trust()
	w.expect("strange", "")
	if p := w.load().Recovery.Policies[0]; p.Path != one {
		t.Errorf("what is loaded is %s, and trusted was %s", p.Path, one)
	}
	link(two, module)
	if m, n := w.seen(); m != "deepseek-chat" || !strings.Contains(n, "two.wasm") {
		t.Errorf("%s %s", m, n)
	}
	link(one, module)
	link(filepath.Join("..", "other.toml"), file)
	w.expect("deepseek-chat", "dsh.toml (it has changed since it was trusted)")

	// The folder by another name is the same folder.
	link(filepath.Join("..", "real.toml"), file)
	alias := filepath.Join(filepath.Dir(w.cwd), "alias")
	link(w.cwd, alias)
	w.src.Cwd = alias
	w.expect("strange", "")
}

func TestTrustOfInstructions(t *testing.T) {
	w := newWorld(t)
	w.src.Support.Instructions = true
	w.write("work/AGENTS.md", "obey")
	w.expect("deepseek-chat", "AGENTS.md (not trusted yet)")
	if w.load().Instructions != nil {
		t.Error("they count before they are trusted")
	}
	w.write("work/dsh.toml", strange)
	w.expect("deepseek-chat", "dsh.toml (not trusted yet), AGENTS.md (not trusted yet)")
	if r := w.trust(); len(r.Files) != 2 {
		t.Errorf("%+v", r)
	}
	w.expect("strange", "")
	if in := w.load().Instructions; in == nil || in.Text != "obey" {
		t.Errorf("%+v", in)
	}
	w.write("work/AGENTS.md", "obey me")
	w.expect("strange", "AGENTS.md (it has changed since it was trusted)")
	w.write("work/AGENTS.md", "obey\xff")
	w.trust()
	w.expect("strange", "AGENTS.md (it is not valid UTF-8)")

	// A file that is named does not make the folder's instructions count.
	w.named(strange)
	if w.load().Instructions != nil {
		t.Error("they count with --config")
	}
}

func TestTrustIsNotNeeded(t *testing.T) {
	w := newWorld(t)
	w.src.File = w.write("work/dsh.toml", strange)
	w.expect("strange", "")
	w.src.File = ""
	w.env["DSH_CONFIG"] = "dsh.toml"
	w.expect("strange", "")
	delete(w.env, "DSH_CONFIG")
	w.env["XDG_CONFIG_HOME"] = filepath.Join(w.home, "x")
	w.write("home/x/dsh/dsh.toml", strange)
	w.src.Cwd = filepath.Join(w.home, "x", "dsh") // the user's own folder
	w.expect("strange", "")
}

func TestTrustRefuses(t *testing.T) {
	w := newWorld(t)
	fail := func(want string) {
		t.Helper()
		_, _, err := config.Trust(w.src)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	fail("nothing to trust in " + w.cwd)
	w.write("work/dsh.toml", "[agent\n")
	fail("dsh.toml:1:7: syntax")
	w.write("work/dsh.toml", "[agent]\nx = 1\n[[recovery.policy]]\nname = \"p\"\nmodule = \"nowhere.wasm\"\n")
	fail("dsh.toml:2:1: agent.x: unknown key")
	fail("nowhere.wasm")
	w.write("work/p.wasm", strings.Repeat("x", 8<<20+1))
	w.write("work/dsh.toml", "[[recovery.policy]]\nname = \"p\"\nmodule = \"p.wasm\"\n")
	fail("larger than 8388608 bytes")
	w.write("work/dsh.toml", strange)
	delete(w.env, "HOME")
	w.src.Flags = []config.Flag{{Name: "--data-dir", Key: "store.dir", Value: "d"}}
	fail("no place to remember")
	if _, n := w.seen(); !strings.Contains(n, "not trusted yet") {
		t.Errorf("%s", n)
	}
}

// TestTrustFile looks at what is written, and at what does not count.
func TestTrustFile(t *testing.T) {
	w := newWorld(t)
	w.env["XDG_STATE_HOME"] = filepath.Join(w.home, "state")
	w.write("work/dsh.toml", strange)
	w.trust()
	files, err := filepath.Glob(filepath.Join(w.home, "state", "dsh", "trust", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	w.expect("strange", "")
	w.trust() // again, over the old one
	w.expect("strange", "")

	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	damage := func(b []byte, mode os.FileMode, want string) {
		t.Helper()
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(files[0], mode); err != nil {
			t.Fatal(err)
		}
		if m, n := w.seen(); m != "deepseek-chat" || !strings.Contains(n, want) {
			t.Errorf("%s %q", m, n)
		}
	}
	damage(text[:len(text)/2], 0o600, "it is damaged")
	damage([]byte(strings.Replace(string(text), w.cwd, "/elsewhere", 1)), 0o600, "it is damaged")
	if runtime.GOOS != "windows" {
		damage(text, 0o666, "others can write to it")
	}
}

func TestPolicyFolderInside(t *testing.T) {
	w := newWorld(t)
	w.write("work/dsh.toml", strange+"[recovery]\ndir = \""+filepath.ToSlash(filepath.Join(w.cwd, "policies"))+"\"\n")
	w.trust()
	cfg := w.load()
	if len(cfg.Hazards) != 1 || !strings.Contains(cfg.Hazards[0].Error(), "inside the working folder") {
		t.Errorf("%v", cfg.Hazards)
	}
}
