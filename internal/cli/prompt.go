package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// maxPrompt is the longest prompt in bytes. A context of a million tokens
// holds some 4 MiB of text, so that nothing that a model could read is kept
// out, and a wrong file is refused before it is read whole.
const maxPrompt = 10 << 20

// prompt finds the prompt of a turn: the argument, or stdin. There is none
// (and no error) where a session is resumed without one.
func (a *app) prompt(ctx context.Context, args []string, resume bool) (text string, given bool, err error) {
	switch {
	case len(args) == 1 && args[0] != "-":
		text = args[0]
	case len(args) == 0 && resume:
		return "", false, nil
	case len(args) == 0 && a.inTerminal:
		return "", false, Usagef("dsh run needs a prompt: dsh run \"what is to be done\", or pipe one in")
	default:
		if text, err = readPrompt(ctx, a.in); err != nil {
			return "", false, err
		}
	}
	if err := checkPrompt(text); err != nil {
		return "", false, err
	}
	return text, true, nil
}

// checkPrompt refuses what no model can be asked.
func checkPrompt(text string) error {
	switch {
	case len(text) > maxPrompt:
		return Usagef("the prompt is longer than %d MiB, the longest that is taken: let the model read a file instead", maxPrompt>>20)
	case strings.ContainsRune(text, 0):
		return Usagef("the prompt is no text: it holds a NUL byte; UTF-8 text is taken")
	case !utf8.ValidString(text):
		return Usagef("the prompt is no text: it is not valid UTF-8")
	case strings.TrimSpace(text) == "":
		return Usagef("the prompt is empty: nothing was sent")
	}
	return nil
}

// readPrompt reads stdin to its end, without its last line ends, as a shell
// does for $(…). A read cannot be stopped, so that its goroutine may stay
// behind when ctx ends; the process ends soon after.
func readPrompt(ctx context.Context, r io.Reader) (string, error) {
	type read struct {
		text []byte
		err  error
	}
	done := make(chan read, 1)
	go func() {
		b, err := io.ReadAll(io.LimitReader(r, maxPrompt+1))
		done <- read{b, err}
	}()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-done:
		if got.err != nil && !errors.Is(got.err, io.EOF) {
			return "", Usagef("stdin could not be read: %v", got.err)
		}
		text := bytes.TrimPrefix(got.text, []byte("\ufeff"))
		if len(got.text) <= maxPrompt {
			text = bytes.TrimRight(text, "\r\n")
		}
		return string(text), nil
	}
}
