package cli

import (
	"bufio"
	"context"
	"io"
	"strings"
	"sync"
	"time"
)

// An Answer is what a person says to a question.
type Answer int

// The answers. The zero value refuses.
const (
	AnswerNo     Answer = iota
	AnswerYes           // this once
	AnswerAlways        // this and all of its kind, till the process ends
)

// An asker puts questions to the person at the terminal. Its questions come
// one at a time.
type asker struct {
	say *screen
	in  io.Reader

	begin sync.Once
	lines chan string // closed when the terminal gives no more
}

// unseen is a time in which nobody reads a question and answers it: a line
// that comes so soon was typed before, and is no answer.
const unseen = 150 * time.Millisecond

// ask shows what a tool would do and waits for an answer. What it shows is a
// model's: it stands behind a mark, so that it cannot look like the question.
// The error is the cause of a context that ended.
func (a *asker) ask(ctx context.Context, tool, text string) (Answer, error) {
	a.begin.Do(func() {
		a.lines = make(chan string)
		go a.read()
	})
	a.say.setStatus(nil)
	a.say.line(bold, "the model wants to use "+oneLine(tool, longArgument)+":")
	for l := range strings.Lines(text) {
		a.say.line(plain, "  | "+strings.ReplaceAll(strings.TrimRight(l, "\r\n"), "\t", "    "))
	}
	for {
		a.say.line(bold, "allow it? y (yes), n (no), a (always, while this dsh runs)")
		asked := time.Now()
		select {
		case <-ctx.Done():
			return AnswerNo, context.Cause(ctx)
		case line, ok := <-a.lines:
			if !ok {
				a.say.line(yellow, "dsh: nobody answers: it is not allowed")
				return AnswerNo, nil
			}
			if time.Since(asked) < unseen {
				continue
			}
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "y", "yes":
				return AnswerYes, nil
			case "n", "no":
				return AnswerNo, nil
			case "a", "always":
				return AnswerAlways, nil
			}
		}
	}
}

// read hands on the lines of the terminal. A read cannot be stopped, so that
// it may stay behind when the command ends; the process ends soon after.
func (a *asker) read() {
	defer close(a.lines)
	const most = 1 << 10 // bytes of an answer
	for r := bufio.NewReaderSize(a.in, most); ; {
		line, err := r.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
		a.lines <- string(line)
	}
}
