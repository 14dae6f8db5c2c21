// Package sdk is what a recovery policy for dsh is written with in Go: the
// types of its contract, dsh:policy/v1, and the functions by which a guest
// speaks to its host. It depends on nothing of dsh's and is meant to be copied.
//
// A policy is a function from a RecoverInput to a Decision. It decides, and
// never waits, sends or stores: the host does, durably.
package sdk

import "encoding/json"

// ABI is the contract that this package speaks.
const ABI = "dsh:policy/v1"

// The codes of a failure. The first five usually pass by themselves.
const (
	RateLimit      = "RATE_LIMIT"
	Server         = "SERVER"
	Timeout        = "TIMEOUT"
	Transport      = "TRANSPORT"
	EmptyResponse  = "EMPTY_RESPONSE"
	ContextWindow  = "CONTEXT_WINDOW_EXCEEDED"
	Auth           = "AUTH"
	Quota          = "QUOTA"
	InvalidRequest = "INVALID_REQUEST"
	ContentFilter  = "CONTENT_FILTER"
	Protocol       = "PROTOCOL"
	Aborted        = "ABORTED"
	Unknown        = "UNKNOWN"
)

// A StepInput is what a policy is told before a request is built.
type StepInput struct {
	ABI         string          `json:"abi"`
	DecisionID  string          `json:"decisionId"`
	Policy      string          `json:"policy"` // the name under which the waterfall lists this policy
	Session     string          `json:"session"`
	Turn        int             `json:"turn"`
	Step        int             `json:"step"`
	Attempt     int             `json:"attempt"`
	Purpose     string          `json:"purpose"` // reply or compaction
	Provider    string          `json:"provider"`
	Model       string          `json:"model"`
	NowMs       int64           `json:"nowMs"`  // Unix ms; the guest's clocks show it too
	Random      [4]float64      `json:"random"` // each in [0, 1), drawn for this decision
	RetryPolicy RetryPolicy     `json:"retryPolicy"`
	RetryCounts []RetryCount    `json:"retryCounts"` // of this step, as the log has them
	Repairs     []RepairOutcome `json:"repairs"`     // of this step
	Surface     Surface         `json:"surface"`
	Limits      Limits          `json:"limits"`
	Config      json.RawMessage `json:"config"` // the policy's own, of dsh.toml
}

// A RecoverInput is what a policy is told of a failure.
type RecoverInput struct {
	StepInput
	Failure             Failure `json:"failure"`
	FailedAtMs          int64   `json:"failedAtMs"`          // Unix ms
	ProviderNotBeforeMs int64   `json:"providerNotBeforeMs"` // failedAtMs plus the provider's wait; 0: it asked for none
}

// A Failure is how a model request failed.
type Failure struct {
	Message              string  `json:"message"` // for people: branch on the code
	Code                 string  `json:"code"`
	Status               int     `json:"status"`               // of HTTP; 0: there was none
	ProviderRetryAfterMs float64 `json:"providerRetryAfterMs"` // 0: the provider asked for no wait
	RequestID            string  `json:"requestId"`
}

// A RetryPolicy is the provider's retry settings of dsh.toml.
type RetryPolicy struct {
	Key            string   `json:"key"`  // what retries under these settings are counted by
	Mode           string   `json:"mode"` // normal or always
	MaxRetries     float64  `json:"maxRetries"`
	RetryableCodes []string `json:"retryableCodes"`
	InitialDelayMs float64  `json:"initialDelayMs"`
	MaxDelayMs     float64  `json:"maxDelayMs"`
	JitterRatio    float64  `json:"jitterRatio"`
}

// A RetryCount is how often a policy has retried in this step.
type RetryCount struct {
	Policy    string  `json:"policy"`
	PolicyKey string  `json:"policyKey"`
	Purpose   string  `json:"purpose"`
	Count     float64 `json:"count"`
}

// A RepairOutcome is what became of a repair.
type RepairOutcome struct {
	Kind         string  `json:"kind"`
	Policy       string  `json:"policy"`
	OK           bool    `json:"ok"`
	TokensBefore float64 `json:"tokensBefore"`
	TokensAfter  float64 `json:"tokensAfter"`
}

// A Surface is the size of what the model sees.
type Surface struct {
	Generation   int     `json:"generation"` // counts replacements
	Messages     int     `json:"messages"`
	Tokens       float64 `json:"tokens"` // an estimate
	Window       float64 `json:"window"` // of the model, in tokens; 0: unknown
	RequestBytes float64 `json:"requestBytes"`
}

// Limits are what the host's ceilings leave; nil: there is none.
type Limits struct {
	AttemptsLeft *float64 `json:"attemptsLeft"`
	WaitLeftMs   *float64 `json:"waitLeftMs"`
}

// A Decision is what a policy answers to a failure. Retry and Delegate make one.
type Decision struct {
	Kind       string    `json:"kind"`                 // retry or delegate
	DelayMs    *float64  `json:"delayMs,omitempty"`    // of a retry: 0 to 2^31-1
	Mode       string    `json:"mode,omitempty"`       // "": normal
	MaxRetries *float64  `json:"maxRetries,omitempty"` // the host refuses a retry with a higher number; nil: no limit
	PolicyKey  string    `json:"policyKey,omitempty"`  // what the retry is counted under; "": the policy's name
	Repairs    []Repair  `json:"repairs,omitempty"`    // done before the wait, in order
	Reason     string    `json:"reason,omitempty"`     // for people
	Fallback   *Decision `json:"fallback,omitempty"`   // of a delegate: a retry, if no other policy retries
}

// A StepAnswer is what a policy answers to before_step. Proceed makes one.
type StepAnswer struct {
	Kind    string   `json:"kind"` // proceed
	Repairs []Repair `json:"repairs,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// A Repair is something that the host is to do to what the model sees. It takes
// the capability repair.prune or repair.compact.
type Repair struct {
	Kind string `json:"kind"` // prune or compact

	// Of a prune: tool results become head, marker and tail.
	Seqs      []uint64 `json:"seqs,omitempty"`      // nil: all
	OverChars int      `json:"overChars,omitempty"` // only longer ones; 0: 8192
	HeadChars int      `json:"headChars,omitempty"` // 0: 4096
	TailChars int      `json:"tailChars,omitempty"` // 0: 1024

	// Of a compact: a range becomes a summary.
	RetainTokens int64  `json:"retainTokens,omitempty"` // without From and To: so much of the end stays
	From         uint64 `json:"from,omitempty"`
	To           uint64 `json:"to,omitempty"`
	Instructions string `json:"instructions,omitempty"`
	MaxTokens    int64  `json:"maxTokens,omitempty"`    // of the summary; 0: 8192
	IfOverTokens *int64 `json:"ifOverTokens,omitempty"` // only while the surface is larger; nil: in any case
}

// A ConfigAnswer is what a policy answers to check_config.
type ConfigAnswer struct {
	Problems []string `json:"problems"` // any of them keeps the policy from being loaded
}
