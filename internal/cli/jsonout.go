package cli

import (
	"io"

	"github.com/dsh-agent/dsh"
)

// writeJSON writes a value as one line.
func writeJSON(w io.Writer, v any) error {
	b, err := dsh.JSON(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// listed is a slice that is never null in JSON.
func listed[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
