package runtime_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// BenchmarkSwap is the time from the install of a guest to its first decision in
// a process that watches the folder: it is found, verified, metered, compiled on
// all processors, and warmed. The compiled code is kept, and none is there.
func BenchmarkSwap(b *testing.B) {
	b.Run("rust", func(b *testing.B) {
		wasm, _ := guests.Builtin("retry")
		swaps(b, wasm)
	})
	b.Run("rust-serde", func(b *testing.B) {
		wasm, err := os.ReadFile(filepath.Join("..", "examples", "policies", "business-hours", "business-hours.wasm"))
		if err != nil {
			b.Fatal(err)
		}
		swaps(b, wasm)
	})
	b.Run("go", func(b *testing.B) { swaps(b, goGuest(b)) })
}

// goGuest builds the template of a policy in Go.
func goGuest(tb testing.TB) []byte {
	tb.Helper()
	out := filepath.Join(tb.TempDir(), "policy.wasm")
	c := exec.CommandContext(tb.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", out, ".")
	c.Dir, c.Env = filepath.Join("..", "examples", "policies", "retry-go"), append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if text, err := c.CombinedOutput(); err != nil {
		tb.Skipf("no guest of Go's: %v: %s", err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

func swaps(b *testing.B, wasm []byte) {
	dir, kept := filepath.Join(b.TempDir(), "policies"), filepath.Join(b.TempDir(), "guests")
	set, err := runtime.Open(b.Context(), []runtime.Spec{builtin}, runtime.Options{
		Engine:  native.New(native.Options{CacheDir: kept}),
		Builtin: guests.Builtin, Folder: runtime.Folder(dir), Warn: func(text string) { b.Error(text) },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := set.Close(); err != nil {
			b.Error(err)
		}
	}()
	input, err := dsh.JSON(runtimetest.Input("retry"))
	if err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		if err := os.RemoveAll(kept); err != nil { // its code is that of the one before
			b.Fatal(err)
		}
		b.StartTimer()
		next, err := hostabi.Pack(wasm, hostabi.Manifest{Name: "retry", Version: fmt.Sprint(i)})
		if err != nil {
			b.Fatal(err)
		}
		_, changed := set.Policies()
		if err := runtime.Folder(dir).Install("retry", next); err != nil {
			b.Fatal(err)
		}
		<-changed
		policies, _ := set.Policies()
		if _, err := policies[0].Decide(b.Context(), dsh.Question{Hook: dsh.HookRecover, Input: input}); err != nil {
			b.Fatal(err)
		}
	}
}
