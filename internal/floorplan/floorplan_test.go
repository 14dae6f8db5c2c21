// Package floorplan holds the rooms of this module to the plan of the house:
// which room may import which, and in which one room a module from outside may
// be named. It is a test and nothing else. Whoever needs a new arrow adds it
// here, where a reviewer sees it.
package floorplan_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dsh-agent/dsh"

// A room is a folder with all below it that is no room of its own. Inside one,
// packages import each other as they like.
type room struct {
	uses  []string // rooms that it may import
	tests []string // rooms that its tests may import besides
}

// rooms is the plan. "." is the root package, which imports the standard
// library alone. Rooms on one floor are not in each other's lists.
func rooms() map[string]room {
	adapter := room{uses: []string{".", "adapters/internal"}, tests: []string{"adapters/adaptertest", "adapters/scripted"}}
	store := room{uses: []string{"."}, tests: []string{"store/storetest"}}
	return map[string]room{
		".":                    {},
		"hostabi":              {uses: []string{"."}, tests: []string{"guests"}},
		"guests":               {tests: []string{".", "hostabi", "runtime", "runtime/extism", "runtime/native"}}, // its guests, run
		"runtime":              {uses: []string{".", "hostabi"}, tests: []string{"guests", "runtime/extism", "runtime/native", "runtime/runtimetest"}},
		"runtime/extism":       {uses: []string{".", "hostabi", "runtime"}, tests: []string{"guests", "runtime/runtimetest"}},
		"runtime/worker":       {uses: []string{".", "hostabi", "runtime"}, tests: []string{"runtime/extism", "runtime/native", "runtime/runtimetest"}},
		"runtime/native":       {uses: []string{".", "hostabi", "runtime"}, tests: []string{"guests", "runtime/extism", "runtime/runtimetest"}},
		"runtime/runtimetest":  {uses: []string{".", "hostabi", "runtime"}},
		"store":                {uses: []string{"."}, tests: []string{"store/memory"}}, // what is over every store
		"store/badger":         {uses: []string{".", "internal/seal"}, tests: []string{"store/storetest"}},
		"store/memory":         store,
		"store/sqlite":         {uses: []string{"."}, tests: []string{"store/memory"}},                                    // a file to query, not a log
		"store/shared":         {uses: []string{"."}, tests: []string{"store/storetest", "store/memory", "store/badger"}}, // around any store
		"store/storetest":      {uses: []string{"."}, tests: []string{"store/memory"}},
		"adapters/internal":    {uses: []string{"."}},
		"adapters/adaptertest": {uses: []string{".", "adapters/internal"}, tests: []string{"adapters/openaichat"}},
		"adapters/openaichat":  adapter,
		"adapters/anthropic":   adapter,
		"adapters/scripted":    {uses: []string{".", "adapters/internal"}, tests: []string{"adapters/adaptertest", "adapters/openaichat"}},
		"internal/schema":      {},
		"loop":                 {uses: []string{".", "hostabi", "internal/schema"}, tests: []string{"internal/redact", "store/memory", "store/storetest", "store/storetest", "adapters/scripted", "adapters/openaichat"}},
		"internal/config":      {uses: []string{".", "hostabi"}},
		"internal/registry":    {uses: []string{".", "hostabi"}, tests: []string{"guests"}},
		"internal/signature":   {uses: []string{".", "hostabi"}, tests: []string{"guests"}},
		"internal/seal":        {},
		"internal/redact":      {uses: []string{"."}},
		"internal/tools":       {uses: []string{"."}},
		"internal/mcp":         {uses: []string{"."}},
		"internal/cli":         {uses: []string{".", "loop", "store"}, tests: []string{"store/memory"}},
		"internal/workshop":    {uses: []string{".", "hostabi", "guests"}, tests: []string{"loop", "store/memory", "adapters/scripted", "adapters/openaichat"}},
		"internal/floorplan":   {},
		"cmd/dsh":              {uses: []string{"*"}},
		"examples":             {uses: public()},
	}
}

// public are the rooms that others may import.
func public() []string {
	return []string{".", "hostabi", "guests", "runtime", "runtime/extism", "runtime/native", "loop", "store", "store/badger", "store/memory", "store/shared",
		"adapters/openaichat", "adapters/anthropic", "adapters/scripted"}
}

// modules gives each module from outside its one room.
func modules() map[string]string {
	return map[string]string{
		"github.com/dgraph-io/badger/v4":            "store/badger",
		"golang.org/x/sys":                          "store", // of badger and shared: free space, locks, a socket's user
		"modernc.org/sqlite":                        "store/sqlite",
		"github.com/sashabaranov/go-openai":         "adapters/openaichat",
		"github.com/anthropics/anthropic-sdk-go/v2": "adapters/anthropic",
		"github.com/tetratelabs/wazero":             "runtime", // its engines are below it
		"github.com/extism/go-sdk":                  "runtime/extism",
		"oras.land/oras-go/v2":                      "internal/registry",
		"github.com/opencontainers/image-spec":      "internal/registry", // the types of its descriptors
		"aead.dev/minisign":                         "internal/signature",
		"github.com/fsnotify/fsnotify":              "runtime", // the policies folder
		"github.com/BurntSushi/toml":                "internal/config",
		"github.com/modelcontextprotocol/go-sdk":    "internal/mcp",
		"github.com/spf13/cobra":                    "internal/cli",
		"github.com/spf13/pflag":                    "internal/cli",
		"golang.org/x/term":                         "internal/cli",
	}
}

