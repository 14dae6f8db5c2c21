//go:build !linux && !darwin

package worker

import (
	"errors"
	"syscall"
	"time"
)

// Supported reports whether guests can run in processes of their own here.
const Supported = false

const root = ""

func attributes() *syscall.SysProcAttr { return nil }

func confine(uint64) error { return errors.ErrUnsupported }

func cpuUsed() time.Duration { return cpuLimit }
