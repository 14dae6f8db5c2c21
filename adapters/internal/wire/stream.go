package wire

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
	"github.com/dsh-agent/dsh/adapters/internal/sse"
)

// A stream is an answer that comes in events.
type stream struct {
	call    *Call
	body    *content
	events  *sse.Reader
	decoder Decoder
	yield   func(dsh.Chunk, error) bool

	seen   bool    // an event of the format came
	stray  []byte  // lines that are no events
	broken *Broken // the last event, if it could not be read
	hasty  bool    // the model has finished, and the waits are short
}

// run reads to the end. What it returns is as of [Call.read].
func (s *stream) run() *ended {
	for {
		e, err := s.events.Next()
		if s.call.caller.Err() != nil {
			return s.call.broken(err)
		}
		if err != nil {
			return s.over(err)
		}
		if e.Stray {
			if len(s.stray) < fault.MaxBody {
				s.stray = append(append(s.stray, e.Data...), '\n')
			}
			continue
		}
		if len(e.Data) == 0 {
			continue
		}
		s.seen = true
		if s.broken != nil {
			return s.call.decoded(s.broken, false)
		}
		chunks, err := s.decoder.Event(e.Name, e.Data)
		if err != nil {
			if !errors.As(err, &s.broken) {
				return s.call.decoded(err, false)
			}
			continue
		}
		for _, c := range chunks {
			if !s.yield(c, nil) {
				return nil
			}
		}
		if len(chunks) > 0 {
			s.body.progress()
		}
		switch s.decoder.State() {
		case Closed:
			return s.closed()
		case Finished:
			if !s.hasty {
				s.hasty = true
				s.call.watch.hurry(finishWait)
			}
		}
	}
}

// closed is reached after the terminal. What is under way may be content that
// must not be there, or the end of the body, after which the connection can be
// used again.
func (s *stream) closed() *ended {
	stop := time.AfterFunc(endWait, func() { s.call.cancel(errEnd) })
	defer stop.Stop()
	for {
		e, err := s.events.Next()
		if err != nil {
			break
		}
		if e.Stray || len(e.Data) == 0 {
			continue
		}
		if chunks, err := s.decoder.Event(e.Name, e.Data); err != nil || len(chunks) > 0 {
			return s.call.fail(dsh.CodeProtocol, "there is content after the end of the answer", "content after the end")
		}
	}
	if s.call.caller.Err() != nil && !errors.Is(context.Cause(s.call.ctx), errEnd) {
		return s.call.broken(s.call.caller.Err())
	}
	return s.call.end(s.decoder, s.yield)
}

// over is reached when there is no more to read: at the end of the body, or
// by an error.
func (s *stream) over(err error) *ended {
	switch {
	case s.decoder.State() != Open:
		return s.call.end(s.decoder, s.yield)
	case s.broken != nil && errors.Is(err, sse.ErrTooLong):
		return s.call.decoded(s.broken, false)
	case len(s.stray) > 0:
		return s.strayed(err)
	case s.broken != nil && context.Cause(s.call.ctx) == nil:
		return s.call.decoded(s.broken, true)
	}
	return s.call.broken(err)
}

// strayed is reached when lines were in the stream that are none of its
// format: a gateway's error, written into it or in its place.
func (s *stream) strayed(err error) *ended {
	text := bytes.TrimSpace(s.stray)
	switch {
	case context.Cause(s.call.ctx) != nil:
		return s.call.broken(err)
	case len(text) > 0 && (text[0] == '{' || text[0] == '['):
		return s.call.reported(text)
	case !s.seen:
		return s.call.fail(dsh.CodeServer, "in the place of an answer there was: "+string(text), "prose under a 2xx")
	}
	return s.call.broken(err)
}
