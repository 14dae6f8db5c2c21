// Package compaction_test holds the built-in compaction policy to an oracle in
// Go, over both of its hooks.
package compaction_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
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
	inputs = flag.Int("inputs", 1500, "how many random inputs each hook is asked")
	seed   = flag.Uint64("seed", 1, "the seed of the random inputs")
)

// settings are the policy's config.
type settings struct {
	ThresholdRatio   *float64 `json:"thresholdRatio,omitempty"`
	RetainRatio      *float64 `json:"retainRatio,omitempty"`
	SummaryMaxTokens *int64   `json:"summaryMaxTokens,omitempty"`
}

func orElse[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}

// compaction is the repair that the oracle wants.
func compaction(in dsh.RecoverInput, s settings) dsh.Repair {
	most := orElse(s.SummaryMaxTokens, 8192)
	if quarter := in.Surface.Window / 4; in.Surface.Window > 0 {
		most = max(1, min(most, quarter))
	}
	return dsh.Repair{Kind: dsh.RepairCompact, MaxTokens: most}
}

func pruning() dsh.Repair {
	return dsh.Repair{Kind: dsh.RepairPrune, OverChars: 8192, HeadChars: 4096, TailChars: 1024}
}

// oracle is the policy in Go, on the host's own types. For before_step the
// input has no failure.
func oracle(hook dsh.Hook, in dsh.RecoverInput, s settings) (dsh.Decision, []dsh.Repair) {
	compactions, failed, retries := 0, 0, 0
	for _, r := range in.Repairs {
		if r.Kind == dsh.RepairCompact && r.Policy == in.Policy {
			compactions++
			if !r.OK {
				failed++
			}
		}
	}
	for _, c := range in.RetryCounts {
		if c.Policy == in.Policy && c.PolicyKey == "overflow" && c.Purpose == in.Purpose {
			retries += c.Count
		}
	}
	if hook == dsh.HookBeforeStep {
		threshold := float64(in.Surface.Window) * orElse(s.ThresholdRatio, 0.8)
		if in.Surface.Window <= 0 || float64(in.Surface.Tokens) <= threshold || compactions >= 2 || failed > 0 {
			return dsh.Decision{Kind: dsh.KindProceed}, nil
		}
		c, over := compaction(in, s), int64(threshold)
		c.IfOverTokens, c.RetainTokens = &over, int64(float64(in.Surface.Window)*orElse(s.RetainRatio, 0.16))
		return dsh.Decision{Kind: dsh.KindProceed}, []dsh.Repair{pruning(), c}
	}
	two, three := int64(2), int64(3)
	retry := dsh.Decision{Kind: dsh.KindRetry, Mode: dsh.ModeNormal, PolicyKey: "overflow", MaxRetries: &two}
	switch {
	case in.Failure.Code != dsh.CodeContextWindow:
	case in.Purpose == dsh.PurposeCompaction && retries < 3:
		retry.MaxRetries = &three
		return retry, nil
	case in.Purpose == dsh.PurposeCompaction, retries >= 2, compactions >= 4:
	case retries == 1:
		return retry, []dsh.Repair{compaction(in, s)}
	default:
		c, enough := compaction(in, s), int64(float64(in.Surface.Tokens)*0.8)
		if in.Surface.Window > 0 {
			enough = min(enough, in.Surface.Window)
		}
		c.IfOverTokens = &enough
		return retry, []dsh.Repair{pruning(), c}
	}
	return dsh.Decision{Kind: dsh.KindDelegate}, nil
}

