package extism_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime/extism"
)

// public is a plugin that others have published: those that the SDK is tested
// with, from the folder of its source.
func public(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/extism/go-sdk").Output()
	path := filepath.Join(strings.TrimSpace(string(out)), "wasm", name)
	if _, serr := os.Stat(path); err != nil || serr != nil {
		t.Skipf("the SDK's source is not here: %v %v", err, serr)
	}
	return path
}

func newTool(t *testing.T, s extism.ToolSpec) *extism.Tool {
	t.Helper()
	if s.Name == "" {
		s.Name = "plug"
	}
	tool, err := extism.NewTool(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tool.Close() })
	return tool
}

func input(s string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{"input": s})
	if err != nil {
		panic(err)
	}
	return raw
}

func run(t *testing.T, tool *extism.Tool, arguments json.RawMessage) (string, bool) {
	t.Helper()
	r, err := tool.Run(t.Context(), arguments)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Content) != 1 || r.Content[0].Text == "" {
		t.Fatalf("%+v", r)
	}
	return dsh.Text(r.Content), r.IsError
}

// TestPublicPlugins holds that plugins of public kits in several languages are
// tools as they are.
func TestPublicPlugins(t *testing.T) {
	mnt := t.TempDir()
	if err := os.WriteFile(filepath.Join(mnt, "test.txt"), []byte("hello world!"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		language string
		spec     extism.ToolSpec
		input    string
		want     string
	}{
		{"Rust", extism.ToolSpec{Module: "count_vowels.wasm", Function: "count_vowels"}, "hello world", `"count":3`},
		{"Haskell", extism.ToolSpec{Module: "hello_haskell.wasm", Function: "testing", Config: map[string]string{"greeting": "Howdy"}}, "John", "Howdy, John"},
		{"Go, config", extism.ToolSpec{Module: "config.wasm", Function: "run_test", Config: map[string]string{"thing": "hello"}}, "", "hello"},
		{"Go, files", extism.ToolSpec{Module: "fs.wasm", Function: "run_test", Write: []string{mnt + ":/mnt"}}, "", "hello world!"},
	} {
		t.Run(c.language, func(t *testing.T) {
			c.spec.Module = public(t, c.spec.Module)
			if c.language == "Haskell" { // its code uses SIMD
				if _, err := extism.NewTool(c.spec); err == nil || !strings.Contains(err.Error(), "pin it by sha256") {
					t.Errorf("without a pin: %v", err)
				}
				data, err := os.ReadFile(c.spec.Module)
				if err != nil {
					t.Fatal(err)
				}
				sum := sha256.Sum256(data)
				c.spec.SHA256 = hex.EncodeToString(sum[:])
			}
			tool := newTool(t, c.spec)
			for range 2 { // a fresh instance each
				if got, failed := run(t, tool, input(c.input)); failed || !strings.Contains(got, c.want) {
					t.Errorf("%v %q", failed, got)
				}
			}
			var running sync.WaitGroup
			for range 4 {
				running.Go(func() {
					if r, err := tool.Run(t.Context(), input(c.input)); err != nil || r.IsError {
						t.Errorf("side by side: %v %+v", err, r)
					}
				})
			}
			running.Wait()
		})
	}
}

// TestToolFolders holds that a plugin reads and changes what it is given, and
// nothing else.
func TestToolFolders(t *testing.T) {
	outer := t.TempDir()
	mnt := filepath.Join(outer, "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(mnt, "test.txt")
	reset := func(link string) {
		t.Helper()
		os.Remove(file)
		os.WriteFile(filepath.Join(outer, "secret"), []byte("outside"), 0o600)
		var err error
		if link == "" {
			err = os.WriteFile(file, []byte("inside"), 0o600)
		} else {
			err = os.Symlink(link, file)
		}
		if err != nil {
			t.Skip(err)
		}
	}
	module := public(t, "read_write.wasm")
	tool := func(function string, read, write []string) *extism.Tool {
		return newTool(t, extism.ToolSpec{Module: module, Function: function, Read: read, Write: write, Config: map[string]string{"path": "/mnt/test.txt"}})
	}
	there := []string{mnt + ":/mnt"}
	for _, c := range []struct {
		name, link, function string
		read, write          []string
		want                 string // of the file; "": it fails
	}{
		{"read", "", "try_read", there, nil, "inside"},
		{"read what may be changed", "", "try_read", nil, there, "inside"},
		{"read what is not given", "", "try_read", nil, nil, ""},
		{"write", "", "try_write", nil, there, "insidechanged"},
		{"write what is to read", "", "try_write", there, nil, ""},
		{"read by a link out", "../secret", "try_read", there, nil, ""},
		{"read by a link out of what may be changed", "../secret", "try_read", nil, there, ""},
		{"write by a link out", "../secret", "try_write", nil, there, ""},
		{"write by an absolute link", filepath.Join(outer, "secret"), "try_write", nil, there, ""},
		{"write by a link to nothing", "../new", "try_write", nil, there, ""},
	} {
		reset(c.link)
		got, failed := run(t, tool(c.function, c.read, c.write), input("changed"))
		text, _ := os.ReadFile(file)
		if c.want == "" && (!failed || strings.Contains(got, "outside")) {
			t.Errorf("%s: %v %q", c.name, failed, got)
		}
		if c.want != "" && (failed || string(text) != c.want) {
			t.Errorf("%s: %v %q, the file has %q", c.name, failed, got, text)
		}
		if secret, _ := os.ReadFile(filepath.Join(outer, "secret")); string(secret) != "outside" {
			t.Fatalf("%s: what is outside is %q", c.name, secret)
		}
		if _, err := os.Lstat(filepath.Join(outer, "new")); err == nil {
			t.Fatalf("%s: a file was made outside", c.name)
		}
	}
}

// TestToolHTTP holds that a plugin speaks to the hosts that it is given, also
// where it is redirected.
func TestToolHTTP(t *testing.T) {
	module := public(t, "http_headers.wasm")
	var mu sync.Mutex
	asked := map[string]int{}
	var hs *httptest.Server
	hs = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Host+r.URL.Path]++
		mu.Unlock()
		w.Header().Set("X-Test", "yes")
		elsewhere := strings.Replace(hs.URL, "127.0.0.1", "localhost", 1)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere+"/secret", http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/flood":
			for chunk := make([]byte, 1<<20); r.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		case "/slow":
			<-r.Context().Done()
		}
		fmt.Fprint(w, "hello")
	}))
	defer hs.Close()
	elsewhere := strings.Replace(hs.URL, "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		hosts []string
		url   string
		want  string
		fails bool
	}{
		{[]string{"127.0.0.1"}, hs.URL + "/good", `"x-test":"yes"`, false},
		{[]string{"127.*"}, hs.URL + "/near", `"x-test":"yes"`, false},
		{[]string{"localhost", "127.0.0.1"}, hs.URL + "/away", `"x-test":"yes"`, false},
		{nil, hs.URL + "/good", "HTTP to http://127.0.0.1", true},
		{[]string{"localhos"}, elsewhere + "/good", "is not allowed", true},
		{[]string{"127.0.0.1"}, hs.URL + "/away", "HTTP to http://localhost", true},
		{[]string{"127.0.0.1"}, hs.URL + "/file", "HTTP to file:// is not allowed", true},
		{[]string{"127.0.0.1"}, hs.URL + "/loop", "more than 5 redirects", true},
		{[]string{"127.0.0.1"}, hs.URL + "/flood", "is larger than", true},
		{[]string{"127.0.0.1"}, hs.URL + "/slow", "its 2s were up", true},
		{[]string{"*"}, "file:///etc/passwd", "is not allowed", true},
		{[]string{"127.0.0.1"}, "http://127.0.0.1:1@localhost:1/", "is not allowed", true},
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		tool := newTool(t, extism.ToolSpec{Module: module, Function: "http_get", Hosts: c.hosts, Timeout: 2 * time.Second, Schema: json.RawMessage(`{"type":"object"}`)})
		args, _ := json.Marshal(map[string]string{"url": c.url})
		if got, failed := run(t, tool, args); failed != c.fails || !strings.Contains(got, c.want) {
			t.Errorf("%v %s: %v %q", c.hosts, c.url, failed, got)
		}
		mu.Lock()
		for where := range asked {
			if strings.HasPrefix(where, "localhost") && c.fails {
				t.Errorf("%v %s: %s was asked", c.hosts, c.url, where)
			}
		}
		mu.Unlock()
	}
}

