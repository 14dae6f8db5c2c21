package compiled_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/runtime/internal/compiled"
)

// entry makes an entry with one file.
func entry(t *testing.T, c compiled.Cache, key string) string {
	t.Helper()
	e, err := c.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.Dir, "code"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Commit(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(string(c), key)
}

func age(t *testing.T, path string, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestSweep: what nobody has opened for a month goes when something new comes,
// and so does what a killed process has left.
func TestSweep(t *testing.T) {
	c := compiled.Cache(t.TempDir())
	const list = "SHA256SUMS"
	old, used, recent := entry(t, c, "old"), entry(t, c, "used"), entry(t, c, "recent")
	left, fresh := filepath.Join(string(c), "x.1.tmp"), filepath.Join(string(c), "x.2.tmp")
	for _, dir := range []string{left, fresh} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const month = 31 * 24 * time.Hour
	age(t, filepath.Join(old, list), month)
	age(t, filepath.Join(used, list), month)
	age(t, left, 25*time.Hour)
	if e, err := c.Open("used"); err != nil || e.Dir != used {
		t.Fatal(e, err)
	}
	entry(t, c, "new")
	if exists(old) || exists(left) {
		t.Error("what is old is still there")
	}
	if !exists(used) || !exists(recent) || !exists(fresh) {
		t.Error("what is used is gone")
	}
}

// TestDiscard: a new entry that is thrown away leaves nothing.
func TestDiscard(t *testing.T) {
	c := compiled.Cache(t.TempDir())
	e, err := c.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Discard(nil); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(string(c)); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestSweepBySize: beyond the bound it is what was opened longest ago that goes.
func TestSweepBySize(t *testing.T) {
	c := compiled.Cache(t.TempDir())
	first, second, third := entry(t, c, "first"), entry(t, c, "second"), entry(t, c, "third")
	for dir, by := range map[string]time.Duration{first: time.Hour, second: 3 * time.Hour, third: 2 * time.Hour} {
		age(t, filepath.Join(dir, "SHA256SUMS"), by)
	}
	if c.SweepTo(1 << 20); !exists(first) || !exists(second) || !exists(third) {
		t.Error("what is within the bound is gone")
	}
	if c.SweepTo(170); !exists(first) || !exists(third) || exists(second) { // each has some 80 bytes
		t.Errorf("there are the first %t, the second %t, the third %t", exists(first), exists(second), exists(third))
	}
}

// Compile gives a folder where there is one, goes on without where that fails,
// and survives a compiler that panics.
func TestCompile(t *testing.T) {
	good := func(dir string) error { return os.WriteFile(filepath.Join(dir, "code"), []byte("x"), 0o600) }
	dir := t.TempDir()
	cases := []struct {
		name    string
		cache   compiled.Cache
		compile func(dir string) error
		calls   []bool // with a folder
		warned  int
		fails   string
	}{
		{"no cache", "", func(string) error { return nil }, []bool{false}, 0, ""},
		{"a cache", compiled.Cache(dir), good, []bool{true}, 0, ""},
		{"once more", compiled.Cache(dir), good, []bool{true}, 0, ""},
		{"a cache that is a file", compiled.Cache(filepath.Join(dir, "a cache", "code")), func(string) error { return nil }, []bool{false}, 1, ""},
		{"it panics with a folder", compiled.Cache(dir), func(dir string) error {
			if dir != "" {
				panic("a flipped bit")
			}
			return nil
		}, []bool{true, false}, 0, ""},
		{"it panics", compiled.Cache(dir), func(string) error { panic("a bug") }, []bool{true, false}, 0, "the compiler failed: a bug"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var calls []bool
			warned := 0
			key := c.name
			if key == "once more" {
				key = "a cache"
			}
			err := c.cache.Compile(key, func(string, ...any) { warned++ }, func(dir string) error {
				calls = append(calls, dir != "")
				return c.compile(dir)
			})
			if (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
				t.Errorf("it fails with %v, want %q", err, c.fails)
			}
			if !slices.Equal(calls, c.calls) || warned != c.warned {
				t.Errorf("calls %v, %d warnings; want %v, %d", calls, warned, c.calls, c.warned)
			}
		})
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "a cache" {
		t.Errorf("the cache has %v, %v", entries, err)
	}
}
