package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh/internal/config"
)

// many repeats a text with a number up to a good part of the size that is read.
func many(head, text string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len() < 100<<10; i++ {
		fmt.Fprintf(&b, text, i)
	}
	return b.String()
}

// TestBombs gives documents that are small enough to be read and hard enough
// to hurt: each ends soon, in a problem or a configuration.
func TestBombs(t *testing.T) {
	const n = 1 << 17
	for name, text := range map[string]string{
		"open brackets":     "x = " + strings.Repeat("[", n),
		"open braces":       "x = " + strings.Repeat("{a=", n/3),
		"headers":           strings.Repeat("[", n),
		"dots":              strings.Repeat("a.", n) + "a=1",
		"dots in a header":  "[" + strings.Repeat("a.", n) + "a]",
		"a hidden nest":     "x = \"\\q\" " + strings.Repeat("[", n),
		"many unknown keys": strings.Repeat("[[a]]\n", n/8),
		"a long word":       "[agent]\n" + strings.Repeat("k", n) + " = 1\n",
		"a long text":       "[agent]\nmax_steps = \"" + strings.Repeat("k", n) + "\"\n",
		"many quotes":       "x = " + strings.Repeat("\"", n),
		"many headers":      many("[providers.p]\nbase_url=\"https://h\"\n[providers.p.headers]\n", "x%d=\"\"\n") + "[x]\n",
		"many secrets":      many("[providers.p]\nbase_url=\"https://h\"\n[providers.p.headers_env]\n", "x%d=\"A\"\n") + "[x]\n",
		"many keys":         "x = 1\n[recovery]\nkeys = [" + many("", "\"%d\",") + "]\n",
		"many policies":     many("", "[[recovery.policy]]\nname=\"p%d\"\nmodule=\"builtin:retry\"\n"),
		"many providers":    many("x = 1\n", "[providers.p%d]\nbase_url=\"https://h\"\n"),
		"one long line":     "x = [" + strings.Repeat("1,", n/2) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).named(text)
			w.src.Support = complete()
			begin := time.Now()
			_, _, err := config.Load(w.src)
			if err == nil {
				t.Fatal("it holds")
			}
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				if len(line) > 2000 {
					t.Fatalf("a line of %d bytes", len(line))
				}
			}
		})
	}
}
