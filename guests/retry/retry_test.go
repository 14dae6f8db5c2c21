// Package retry_test holds the built-in retry policy to an oracle in Go, and to
// the same policy written in Go and built as a guest.
package retry_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
)

var (
	inputs   = flag.Int("inputs", 10000, "how many random inputs the Rust guest is asked")
	goInputs = flag.Int("go-inputs", 200, "how many of them the Go guest is asked, which is slower")
	seed     = flag.Uint64("seed", 1, "the seed of the random inputs")
)

// oracle is the policy in Go, on the host's own types.
func oracle(in dsh.RecoverInput) dsh.Decision {
	p, n := in.RetryPolicy, 1.0
	for _, c := range in.RetryCounts {
		if c.Policy == in.Policy && c.PolicyKey == p.Key() && c.Purpose == in.Purpose {
			n += float64(c.Count)
		}
	}
	wait := dsh.Millis(in.Failure.RetryAfter)
	delay := wait
	if wait <= 0 || wait > p.MaxDelayMs {
		delay = p.InitialDelayMs * math.Exp2(math.Min(n-1, 1024))
		if !(delay < p.MaxDelayMs) {
			delay = p.MaxDelayMs
		}
		// The conversions forbid a fused multiply-add.
		delay *= float64(1-p.JitterRatio) + float64(2*p.JitterRatio*in.Random[0])
		delay = math.Min(delay, p.MaxDelayMs)
	}
	retry := dsh.Decision{Kind: dsh.KindRetry, DelayMs: delay, Mode: p.Mode, PolicyKey: p.Key()}
	if p.Mode == dsh.ModeAlways {
		return dsh.Decision{Kind: dsh.KindDelegate, Fallback: &retry}
	}
	if !slices.Contains(p.RetryableCodes, in.Failure.Code) || n > float64(p.MaxRetries) || wait > p.MaxDelayMs {
		return dsh.Decision{Kind: dsh.KindDelegate}
	}
	retry.MaxRetries = &p.MaxRetries
	return retry
}

func base() dsh.RecoverInput {
	return dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: "d", Policy: "retry", Session: "s", Turn: 1, Step: 2, Attempt: 3,
		Purpose: dsh.PurposeReply, Provider: "deepseek", Model: "deepseek-chat", NowMs: 1767225600000,
		Failure:     dsh.Failure{Message: "späte \"Antwort\" \\ \u2028 😀 <b>", Code: dsh.CodeServer, Status: 500, RequestID: "r\n1"},
		RetryPolicy: dsh.DefaultRetryPolicy(), RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{},
		Config: json.RawMessage("{}"),
	}
}

