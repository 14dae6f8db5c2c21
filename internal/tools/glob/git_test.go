package glob_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/tools/glob"
)

// ignoreFiles are the patterns of a tree, by the folder that has them.
type ignoreFiles map[string]string

// TestIgnoreAsGit holds the rules against git itself, over one tree and many
// files of patterns.
func TestIgnoreAsGit(t *testing.T) {
	repo := newRepo(t)
	for _, files := range gitCases() {
		repo.compare(t, files)
	}
	for seed := range uint64(60) {
		repo.compare(t, randomFiles(rand.New(rand.NewPCG(seed, 1))))
	}
}

func gitCases() []ignoreFiles {
	var cases []ignoreFiles
	for _, text := range []string{
		"a", "/a", "a/", "/a/", "a/b", "/a/b", "a/b/", "*.c", "/*.c", "a/*", "a/**", "**/b", "a/**/b", "**", "*", "/*",
		"*\n!a", "*\n!*/\n!*.c", "a\n!a/b", "a/*\n!a/b", "/*\n!/a\n/a/*\n!/a/b", "b.c\n!b.c", "!b.c\nb.c",
		"#a", `\#a`, `\!a`, "a ", `a\ `, "a\t", " a", "\r\na\r\n", "\xef\xbb\xbfa", "a//", "//a", "./a", "a/./b",
		"[ab]", "[!a]", "[^a]", "[a-b].c", "[b-a]", "[]a]", "[a", `\`, `a\`, `\a`, "[[:alpha:]]", "[[:nope:]]", "[[:alpha:]",
		"?", "??", "?.c", "a?b", "*/b", "*/*/b", "*b*", "**b", "a**", "a/**b", "**/", "a/**/", "*/", "**/**/b", "***/b", "{a,b}",
	} {
		cases = append(cases, ignoreFiles{".": text})
	}
	return append(cases,
		ignoreFiles{".": "*.c", "a": "!*.c"},
		ignoreFiles{".": "!b", "a": "b"},
		ignoreFiles{"a": "/b", "a/b": "!c"},
		ignoreFiles{".": "a", "a": "!b"},
		ignoreFiles{"a": "a/b", "b": "*"},
	)
}

func randomFiles(r *rand.Rand) ignoreFiles {
	pieces := []string{"a", "b", "c", ".c", "*", "**", "?", "/", "/", "[ab]", "[!b]", "!", " ", `\`, "#"}
	files := ignoreFiles{}
	for _, dir := range []string{".", "a", "a/b", "b"} {
		var b strings.Builder
		for range r.IntN(5) {
			for range 1 + r.IntN(5) {
				b.WriteString(pieces[r.IntN(len(pieces))])
			}
			b.WriteString("\n")
		}
		files[dir] = b.String()
	}
	return files
}

type repo struct {
	dir   string
	paths []string // a folder ends in a slash
}

func newRepo(t *testing.T) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	r := repo{dir: t.TempDir()}
	if out, err := exec.Command("git", "init", "-q", r.dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	names := []string{"a", "b", "c", "b.c", "ab", "#a", "!a", "a "}
	var grow func(dir string, depth int)
	grow = func(dir string, depth int) {
		for i, n := range names {
			p := path.Join(dir, n)
			if depth < 3 && i < 2 {
				r.paths = append(r.paths, p+"/")
				if err := os.MkdirAll(filepath.Join(r.dir, p), 0o755); err != nil {
					t.Fatal(err)
				}
				grow(p, depth+1)
				continue
			}
			r.paths = append(r.paths, p)
			if err := os.WriteFile(filepath.Join(r.dir, p), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	grow(".", 1)
	return r
}

func (r repo) compare(t *testing.T, files ignoreFiles) {
	t.Helper()
	rules := map[string]glob.Ignore{}
	for _, dir := range []string{".", "a", "a/b", "b"} {
		name := filepath.Join(r.dir, dir, ".gitignore")
		os.Remove(name)
		if text, ok := files[dir]; ok {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			rules[dir] = glob.ParseIgnore([]byte(text))
		}
	}
	cmd := exec.Command("git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin", "-z", "-n", "-v")
	cmd.Dir = r.dir
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(strings.Join(r.paths, "\x00")+"\x00", "/\x00", "\x00"))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: none is ignored
		t.Fatalf("git check-ignore: %v", err)
	}
	fields := strings.Split(string(out), "\x00") // source, line, pattern, path of each
	for i, p := range r.paths {
		pattern := fields[4*i+2]
		want := pattern != "" && !strings.HasPrefix(pattern, "!")
		if got := ignored(rules, p); got != want {
			t.Errorf("%q: ignored %v, and git says %v by the pattern %q of\n%s", p, got, want, pattern, show(files))
			return
		}
	}
}

// ignored walks down to a path as a caller of Ignore does.
func ignored(rules map[string]glob.Ignore, p string) bool {
	elements := strings.Split(strings.TrimSuffix(p, "/"), "/")
	for i := range elements {
		dir := i < len(elements)-1 || strings.HasSuffix(p, "/")
		verdict := glob.Silent
		for up := i; up >= 0 && verdict == glob.Silent; up-- {
			verdict = rules[path.Join(append([]string{"."}, elements[:up]...)...)].Match(strings.Join(elements[up:i+1], "/"), dir)
		}
		if verdict == glob.Ignored {
			return true
		}
	}
	return false
}

func show(files ignoreFiles) string {
	var b strings.Builder
	for dir, text := range files {
		fmt.Fprintf(&b, "%s: %q\n", dir, text)
	}
	return b.String()
}
