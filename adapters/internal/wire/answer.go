package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/fault"
	"github.com/dsh-agent/dsh/adapters/internal/sse"
)

// A Decoder knows one protocol. One is made for each answer; it is called from
// one goroutine. The chunks that it returns, and the bytes that it is given,
// are valid until its next call.
//
// Its errors are a *Broken, a *Reported or a *Failed.
type Decoder interface {
	// Event takes one event of a stream.
	Event(name, data []byte) ([]dsh.Chunk, error)

	// Document takes an answer that is no stream: JSON, one value or several.
	Document(data []byte) ([]dsh.Chunk, error)

	// State says how far the answer is.
	State() State

	// End says how the answer ended. It is asked once, when the state is not
	// Open any more.
	End() End
}

// A State is how far an answer is.
type State int

// The states.
const (
	Open     State = iota // more is to come
	Finished              // the model has finished; a usage, or the terminal, may follow
	Closed                // the terminal came: nothing may follow
)

// An End is how an answer ended.
type End struct {
	Kind    dsh.FinishKind // FinishError if Code is set
	Usage   *dsh.Usage
	Code    dsh.Code // "" for a good end
	Message string
	Rule    string
}

// Broken is a frame that is not of the protocol. If the stream ends on it, it
// was cut; if the stream goes on, it was broken.
type Broken struct{ What string }

func (b *Broken) Error() string { return b.What }

// Reported is an error that the provider reported in the place of an answer,
// or of a part of one. Body is its JSON or its text.
type Reported struct{ Body []byte }

func (r *Reported) Error() string { return string(r.Body) }

// Failed is a fact that the decoder found by itself.
type Failed struct {
	Code          dsh.Code
	Message, Rule string
}

func (f *Failed) Error() string { return f.Message }

// ended is a failure and the rule that made it.
type ended struct {
	failure *dsh.Failure
	rule    string
}

// Send makes one call and yields its answer, as dsh.Adapter has it. request
// lets a library make the request; what it returns counts only if nothing was
// sent.
func (c *Client) Send(ctx context.Context, body []byte, request func(*Call) error, decoder Decoder) iter.Seq2[dsh.Chunk, error] {
	var used atomic.Bool
	return func(yield func(dsh.Chunk, error) bool) {
		if used.Swap(true) {
			yield(dsh.Chunk{}, &dsh.Failure{Code: dsh.CodeInvalidRequest, Message: "an answer can be read once: send again for another"})
			return
		}
		k := c.begin(ctx, body)
		defer k.close()
		e := k.open(request)
		if e == nil {
			e = k.read(decoder, yield)
		}
		if e != nil {
			yield(dsh.Chunk{}, k.redact.Failure(e.failure))
		}
	}
}

// Judge reads a recorded response as Send reads one from the wire. The failure
// is nil for a good answer.
func Judge(status int, header http.Header, body []byte, decoder Decoder) (*dsh.Failure, string) {
	if header == nil {
		header = http.Header{}
	}
	k := (&Client{}).begin(context.Background(), nil)
	defer k.close()
	k.resp = &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(body))}
	k.watch.idle, k.watch.keepalive = time.Hour, time.Hour
	var inBand *dsh.Failure
	e := k.read(decoder, func(c dsh.Chunk, err error) bool {
		if c.Finish != nil {
			inBand = c.Finish.Failure
		}
		return true
	})
	switch {
	case e != nil:
		return e.failure, e.rule
	case inBand != nil:
		return inBand, k.rule
	}
	return nil, "a good answer"
}

// read reads the response. It yields the chunks and a good or an in-band end;
// any other end it returns. After the reader has left it returns nil.
func (k *Call) read(d Decoder, yield func(dsh.Chunk, error) bool) *ended {
	if k.resp.StatusCode < 200 || k.resp.StatusCode > 299 {
		return k.refused()
	}
	body, err := k.content()
	if err != nil {
		return k.broken(err)
	}
	events := sse.NewReader(body)
	head, err := events.Peek()
	switch {
	case err != nil && (!errors.Is(err, io.EOF) || k.streams()):
		return k.broken(err)
	case err != nil:
		return k.fail(dsh.CodeEmptyResponse, "the answer has no body", "an empty body")
	case head[0] == '<':
		return k.page(events.Rest())
	case head[0] == '{' || head[0] == '[' || head[0] == '"':
		return k.document(events.Rest(), d, yield)
	}
	s := &stream{call: k, body: body, events: events, decoder: d, yield: yield}
	return s.run()
}

// streams reports whether the response says that it is a stream.
func (k *Call) streams() bool {
	return strings.HasPrefix(strings.ToLower(k.resp.Header.Get("Content-Type")), "text/event-stream")
}

