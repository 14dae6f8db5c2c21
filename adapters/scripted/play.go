package scripted

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// A play is one step being carried out.
type play struct {
	w      http.ResponseWriter
	r      *http.Request
	conn   net.Conn
	step   Step
	n      int // the request's number
	bytes  int // of its body
	commit func()

	status int
	sent   int  // pieces of the answer
	fault  bool // the step's fault has been carried out
	over   bool // nothing more is sent
	broken bool // the client is gone
	done   bool // the step was carried out to its end
}

func (p *play) run() {
	for k, v := range p.step.Headers {
		p.w.Header().Set(k, v)
	}
	if p.w.Header().Get("X-Request-Id") == "" {
		p.w.Header().Set("X-Request-Id", fmt.Sprintf("req_scripted_%06d", p.n))
	}
	switch s := p.step; s.Do {
	case Status:
		status := cmp.Or(s.Status, http.StatusInternalServerError)
		body := s.Body
		if body == "" {
			body = errorJSON(s.Code, cmp.Or(s.Message, http.StatusText(status)), "")
		}
		p.document(status, "application/json", body)
	case HTML:
		status := cmp.Or(s.Status, http.StatusBadGateway)
		title := html.EscapeString(fmt.Sprintf("%d %s", status, http.StatusText(status)))
		p.document(status, "text/html", cmp.Or(s.Body, "<html><head><title>"+title+"</title></head><body><h1>"+title+"</h1></body></html>\n"))
	case Overflow:
		p.overflow()
	case Reset, Close:
		if p.wait(s.DelayMs) {
			p.hangUp(s.Do == Reset)
		}
	case Hang:
		if s.Ms == 0 {
			<-p.r.Context().Done()
			return
		}
		if p.wait(s.Ms) {
			p.stream()
		}
	default:
		p.stream()
	}
	p.done = !p.broken && p.r.Context().Err() == nil
}

// overflow is what OpenAI says of a request that is too long.
func (p *play) overflow() {
	message := cmp.Or(p.step.Message, fmt.Sprintf("This model's maximum context length is 8192 tokens. However, your messages resulted in %d tokens. Please reduce the length of the messages.", max(8193, p.bytes/4)))
	body := errorJSON("context_length_exceeded", message, "invalid_request_error")
	if p.step.InStream {
		p.begin()
		p.send("data: " + body + "\n\n")
		return
	}
	p.document(http.StatusBadRequest, "application/json", body)
}

func errorJSON(code, message, kind string) string {
	e := map[string]any{"message": message, "type": nil, "param": nil, "code": nil}
	if code != "" {
		e["code"] = code
	}
	if kind != "" {
		e["type"] = kind
	}
	return text(map[string]any{"error": e})
}

// text is v as JSON. What it is given can always be written.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func (p *play) document(status int, kind, body string) {
	if !p.wait(p.step.DelayMs) {
		return
	}
	if p.w.Header().Get("Content-Type") == "" {
		p.w.Header().Set("Content-Type", kind)
	}
	p.status, p.done = status, true
	p.commit() // the record is there before the client can act on the answer
	p.w.WriteHeader(status)
	_, err := io.WriteString(p.w, body)
	p.broken = err != nil
}

// stream sends an answer in events, and the step's fault where it falls.
func (p *play) stream() {
	s := p.step
	p.begin()
	answer := 0
	calls := s.Tools
	if s.Name != "" {
		calls = append([]Call{{s.CallID, s.Name, s.Arguments}}, calls...)
	}
	p.chunk(`{"role":"assistant","content":""}`, "")
	if s.Do != Empty {
		said := s.Text
		if said == "" && len(calls) == 0 {
			said = "This is the scripted provider's answer."
		}
		answer = len(said) + len(s.Reasoning)
		for _, piece := range cut(s.Reasoning, 0) {
			p.piece(`{"reasoning_content":` + text(piece) + `}`)
		}
		for _, piece := range cut(said, s.Chunks) {
			p.piece(`{"content":` + text(piece) + `}`)
		}
		for i, c := range calls {
			id := cmp.Or(c.ID, fmt.Sprintf("call_%06d_%d", p.n, i))
			answer += len(c.Arguments)
			p.piece(`{"tool_calls":[{"index":` + strconv.Itoa(i) + `,"id":` + text(id) + `,"type":"function","function":{"name":` + text(c.Name) + `,"arguments":""}}]}`)
			for _, a := range cut(c.Arguments, 0) {
				p.piece(`{"tool_calls":[{"index":` + strconv.Itoa(i) + `,"function":{"arguments":` + text(a) + `}}]}`)
			}
		}
	}
	p.misfortune(true)
	if p.over {
		return
	}
	finish := s.Finish
	if finish == "" {
		finish = "stop"
		if len(calls) > 0 {
			finish = "tool_calls"
		}
	}
	p.chunk("{}", finish)
	in, out := cmp.Or(s.InputTokens, int64(p.bytes/4+1)), cmp.Or(s.OutputTokens, int64(answer/4+1))
	p.done = !p.broken && p.r.Context().Err() == nil
	p.commit()
	p.send(fmt.Sprintf(`data: {"id":%q,"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, p.id(), in, out, in+out) + "\n\ndata: [DONE]\n\n")
}

func (p *play) id() string { return fmt.Sprintf("scripted-%06d", p.n) }

func (p *play) begin() {
	p.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	p.status = http.StatusOK
	p.w.WriteHeader(http.StatusOK)
}

// chunk sends one event of the answer.
func (p *play) chunk(delta, finish string) {
	reason := "null"
	if finish != "" {
		reason = text(finish)
	}
	p.send(`data: {"id":"` + p.id() + `","object":"chat.completion.chunk","created":0,"model":"scripted","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + reason + "}]}\n\n")
}