// random makes an input that a host could send, and often one at an edge.
func random(r *rand.Rand) dsh.RecoverInput {
	in := base()
	p := &in.RetryPolicy
	if r.IntN(4) == 0 {
		p.Mode = dsh.ModeAlways
	}
	p.MaxRetries = pick(r, 0, 1, 2, 5, 1023, 1024, 1025, 1<<53-1, r.Int64N(10))
	p.MaxDelayMs = pick(r, 1, 10000, math.MaxInt32, math.Exp(r.Float64()*21), r.Float64()*1000)
	p.InitialDelayMs = min(p.MaxDelayMs, pick(r, 500, 1e-9, math.SmallestNonzeroFloat64, 0, p.MaxDelayMs, r.Float64()*700, r.Float64()))
	p.JitterRatio = pick(r, 0, 1, 0.1, 0.5, r.Float64(), 1e-300)
	p.RetryableCodes = slices.Clone(dsh.Codes())
	r.Shuffle(len(p.RetryableCodes), func(i, j int) {
		p.RetryableCodes[i], p.RetryableCodes[j] = p.RetryableCodes[j], p.RetryableCodes[i]
	})
	p.RetryableCodes = p.RetryableCodes[:1+r.IntN(len(p.RetryableCodes))]
	in.Failure.Code = dsh.Codes()[r.IntN(len(dsh.Codes()))]
	if r.IntN(2) == 0 {
		in.Failure.RetryAfter = dsh.FromMillis(pick(r, p.MaxDelayMs, p.MaxDelayMs+1, p.MaxDelayMs/2, r.Float64()*20000, 1e-6, 3.6e6))
	}
	in.Random = [4]float64{pick(r, 0, r.Float64(), 1-0x1p-53, 0x1p-53), r.Float64(), r.Float64(), r.Float64()}
	count := pick(r, 0, 1, 4, 5, 1023, 1024, 1<<53-1, r.IntN(12))
	if r.IntN(3) == 0 {
		in.Purpose = dsh.PurposeCompaction
	}
	in.RetryCounts = []dsh.RetryCount{
		{Policy: "other", PolicyKey: p.Key(), Purpose: in.Purpose, Count: 100},
		{Policy: "retry", PolicyKey: p.Key() + " ", Purpose: in.Purpose, Count: 100},
		{Policy: "retry", PolicyKey: p.Key(), Purpose: "else", Count: 100},
		{Policy: "retry", PolicyKey: p.Key(), Purpose: in.Purpose, Count: count},
	}
	r.Shuffle(4, func(i, j int) { in.RetryCounts[i], in.RetryCounts[j] = in.RetryCounts[j], in.RetryCounts[i] })
	return in
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func load(t *testing.T, spec runtime.Spec) dsh.Policy {
	t.Helper()
	set, err := runtime.Open(t.Context(), []runtime.Spec{spec}, runtime.Options{
		Engine: native.New(native.Options{}), Builtin: guests.Builtin, Deadline: time.Minute,
	})
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

func decide(p dsh.Policy, in any) (dsh.Verdict, error) {
	raw, err := dsh.JSON(in)
	if err != nil {
		return dsh.Verdict{}, err
	}
	return p.Decide(context.Background(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
}

// difference compares two decisions, whose reasons are words.
func difference(got, want dsh.Decision) string {
	if got.Fallback != nil {
		got.Fallback.Reason = ""
	}
	got.Reason = ""
	a, errA := dsh.JSON(got)
	b, errB := dsh.JSON(want)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		return fmt.Sprintf("decided %s, want %s", a, b)
	}
	return ""
}

func agree(t *testing.T, p dsh.Policy, count int) {
	r := rand.New(rand.NewPCG(*seed, 0))
	for i := range count {
		in := random(r)
		v, err := decide(p, in)
		if err != nil {
			t.Fatalf("input %d: %v", i, err)
		}
		if d := difference(v.Decision, oracle(in)); d != "" {
			raw, _ := dsh.JSON(in)
			t.Fatalf("input %d: %s\n%s", i, d, raw)
		}
	}
}

func TestRustGuestAgreesWithOracle(t *testing.T) {
	count := *inputs
	if testing.Short() {
		count = min(count, 1000)
	}
	agree(t, load(t, runtime.Spec{Name: "retry", Module: "builtin:retry"}), count)
}

// TestGoGuestAgreesWithOracle builds examples/policies/retry-go with the plain
// toolchain, gives it a manifest, and asks it the same.
func TestGoGuestAgreesWithOracle(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and compiles a module of 3 MB")
	}
	out := filepath.Join(t.TempDir(), "retry-go.wasm")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", out, ".")
	build.Dir = filepath.Join("..", "..", "examples", "policies", "retry-go")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	plain, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := hostabi.Pack(plain, hostabi.Manifest{Name: "retry-go", Version: "1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	p := load(t, runtime.Spec{Name: "retry", Module: out})
	if v := p.Info().Version; v != "1.0.0" {
		t.Errorf("its manifest says version %q", v)
	}
	agree(t, p, *goInputs)
}

// TestOriginalBehaviour are the figures of the system whose arithmetic this is.
func TestOriginalBehaviour(t *testing.T) {
	p := load(t, runtime.Spec{Name: "retry", Module: "builtin:retry"})
	type settings = dsh.RetryPolicy
	normal := func(initial, most, jitter float64) settings {
		s := dsh.DefaultRetryPolicy()
		s.InitialDelayMs, s.MaxDelayMs, s.JitterRatio = initial, most, jitter
		return s
	}
	always := func(initial, most, jitter float64) settings {
		s := normal(initial, most, jitter)
		s.Mode = dsh.ModeAlways
		return s
	}
	exhausted := normal(500, 10000, 0)
	exhausted.MaxRetries = 2
	huge := exhausted
	huge.MaxRetries = 5000
	cases := []struct {
		name     string
		settings settings
		code     dsh.Code
		wait     float64
		random   float64
		count    int
		want     string // the delay of a retry, "fallback" and one, or "delegate"
	}{
		{"first", normal(500, 10000, 0), dsh.CodeRateLimit, 0, 0.7, 0, "500"},
		{"jitter low", normal(500, 10000, 0.1), dsh.CodeServer, 0, 0, 0, "450"},
		{"jitter high", normal(500, 10000, 0.1), dsh.CodeServer, 0, 1, 1, "1100"},
		{"zero delay", normal(1, 1, 1), dsh.CodeServer, 0, 0, 0, "0"},
		{"retry-after verbatim", normal(500, 10000, 1), dsh.CodeRateLimit, 2000, 0.9, 0, "2000"},
		{"retry-after over the cap", normal(500, 10000, 0.1), dsh.CodeRateLimit, 10001, 0, 0, "delegate"},
		{"retry-after at the cap", normal(500, 10000, 0.1), dsh.CodeRateLimit, 10000, 0, 0, "10000"},
		{"retry-after over the cap, always", always(2, 4, 0.5), dsh.CodeAuth, 10, 1, 0, "fallback 3"},
		{"not transient", normal(500, 10000, 0), dsh.CodeAuth, 0, 0, 0, "delegate"},
		{"always 1", always(1, 4, 0.1), dsh.CodeAuth, 0, 1, 0, "fallback 1.1"},
		{"always 2", always(1, 4, 0.1), dsh.CodeAuth, 0, 1, 1, "fallback 2.2"},
		{"always 3", always(1, 4, 0.1), dsh.CodeAuth, 0, 1, 2, "fallback 4"},
		{"always 4", always(1, 4, 0.1), dsh.CodeAuth, 0, 1, 3, "fallback 4"},
		{"last", exhausted, dsh.CodeServer, 0, 0, 1, "1000"},
		{"exhausted", exhausted, dsh.CodeServer, 0, 0, 2, "delegate"},
		{"huge exponent", huge, dsh.CodeServer, 0, 0, 1999, "10000"},
	}
	for _, c := range cases {
		in := base()
		in.RetryPolicy, in.Failure.Code, in.Random[0] = c.settings, c.code, c.random
		in.Failure.RetryAfter = dsh.FromMillis(c.wait)
		in.RetryCounts = []dsh.RetryCount{{Policy: "retry", PolicyKey: c.settings.Key(), Purpose: in.Purpose, Count: c.count}}
		v, err := decide(p, in)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got := string(v.Decision.Kind)
		if d, ok := v.Decision, false; d.Fallback != nil {
			got = "fallback " + strconv.FormatFloat(d.Fallback.DelayMs, 'g', -1, 64)
		} else if ok = d.Kind == dsh.KindRetry; ok {
			got = strconv.FormatFloat(d.DelayMs, 'g', -1, 64)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if v.Decision.Kind == dsh.KindDelegate && v.Decision.Reason == "" {
			t.Errorf("%s: it delegates without a reason", c.name)
		}
	}
}

// TestNumbers holds the guest's own reading and writing of numbers to Go's: a
// provider's wait comes out as the double that went in.
func TestNumbers(t *testing.T) {
	p := load(t, runtime.Spec{Name: "retry", Module: "builtin:retry"})
	r := rand.New(rand.NewPCG(*seed, 1))
	texts := []string{
		"1", "0.1", "547.7", "1e0", "1E+2", "2147483647", "2147483646.9999998", "4503599627370495.5e-7",
		"5e-324", "4.9406564584124654e-324", "2.2250738585072011e-308", "2.2250738585072014e-308", "1e-400",
		"9007199254740993e-7", "0.000001", "9.5367431640625e-07", "1.7976931348623157e-300", "123456789012345678e-12",
		"0.30000000000000004", "1000000000000000000000e-15", "1.00000000000000011102230246251565404e0", "8.5e1",
		"0.000000000000000000000000000000000000000000000000000000000000000000000000000000001e90",
		"99999999999999999999e-12", "1e1", "10.50", "1e-7", "1.1102230246251565e-16",
	}
	for range 1500 {
		v := math.Float64frombits(r.Uint64())
		if v = math.Abs(v); v > 0 && v <= math.MaxInt32 {
			texts = append(texts, strconv.FormatFloat(v, 'e', -1, 64))
		}
		v = r.Float64() * math.Pow(10, float64(r.IntN(16)-6))
		texts = append(texts, strconv.FormatFloat(v, 'g', -1, 64), strconv.FormatFloat(v, 'f', 20, 64), strconv.FormatFloat(math.Floor(v*1000)/1000, 'g', -1, 64))
	}
	if testing.Short() {
		texts = texts[:500]
	}
	for _, text := range texts {
		want, err := strconv.ParseFloat(text, 64)
		if err != nil || want > math.MaxInt32 {
			continue
		}
		raw := `{"policy":"retry","purpose":"reply","failure":{"code":"SERVER","providerRetryAfterMs":` + text + `},"random":[0,0,0,0],
			"retryPolicy":{"key":"k","mode":"normal","maxRetries":5,"retryableCodes":["SERVER"],"initialDelayMs":0,"maxDelayMs":2147483647,"jitterRatio":0}}`
		v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: json.RawMessage(raw)})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if v.Decision.DelayMs != want {
			t.Errorf("%s came out as %v: %s", text, v.Decision.DelayMs, v.Raw)
		}
	}
}

// TestReading holds the guest's reader to JSON: escapes in keys and values,
// white space, unknown fields, null; and what is not JSON is a fault.
func TestReading(t *testing.T) {
	p := load(t, runtime.Spec{Name: "retry", Module: "builtin:retry"})
	const good = `{"policy":"retry","purpose":"reply","failure":{"code":"SERVER"},"random":[0,0,0,0],"retryPolicy":{"key":"k","mode":"normal","maxRetries":5,"retryableCodes":["SERVER"],"initialDelayMs":64,"maxDelayMs":1000,"jitterRatio":0}%s}`
	same := []string{
		"", `,"retryCounts":null`, `,"other":{"a":[1,2,{"b":"\\\""}],"c":-1.5e-7,"d":true,"e":false}`,
		` , "x" : [ ] , "y" : { } `, `,"retryCounts":[{"policy":"retr\u0079","policyKey":"k","purpose":"reply","count":0,"z":[[[]]]}]`,
		`,"\u0070olicy":"retry"`, `,"deep":` + strings.Repeat("[", 60) + strings.Repeat("]", 60),
	}
	for _, more := range same {
		v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: json.RawMessage(fmt.Sprintf(good, more))})
		if err != nil || v.Decision.DelayMs != 64 {
			t.Errorf("%s: %v %s", more, err, v.Raw)
		}
	}
	escaped := fmt.Sprintf(good, `,"retryCounts":[{"policy":"\u0072etry","policyKey":"\u006b","purpose":"repl\u0079","count":1}]`)
	escaped = strings.Replace(escaped, `["SERVER"]`, `["S\u0045RVER"]`, 1)
	if v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: json.RawMessage(escaped)}); err != nil || v.Decision.DelayMs != 128 {
		t.Errorf("escaped: %v %s", err, v.Raw)
	}
}

func TestOwnConfigHasToBeEmpty(t *testing.T) {
	for config, want := range map[string]string{
		`{"retry_policy":{"mode":"always"}}`: "providers.NAME.retry_policy",
		`{"retryPolciy":1}`:                  "retryPolciy",
	} {
		_, err := runtime.Open(t.Context(), []runtime.Spec{{Name: "retry", Module: "builtin:retry", Config: json.RawMessage(config)}},
			runtime.Options{Engine: native.New(native.Options{}), Builtin: guests.Builtin})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestDigest makes sure that what is embedded is what stands beside its
// digest. That the source builds it is checked by build.sh --check.
func TestDigest(t *testing.T) {
	wasm, ok := guests.Builtin("retry")
	listed, err := os.ReadFile("retry.wasm.sha256")
	if err != nil || !ok {
		t.Fatal(err)
	}
	sum := sha256.Sum256(wasm)
	if want, _, _ := strings.Cut(string(listed), " "); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the module's digest is %x, and retry.wasm.sha256 says %s", sum, want)
	}
	if len(wasm) > 120_000 {
		t.Errorf("the module has grown to %d bytes", len(wasm))
	}
}
