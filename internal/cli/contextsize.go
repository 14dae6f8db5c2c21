package cli

import "github.com/dsh-agent/dsh"

// bytesPerToken is what a token is taken to be where no provider has counted.
const bytesPerToken = 4

// A contextSize estimates what a session's conversation takes of the model's
// window: the last request's tokens, as the provider counted them or by its
// bytes, less what was shortened since.
type contextSize struct {
	tokens  int64
	counted bool // by the provider

	purpose dsh.Purpose // of the attempt under way
	bytes   int
}

// add takes the next event.
func (c *contextSize) add(e dsh.Event) error {
	switch e.Type {
	case dsh.TypeAttemptStart:
		var d dsh.AttemptStart
		if err := e.Decode(&d); err != nil {
			return err
		}
		c.purpose, c.bytes = d.Purpose, d.RequestBytes
	case dsh.TypeAttemptEnd:
		var d dsh.AttemptEnd
		if err := e.Decode(&d); err != nil {
			return err
		}
		c.attempt(d)
	case dsh.TypeCompactionSummary:
		var d dsh.CompactionSummary
		if err := e.Decode(&d); err != nil {
			return err
		}
		summary := int64(len(dsh.Text(d.Summary)) / bytesPerToken)
		c.tokens, c.counted = max(summary, c.tokens-d.ShadowedTokens+summary), false
	}
	return nil
}

func (c *contextSize) attempt(d dsh.AttemptEnd) {
	if c.purpose != dsh.PurposeReply || !d.Finish.Kind.Good() {
		return
	}
	c.tokens, c.counted = int64(c.bytes/bytesPerToken), false
	if u := d.Usage; u != nil && u.InputTokens > 0 {
		c.tokens, c.counted = u.InputTokens+u.OutputTokens, true
	}
}
