package workshop

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dsh-agent/dsh/guests/sdk"
)

// A Project is what New has written.
type Project struct {
	Dir   string   // absolute
	Files []string // relative to Dir, with slashes, sorted
}

// isProjectName holds for a policy's name that is a name in all four languages'
// tools, too: Go's module, Rust's crate, npm's package.
func isProjectName(name string) bool {
	return regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`).MatchString(name) && !strings.HasSuffix(name, "-")
}

// reservedNames are words that a language or its tools keep for themselves: Go's
// special modules, Rust's keywords and crates, folders of the builds, devices of
// Windows.
const reservedNames = " cmd internal vendor main sdk test std core alloc proc-macro deps examples incremental target build node-modules " +
	"as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self " +
	"static struct super trait true type unsafe use where while abstract become box do final macro override priv try typeof unsized virtual yield " +
	"con prn aux nul com1 com2 com3 com4 lpt1 lpt2 lpt3 lpt4 "

func reserved(name string) bool { return strings.Contains(reservedNames, " "+name+" ") }

// New writes a policy's project into the folder parent/name, which must not be
// there. What is wrong with the words is a *WordError.
func New(parent, name, language string) (Project, error) {
	switch {
	case !isProjectName(name):
		return Project{}, wordf("%q is not a policy's name: 1 to 40 of a-z, 0-9 and dash are allowed, the first a letter", name)
	case reserved(name):
		return Project{}, wordf("%q is a word of the tools that build policies: choose another name", name)
	case !slices.Contains(sdk.Languages(), language):
		return Project{}, wordf("there is no kit for the language %q: %s are there, and any other that makes a core WebAssembly module can speak the ABI by itself", language, strings.Join(sdk.Languages(), ", "))
	}
	files, err := projectFiles(name, language)
	if err != nil {
		return Project{}, err
	}
	dir, err := filepath.Abs(filepath.Join(parent, name))
	if err != nil {
		return Project{}, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return Project{}, wordf("%s is there already, and nothing is ever written over", dir)
		}
		return Project{}, wordf("the folder cannot be made: %v", err)
	}
	p := Project{Dir: dir}
	for name, text := range files {
		if err := writeNew(filepath.Join(dir, filepath.FromSlash(name)), text); err != nil {
			return Project{}, fmt.Errorf("the project is not whole: %w", err)
		}
		p.Files = append(p.Files, name)
	}
	slices.Sort(p.Files)
	return p, nil
}

func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(path, ".sh") {
		mode = 0o755
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// place is where a template goes that is not at the top of the project.
func place(language, file string) string {
	switch language + " " + file {
	case "rust lib.rs":
		return "src/lib.rs"
	case "rust config.toml":
		return ".cargo/config.toml"
	case "assemblyscript policy.ts":
		return "assembly/policy.ts"
	case "common gitignore":
		return ".gitignore"
	}
	return file
}

// kitPlace is the folder of a language's kit.
func kitPlace(language string) string {
	switch language {
	case "rust":
		return "src/sdk/"
	case "assemblyscript":
		return "assembly/sdk/"
	}
	return "sdk/"
}

// projectFiles are the files of a project by their paths.
func projectFiles(name, language string) (map[string][]byte, error) {
	files := map[string][]byte{}
	words := strings.NewReplacer("{{name}}", name, "{{crate}}", strings.ReplaceAll(name, "-", "_"), "{{lang}}", language)
	for _, from := range []string{"common", language} {
		templates, err := sdk.Templates(from)
		if err != nil {
			return nil, err
		}
		err = each(templates, func(file string, text []byte) {
			file = strings.TrimSuffix(file, ".txt")
			files[place(from, file)] = []byte(words.Replace(string(text)))
		})
		if err != nil {
			return nil, err
		}
	}
	how := files["language.md"]
	delete(files, "language.md")
	files["README.md"] = bytes.ReplaceAll(files["README.md"], []byte("{{how}}\n"), how)
	kit, err := sdk.Kit(language)
	if err != nil {
		return nil, err
	}
	return files, each(kit, func(file string, text []byte) { files[kitPlace(language)+file] = text })
}

func each(files fs.FS, f func(name string, text []byte)) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err == nil {
			f(path, text)
		}
		return err
	})
}

// A WordError says what is wrong with what the user asked for.
type WordError struct{ Text string }

func (e *WordError) Error() string { return e.Text }

func wordf(format string, args ...any) error { return &WordError{fmt.Sprintf(format, args...)} }
