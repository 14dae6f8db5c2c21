package wasmtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ModuleDir is where the go command keeps a module that this one requires. It
// skips the test where it does not have it.
func ModuleDir(tb testing.TB, path string) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		tb.Skipf("the module cache lacks %s: %v", path, err)
	}
	return dir
}

// Real are the modules that wazero and Extism's SDK bring as test data: the
// output of Go, TinyGo, Rust, Zig, C, AssemblyScript and Haskell toolchains.
func Real(tb testing.TB) map[string][]byte {
	tb.Helper()
	files := map[string][]byte{}
	for _, path := range []string{"github.com/tetratelabs/wazero", "github.com/extism/go-sdk"} {
		dir := ModuleDir(tb, path)
		err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".wasm") || strings.Contains(name, "spectest") {
				return err
			}
			b, err := os.ReadFile(name)
			files[strings.TrimPrefix(name, dir)] = b
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	return files
}

// A Script is one file of the WebAssembly specification's test suite.
type Script struct {
	Name     string // without its folder
	Dir      string
	Commands []Command
}

// A Command is a step of a script.
type Command struct {
	Type       string // module, action, assert_return, assert_trap, …
	Line       int
	Name       string // of a module
	Filename   string // of a module
	ModuleType string `json:"module_type"`
	As         string // of a register
	Text       string // of an error
	Action     struct {
		Type, Module, Field string
		Args                []Value
	}
	Expected []Value
}

// A Value is an argument or a result: its bits as a decimal number, "null", or
// "nan:canonical" and "nan:arithmetic".
type Value struct {
	Type  string
	Value any // a string, or lanes of a vector
}

// Spec are the scripts of the specification's test suite for WebAssembly 2.0,
// as wazero brings it.
func Spec(tb testing.TB) []Script {
	tb.Helper()
	dir := filepath.Join(ModuleDir(tb, "github.com/tetratelabs/wazero"), "internal", "integration_test", "spectest", "v2", "testdata")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		tb.Skipf("wazero brings no specification suite: %v", err)
	}
	var scripts []Script
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		s := Script{Name: strings.TrimSuffix(filepath.Base(f), ".json"), Dir: dir}
		if err := json.Unmarshal(raw, &s); err != nil {
			tb.Fatalf("%s: %v", f, err)
		}
		scripts = append(scripts, s)
	}
	return scripts
}

// File reads a file of the script.
func (s *Script) File(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(s.Dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