// piece sends one piece of content, after the fault if that falls before it.
func (p *play) piece(delta string) {
	p.misfortune(false)
	if p.over || !p.wait(p.step.DelayMs) {
		p.over = true
		return
	}
	p.chunk(delta, "")
	p.sent++
}

// misfortune carries out the step's fault when enough pieces were sent, and at
// the end of the answer at the latest.
func (p *play) misfortune(last bool) {
	s := p.step
	if p.over || p.fault || p.sent < s.AfterChunks && !last {
		return
	}
	p.fault = true
	switch s.Do {
	case Drop:
		p.over = true
		if !s.Clean {
			p.hangUp(s.RST)
		}
	case Stall:
		p.over = !p.quiet()
	case StreamError:
		p.over = true
		p.send("data: " + errorJSON(cmp.Or(s.Code, "server_error"), cmp.Or(s.Message, "The server had an error while processing your request."), "server_error") + "\n\n")
	case TruncateJSON:
		p.over = true
		p.send(`data: {"id":"` + p.id() + `","object":"chat.completion.chunk","choices":[{"index":0,"del` + "\n\n")
	}
}

// quiet waits out a stall, and reports whether the answer goes on.
func (p *play) quiet() bool {
	s := p.step
	end := time.Now().Add(time.Duration(s.Ms) * time.Millisecond)
	for s.Ms == 0 || time.Now().Before(end) {
		if s.PingMs == 0 {
			if s.Ms == 0 {
				<-p.r.Context().Done()
				return false
			}
			return p.wait(s.Ms)
		}
		if !p.wait(s.PingMs) {
			return false
		}
		p.send(": keep-alive\n\n")
		if p.broken {
			return false
		}
	}
	return true
}

// hangUp breaks the connection: by RST, or by FIN.
func (p *play) hangUp(reset bool) {
	if p.status != 0 {
		// What was sent is to arrive: a reset throws away what is not read yet.
		p.wait(20)
	}
	if t, ok := p.conn.(*net.TCPConn); ok && reset {
		_ = t.SetLinger(0)
	}
	p.done = true
	panic(http.ErrAbortHandler)
}

func (p *play) send(s string) {
	if p.broken || p.r.Context().Err() != nil {
		p.broken = true
		return
	}
	if _, err := io.WriteString(p.w, s); err != nil {
		p.broken = true
		return
	}
	p.broken = http.NewResponseController(p.w).Flush() != nil
}

// wait reports whether the client is still there after it.
func (p *play) wait(ms int) bool {
	if ms > 0 {
		t := time.NewTimer(time.Duration(ms) * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
		case <-p.r.Context().Done():
		}
	}
	if p.r.Context().Err() != nil {
		p.broken = true
	}
	return !p.broken
}

// cut splits s into n pieces, never inside a character; n 0: pieces of about 8
// bytes.
func cut(s string, n int) []string {
	if s == "" {
		return nil
	}
	if n <= 0 {
		n = (len(s) + 7) / 8
	}
	runes := []rune(s)
	n = min(n, len(runes))
	pieces := make([]string, 0, n)
	for i := range n {
		pieces = append(pieces, string(runes[i*len(runes)/n:(i+1)*len(runes)/n]))
	}
	return pieces
}
