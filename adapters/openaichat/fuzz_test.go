package openaichat_test

import (
	"slices"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/internal/corpus"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

// FuzzAnswer reads whatever a provider may send: it ends, in a good answer or
// in a failure of a known code.
func FuzzAnswer(f *testing.F) {
	for _, file := range []string{"failures.jsonl", "benign-streams.jsonl"} {
		cases, err := corpus.Load(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, c := range cases {
			f.Add(c.Status, []byte(c.Body))
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		failure, rule := openaichat.Classify(status, nil, body)
		if rule == "" {
			t.Error("no rule")
		}
		if failure != nil && (!slices.Contains(dsh.Codes(), failure.Code) || failure.Message == "") {
			t.Errorf("%+v", failure)
		}
	})
}
