package sdk_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	gosdk "github.com/dsh-agent/dsh/guests/sdk/go"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
)

// open loads a module as a policy of the name "standard".
func open(t *testing.T, wasm []byte) dsh.Policy {
	t.Helper()
	set, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "standard", Module: "standard.wasm", Wasm: wasm}}, runtime.Options{Engine: extism.New(extism.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	policies, _ := set.Policies()
	return policies[0]
}

// odd are texts that are awkward in JSON.
func odd() []string {
	return []string{"", "plain", `"quoted" \ and /`, "line\nbreak\ttab\r\x01", "späte Antwort \u2028", "😀 pair", "日本"}
}

// situationOf makes an input, often one at an edge.
func situationOf(r *rand.Rand) dsh.RecoverInput {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	settings := dsh.DefaultRetryPolicy()
	if r.IntN(5) == 0 {
		settings.Mode = dsh.ModeAlways
	}
	settings.MaxRetries = int64(r.IntN(8))
	settings.MaxDelayMs = []float64{10000, 1, 2147483647, 1234.5}[r.IntN(4)]
	settings.InitialDelayMs = math.Min(settings.MaxDelayMs, []float64{500, 0.25, 3.125, 1e-3}[r.IntN(4)])
	settings.JitterRatio = []float64{0, 0.1, 1, r.Float64()}[r.IntN(4)]
	settings.RetryableCodes = dsh.Codes()[:4+r.IntN(len(dsh.Codes())-3)]
	in := dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: pick(odd()), Policy: "standard", Session: "s", Turn: 1, Step: 2, Attempt: 3, Purpose: dsh.PurposeReply,
		Provider: pick(odd()), Model: pick(odd()), NowMs: 1767225600000, FailedAtMs: 1767225599000,
		Failure:     dsh.Failure{Code: dsh.Codes()[r.IntN(len(dsh.Codes()))], Message: pick(odd()), RequestID: dsh.RequestID(pick(odd()))},
		Random:      [4]float64{r.Float64(), r.Float64(), r.Float64(), r.Float64()},
		RetryPolicy: settings, Repairs: []dsh.RepairOutcome{{Kind: dsh.RepairPrune, Policy: "p", OK: true, TokensBefore: 9, TokensAfter: 3}},
		Config: json.RawMessage(`{"deep":[[1,{"a":null}],true,-1.5e-3]}`),
	}
	for _, key := range []string{settings.Key(), pick(odd())} {
		in.RetryCounts = append(in.RetryCounts, dsh.RetryCount{Policy: "standard", PolicyKey: key, Purpose: dsh.PurposeReply, Count: r.IntN(4)},
			dsh.RetryCount{Policy: pick(odd()), PolicyKey: key, Purpose: dsh.PurposeCompaction, Count: 100})
	}
	if r.IntN(2) == 0 {
		in.Failure.RetryAfter = dsh.FromMillis([]float64{1, 999.5, 10000, 3600000}[r.IntN(4)])
	}
	return in
}

// TestKitsDecideTheSame asks the same of all four kits and of the built-in
// policy: what the provider's settings make of a failure.
func TestKitsDecideTheSame(t *testing.T) {
	builtin, _ := guests.Builtin("retry")
	policies := map[string]dsh.Policy{"builtin": open(t, builtin)}
	for _, language := range []string{"c", "rust", "assemblyscript"} {
		wasm, err := os.ReadFile("testdata/standard-" + language + ".wasm")
		if err != nil {
			t.Fatal(err)
		}
		policies[language] = open(t, wasm)
	}
	r := rand.New(rand.NewPCG(1, 2))
	kinds := map[string]int{}
	for n := range 300 {
		raw, err := dsh.JSON(situationOf(r))
		if err != nil {
			t.Fatal(err)
		}
		var in gosdk.RecoverInput
		if err := json.Unmarshal(raw, &in); err != nil {
			t.Fatal(err)
		}
		made, err := json.Marshal(in.Standard())
		if err != nil {
			t.Fatal(err)
		}
		want := decided(t, made)
		kinds[fmt.Sprint(want["kind"])]++
		for name, p := range policies {
			v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
			if err != nil {
				t.Fatalf("%s: %v on %s", name, err, raw)
			}
			have := decided(t, v.Raw)
			if name == "builtin" { // which words its reasons otherwise
				want := decided(t, made)
				unworded(have)
				unworded(want)
				if !same(have, want) {
					t.Fatalf("input %d: %s decides %s, and Go %s, on\n%s", n, name, v.Raw, made, raw)
				}
				continue
			}
			if !same(have, want) {
				t.Fatalf("input %d: %s decides %s, and Go %s, on\n%s", n, name, v.Raw, made, raw)
			}
		}
	}
	if kinds["retry"] < 50 || kinds["delegate"] < 50 {
		t.Errorf("the inputs are lopsided: %v", kinds)
	}
}

func decided(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// unworded takes the reasons out, and the mode where it is the default.
func unworded(d map[string]any) {
	delete(d, "reason")
	if d["mode"] == "normal" {
		delete(d, "mode")
	}
	if f, ok := d["fallback"].(map[string]any); ok {
		unworded(f)
	}
}

// same compares decisions; delays to a millionth, which is what all kits write.
func same(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		switch v := v.(type) {
		case float64:
			w, ok := b[k].(float64)
			if !ok || math.Abs(v-w) > 1e-6+1e-12*math.Abs(v) {
				return false
			}
		case map[string]any:
			w, ok := b[k].(map[string]any)
			if !ok || !same(v, w) {
				return false
			}
		default:
			if !reflect.DeepEqual(v, b[k]) {
				return false
			}
		}
	}
	return true
}
