package guest

import (
	"context"

	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
)

// A Hosting answers the host functions of one call, up to their limit.
type Hosting struct {
	answer func(ctx context.Context, function string, argument []byte) []byte
	limit  int
	made   int
}

// NewHosting makes the hosting of a call of a module.
func NewHosting(c runtime.Call, m *runtime.Module) Hosting {
	h := Hosting{answer: c.Host, limit: m.HostCalls}
	if h.limit == 0 {
		h.limit = hostabi.MaxHostCalls
	}
	return h
}

// Allow counts a call in, and reports false where it is one too many: the
// guest is to be stopped.
func (h *Hosting) Allow() bool {
	h.made++
	return h.made <= h.limit
}

// Answer calls a function.
func (h *Hosting) Answer(ctx context.Context, function string, argument []byte) []byte {
	if h.answer == nil {
		return runtime.Refuse(hostabi.CodeUnavailable, "nobody answers here")
	}
	return h.answer(ctx, function, argument)
}

func (h *Hosting) over() bool { return h.made > h.limit }
