package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// fileName is what a configuration is called.
const fileName = "dsh.toml"

// find looks for the file: the one that is named, the working folder's if it
// is trusted, the user's.
func (l *loader) find() found {
	if l.src.NoFile {
		return found{}
	}
	here := l.workingFolder()
	f := found{trusted: here.instructions}
	named, by := l.src.File, Origin{Kind: FromFlag, Name: "--config"}
	if named == "" {
		named, by = l.variable("DSH_CONFIG"), Origin{Kind: FromVariable, Name: "DSH_CONFIG"}
	}
	switch {
	case named != "":
		f.name, f.path = named, l.absolute(named, by)
		data, err := readNamed(f.path)
		if err != nil {
			l.problem(by, "", readFault(named, err))
		}
		f.data = data
		return f
	case here.data != nil:
		f.name, f.path, f.data = fileName, here.file, here.data
		f.pins, f.fromHere = here.pins, true
		return f
	}
	if dir := l.home("XDG_CONFIG_HOME", ".config"); dir != "" {
		path := filepath.Join(dir, fileName)
		data, err := readNamed(path)
		switch {
		case err == nil:
			f.name, f.path, f.data = path, path, data
		case !errors.Is(err, fs.ErrNotExist):
			l.problem(Origin{}, "", readFault(path, err))
		}
	}
	return f
}

func readFault(name string, err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Sprintf("%s cannot be read: %v", shortQuote(name), err)
}

// readNamed reads a file that the user named, which may be a pipe.
func readNamed(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if info.IsDir() {
		return nil, errors.New("it is a folder")
	}
	return readBounded(f, maxFile)
}

// readRegular reads a file that somebody else may have put there: no pipe or
// device, which could block or never end.
func readRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return readBounded(f, most)
}

func readBounded(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	}
	return data, nil
}
