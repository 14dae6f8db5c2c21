package openaichat_test

import (
	"testing"
	"time"

	"github.com/dsh-agent/dsh/adapters/internal/corpus"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

func TestClassify(t *testing.T) {
	cases, err := corpus.Load("failures.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Wire == "anthropic-messages" || c.Phase == "connect" || c.TransportError != "" {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			now := c.At(time.Now())
			f, rule := openaichat.Classify(now.Status, now.Header(), []byte(now.Body))
			for _, wrong := range c.Check(f, c.Dated()) {
				t.Errorf("%s (by %s)\n%s", wrong, rule, now.Body)
			}
		})
	}
}
