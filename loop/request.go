package loop

import (
	"bytes"
	"slices"

	"github.com/dsh-agent/dsh"
)

// request rebuilds what the model is asked from the header and the surface:
// the same log gives the same request.
func (s *state) request() dsh.Request {
	h := s.header
	req := dsh.Request{
		Model: h.Model, System: h.System, Tools: h.Tools, Params: h.Params,
		Messages: make([]dsh.Message, 0, len(s.surface)),
	}
	for _, en := range s.surface {
		m := en.message
		if m.Role == dsh.RoleAssistant {
			m.Content = sendable(m.Content, en.provider == h.Provider && en.model == h.Model)
		}
		if len(m.Content) > 0 {
			req.Messages = append(req.Messages, m)
		}
	}
	return req
}

// next is the request that the open step has to make next.
func (s *Session) next(p Provider) dsh.Request {
	if s.state.openStep().compaction != nil {
		return s.state.summaryRequest(p.Window)
	}
	return s.state.request()
}

// sendable leaves out of a content what goes back to its own maker only.
func sendable(content []dsh.Block, same bool) []dsh.Block {
	if same || !slices.ContainsFunc(content, func(b dsh.Block) bool { return b.Opaque != nil }) {
		return content
	}
	out := make([]dsh.Block, 0, len(content))
	for _, b := range content {
		b.Opaque = nil
		out = append(out, b)
	}
	return out
}

// specs are the tools as a request names them.
func (s *Session) specs() []dsh.ToolSpec {
	specs := make([]dsh.ToolSpec, 0, len(s.cfg.Tools))
	for _, t := range s.cfg.Tools {
		specs = append(specs, t.Spec())
	}
	return specs
}

// sameHeader compares all but the place.
func sameHeader(have *dsh.RequestHeader, want dsh.RequestHeader) bool {
	if have == nil {
		return false
	}
	h := *have
	h.Turn, h.Step = want.Turn, want.Step
	a, errA := dsh.JSON(h)
	b, errB := dsh.JSON(want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
