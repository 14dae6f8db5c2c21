package dsh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// NativePolicy is a policy written in Go and compiled in: for programs that
// embed the loop, and for tests. It has the guarantees that its code has, and
// none of a sandbox.
func NativePolicy(name string, recover func(RecoverInput) Decision) Policy {
	return nativePolicy{name, recover}
}

type nativePolicy struct {
	name    string
	recover func(RecoverInput) Decision
}

func (p nativePolicy) Info() PolicyInfo {
	sum := sha256.Sum256([]byte("native:" + p.name))
	none := sha256.Sum256([]byte("{}"))
	return PolicyInfo{
		Name: p.name, Digest: hex.EncodeToString(sum[:]), ConfigSHA256: hex.EncodeToString(none[:]),
		Engine: "native-go", Source: "go:" + p.name, Config: json.RawMessage("{}"),
	}
}

func (p nativePolicy) Decide(_ context.Context, q Question) (Verdict, error) {
	if q.Hook != HookRecover {
		return Verdict{}, &Fault{Kind: FaultUnavailable, Message: "a native policy has no " + string(q.Hook)}
	}
	var in RecoverInput
	if err := json.Unmarshal(q.Input, &in); err != nil {
		return Verdict{}, &Fault{Kind: FaultSchema, Message: err.Error(), Cause: err}
	}
	d := p.recover(in)
	if err := d.Validate(); err != nil {
		return Verdict{}, &Fault{Kind: FaultSchema, Message: err.Error(), Cause: err}
	}
	raw, err := JSON(d)
	if err != nil {
		return Verdict{}, &Fault{Kind: FaultSchema, Message: err.Error(), Cause: err}
	}
	return Verdict{Decision: d, Raw: raw}, nil
}
