//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
)

// TestReplayOfAChangedModule: one instruction more or less is caught, by the
// digest of the kept module, and where somebody has forged that, by what the
// module decides.
func TestReplayOfAChangedModule(t *testing.T) {
	t.Parallel()
	w := prepare(t, scripted.Step{Do: scripted.Status, Status: 500}, answer("the answer"))
	guest := guestFile(t, "retry-at-once")
	if r := w.run(t, "policy", "install", guest, "--name", "mine"); r.code != 0 {
		t.Fatalf("install: exit %d, %s", r.code, r.err)
	}
	if r := w.run(t, "run", "q"); r.code != 0 {
		t.Fatalf("run: exit %d, %s", r.code, r.err)
	}
	wasm, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(wasm, []byte("\x41\x00\x41\x1c"), []byte("\x41\x00\x41\x1b"), 1) // i32.const 28 is 27: its answer is cut
	if bytes.Equal(changed, wasm) {
		t.Fatal("the guest is another")
	}
	var d dsh.PolicyDecision
	if err := ofType(w.events(t), dsh.TypePolicyDecision)[0].Decode(&d); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(w.dir, "home", "data", "modules", d.Digest+".wasm")
	if err := os.WriteFile(kept, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.run(t, "policy", "remove", "mine"); r.code != 0 {
		t.Fatalf("remove: exit %d, %s", r.code, r.err)
	}
	if err := os.RemoveAll(filepath.Join(w.dir, "home", "data", "policies")); err != nil {
		t.Fatal(err)
	}
	r := w.run(t, "policy", "replay", "last")
	if r.code != 1 || !strings.Contains(r.out, "the file is damaged") || !strings.Contains(r.err, "could not be run") {
		t.Errorf("replay: exit %d, %s, %s", r.code, r.out, r.err)
	}
	if err := os.WriteFile(kept, wasm, 0o600); err != nil { // as it was
		t.Fatal(err)
	}
	if r := w.run(t, "policy", "replay", "last"); r.code != 0 {
		t.Errorf("replay: exit %d, %s, %s", r.code, r.out, r.err)
	}
	info, err := runtime.Inspect(changed)
	if err != nil {
		t.Fatal(err)
	}
	d.Digest = info.Digest
	for _, e := range []runtime.Engine{native.New(native.Options{}), extism.New(extism.Options{}), native.New(native.Options{Interpreter: true})} {
		r := replayer{runtime.NewReplayer(runtime.Options{Engine: e})}
		r.Add(changed)
		if text, err := r.Replay(t.Context(), nil, "", d); err != nil || !strings.Contains(text, "it gives no decision now") {
			t.Errorf("%s: %q, %v", e.Name(), text, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
