package glob_test

import (
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/tools/glob"
)

func TestCompile(t *testing.T) {
	cases := []struct {
		pattern  string
		yes, not string // paths, apart by spaces
	}{
		{"*.go", "a.go d/a.go d/e/.go", "a.gox a.go/b"},
		{"a.go", "a.go d/a.go", "b/a.gox"},
		{"/a.go", "a.go", "d/a.go"},
		{"./a.go", "a.go d/a.go", "b.go"},
		{"src/*.go", "src/a.go", "src/d/a.go x/src/a.go"},
		{"src/**/*.go", "src/a.go src/d/a.go src/d/e/a.go", "a.go x/src/a.go"},
		{"**/*.go", "a.go d/a.go", "a.gox"},
		{"src/**", "src/a src/d/e", "srcx src/"[:4]},
		{"src/", "src/a src/d/e", "src x/src/a"},
		{"**/t/**", "t/a d/t/a/b", "t"},
		{"*.{ts,tsx}", "a.ts d/a.tsx", "a.tsxx a.js"},
		{"{src,test}/**/*.ts", "src/a.ts test/d/a.ts", "lib/a.ts"},
		{"{a,b{c,d}}", "a bc bd", "b c"},
		{"{**/a,b}/c", "x/y/a/c b/c a/c", "x/b/c"},
		{"!*.go", "a.c go", "a.go d/a.go"},
		{"a?c", "abc aéc x/a.c", "ac a/c"},
		{"[a-c]x", "ax cx", "dx"},
		{"[!a-c]x", "dx", "ax"},
		{"[]x]y", "]y xy", "ay"},
		{"[[:digit:]]*", "1 12a", "a1"},
		{`\*a`, "*a", "ba"},
		{`\{a\}`, "{a}", "a"},
		{"a[+-0]b", "a.b a0b", "a/b"},
		{"a,b", "a,b", "a b"},
		{"a}b", "a}b", "ab"},
	}
	for _, c := range cases {
		p, err := glob.Compile(c.pattern)
		if err != nil {
			t.Errorf("%q: %v", c.pattern, err)
			continue
		}
		for _, path := range strings.Fields(c.yes) {
			if !p.Match(path) {
				t.Errorf("%q does not match %q", c.pattern, path)
			}
		}
		for _, path := range strings.Fields(c.not) {
			if p.Match(path) {
				t.Errorf("%q matches %q", c.pattern, path)
			}
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                        "empty",
		"/":                       "empty",
		"!":                       "empty",
		"[a":                      "within a [class]",
		`a\`:                      "after a backslash",
		"{a,b":                    "no }",
		"[[:word:]]":              "[:word:]",
		strings.Repeat("a", 5000): "at most 4096",
	} {
		if _, err := glob.Compile(pattern); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: error %v, want one with %q", pattern, err, want)
		}
	}
}

func TestInvalidUTF8(t *testing.T) {
	p, err := glob.Compile("caf\xe9*")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Match("caf\xe9.txt") {
		t.Error("a name that is not UTF-8 is not matched")
	}
	if v := glob.ParseIgnore([]byte("\xff*\n")).Match("\xffa", false); v != glob.Ignored {
		t.Errorf("verdict %v", v)
	}
}

// TestLinear holds the promise that no pattern is slow: a backtracking matcher
// would not come back from these.
func TestLinear(t *testing.T) {
	pattern := strings.Repeat("*a", 60) + "*b"
	p, err := glob.Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if p.Match(strings.Repeat("a", 4000)) {
		t.Error("matched")
	}
	if v := glob.ParseIgnore([]byte("/"+strings.Repeat("**/", 60)+"b")).Match(strings.Repeat("a/", 2000)+"a", false); v != glob.Silent {
		t.Errorf("verdict %v", v)
	}
}

func TestIgnoreCounts(t *testing.T) {
	ig := glob.ParseIgnore([]byte(strings.Repeat("x\n", glob.MaxRules) + "y\n"))
	if ig.Match("y", false) != glob.Silent || ig.Match("x", false) != glob.Ignored {
		t.Error("the ceiling on rules does not hold")
	}
	if !(glob.Ignore{}).Empty() || ig.Empty() {
		t.Error("Empty")
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("*.{go,c}", "a/b.go")
	f.Add("**/[!a-z]/**", "A/b")
	f.Add("[[:alpha:]-\\]]", "-")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if p, err := glob.Compile(pattern); err == nil {
			p.Match(path)
		}
		ig := glob.ParseIgnore([]byte(pattern))
		if v, w := ig.Match(path, true), ig.Match(path, true); v != w {
			t.Errorf("two verdicts: %v, %v", v, w)
		}
	})
}
