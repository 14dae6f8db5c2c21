// Package adaptertest judges an adapter. The author of a new one writes a
// [Wire], which knows how its protocol says things, and runs the suite:
//
//	func TestAdapter(t *testing.T) {
//		adaptertest.Run(t, adaptertest.Suite{New: newAdapter, Wire: newWire})
//	}
//
// The suite serves good answers and every kind of failure over real
// connections, HTTP/1.1 and HTTP/2, and checks what every adapter owes: one
// request a call, with the very body; chunks and then one end; the right code
// for each failure; watchdogs and the caller's stop; bounds; and a key that
// shows nowhere.
package adaptertest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

// A Target is what an adapter under test is to speak to. A zero duration, and
// a nil, is the adapter's own default.
type Target struct {
	BaseURL    string
	Key        string
	Header     http.Header // sent with every request
	TLS        *tls.Config
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error)
	StreamIdle time.Duration
	Keepalive  time.Duration
	Window     int64
}

// A Suite is what is judged.
type Suite struct {
	// New makes an adapter. What it opens it closes by t.Cleanup.
	New func(t testing.TB, target Target) dsh.Adapter

	// Wire makes a writer of one stream.
	Wire func() Wire
}

// A Wire writes answers in a protocol. The pieces of a stream are put one
// after the other: Begin, then Text, Reasoning and ToolCall in any order and
// number, then End. It is for one goroutine; Begin begins anew.
type Wire interface {
	// Begin is what comes before the first piece; it may be "".
	Begin() string

	// Text is an event with a piece of text, and Reasoning one with a piece of
	// reasoning; it is "" if the protocol has none.
	Text(s string) string
	Reasoning(s string) string

	// ToolCall is all events of one call, the arguments in several pieces.
	ToolCall(id, name, arguments string) string

	// End is what ends a stream: the reason (stop, tool-calls or length), the
	// usage, and the protocol's terminal.
	End(kind dsh.FinishKind, usage dsh.Usage) string

	// KeepAlive is what the provider sends while it has nothing to say.
	KeepAlive() string

	// Error is an error response for a code, and StreamError an event for it
	// in the middle of a stream. message is to be in it. ok is false where the
	// provider has none.
	Error(code dsh.Code, message string) (status int, body string, ok bool)
	StreamError(code dsh.Code, message string) (event string, ok bool)
}

// Run runs the suite.
func Run(t *testing.T, s Suite) {
	for _, part := range []struct {
		name string
		test func(*testing.T, Suite)
	}{
		{"encode", testEncode},
		{"answers", testAnswers},
		{"forms", testForms},
		{"once", testOnce},
		{"failures", testFailures},
		{"deliveries", testDeliveries},
		{"watchdogs", testWatchdogs},
		{"stop", testStop},
		{"secrets", testSecrets},
		{"bounds", testBounds},
		{"sequence", testSequence},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
}

// A result is what one call came to.
type result struct {
	text, reasoning string
	calls           []dsh.Block // in the order of their indexes' first chunks
	chunks          int
	finish          *dsh.Finish
	err             error
	took            time.Duration
}

// failure is the call's failure, by either delivery; nil for a good end.
func (r result) failure() *dsh.Failure {
	if r.finish != nil {
		return r.finish.Failure
	}
	return dsh.AsFailure(r.err)
}

func (r result) code() dsh.Code {
	if f := r.failure(); f != nil {
		return f.Code
	}
	return ""
}

// send makes a call and checks what holds for all of them: chunks of a block
// keep its type, there is exactly one end, and it is well formed.
func send(ctx context.Context, t testing.TB, a dsh.Adapter, body string) result {
	t.Helper()
	var r result
	types := map[int]dsh.ChunkType{}
	calls := map[int]int{}
	ends := 0
	begun := time.Now()
	for c, err := range a.Send(ctx, []byte(body)) {
		if ends > 0 {
			t.Fatalf("after the end came %+v, %v", c, err)
		}
		if err != nil {
			r.err = err
			ends++
			continue
		}
		if c.Type == dsh.ChunkFinish {
			r.finish = c.Finish
			ends++
			continue
		}
		r.chunks++
		if was, ok := types[c.Index]; ok && was != c.Type {
			t.Errorf("block %d was %s, and now is %s", c.Index, was, c.Type)
		}
		types[c.Index] = c.Type
		switch c.Type {
		case dsh.ChunkText:
			r.text += c.Text
		case dsh.ChunkReasoning:
			r.reasoning += c.Text
		case dsh.ChunkToolCall:
			i, ok := calls[c.Index]
			if !ok {
				i = len(r.calls)
				calls[c.Index] = i
				r.calls = append(r.calls, dsh.Block{Type: dsh.BlockToolCall})
			}
			r.calls[i].ID += c.ID
			r.calls[i].Name += c.Name
			r.calls[i].Arguments += c.Arguments
		default:
			t.Errorf("a chunk of type %q", c.Type)
		}
	}
	r.took = time.Since(begun)
	checkEnd(t, r, ends)
	return r
}

func checkEnd(t testing.TB, r result, ends int) {
	t.Helper()
	if ends != 1 {
		t.Fatalf("%d ends", ends)
	}
	if r.finish == nil {
		if _, ok := r.err.(*dsh.Failure); !ok {
			t.Errorf("the error is a %T, and not a *dsh.Failure: %v", r.err, r.err)
		}
	} else if bad := r.finish.Kind == dsh.FinishError || r.finish.Kind == dsh.FinishAborted; bad != (r.finish.Failure != nil) {
		t.Errorf("a finish of kind %s with failure %v", r.finish.Kind, r.finish.Failure)
	}
	f := r.failure()
	if f == nil {
		return
	}
	switch {
	case f.Message == "":
		t.Error("a failure without a message")
	case len(f.Message) > 2100:
		t.Errorf("a message of %d bytes", len(f.Message))
	case strings.ContainsFunc(f.Message, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0x9b }):
		t.Errorf("a message with control characters: %q", f.Message)
	}
	if f.RetryAfter < 0 {
		t.Errorf("a wait of %v", f.RetryAfter)
	}
}

// good checks that a call gave a text and ended well.
func good(t testing.TB, r result, text string) {
	t.Helper()
	if f := r.failure(); f != nil {
		t.Errorf("failed: %v", f)
	} else if r.text != text {
		t.Errorf("text %q, want %q", r.text, text)
	}
}

// failed checks that a call failed with a code.
func failed(t testing.TB, r result, want dsh.Code) {
	t.Helper()
	if f := r.failure(); f == nil {
		t.Errorf("a good end (text %q), want %s", r.text, want)
	} else if f.Code != want {
		t.Errorf("got %v, want %s", f, want)
	}
}
