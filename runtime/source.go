package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/dsh-agent/dsh/hostabi"
)

// builtinPrefix stands before the name of a module that the program brings
// along.
const builtinPrefix = "builtin:"

// digest is the SHA-256 of a module's bytes, hex.
func digest(wasm []byte) string {
	sum := sha256.Sum256(wasm)
	return hex.EncodeToString(sum[:])
}

// readModule gets the bytes that a spec's module names.
func readModule(module string, builtin func(string) ([]byte, bool)) ([]byte, error) {
	name, ok := strings.CutPrefix(module, builtinPrefix)
	if !ok {
		if scheme, _, found := strings.Cut(module, "://"); found {
			return nil, fmt.Errorf("%s: modules of the form %s:// are not supported yet: name a file, or %sNAME", module, scheme, builtinPrefix)
		}
		return ReadFile(module)
	}
	if builtin != nil {
		if wasm, ok := builtin(name); ok {
			return wasm, nil
		}
	}
	return nil, fmt.Errorf("%s: there is no built-in policy of this name", module)
}

// ReadFile reads a module's bytes from a file, up to the limit of hostabi. Its
// errors are one line each and name the file. A folder, a device or a pipe is
// not opened.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: there is no such file", path)
	case err != nil:
		return nil, fmt.Errorf("%s: it cannot be read: %w", path, bare(err))
	case info.IsDir():
		return nil, fmt.Errorf("%s: it is a folder, and a module is a file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a regular file", path)
	case info.Size() > hostabi.MaxModuleBytes:
		return nil, fmt.Errorf("%s: it has %d bytes, and a module has at most %d", path, info.Size(), hostabi.MaxModuleBytes)
	}
	// Whoever puts a pipe in its place now is not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: it cannot be read: %w", path, bare(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a regular file", path)
	}
	wasm, err := io.ReadAll(io.LimitReader(f, hostabi.MaxModuleBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: it cannot be read: %w", path, bare(err))
	}
	return wasm, nil
}

// bare takes the path out of a file error, which names it already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
