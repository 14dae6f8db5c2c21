package sdk

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Retry is a decision to send again after a delay in ms. The host makes sure
// that a delay of this length is at an end before it sends, also over restarts.
func Retry(delayMs float64) Decision { return Decision{Kind: "retry", DelayMs: &delayMs} }

// Delegate is a decision to leave the failure to the next policy. After the
// last one it is final.
func Delegate(reason string, args ...any) Decision {
	return Decision{Kind: "delegate"}.Because(reason, args...)
}

// Proceed is an answer to before_step, with what is to be repaired before.
func Proceed(repairs ...Repair) StepAnswer { return StepAnswer{Kind: "proceed", Repairs: repairs} }

// Because gives a decision a reason, for people. A number shows all its digits
// with %v: 3600000, and not 3.6e+06.
func (d Decision) Because(reason string, args ...any) Decision {
	if len(args) == 0 {
		d.Reason = reason
		return d
	}
	args = slices.Clone(args) // the caller's
	for i, a := range args {
		if f, ok := a.(float64); ok {
			args[i] = number(f)
		}
	}
	d.Reason = fmt.Sprintf(reason, args...)
	return d
}

type number float64

// Format lets other verbs than %v have the number itself.
func (n number) Format(f fmt.State, verb rune) {
	if verb == 'v' {
		_, _ = f.Write(strconv.AppendFloat(nil, float64(n), 'f', -1, 64)) // into memory
		return
	}
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), float64(n))
}

// AtMost has the host refuse a retry with a number above n.
func (d Decision) AtMost(n float64) Decision {
	d.MaxRetries = &n
	return d
}

// CountedAs counts a retry under a key of its own.
func (d Decision) CountedAs(key string) Decision {
	d.PolicyKey = key
	return d
}

// Retries is how often this policy has retried in this step for the same
// purpose, under whatever key. The log counts, so that it survives restarts.
func (in StepInput) Retries() float64 {
	n := 0.0
	for _, c := range in.RetryCounts {
		if c.Policy == in.Policy && c.Purpose == in.Purpose {
			n += c.Count
		}
	}
	return n
}

// RetriesUnder is Retries of one key alone.
func (in StepInput) RetriesUnder(key string) float64 {
	n := 0.0
	for _, c := range in.RetryCounts {
		if c.Policy == in.Policy && c.Purpose == in.Purpose && c.PolicyKey == key {
			n += c.Count
		}
	}
	return n
}

// Backoff is the delay in ms before retry n, from 1: the provider's own wait if
// it is within the settings' cap, and else a backoff that doubles each time,
// with jitter.
func (in RecoverInput) Backoff(n float64) float64 {
	p := in.RetryPolicy
	if wait := in.Failure.ProviderRetryAfterMs; wait > 0 && wait <= p.MaxDelayMs {
		return wait
	}
	base := least(p.InitialDelayMs*math.Pow(2, math.Min(n-1, 1024)), p.MaxDelayMs)
	// The conversions keep the compiler from fusing a product and a sum, which
	// would round differently from one machine to another.
	factor := float64(1-p.JitterRatio) + float64(2*p.JitterRatio*in.Random[0])
	return least(base*factor, p.MaxDelayMs)
}

// Standard is what dsh's built-in policy decides by the provider's settings: a
// policy that only adds a condition ends in it.
func (in RecoverInput) Standard() Decision {
	p := in.RetryPolicy
	n := in.RetriesUnder(p.Key) + 1
	retry := Retry(in.Backoff(n)).CountedAs(p.Key)
	if p.Mode == "always" {
		retry.Mode = p.Mode
		retry = retry.Because("retry %v", n)
		d := Delegate("mode always lets the others go first")
		d.Fallback = &retry
		return d
	}
	switch wait := in.Failure.ProviderRetryAfterMs; {
	case !slices.Contains(p.RetryableCodes, in.Failure.Code):
		return Delegate("%s is not among the retryable codes", in.Failure.Code)
	case n > p.MaxRetries:
		return Delegate("all %v retries are used", p.MaxRetries)
	case wait > p.MaxDelayMs:
		return Delegate("the provider asked for a wait of %v ms, which is over the cap of %v ms", wait, p.MaxDelayMs)
	}
	return retry.AtMost(p.MaxRetries).Because("retry %v of %v", n, p.MaxRetries)
}

// ConfigInto reads the policy's own config into v, a pointer to a struct whose
// present values are the defaults.
func (in StepInput) ConfigInto(v any) error {
	if len(in.Config) == 0 {
		return nil
	}
	return json.Unmarshal(in.Config, v)
}

func least(v, most float64) float64 {
	if v < most {
		return v
	}
	return most // also of what is no number
}