// testModules are those that any test may use besides: stories, terminals, a
// registry, and a judge of schemas.
func testModules() []string {
	return []string{"github.com/rogpeppe/go-internal", "golang.org/x/sys", "github.com/google/go-containerregistry", "github.com/santhosh-tekuri/jsonschema/v6"}
}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// list reads the packages as they are on one system: files for other systems
// have imports of their own.
func list(t *testing.T, goos string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// roomOf is the room of a package of this module, or "". The root package's
// room has no other.
func roomOf(importPath string) string {
	if importPath == module {
		return "."
	}
	plan := rooms()
	for dir := strings.TrimPrefix(importPath, module+"/"); dir != "."; dir = path.Dir(dir) {
		if _, ok := plan[dir]; ok {
			return dir
		}
	}
	return ""
}

func within(importPath, root string) bool {
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

// fault says what is wrong with an import of a package, or "".
func fault(from, imported string, test bool) string {
	here := roomOf(from)
	r := rooms()[here]
	switch first, _, _ := strings.Cut(imported, "/"); {
	case here == "":
		return "belongs to no room of the plan"
	case !strings.Contains(first, "."):
		return "" // the standard library
	case within(imported, module):
		there := roomOf(imported)
		allowed := r.uses
		if test {
			allowed = slices.Concat(allowed, r.tests, []string{"."})
		}
		if there == here || slices.Contains(allowed, there) || slices.Contains(allowed, "*") {
			return ""
		}
		return "must not import " + imported + ": the plan has no arrow from " + here + " to " + there
	}
	onlyTests := false
	for _, m := range testModules() {
		if within(imported, m) && test {
			return ""
		}
		onlyTests = onlyTests || within(imported, m)
	}
	for m, home := range modules() {
		if within(imported, m) {
			if within(here, home) {
				return ""
			}
			return "must not import " + imported + ": its one room is " + home
		}
	}
	if onlyTests {
		return "must not import " + imported + ": it is for tests only"
	}
	return "must not import " + imported + ": the plan has no room for it"
}

func TestFloors(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs go list")
	}
	found := map[string]bool{}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, p := range list(t, goos) {
			if why := fault(p.ImportPath, "errors", false); why != "" {
				found[p.ImportPath+" "+why] = true
			}
			for _, i := range p.Imports {
				if why := fault(p.ImportPath, i, false); why != "" {
					found[p.ImportPath+" "+why] = true
				}
			}
			for _, i := range append(p.TestImports, p.XTestImports...) {
				if why := fault(p.ImportPath, i, true); why != "" {
					found[p.ImportPath+" (test) "+why] = true
				}
			}
			if bad := []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base"}; slices.Contains(bad, path.Base(p.ImportPath)) {
				found[p.ImportPath+" has a name that says nothing"] = true
			}
		}
	}
	for _, f := range slices.Sorted(maps.Keys(found)) {
		t.Error(f)
	}
}

// TestFaults holds that the plan can be broken.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		from, imported string
		test           bool
		want           string // "": allowed
	}{
		{"", "encoding/json", false, ""},
		{"", "/hostabi", false, "no arrow"},
		{"/loop", "", false, ""},
		{"/loop", "/store/memory", false, "no arrow from loop to store/memory"},
		{"/loop", "/store/memory", true, ""},
		{"/loop", "/runtime", true, "no arrow"},
		{"/store/badger", "/store/memory", false, "no arrow"},
		{"/store/badger", "github.com/dgraph-io/badger/v4/options", false, ""},
		{"/store/memory", "github.com/dgraph-io/badger/v4", true, "its one room is store/badger"},
		{"/store/badger", "github.com/dgraph-io/badger/v3", false, "no room for it"},
		{"/loop", "github.com/rogpeppe/go-internal/txtar", true, ""},
		{"/loop", "github.com/rogpeppe/go-internal/txtar", false, "for tests only"},
		{"/cmd/dsh", "golang.org/x/sys/unix", true, ""},
		{"/cmd/dsh", "golang.org/x/sys/unix", false, "its one room is store"},
		{"/adapters/internal/sse", "/adapters/internal/wire", false, ""},
		{"/adapters/openaichat", "/adapters/anthropic", false, "no arrow"},
		{"/examples/a/b", "/internal/cli", false, "no arrow"},
		{"/examples/a/b", "/loop", false, ""},
		{"/cmd/dsh", "/internal/cli", false, ""},
		{"/cmd/dsh", "github.com/spf13/cobra", false, "its one room is internal/cli"},
		{"/pkg/new", "errors", false, "no room"},
	} {
		imported := c.imported
		if imported == "" || imported[0] == '/' {
			imported = module + imported
		}
		got := fault(module+c.from, imported, c.test)
		if c.want == "" && got != "" || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: %q, want %q", c.from, c.imported, got, c.want)
		}
	}
}

// TestModulesHaveRooms holds that go.mod requires nothing but what has a room,
// and that every room's module is required.
func TestModulesHaveRooms(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if _, ok := modules()[r.Path]; !ok && !r.Indirect && !slices.Contains(testModules(), r.Path) {
			t.Errorf("go.mod requires %s, for which the plan has no room", r.Path)
		}
	}
	for m := range modules() {
		if !slices.ContainsFunc(mod.Require, func(r struct {
			Path     string
			Indirect bool
		}) bool {
			return r.Path == m
		}) {
			t.Errorf("the plan has a room for %s, which go.mod does not require", m)
		}
	}
}
