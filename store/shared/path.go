package shared

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxPath is below the 108 bytes of Linux and the 104 of macOS, with their
// final zero.
const maxPath = 100

// noteFile names the socket in the data folder.
const noteFile = "socket"

// SocketPath is where the socket of a data folder belongs. It makes the folder
// of it.
func SocketPath(dir string) (string, error) {
	dir, err := realDir(dir)
	if err != nil {
		return "", err
	}
	return socketPath(dir)
}

// socketPath is SocketPath for a folder's one name.
func socketPath(dir string) (string, error) {
	sum := sha256.Sum256([]byte(dir))
	name := hex.EncodeToString(sum[:10])
	var bases []string
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		bases = append(bases, filepath.Join(run, "dsh"))
	}
	own := "dsh-" + strconv.Itoa(os.Getuid())
	bases = append(bases, filepath.Join(os.TempDir(), own), filepath.Join("/tmp", own))
	var errs []error
	for _, base := range bases {
		path := filepath.Join(base, name)
		if len(path) > maxPath {
			errs = append(errs, fmt.Errorf("the path %s is too long for a socket", path))
			continue
		}
		if err := privateFolder(base); err != nil {
			errs = append(errs, err)
			continue
		}
		return path, nil
	}
	return "", errors.Join(errs...)
}

// privateFolder makes a folder that nobody else can enter, or looks whether
// the one that is there is such.
func privateFolder(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir() || !ownedByUser(info):
		return fmt.Errorf("%s is not a folder of this user: remove it", dir)
	case info.Mode().Perm()&0o077 != 0:
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// writeNote leaves the socket's path in the data folder.
func writeNote(dir, path string) error {
	name := filepath.Join(dir, noteFile)
	if old, err := os.ReadFile(name); err == nil && string(old) == path+"\n" {
		return nil
	}
	return os.WriteFile(name, []byte(path+"\n"), 0o600)
}

// socketPaths are where the socket of a data folder may be: where the note
// says, and where it belongs.
func socketPaths(dir string) []string {
	var paths []string
	if b, err := os.ReadFile(filepath.Join(dir, noteFile)); err == nil {
		if p := strings.TrimSuffix(string(b), "\n"); filepath.IsAbs(p) && len(p) <= maxPath {
			paths = append(paths, p)
		}
	}
	if p, err := socketPath(dir); err == nil && (len(paths) == 0 || paths[0] != p) {
		paths = append(paths, p)
	}
	return paths
}

// realDir is the one name of a folder, which may not be there yet.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}
