// Package runtimetest is the suite that every engine passes: the same guests
// have the same decisions and the same faults under all of them.
//
// The guests are small WebAssembly texts in testdata, each with the module that
// wat2wasm (of Debian's wabt) makes of it. `go generate` makes them again.
package runtimetest

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:generate sh testdata/build.sh

//go:embed testdata/*.wasm
var guests embed.FS

// Guest returns the module of one of the suite's guests.
func Guest(tb testing.TB, name string) []byte {
	tb.Helper()
	wasm, err := guests.ReadFile("testdata/" + name + ".wasm")
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

// Guests returns the names of the suite's guests.
func Guests(tb testing.TB) []string {
	tb.Helper()
	files, err := fs.Glob(guests, "testdata/*.wasm")
	if err != nil {
		tb.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(f, "testdata/"), ".wasm")
	}
	return files
}

//go:embed testdata/toolchains/*.wasm
var toolchains embed.FS

// Toolchain returns a policy as a toolchain makes it: "c" or "assemblyscript".
// Both retry what failed with a status of 429 or of 500 and above after 100 ms,
// doubled for each attempt after the first.
func Toolchain(tb testing.TB, name string) []byte {
	tb.Helper()
	wasm, err := toolchains.ReadFile("testdata/toolchains/" + name + ".wasm")
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

// GoPolicy builds the example policy in Go, which decides as the built-in retry
// policy does. It has 3 MB.
func GoPolicy(tb testing.TB) []byte {
	tb.Helper()
	wasm, err := buildGoPolicy()
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

func buildGoPolicy() ([]byte, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/dsh-agent/dsh").Output()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "go-policy")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "retry-go.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", out, ".")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "examples", "policies", "retry-go")
	cmd.Env = append(cmd.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	return os.ReadFile(out)
}
