package badger

import (
	"errors"
	"fmt"
)

// The causes of an *OpenError, for errors.Is.
var (
	// ErrFolder: the data folder cannot be made, entered or written to.
	ErrFolder = errors.New("the folder cannot be used")
	// ErrDamaged: the database cannot be opened.
	ErrDamaged = errors.New("the database is damaged")
	// ErrNoKey: the folder is encrypted and the key is not there or another,
	// or there is a key and the folder is not encrypted.
	ErrNoKey = errors.New("the key does not fit")
	// ErrNoManifest: the database has tables and no list of them. It is a
	// kind of ErrDamaged.
	ErrNoManifest = fmt.Errorf("%w: its MANIFEST is missing", ErrDamaged)
)

// An OpenError says why a data folder could not be opened, and what to do. Its
// text is one line.
//
// A folder that another process has open is a *dsh.LockedError, one that a
// newer version wrote a *dsh.SchemaError, and one on a full disk a
// *dsh.SpaceError.
type OpenError struct {
	Dir    string
	Kind   error  // ErrFolder, ErrDamaged, ErrNoKey or ErrNoManifest
	Detail string // what was found
	Advice string // what to do
	Err    error  // what the system or the database said; may be nil
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("the data folder %s cannot be opened: %s: %s", e.Dir, e.Detail, e.Advice)
}

// Unwrap gives the kind and the cause.
func (e *OpenError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// A BrokenError is what every append gets after a commit has failed. What is
// on the disk is known again when the folder has been closed and opened.
type BrokenError struct {
	Dir string
	Err error // of the commit
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("the log in %s could not be written (%v): nothing more is appended until it is opened again", e.Dir, e.Err)
}

// Unwrap gives the error of the commit.
func (e *BrokenError) Unwrap() error { return e.Err }
