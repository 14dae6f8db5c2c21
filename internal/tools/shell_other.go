//go:build !unix

package tools

import (
	"context"
	"errors"
)

const canShell = false

func (f *Folder) command(context.Context, Shell, string, *capture) (ending, error) {
	return ending{}, errors.New("commands cannot be run on this system")
}

// Supervise is for Unix.
func Supervise([]string) int { return 1 }
