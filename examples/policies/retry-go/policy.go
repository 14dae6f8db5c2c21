package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Input is what of dsh's RecoverInput this policy looks at.
type Input struct {
	Policy  string `json:"policy"` // the name under which dsh.toml lists it
	Purpose string `json:"purpose"`
	Failure struct {
		Code       string  `json:"code"`
		RetryAfter float64 `json:"providerRetryAfterMs"` // 0: the provider asked for no wait
	} `json:"failure"`
	Random      [4]float64 `json:"random"` // each in [0, 1)
	RetryPolicy struct {
		Key            string   `json:"key"`
		Mode           string   `json:"mode"`
		MaxRetries     float64  `json:"maxRetries"`
		RetryableCodes []string `json:"retryableCodes"`
		InitialDelayMs float64  `json:"initialDelayMs"`
		MaxDelayMs     float64  `json:"maxDelayMs"`
		JitterRatio    float64  `json:"jitterRatio"`
	} `json:"retryPolicy"`
	RetryCounts []struct {
		Policy    string  `json:"policy"`
		PolicyKey string  `json:"policyKey"`
		Purpose   string  `json:"purpose"`
		Count     float64 `json:"count"`
	} `json:"retryCounts"`
}

// Decision is what the policy answers.
type Decision struct {
	Kind       string    `json:"kind"` // retry or delegate
	DelayMs    *float64  `json:"delayMs,omitempty"`
	Mode       string    `json:"mode,omitempty"`
	MaxRetries *float64  `json:"maxRetries,omitempty"`
	PolicyKey  string    `json:"policyKey,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Fallback   *Decision `json:"fallback,omitempty"` // what to do if no other policy retries
}

// Decide is the whole policy: a pure function of its input.
func Decide(in Input) (Decision, error) {
	p := in.RetryPolicy
	n := 1.0
	for _, c := range in.RetryCounts {
		if c.Policy == in.Policy && c.PolicyKey == p.Key && c.Purpose == in.Purpose {
			n += c.Count
		}
	}
	delay, whose := in.delay(n)
	retry := Decision{Kind: "retry", DelayMs: &delay, Mode: p.Mode, PolicyKey: p.Key}
	switch p.Mode {
	case "always":
		retry.Reason = fmt.Sprintf("after %s, retry %v", whose, n)
		return Decision{Kind: "delegate", Reason: "mode always lets the others go first", Fallback: &retry}, nil
	case "normal":
	default:
		return Decision{}, errors.New("retryPolicy.mode is neither normal nor always")
	}
	switch {
	case !slices.Contains(p.RetryableCodes, in.Failure.Code):
		return delegate("%s is not among the retryable codes", in.Failure.Code), nil
	case n > p.MaxRetries:
		return delegate("all %v retries are used", p.MaxRetries), nil
	case in.Failure.RetryAfter > p.MaxDelayMs:
		return delegate("the provider asked for a wait of %v ms, which is over the cap of %v ms", in.Failure.RetryAfter, p.MaxDelayMs), nil
	}
	retry.MaxRetries = &p.MaxRetries
	retry.Reason = fmt.Sprintf("after %s, retry %v of %v", whose, n, p.MaxRetries)
	return retry, nil
}

func delegate(format string, args ...any) Decision {
	return Decision{Kind: "delegate", Reason: fmt.Sprintf(format, args...)}
}

// delay is how long retry n waits, in ms, and whose wait that is: the
// provider's as it is, if it is within the cap, and else a backoff that
// doubles each time, with jitter.
func (in Input) delay(n float64) (float64, string) {
	p := in.RetryPolicy
	if in.Failure.RetryAfter > 0 && in.Failure.RetryAfter <= p.MaxDelayMs {
		return in.Failure.RetryAfter, "the provider's wait"
	}
	base := limit(p.InitialDelayMs*math.Pow(2, min(n-1, 1024)), p.MaxDelayMs)
	// The conversions keep the compiler from fusing a product and a sum, which
	// would round differently from one machine to another.
	factor := float64(1-p.JitterRatio) + float64(2*p.JitterRatio*in.Random[0])
	return limit(base*factor, p.MaxDelayMs), "a backoff"
}

// limit is the lesser of the two; what is no number is the cap.
func limit(v, most float64) float64 {
	if v < most {
		return v
	}
	return most
}

// CheckConfig says what is wrong with the policy's own config, which has to be
// empty.
func CheckConfig(config map[string]json.RawMessage) []string {
	problems := []string{}
	for key := range config {
		if key == "retry_policy" || key == "retryPolicy" {
			problems = append(problems, key+" is a provider's setting and belongs under [providers.NAME.retry_policy]: this policy takes no config of its own")
			continue
		}
		problems = append(problems, key+" is an unknown key: this policy takes no config; retries are set under [providers.NAME.retry_policy]")
	}
	sort.Strings(problems)
	return problems
}
