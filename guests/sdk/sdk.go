// Package sdk holds what policies are written with, in Go, Rust, C and
// AssemblyScript, and the projects that `dsh policy new` makes: as files, so
// that dsh brings them along. Each kit is a folder that an author's project has
// a copy of, and depends on nothing.
package sdk

import (
	"embed"
	"io/fs"
)

//go:embed go/types.go go/decide.go go/host.go go/kernel_wasip1.go go/kernel_other.go rust/*.rs c/dsh.h c/dsh.c assemblyscript/*.ts assemblyscript/*.mjs
var kits embed.FS

//go:embed templates
var templates embed.FS

// Languages returns the names of the languages that there is a kit for.
func Languages() []string { return []string{"go", "rust", "c", "assemblyscript"} }

// Kit returns the files of a language's kit.
func Kit(language string) (fs.FS, error) { return fs.Sub(kits, language) }

// Templates returns the files that a project of a language begins as, or with
// "common" those of all. Each name ends in .txt more than the file's.
func Templates(language string) (fs.FS, error) { return fs.Sub(templates, "templates/"+language) }
