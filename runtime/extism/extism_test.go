package extism_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

func TestSuite(t *testing.T) {
	runtimetest.Run(t, func(testing.TB) runtime.Engine { return extism.New(extism.Options{Logs: true}) })
}

// TestSuiteOnInterpreter: the same guests, without the compiler.
func TestSuiteOnInterpreter(t *testing.T) {
	if os.Getenv("DSH_STRICT") == "" {
		t.Skip("it is the suite once more, for DSH_STRICT=1")
	}
	runtimetest.Run(t, func(testing.TB) runtime.Engine {
		return extism.New(extism.Options{Logs: true, Interpreter: true})
	})
}

func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("its kernel is compiled for each of a hundred guests")
	}
	runtimetest.Hostile(t, func(tb testing.TB) runtime.Engine {
		return extism.New(extism.Options{Logs: true, CacheDir: tb.TempDir()})
	}, 4) // the other engine tries them all
}

func decide(t *testing.T, e runtime.Engine, name string, wasm []byte) error {
	t.Helper()
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: name, Module: name + ".wasm", Wasm: wasm}}, runtime.Options{Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}()
	raw, err := dsh.JSON(runtimetest.Input(name))
	if err != nil {
		t.Fatal(err)
	}
	policies, _ := set.Policies()
	_, err = policies[0].Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
	return err
}

// cacheFiles are the compiled modules in a cache.
func cacheFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		files[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCache: compiled code is kept in folders of the user's alone, used again,
// and made again when it is damaged in whatever way.
func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "cache")
	var warned []string
	e := extism.New(extism.Options{CacheDir: dir, Warn: func(text string) { warned = append(warned, text) }})
	wasm, _ := guests.Builtin("retry")
	run := func(when string, warnings int) {
		t.Helper()
		warned = nil
		if err := decide(t, e, "retry", wasm); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if len(warned) != warnings {
			t.Errorf("%s: warned %q", when, warned)
		}
	}
	run("empty", 0)
	whole := cacheFiles(t, dir)
	if len(whole) != 2 { // the guest, and Extism's kernel
		t.Fatalf("%d files in the cache", len(whole))
	}
	if goruntime.GOOS != "windows" {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := d.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	run("full", 0)
	for name, change := range map[string]func([]byte) []byte{
		"emptied":       func([]byte) []byte { return nil },
		"cut":           func(b []byte) []byte { return b[:len(b)/2] },
		"cut in header": func(b []byte) []byte { return b[:9] },
		"other code":    func(b []byte) []byte { b[len(b)/2] ^= 0xff; return b },
		"other magic":   func(b []byte) []byte { b[0] ^= 0xff; return b },
		"garbage":       func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) },
		// The number of functions follows the magic and the version.
		"many functions": func(b []byte) []byte {
			binary.LittleEndian.PutUint32(b[7+int(b[6]):], 0xffffffff)
			return b
		},
	} {
		for path, b := range whole {
			if err := os.WriteFile(path, change(bytes.Clone(b)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run(name, 1)
		run("after "+name, 0)
		for path, b := range cacheFiles(t, dir) {
			if !bytes.Equal(b, whole[path]) {
				t.Errorf("%s: %s was not made again", name, path)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the cache has %v, %v", left, err)
	}
}

func TestCacheThatCannotBe(t *testing.T) {
	if goruntime.GOOS == "windows" {
		t.Skip("modes mean nothing here")
	}
	wasm, _ := guests.Builtin("retry")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), link} {
		var warned []string
		e := extism.New(extism.Options{CacheDir: dir, Warn: func(text string) { warned = append(warned, text) }})
		if err := decide(t, e, "retry", wasm); err != nil || len(warned) != 1 || !strings.Contains(warned[0], "not kept") {
			t.Errorf("%s: %v, warned %q", dir, err, warned)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := decide(t, extism.New(extism.Options{CacheDir: open, Warn: func(text string) { t.Error(text) }}), "retry", wasm); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(open); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a folder that others could write is %v now, %v", info.Mode(), err)
	}
}

// TestOutputVariable: the SDK's debugging variable would let a guest write to
// the process's stdout, where an answer belongs.
func TestOutputVariable(t *testing.T) {
	t.Setenv("EXTISM_ENABLE_WASI_OUTPUT", "1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	failed := decide(t, extism.New(extism.Options{}), "writes", runtimetest.Guest(t, "writes"))
	os.Stdout, os.Stderr = stdout, stderr
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(r); err != nil || failed != nil || len(out) != 0 {
		t.Errorf("the guest wrote %q: %v, %v", out, failed, err)
	}
}

// TestOffersWhatIsAllowed: every function that a guest may import is there,
// with the type that the contract gives it.
func TestOffersWhatIsAllowed(t *testing.T) {
	for _, name := range runtimetest.Guests(t) {
		m, err := runtime.Prepare(runtimetest.Guest(t, name), runtime.Grants{MemoryPages: 4096})
		if err != nil || name == "types-do-not-fit" {
			continue
		}
		p, err := extism.New(extism.Options{}).Compile(t.Context(), m)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		i, err := p.Instance(t.Context())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := i.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, imp := range hostabi.Allowed() {
		wasm := importing(imp)
		m, err := runtime.Prepare(wasm, runtime.Grants{})
		if err != nil {
			t.Fatalf("%s.%s is allowed, and refused: %v", imp.Module, imp.Name, err)
		}
		p, err := extism.New(extism.Options{}).Compile(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		i, err := p.Instance(t.Context())
		if err != nil {
			t.Errorf("%s.%s %s: %v", imp.Module, imp.Name, imp.Type, err)
		} else if err := i.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// importing is a module that imports one function, and whose recover returns 0.
func importing(imp hostabi.Import) []byte {
	vec := func(parts ...string) string {
		body := strings.Join(parts, "")
		return string(binary.AppendUvarint(nil, uint64(len(body)))) + body
	}
	types := func(of []hostabi.ValueType) string {
		var b []byte
		for _, v := range of {
			b = append(b, byte(v))
		}
		return vec(string(b))
	}
	return []byte("\x00asm\x01\x00\x00\x00" +
		"\x01" + vec("\x02\x60\x00\x01\x7f\x60"+types(imp.Type.Params)+types(imp.Type.Results)) +
		"\x02" + vec("\x01"+vec(imp.Module)+vec(imp.Name)+"\x00\x01") +
		"\x03" + vec("\x01\x00") +
		"\x05" + vec("\x01\x00\x01") +
		"\x07" + vec("\x01"+vec("recover")+"\x00\x01") +
		"\x0a" + vec("\x01\x04\x00\x41\x00\x0b"))
}