// TestHostileTools holds that every hostile policy is contained as a tool, too.
func TestHostileTools(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a hundred modules")
	}
	files, err := filepath.Glob("../runtimetest/testdata/*.wasm")
	if err != nil || len(files) < 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	refused, failed := 0, 0
	for _, f := range files {
		tool, err := extism.NewTool(extism.ToolSpec{Name: "hostile", Module: f, Function: "recover", MemoryMB: 16, Timeout: 200 * time.Millisecond})
		if err != nil {
			refused++
			continue
		}
		began := time.Now()
		r, err := tool.Run(t.Context(), input(`{"x":1}`))
		if d := time.Since(began); err != nil || d > 20*time.Second {
			t.Errorf("%s: %v after %v", f, err, d)
		}
		if r.IsError {
			failed++
		}
		if len(dsh.Text(r.Content)) > 66<<10 {
			t.Errorf("%s: %d bytes", f, len(dsh.Text(r.Content)))
		}
		if err := tool.Close(); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	t.Logf("%d modules: %d refused, %d failed", len(files), refused, failed)
	if refused == 0 || failed < 30 {
		t.Errorf("of %d hostile modules %d are refused and %d fail", len(files), refused, failed)
	}
}

func TestToolRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.wasm")
	if err := os.WriteFile(text, []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := "../runtimetest/testdata/echo.wasm"
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	for _, c := range []struct {
		spec extism.ToolSpec
		want string // "": it is taken
	}{
		{extism.ToolSpec{Module: good, Function: "recover"}, ""},
		{extism.ToolSpec{Module: good, Function: "recover", SHA256: hex.EncodeToString(sum[:])}, ""},
		{extism.ToolSpec{Module: good, Function: "recover", SHA256: strings.Repeat("0", 64)}, "has other bytes than its sha256 allows"},
		{extism.ToolSpec{Module: good, Function: "nothing"}, `exports no function "nothing"`},
		{extism.ToolSpec{Module: text, Function: "f"}, "text.wasm: "},
		{extism.ToolSpec{Module: dir, Function: "f"}, "no regular file"},
		{extism.ToolSpec{Module: dir + "/none", Function: "f"}, "no such file"},
		{extism.ToolSpec{Module: good, Function: "recover", Read: []string{dir + "/none"}}, "no such file"},
	} {
		tool, err := extism.NewTool(c.spec)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if tool != nil {
			tool.Close()
		}
	}
}

func TestToolCancel(t *testing.T) {
	tool := newTool(t, extism.ToolSpec{Module: public(t, "sleep.wasm"), Function: "run_test", Config: map[string]string{"duration": "60000"}, Timeout: time.Minute})
	why := errors.New("stopped by a test")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	began := time.Now()
	if r, err := tool.Run(ctx, input("")); !errors.Is(err, why) || time.Since(began) > 20*time.Second {
		t.Errorf("%v after %v: %+v", err, time.Since(began), r)
	}
	if got := tool.Spec(); !got.ReadOnly || got.Name != "plug" || !strings.Contains(string(got.Schema), `"input"`) {
		t.Errorf("%+v", got)
	}
}