func base() dsh.RecoverInput {
	return dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: "d", Policy: "compaction", Session: "s", Turn: 1, Step: 2, Attempt: 3,
		Purpose: dsh.PurposeReply, Provider: "deepseek", Model: "deepseek-chat", NowMs: 1767225600000,
		Failure:     dsh.Failure{Message: "zu \"lang\" \\ \u2028 😀", Code: dsh.CodeContextWindow, Status: 400, RequestID: "r\n1"},
		RetryPolicy: dsh.DefaultRetryPolicy(), RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{},
		Surface: dsh.SurfaceInfo{Messages: 5, Tokens: 20000, RequestBytes: 80000}, Config: json.RawMessage("{}"),
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// random makes an input that a host could send, and often one at an edge.
func random(r *rand.Rand) (dsh.RecoverInput, settings) {
	in := base()
	if r.IntN(3) == 0 {
		in.Failure.Code = pick(r, dsh.Codes()...)
	}
	in.Purpose = pick(r, dsh.PurposeReply, dsh.PurposeReply, dsh.PurposeCompaction)
	in.Surface.Window = pick(r, 0, 0, 1, 3, 1000, 131072, 1<<40, r.Int64N(200000))
	w := in.Surface.Window
	in.Surface.Tokens = pick(r, 0, 1, w, w*8/10, w*8/10+1, w/2, r.Int64N(300000), 1<<41)
	for range r.IntN(6) {
		in.Repairs = append(in.Repairs, dsh.RepairOutcome{
			Kind: pick(r, dsh.RepairCompact, dsh.RepairPrune), Policy: pick(r, "compaction", "compaction", "other"), OK: r.IntN(4) > 0,
		})
	}
	in.RetryCounts = []dsh.RetryCount{
		{Policy: "retry", PolicyKey: "overflow", Purpose: in.Purpose, Count: 9},
		{Policy: "compaction", PolicyKey: "other", Purpose: in.Purpose, Count: 9},
		{Policy: "compaction", PolicyKey: "overflow", Purpose: "else", Count: 9},
	}
	if n := r.IntN(5); n > 0 {
		in.RetryCounts = append(in.RetryCounts, dsh.RetryCount{Policy: "compaction", PolicyKey: "overflow", Purpose: in.Purpose, Count: n})
	}
	var s settings
	if r.IntN(2) == 0 {
		v := pick(r, 1, 0.5, r.Float64())
		s.ThresholdRatio = &v
	}
	if r.IntN(2) == 0 {
		v := pick(r, 0.25, r.Float64(), 1e-9)
		s.RetainRatio = &v
	}
	if r.IntN(2) == 0 {
		v := pick(r, 1, 100, 1<<53-1, r.Int64N(100000)+1)
		s.SummaryMaxTokens = &v
	}
	raw, _ := dsh.JSON(s)
	in.Config = raw
	return in, s
}

// stepInput is a before_step's input that says the same.
func stepInput(in dsh.RecoverInput) dsh.StepInput {
	return dsh.StepInput{
		ABI: in.ABI, DecisionID: in.DecisionID, Policy: in.Policy, Session: in.Session, Turn: in.Turn, Step: in.Step, Attempt: in.Attempt,
		Purpose: in.Purpose, Provider: in.Provider, Model: in.Model, NowMs: in.NowMs, RetryPolicy: in.RetryPolicy,
		RetryCounts: in.RetryCounts, Repairs: in.Repairs, Surface: in.Surface, Limits: in.Limits, Config: in.Config,
	}
}

func open(ctx context.Context, config string) (*runtime.Set, error) {
	return runtime.Open(ctx, []runtime.Spec{{
		Name: "compaction", Module: "builtin:compaction", Config: json.RawMessage(config),
		Capabilities: []string{"surface.read", "repair.prune", "repair.compact"},
	}}, runtime.Options{Engine: native.New(native.Options{}), Builtin: guests.Builtin, Deadline: time.Minute})
}

func load(t *testing.T) dsh.Policy {
	t.Helper()
	set, err := open(t.Context(), "{}")
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

func decide(t *testing.T, p dsh.Policy, hook dsh.Hook, in dsh.RecoverInput) (dsh.Verdict, []dsh.Repair) {
	t.Helper()
	var v any = in
	if hook == dsh.HookBeforeStep {
		v = stepInput(in)
	}
	raw, err := dsh.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := p.Decide(t.Context(), dsh.Question{Hook: hook, Input: raw})
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	var repairs []dsh.Repair
	for _, r := range verdict.Decision.Repairs {
		repair, err := dsh.ParseRepair(r)
		if err != nil {
			t.Fatal(err)
		}
		repairs = append(repairs, repair)
	}
	return verdict, repairs
}

func TestGuestAgreesWithOracle(t *testing.T) {
	p, count := load(t), *inputs
	if testing.Short() {
		count = min(count, 500)
	}
	for _, hook := range []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep} {
		r := rand.New(rand.NewPCG(*seed, 0))
		for i := range count {
			in, s := random(r)
			want, wantRepairs := oracle(hook, in, s)
			v, repairs := decide(t, p, hook, in)
			got := v.Decision
			if got.Kind == dsh.KindDelegate && got.Reason == "" {
				t.Errorf("%s, input %d: it delegates without a reason", hook, i)
			}
			got.Repairs, got.Reason = nil, ""
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(repairs, wantRepairs) {
				raw, _ := dsh.JSON(in)
				t.Fatalf("%s, input %d: decided %s, want %+v with %+v\n%s", hook, i, v.Raw, want, wantRepairs, raw)
			}
		}
	}
}

// TestBudget walks one step to its end, as the log would tell it: two rounds
// after overflows, each kept apart from the retries of others.
func TestBudget(t *testing.T) {
	p, in, said := load(t), base(), []string{}
	in.RetryCounts = append(in.RetryCounts, dsh.RetryCount{Policy: "compaction", PolicyKey: "overflow", Purpose: dsh.PurposeReply})
	for round := range 4 {
		in.RetryCounts[0].Count = round
		v, repairs := decide(t, p, dsh.HookRecover, in)
		word := string(v.Decision.Kind)
		for _, r := range repairs {
			word += " " + string(r.Kind)
			if r.IfOverTokens != nil {
				word += "?"
			}
		}
		said = append(said, word)
	}
	if want := []string{"retry prune compact?", "retry compact", "delegate", "delegate"}; !slices.Equal(said, want) {
		t.Errorf("rounds %q, want %q", said, want)
	}
}

func TestManifest(t *testing.T) {
	info := load(t).Info()
	asks := []string{"surface.read", "repair.prune", "repair.compact"}
	if !slices.Equal(info.Asked, asks) || !slices.Equal(info.Granted, asks) || info.Version == "" || info.Description == "" {
		t.Errorf("%+v", info)
	}
	if !slices.Equal(info.Hooks, []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep}) {
		t.Errorf("hooks %v", info.Hooks)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for config, want := range map[string]string{
		`{}`: "", `{"thresholdRatio":1,"retainRatio":0.99,"summaryMaxTokens":1}`: "", `{"summaryMaxTokens":9007199254740991}`: "",
		`{"thresholdRatio":0}`: "thresholdRatio is out of range", `{"thresholdRatio":1.01}`: "thresholdRatio is out of range",
		`{"thresholdRatio":"0.5"}`: "thresholdRatio is out of range", `{"thresholdRatio":[0.5]}`: "thresholdRatio is out of range",
		`{"retainRatio":0}`: "retainRatio is out of range", `{"retainRatio":-0.5}`: "retainRatio is out of range",
		`{"retainRatio":0.8}`: "retainRatio is not below thresholdRatio", `{"thresholdRatio":0.1}`: "retainRatio is not below thresholdRatio",
		`{"summaryMaxTokens":0}`: "summaryMaxTokens is out of range", `{"summaryMaxTokens":1.5}`: "summaryMaxTokens is out of range",
		`{"summaryMaxTokens":9007199254740992}`: "summaryMaxTokens is out of range", `{"summaryMaxTokens":true}`: "summaryMaxTokens is out of range",
		`{"threshold_ratio":0.5}`: "threshold_ratio is an unknown key", `{"a":{"b":[1]},"retainRatio":2}`: "a is an unknown key",
	} {
		set, err := open(t.Context(), config)
		switch {
		case err == nil:
			if err := set.Close(); err != nil {
				t.Error(err)
			}
			if want != "" {
				t.Errorf("%s: it is taken, and %q was expected", config, want)
			}
		case want == "" || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, and %q was expected", config, err, want)
		}
	}
}

// TestDigest makes sure that what is embedded is what stands beside its
// digest. That the source builds it is checked by build.sh --check.
func TestDigest(t *testing.T) {
	wasm, ok := guests.Builtin("compaction")
	listed, err := os.ReadFile("compaction.wasm.sha256")
	if err != nil || !ok {
		t.Fatal(err)
	}
	sum := sha256.Sum256(wasm)
	if want, _, _ := strings.Cut(string(listed), " "); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the module's digest is %x, and compaction.wasm.sha256 says %s", sum, want)
	}
	if len(wasm) > 60_000 {
		t.Errorf("the module has grown to %d bytes", len(wasm))
	}
}
