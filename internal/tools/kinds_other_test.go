//go:build unix && !linux

package tools_test

import "errors"

func mknod(string) error { return errors.ErrUnsupported }
