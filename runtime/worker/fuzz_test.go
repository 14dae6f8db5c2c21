package worker

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
)

// FuzzFrame: whatever a worker sends is read within bounds, and what is read of
// a result is held to the contract.
func FuzzFrame(f *testing.F) {
	for _, m := range []message{
		{Kind: kindDone}, {Kind: kindAsk, Text: "log_read", body: []byte("{}")},
		{Kind: kindResult, Result: &result{Fault: dsh.FaultTrap, Message: "m\x1b"}, body: []byte("out")},
	} {
		var b bytes.Buffer
		if err := write(&b, m); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := read(bytes.NewReader(raw), maxSaidHead, maxSaidBody)
		if err != nil || m.Result == nil {
			return
		}
		r, err := resultOf(m)
		if len(r.Output) > hostabi.MaxOutputBytes || len(r.Logs) > hostabi.MaxLogLines+1 {
			t.Errorf("%d bytes, %d lines", len(r.Output), len(r.Logs))
		}
		if err != nil {
			if raw, jsonErr := json.Marshal(err.Error()); jsonErr != nil || bytes.Contains(raw, []byte(`\u001b`)) {
				t.Errorf("%q", err)
			}
		}
	})
}
