package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/dsh-agent/dsh"
)

// maxAnswerBytes bounds what one attempt's answer may hold. No model writes so
// much; a broken or hostile server may.
const maxAnswerBytes = 64 << 20

// joinWithin is how long neighbouring deltas of one block are joined into one
// event, and joinBytes how many bytes of them.
const (
	joinWithin = 50 * time.Millisecond
	joinBytes  = 32 << 10
)

// send makes the next attempt: it is in the log before the request is on the
// wire, together with the end of the wait that led to it.
func (s *Session) send(ctx context.Context) error {
	st := s.state.openStep()
	if limit := s.cfg.Limits.MaxAttemptsPerStep; limit > 0 && st.attempts >= limit {
		return s.tooMany(ctx)
	}
	p, err := s.provider()
	if err != nil {
		return err
	}
	if repairs, err := s.beforeStep(ctx, p); repairs || err != nil {
		return err
	}
	body, refused := p.Adapter.Encode(s.next(p))
	sum := sha256.Sum256(body)
	var drafts []dsh.Draft
	if r := st.pending; r != nil {
		drafts = append(drafts, dsh.Draft{Type: dsh.TypeRetryStarted, Data: dsh.RetryStarted{RetryID: r.RetryID, Turn: r.Turn, Step: r.Step, Retry: r.Retry.Retry}})
	}
	start := dsh.AttemptStart{
		Turn: s.state.turn.n, Step: st.n, Attempt: st.attempts + 1, Purpose: dsh.PurposeReply,
		Provider: s.state.header.Provider, Model: s.state.header.Model,
		RequestSHA256: hex.EncodeToString(sum[:]), RequestBytes: len(body),
	}
	if st.compaction != nil {
		start.Purpose = dsh.PurposeCompaction
	}
	drafts = append(drafts, dsh.Draft{Type: dsh.TypeAttemptStart, Data: start})
	if err := s.append(ctx, drafts...); err != nil {
		return err
	}
	if refused != nil {
		return s.append(ctx, s.endAttempt(dsh.Finish{Kind: dsh.FinishError, Failure: dsh.AsFailure(refused)}, 0))
	}
	return s.attempt(ctx, p.Adapter, body)
}

// tooMany closes the turn at the ceiling on attempts. Only attempts that were
// interrupted lead here: a retry over the ceiling is refused.
func (s *Session) tooMany(ctx context.Context) error {
	why := fmt.Sprintf("the step had %d attempts, as many as max_attempts_per_step allows", s.state.openStep().attempts)
	if c := s.state.openStep().compaction; c != nil {
		return s.append(ctx, endCompaction(c.CompactionID, why))
	}
	f := s.state.openStep().failure
	if f == nil {
		return &turnError{errors.New(why)}
	}
	return s.append(ctx, s.closing(dsh.EndReason{Kind: dsh.EndFailed, Failure: f, Message: why})...)
}

// attempt sends and reads one answer to its end.
func (s *Session) attempt(ctx context.Context, adapter dsh.Adapter, body []byte) error {
	began := time.Now()
	finish, err := s.read(ctx, adapter, body)
	if err != nil {
		return err // of the store: nothing more can be logged
	}
	switch {
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrAbort):
		return errStopped // suspended: the attempt stays open, as a crash would leave it
	case ctx.Err() != nil || s.frontErr != nil:
		finish = abortedFinish()
	}
	return s.append(ctx, s.endAttempt(finish, time.Since(began)))
}

func (s *Session) endAttempt(f dsh.Finish, took time.Duration) dsh.Draft {
	a := s.state.openAttempt()
	end := dsh.AttemptEnd{Finish: f, Usage: f.Usage, DurationMs: took.Milliseconds()}
	if a != nil {
		end.Turn, end.Step, end.Attempt = a.Turn, a.Step, a.Attempt
	}
	return dsh.Draft{Type: dsh.TypeAttemptEnd, Data: end}
}

// read takes the chunks of an answer into the log and to the front. Its error
// is the store's; all that the provider did is in the Finish.
func (s *Session) read(ctx context.Context, adapter dsh.Adapter, body []byte) (dsh.Finish, error) {
	ctx, leave := context.WithCancel(ctx)
	items := make(chan item)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pull(ctx, adapter, body, items)
	}()
	defer func() { leave(); <-done }()

	j := joiner{session: s}
	defer j.timer.stop()
	finish, err := s.take(ctx, items, &j)
	if err == nil && s.frontErr == nil {
		err = j.end(ctx, finish.Kind != dsh.FinishStop && finish.Kind != dsh.FinishToolCalls)
	}
	return finish, err
}

// take takes the chunks of an answer to its end.
func (s *Session) take(ctx context.Context, items <-chan item, j *joiner) (dsh.Finish, error) {
	size := 0
	for {
		select {
		case it := <-items:
			if it.end != nil {
				return *it.end, nil
			}
			if size += it.chunk.size(); size > maxAnswerBytes {
				return tooLong(), nil
			}
			s.tellChunk(it.chunk.Chunk)
			if err := j.add(ctx, it.chunk.Chunk); err != nil || s.frontErr != nil {
				return dsh.Finish{}, err
			}
		case <-j.timer.c():
			if err := j.flush(ctx); err != nil || s.frontErr != nil {
				return dsh.Finish{}, err
			}
		case <-ctx.Done():
			return abortedFinish(), nil
		}
	}
}

func tooLong() dsh.Finish {
	return dsh.Finish{Kind: dsh.FinishError, Failure: &dsh.Failure{
		Code: dsh.CodeProtocol, Message: fmt.Sprintf("the answer is longer than %d MiB", maxAnswerBytes>>20),
	}}
}

