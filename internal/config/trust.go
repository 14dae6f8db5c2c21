package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Sizes over which a file is not read: the cap on a module is that of the
// guest ABI, instructions have to fit a system prompt.
const (
	maxModule       = 8 << 20
	maxInstructions = 64 << 10
	maxTrust        = 1 << 20
	agentsName      = "AGENTS.md"
)

// A Record is what a user has trusted in one folder. There is one file a
// folder, of the user's alone and outside of the folder, so that nothing in a
// repository can speak for itself, and two commands cannot undo each other.
type Record struct {
	Folder    string        `json:"folder"`    // absolute, symbolic links resolved
	TrustedAt int64         `json:"trustedAt"` // Unix ms
	Files     []TrustedFile `json:"files"`
}

// A TrustedFile is one file with the digest of the bytes that were trusted.
type TrustedFile struct {
	Path   string `json:"path"` // absolute, symbolic links resolved but for dsh.toml and AGENTS.md
	SHA256 string `json:"sha256"`
}

func (r *Record) digest(path string) string {
	if r != nil {
		for _, f := range r.Files {
			if f.Path == path {
				return f.SHA256
			}
		}
	}
	return ""
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// here is what counts of the working folder.
type here struct {
	file         string // path of dsh.toml
	data         []byte // nil: there is none, or it is left aside
	pins         map[string]string
	instructions *Instructions
}

// workingFolder reads what the working folder holds, and leaves aside, with
// one notice, what is not trusted.
func (l *loader) workingFolder() here {
	folder, err := filepath.EvalSymlinks(l.cwd)
	if err != nil {
		return here{}
	}
	var h here
	var aside []string
	record, fault := l.readRecord(folder)
	if fault != "" {
		aside = append(aside, fault)
	}
	h.file = filepath.Join(folder, fileName)
	if l.src.File == "" && l.variable("DSH_CONFIG") == "" && !l.isUsers(h.file) {
		data, pins, why := l.trustedFile(h.file, record)
		if why != "" {
			aside = append(aside, why)
		}
		h.data, h.pins = data, pins
	}
	if l.src.Support.Instructions {
		in, why := trustedInstructions(filepath.Join(folder, agentsName), record)
		if why != "" {
			aside = append(aside, why)
		}
		h.instructions = in
	}
	if len(aside) > 0 && !(len(aside) == 1 && fault != "") {
		l.notices = append(l.notices, oneLine(fmt.Sprintf("left aside in %s: %s; read it, then say \"dsh config trust\" for it to count", folder, strings.Join(aside, ", "))))
	}
	return h
}

// isUsers reports whether a file is the user's own configuration, which is
// found anyway and needs no trust.
func (l *loader) isUsers(path string) bool {
	dir := l.home("XDG_CONFIG_HOME", ".config")
	if dir == "" {
		return false
	}
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := os.Stat(filepath.Join(dir, fileName))
	return err == nil && os.SameFile(a, b) && !isLink(path)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err != nil || info.Mode()&fs.ModeSymlink != 0
}

// trustedFile gives dsh.toml with the digests of its modules, if it and they
// are as they were trusted; else why not.
func (l *loader) trustedFile(path string, record *Record) (data []byte, pins map[string]string, why string) {
	data, err := readRegular(path, maxFile)
	switch known := record.digest(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, ""
	case err != nil:
		return nil, nil, fmt.Sprintf("%s (%v)", fileName, err)
	case known == "":
		return nil, nil, fileName + " (not trusted yet)"
	case known != digestOf(data):
		return nil, nil, fileName + " (it has changed since it was trusted)"
	}
	files, _ := l.modulesOf(path, data)
	pins = map[string]string{}
	for _, f := range files {
		if f.SHA256 == "" || record.digest(f.Path) != f.SHA256 {
			return nil, nil, fmt.Sprintf("%s (the file %s that it names has changed since it was trusted)", fileName, f.Path)
		}
		pins[f.Path] = f.SHA256
	}
	return data, pins, ""
}

func trustedInstructions(path string, record *Record) (*Instructions, string) {
	data, err := readRegular(path, maxInstructions)
	switch known := record.digest(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ""
	case err != nil:
		return nil, fmt.Sprintf("%s (%v)", agentsName, err)
	case known == "":
		return nil, agentsName + " (not trusted yet)"
	case known != digestOf(data):
		return nil, agentsName + " (it has changed since it was trusted)"
	case !utf8.Valid(data):
		return nil, agentsName + " (it is not valid UTF-8)"
	}
	return &Instructions{Path: path, Text: string(data)}, ""
}

// modulesOf lists the files that a dsh.toml lets run, with their digests;
// "" where one cannot be read, which the error then tells.
func (l *loader) modulesOf(path string, data []byte) ([]TrustedFile, error) {
	root, ps := parse(fileName, data)
	if ps != nil {
		return nil, ps
	}
	var files []TrustedFile
	var fault error
	for _, name := range append(root.modules(), root.programs(filepath.Dir(path))...) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		f := TrustedFile{Path: resolved(name)}
		if b, err := readRegular(f.Path, maxModule); err == nil {
			f.SHA256 = digestOf(b)
		} else {
			fault = fmt.Errorf("%s", readFault(name, err))
		}
		if !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	return files, fault
}

// modules are the paths of the modules that a file names.
func (n *node) modules() []string {
	var names []string
	for _, p := range append(n.elements("recovery", "policy"), n.elements("tools", "wasm")...) {
		name, ok := p.table["module"].textOf()
		if ok && !strings.Contains(name, "://") && !strings.HasPrefix(name, builtinPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// programs are the files of a folder that tool servers are started with: as the
// program, or as an argument of one. What those read in turn nobody knows.
func (n *node) programs(folder string) []string {
	var names []string
	for _, s := range n.elements("tools", "mcp") {
		words := []*node{}
		if c := s.table["command"]; c != nil {
			if text, ok := c.text(); ok && strings.ContainsRune(text, filepath.Separator) {
				words = append(words, c)
			}
		}
		if a := s.table["args"]; a != nil {
			words = append(words, a.array...)
		}
		for _, w := range words {
			name, ok := w.text()
			if !ok || name == "" {
				continue
			}
			if !filepath.IsAbs(name) {
				name = filepath.Join(folder, name)
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && within(name, folder) {
				names = append(names, name)
			}
		}
	}
	return names
}

// elements are those of an array in a table; none where there is no such thing.
func (n *node) elements(table, key string) []*node {
	if t := n.table[table]; t != nil && t.table[key] != nil {
		return slices.Clone(t.table[key].array)
	}
	return nil
}

// resolved is a path without symbolic links, or as it is if that fails.
func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return filepath.Clean(path)
}

// recordFile is where the trust in a folder is kept; "" if there is no place.
func (l *loader) recordFile(folder string) string {
	dir := l.home("XDG_STATE_HOME", ".local", "state")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "trust", digestOf([]byte(folder))+".json")
}

// readRecord reads the trust in a folder; nil if there is none. A record that
// others can write to does not count.
func (l *loader) readRecord(folder string) (*Record, string) {
	path := l.recordFile(folder)
	if path == "" {
		return nil, ""
	}
	data, err := readRegular(path, maxTrust)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ""
	}
	if err != nil {
		return nil, readFault(path, err)
	}
	for _, p := range []string{path, filepath.Dir(path)} {
		info, err := os.Stat(p)
		if err == nil && info.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows" {
			return nil, fmt.Sprintf("%s (others can write to it, so it does not count)", p)
		}
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil || r.Folder != folder {
		return nil, fmt.Sprintf("%s (it is damaged and does not count)", path)
	}
	return &r, ""
}

// Trust lets the working folder's dsh.toml, the modules that it names and its
// AGENTS.md count, as they are now. It gives what was trusted and the
// configuration that comes of it, to be shown. A file that does not hold is
// not trusted: the error is then Problems.
func Trust(src Sources) (*Record, *Config, error) {
	src.File, src.NoFile = "", false
	l := newLoader(src)
	folder, err := filepath.EvalSymlinks(l.cwd)
	if err != nil {
		return nil, nil, err
	}
	record := &Record{Folder: folder, TrustedAt: time.Now().UnixMilli()}
	file := filepath.Join(folder, fileName)
	var f found
	data, err := readRegular(file, maxFile)
	if err == nil {
		f = found{name: fileName, path: file, data: data, fromHere: true}
		record.add(file, data)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, Problems{{Message: readFault(file, err)}}
	}
	if agents, err := readRegular(filepath.Join(folder, agentsName), maxInstructions); err == nil && src.Support.Instructions {
		record.add(filepath.Join(folder, agentsName), agents)
	}
	if len(record.Files) == 0 {
		return nil, nil, Problems{{Message: fmt.Sprintf("nothing to trust in %s: it holds no %s", folder, fileName)}}
	}
	cfg := l.config(f)
	if len(l.problems) > 0 {
		return nil, nil, l.problems.sorted()
	}
	modules, err := l.modulesOf(file, data)
	if err != nil {
		return nil, nil, Problems{{Message: err.Error()}}
	}
	record.Files = append(record.Files, modules...)
	return record, cfg, l.writeRecord(record)
}

func (r *Record) add(path string, data []byte) {
	r.Files = append(r.Files, TrustedFile{path, digestOf(data)})
}

// Distrust forgets the trust in the working folder. It reports whether there
// was any.
func Distrust(src Sources) (bool, error) {
	l := newLoader(src)
	folder, err := filepath.EvalSymlinks(l.cwd)
	if err != nil {
		return false, err
	}
	err = os.Remove(l.recordFile(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// writeRecord puts a record in place at once and durably.
func (l *loader) writeRecord(r *Record) error {
	path := l.recordFile(r.Folder)
	if path == "" {
		return Problems{{Message: "there is no place to remember the trust in: set HOME or XDG_STATE_HOME"}}
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".trust-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, werr := f.Write(append(data, '\n'))
	serr := f.Sync()
	cerr := f.Close()
	if err = cmp.Or(werr, serr, cerr); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
