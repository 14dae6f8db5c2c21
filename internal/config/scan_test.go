package config_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/config"
)

// TestEveryKeyHasAPlace runs over the documents of the public TOML test suite,
// which the library's module carries.
func TestEveryKeyHasAPlace(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/BurntSushi/toml").Output()
	if err != nil {
		t.Skip("the library's source cannot be found: ", err)
	}
	suite := filepath.Join(strings.TrimSpace(string(out)), "internal", "toml-test", "tests")
	n := 0
	err = filepath.WalkDir(suite, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".toml" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		keys, err := config.Unplaced(string(b))
		if err != nil || len(keys) > 0 {
			t.Errorf("%s: %v %q", filepath.Base(path), err, keys)
		}
		return nil
	})
	if err != nil || n < 500 {
		t.Skipf("%d documents: %v", n, err)
	}
}
