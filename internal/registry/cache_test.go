package registry_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/internal/registry"
)

// TestSweep: what nobody has loaded for a season goes, and beyond a size what
// was loaded longest ago.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	for name, days := range map[string]int{"a.wasm": 1, "b.wasm": 3, "c.wasm": 2, "old.wasm": 100, "old.json": 100} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if registry.Cache(dir).Sweep(1 << 20); !slices.Equal(left(), []string{"a.wasm", "b.wasm", "c.wasm"}) {
		t.Errorf("there are %v", left())
	}
	if registry.Cache(dir).Sweep(250); !slices.Equal(left(), []string{"a.wasm", "c.wasm"}) {
		t.Errorf("there are %v", left())
	}
}