func (s *Session) tellChunk(c dsh.Chunk) {
	a := s.state.openAttempt()
	if s.cfg.Front.Chunk == nil || s.frontErr != nil || a.Purpose != dsh.PurposeReply {
		return
	}
	s.frontErr = s.cfg.Front.Chunk(a.Turn, a.Step, a.Attempt, c)
}

// item is one chunk of a stream, or its end.
type item struct {
	chunk chunk
	end   *dsh.Finish
}

type chunk struct{ dsh.Chunk }

// size is what a chunk counts against the answer's bound: also an empty one
// costs something.
func (c chunk) size() int { return 16 + len(c.Text) + len(c.Arguments) + len(c.Name) + len(c.Opaque) }

// pull ranges over an adapter's stream and hands it on, with exactly one end.
// It reads no further than the receiver takes. Both forms in which an adapter
// tells a failure become one here.
func pull(ctx context.Context, adapter dsh.Adapter, body []byte, out chan<- item) {
	give := func(it item) bool {
		select {
		case out <- it:
			return true
		case <-ctx.Done():
			return false
		}
	}
	end := failed(&dsh.Failure{Code: dsh.CodeUnknown, Message: "the adapter ended its stream without an end"})
	defer func() {
		if r := recover(); r != nil {
			end = failed(&dsh.Failure{Code: dsh.CodeUnknown, Message: fmt.Sprintf("the adapter failed: %v", r)})
		}
		give(item{end: &end})
	}()
	for c, err := range adapter.Send(ctx, body) {
		if err != nil {
			end = failed(dsh.AsFailure(err))
			return
		}
		if c.Type == dsh.ChunkFinish && c.Finish != nil {
			end = *c.Finish
			if !end.Kind.Good() && end.Failure == nil {
				end.Failure = &dsh.Failure{Code: dsh.CodeUnknown, Message: "the adapter told of a failure and not of which"}
			}
			return
		}
		if !give(item{chunk: chunk{c}}) {
			return
		}
	}
}

func failed(f *dsh.Failure) dsh.Finish {
	kind := dsh.FinishError
	if f.Code == dsh.CodeAborted {
		kind = dsh.FinishAborted
	}
	return dsh.Finish{Kind: kind, Failure: f}
}

// joiner joins neighbouring deltas of one block before they get a seq.
type joiner struct {
	session *Session
	have    bool
	head    dsh.Chunk // of the deltas that are waiting, without their text
	text    []byte
	timer   flushTimer
	blocks  []redacted // of which a part may be kept back
}

// redacted is the text of one block, on its way through a TextRedactor.
type redacted struct {
	kind  dsh.ChunkType
	index int
	text  TextRedactor
}

func (j *joiner) add(ctx context.Context, c dsh.Chunk) error {
	if c.Type != dsh.ChunkToolCall && c.Text == "" && c.Opaque == nil {
		return nil
	}
	if j.have && !j.joins(c) {
		if err := j.flush(ctx); err != nil {
			return err
		}
	}
	if !j.have {
		j.have, j.head = true, c
		j.timer.start(joinWithin)
	}
	if c.Type == dsh.ChunkToolCall {
		j.text = append(j.text, c.Arguments...)
	} else {
		j.text = append(j.text, c.Text...)
	}
	if len(j.text) >= joinBytes {
		return j.flush(ctx)
	}
	return nil
}

// joins reports whether c only adds text to what is waiting.
func (j *joiner) joins(c dsh.Chunk) bool {
	return c.Type == j.head.Type && c.Index == j.head.Index && c.ID == "" && c.Name == "" && c.Opaque == nil && j.head.Opaque == nil
}

func (j *joiner) flush(ctx context.Context) error {
	j.timer.stop()
	if !j.have {
		return nil
	}
	c, text := j.head, string(j.text)
	j.have, j.text = false, j.text[:0]
	if r := j.redactor(c); r != nil && text != "" {
		if text = r.Next(text); text == "" && c.ID == "" && c.Name == "" && c.Opaque == nil {
			return nil
		}
	}
	return j.log(ctx, c, text)
}

// redactor is that of a chunk's block, nil where nothing is kept back.
func (j *joiner) redactor(c dsh.Chunk) TextRedactor {
	if j.session.cfg.RedactText == nil {
		return nil
	}
	for _, b := range j.blocks {
		if b.kind == c.Type && b.index == c.Index {
			return b.text
		}
	}
	r := j.session.cfg.RedactText()
	j.blocks = append(j.blocks, redacted{c.Type, c.Index, r})
	return r
}

// end logs all that is left of an answer. cut says that it was broken off.
func (j *joiner) end(ctx context.Context, cut bool) error {
	if err := j.flush(ctx); err != nil {
		return err
	}
	for _, b := range j.blocks {
		if text := b.text.End(cut); text != "" {
			if err := j.log(ctx, dsh.Chunk{Type: b.kind, Index: b.index}, text); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *joiner) log(ctx context.Context, c dsh.Chunk, text string) error {
	if c.Type == dsh.ChunkToolCall {
		c.Arguments = text
	} else {
		c.Text = text
	}
	a := j.session.state.openAttempt()
	return j.session.append(ctx, dsh.Draft{Type: dsh.TypeAssistantChunk, Data: dsh.AssistantChunk{Turn: a.Turn, Step: a.Step, Attempt: a.Attempt, Chunk: c}})
}

// flushTimer is a timer that may be absent.
type flushTimer struct{ t *time.Timer }

func (f *flushTimer) start(d time.Duration) {
	if f.t == nil {
		f.t = time.NewTimer(d)
		return
	}
	f.t.Reset(d)
}

func (f *flushTimer) stop() {
	if f.t != nil {
		f.t.Stop()
	}
}

func (f *flushTimer) c() <-chan time.Time {
	if f.t == nil {
		return nil
	}
	return f.t.C
}
