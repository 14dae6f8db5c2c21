package registry_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"

	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/internal/registry"
)

// A fake is a registry: blobs and manifests by digest and by tag, as much of
// the distribution specification as a push and a pull need.
type fake struct {
	server *httptest.Server
	auth   string // the Authorization that is asked for; "": none

	mu       sync.Mutex
	content  map[string][]byte // by digest, and by tag
	types    map[string]string
	requests int
	lie      func(path string, data []byte) []byte // what is answered in place of the truth
}

func newFake(t *testing.T) *fake {
	f := &fake{content: map[string][]byte{}, types: map[string]string{}}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	return f
}

func (f *fake) host() string { return strings.TrimPrefix(f.server.URL, "http://") }

func digestOf(b []byte) string {
	s := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(s[:])
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.auth != "" && r.Header.Get("Authorization") != f.auth {
		w.Header().Set("WWW-Authenticate", `Basic realm="fake"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/blobs/uploads/"):
		w.Header().Set("Location", r.URL.Path+"1")
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodPut:
		data, _ := io.ReadAll(r.Body)
		if q := r.URL.Query().Get("digest"); q != "" && q != digestOf(data) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, key := range []string{digestOf(data), last} {
			f.content[key], f.types[key] = data, r.Header.Get("Content-Type")
		}
		w.Header().Set("Docker-Content-Digest", digestOf(data))
		w.WriteHeader(http.StatusCreated)
	case f.content[last] == nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		data := f.content[last]
		w.Header().Set("Docker-Content-Digest", digestOf(data))
		w.Header().Set("Content-Type", f.types[last])
		if f.lie != nil {
			data = f.lie(r.URL.Path, data)
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

func retry(t testing.TB) []byte {
	t.Helper()
	wasm, ok := guests.Builtin("retry")
	if !ok {
		t.Fatal("there is no retry")
	}
	return wasm
}

// TestPushPull: what was pushed is what is pulled, by digest; from the cache
// without a word to the registry; and again where the cache is damaged.
func TestPushPull(t *testing.T) {
	f := newFake(t)
	signed, err := hostabi.WithSignature(retry(t), []byte("a signature"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Client{}.Push(t.Context(), "oci://"+f.host()+"/policies/retry:v1", signed)
	if err != nil {
		t.Fatal(err)
	}
	again, err := registry.Client{}.Push(t.Context(), "oci://"+f.host()+"/policies/retry", signed)
	if err != nil || again.Digest != r.Digest || again.Tag != "" {
		t.Errorf("pushed again: %v, %v", again, err)
	}
	found := false
	for _, data := range f.content {
		found = found || string(data) == "a signature"
	}
	if !found || f.content["v1"] == nil || !bytes.Contains(f.content["v1"], []byte(`"org.opencontainers.image.version":"1.0.0"`)) {
		t.Errorf("the registry has no signature, or no tag: %s", f.content["v1"])
	}
	dir := t.TempDir()
	c := registry.Client{Cache: registry.Cache(dir)}
	pull := func(asks bool) {
		t.Helper()
		before := f.requests
		wasm, err := c.Pull(t.Context(), r.String())
		if err != nil || !bytes.Equal(wasm, signed) || (f.requests > before) != asks {
			t.Errorf("pulled %d bytes with %d requests, %v", len(wasm), f.requests-before, err)
		}
	}
	pull(true)
	pull(false)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		pull(true)
		pull(false)
	}
	f.server.Close()
	if wasm, err := c.Pull(t.Context(), r.String()); err != nil || !bytes.Equal(wasm, signed) {
		t.Errorf("without the registry: %v", err)
	}
}

// TestOtherRegistry: what a registry of another make keeps is the same, under
// the same digest.
func TestOtherRegistry(t *testing.T) {
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	signed, err := hostabi.WithSignature(retry(t), []byte("a signature"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Client{}.Push(t.Context(), "oci://"+strings.TrimPrefix(server.URL, "http://")+"/policies/retry:v1", signed)
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := registry.Client{}.Pull(t.Context(), r.String())
	if err != nil || !bytes.Equal(wasm, signed) {
		t.Errorf("%d bytes, %v", len(wasm), err)
	}
	f := newFake(t)
	if here, err := (registry.Client{}).Push(t.Context(), "oci://"+f.host()+"/x", signed); err != nil || here.Digest != r.Digest {
		t.Errorf("%s there, %s here, %v", r.Digest, here.Digest, err)
	}
}

// TestBadRegistries: whatever a registry answers, it is held to the digest and
// the limits, and the error is one line.
func TestBadRegistries(t *testing.T) {
	f := newFake(t)
	r, err := registry.Client{}.Push(t.Context(), "oci://"+f.host()+"/retry", retry(t))
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(path string) bool { return strings.Contains(path, "/manifests/") }
	for _, c := range []struct {
		name string
		lie  func(path string, data []byte) []byte
		want string
	}{
		{"another manifest", func(path string, data []byte) []byte {
			if manifest(path) {
				return []byte(`{"layers":[]}`)
			}
			return data
		}, "digest"},
		{"another module", func(path string, data []byte) []byte {
			if !manifest(path) {
				data = bytes.Clone(data)
				data[len(data)-1] ^= 1
			}
			return data
		}, "the module that came has the digest"},
		{"less", func(path string, data []byte) []byte {
			if !manifest(path) {
				return data[:10]
			}
			return data
		}, "digest"},
		{"too much", func(string, []byte) []byte { return make([]byte, 9<<20) }, ""},
	} {
		f.lie = c.lie
		wasm, err := registry.Client{}.Pull(t.Context(), r.String())
		if err == nil || wasm != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %d bytes, %v", c.name, len(wasm), err)
		}
	}
	f.lie = nil
	missing := r
	missing.Digest = strings.Repeat("0", 64)
	if _, err := (registry.Client{}).Pull(t.Context(), missing.String()); err == nil || !strings.Contains(err.Error(), "does not have it") {
		t.Errorf("missing: %v", err)
	}
	// An artifact that is no module.
	other := []byte(`{"schemaVersion":2,"layers":[{"mediaType":"text/plain","digest":"` + r.Digest + `","size":1}]}`)
	f.content[digestOf(other)], f.types[digestOf(other)] = other, "application/vnd.oci.image.manifest.v1+json"
	missing.Digest = strings.TrimPrefix(digestOf(other), "sha256:")
	if _, err := (registry.Client{}).Pull(t.Context(), missing.String()); err == nil || !strings.Contains(err.Error(), "it is no module") {
		t.Errorf("no module: %v", err)
	}
}

// TestSilentRegistry: one that takes the connection and says nothing is given
// up.
func TestSilentRegistry(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now()
	_, err = registry.Client{Timeout: 100 * time.Millisecond}.Pull(t.Context(), "oci://"+l.Addr().String()+"/retry@sha256:"+strings.Repeat("0", 64))
	if err == nil || !strings.Contains(err.Error(), "does not answer") || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// TestCredentials: those of Docker's file are sent to their registry, and only
// where that is asked for.
func TestCredentials(t *testing.T) {
	f := newFake(t)
	secret := base64.StdEncoding.EncodeToString([]byte("me:sk-canary-77"))
	f.auth = "Basic " + secret
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, f.host(), secret), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := registry.Client{DockerAuth: true}.Push(t.Context(), "oci://"+f.host()+"/retry", retry(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (registry.Client{DockerAuth: true}).Pull(t.Context(), r.String()); err != nil {
		t.Error(err)
	}
	if _, err := (registry.Client{}).Pull(t.Context(), r.String()); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("without: %v", err)
	}
}

func TestParse(t *testing.T) {
	digest := strings.Repeat("a", 64)
	for _, text := range []string{"oci://host/name@sha256:" + digest, "oci://host.example:5000/a/b-c/d_e", "oci://127.0.0.1:1/x:v1.0", "oci://h/n:t@sha256:" + digest, "oci://[::1]:5000/x"} {
		if r, err := registry.Parse(text); err != nil || r.String() != text {
			t.Errorf("%s: %s, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "oci://", "oci://host", "http://host/name", "oci://host/Name", "oci://host/name@sha256:0", "oci://host/name@md5:" + digest, "oci://host/../name", "oci://ho st/name", "oci://host/name:a b", "oci://u@h/n", "oci://host/name?x", "oci://host//n"} {
		if _, err := registry.Parse(text); err == nil {
			t.Errorf("%q is a reference", text)
		}
	}
	if _, err := (registry.Client{}).Pull(t.Context(), "oci://127.0.0.1:1/x:v1"); err == nil || !strings.Contains(err.Error(), "names no digest") {
		t.Errorf("a tag: %v", err)
	}
	if _, err := (registry.Client{}).Push(t.Context(), "oci://127.0.0.1:1/x@sha256:"+digest, retry(t)); err == nil || !strings.Contains(err.Error(), "leave it out") {
		t.Errorf("a digest: %v", err)
	}
}

// FuzzParse: what is read as a reference is written as it was.
func FuzzParse(f *testing.F) {
	f.Add("oci://host:5000/a/b:tag@sha256:" + strings.Repeat("0", 64))
	f.Add("oci://[::1]/x")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := registry.Parse(text); err == nil && r.String() != text {
			t.Errorf("%q is read as %q", text, r.String())
		}
	})
}
