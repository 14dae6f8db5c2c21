package config

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/hostabi"
)

// TestNames holds the rules to the patterns that say the same.
func TestNames(t *testing.T) {
	rules := map[string]func(string) bool{
		`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`:   isProviderName,
		`^[a-z0-9][a-z0-9_.-]{0,63}$`:         hostabi.IsPolicyName,
		`^[a-z][a-z0-9_-]{0,31}$`:             isToolName,
		`^[A-Za-z_][A-Za-z0-9_]*$`:            isVariable,
		"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$": isHeader,
	}
	var names []string
	for c := range 300 {
		names = append(names, string(rune(c)), "a"+string(rune(c)), "a"+string(rune(c))+"b")
	}
	for _, n := range []int{1, 31, 32, 33, 63, 64, 65, 256, 257} {
		names = append(names, strings.Repeat("a", n), strings.Repeat("9", n))
	}
	for pattern, rule := range rules {
		re := regexp.MustCompile(pattern)
		for _, name := range append(names, "", "a\n", "\xff", "a\xff") {
			if got, want := rule(name), re.MatchString(name); got != want {
				t.Errorf("%q: %v, and %s says %v", name, got, pattern, want)
			}
		}
	}
}