// refused makes a failure of a response that is no 2xx. Its status is known,
// so its body is read as far as it comes.
func (k *Call) refused() *ended {
	k.watch.hurry(errorBodyWait)
	var text []byte
	if body, err := k.content(); err == nil {
		text, _ = io.ReadAll(io.LimitReader(body, fault.MaxBody)) // a cut body is better than none
	}
	if k.caller.Err() != nil {
		return k.broken(k.caller.Err())
	}
	return k.reported(text)
}

// page makes a failure of a page in the place of an answer.
func (k *Call) page(body io.Reader) *ended {
	text, err := io.ReadAll(io.LimitReader(body, fault.MaxBody))
	if k.caller.Err() != nil {
		return k.broken(err)
	}
	v := fault.Classify(fault.Evidence{Header: k.resp.Header, Body: text})
	return k.fail(dsh.CodeServer, "in the place of an answer there was "+v.Failure.Message, "a page under a 2xx")
}

// document reads an answer that is no stream.
func (k *Call) document(body io.Reader, d Decoder, yield func(dsh.Chunk, error) bool) *ended {
	text, err := io.ReadAll(io.LimitReader(body, maxDocument+1))
	switch {
	case len(text) > maxDocument:
		return k.fail(dsh.CodeProtocol, "an answer of more than 16 MiB in one piece", "a bound")
	case err != nil:
		return k.broken(err)
	}
	chunks, err := d.Document(text)
	if err != nil {
		return k.decoded(err, true)
	}
	for _, c := range chunks {
		if !yield(c, nil) {
			return nil
		}
	}
	return k.end(d, yield)
}

// end yields the end that the decoder knows of.
func (k *Call) end(d Decoder, yield func(dsh.Chunk, error) bool) *ended {
	e := d.End()
	f := dsh.Finish{Kind: e.Kind, Usage: e.Usage}
	if e.Code != "" {
		f.Kind, k.rule = dsh.FinishError, e.Rule
		f.Failure = k.redact.Failure(k.fail(e.Code, e.Message, e.Rule).failure)
	}
	yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &f}, nil)
	return nil
}

// decoded makes a failure of a decoder's error. last says that nothing came
// after it.
func (k *Call) decoded(err error, last bool) *ended {
	var (
		broken   *Broken
		reported *Reported
		failed   *Failed
	)
	switch {
	case errors.As(err, &reported):
		return k.reported(reported.Body)
	case errors.As(err, &failed):
		return k.fail(failed.Code, failed.Message, failed.Rule)
	case errors.As(err, &broken) && last:
		return k.fail(dsh.CodeTransport, "the answer was cut: "+broken.What, "a frame that the stream ended on")
	}
	return k.fail(dsh.CodeProtocol, "the answer is broken: "+err.Error(), "a broken frame")
}

// reported makes a failure of what the provider says.
func (k *Call) reported(body []byte) *ended {
	v := fault.Classify(fault.Evidence{Status: k.resp.StatusCode, Header: k.resp.Header, Body: body, Now: time.Now()})
	return &ended{v.Failure, v.Rule}
}

// fail makes a failure of a fact of our own.
func (k *Call) fail(code dsh.Code, message, rule string) *ended {
	status, header := 0, http.Header(nil)
	if k.resp != nil {
		status, header = k.resp.StatusCode, k.resp.Header
	}
	return &ended{fault.New(code, fault.Clean(message), status, header), rule}
}

// broken makes a failure of an error of the connection, or of what ended it:
// the caller before a watchdog, a watchdog before what the connection says.
func (k *Call) broken(err error) *ended {
	var late *expiry
	var e *ended
	switch {
	case k.caller.Err() != nil:
		e = k.fail(dsh.CodeAborted, "stopped by the caller", "the caller stopped it")
		e.failure.Cause = context.Cause(k.caller)
	case errors.As(context.Cause(k.ctx), &late):
		where := ""
		if k.resp == nil {
			where = " from " + k.client.Host() + ", not even a header"
		}
		e = k.fail(dsh.CodeTimeout, late.what+where, "a watchdog")
		e.failure.Cause = late
	case k.resp == nil:
		v := fault.Transport(err, "the connection to "+k.client.Host())
		e = &ended{v.Failure, v.Rule}
	case errors.Is(err, sse.ErrTooLong), errors.Is(err, errFlood):
		e = k.fail(dsh.CodeProtocol, "the answer is over a bound: "+err.Error(), "a bound")
		e.failure.Cause = err
	case errors.Is(err, io.EOF):
		e = k.fail(dsh.CodeTransport, "the answer ended before its end was told", "an end without its terminal")
		e.failure.Cause = io.ErrUnexpectedEOF
	default:
		v := fault.Transport(err, "the answer")
		e = k.fail(v.Failure.Code, v.Failure.Message, v.Rule)
		e.failure.Cause = v.Failure.Cause
	}
	return e
}
