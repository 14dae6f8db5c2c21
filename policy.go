package dsh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// A Hook is an export of a policy that the host calls.
type Hook string

// The hooks.
const (
	HookRecover     Hook = "recover"      // a model request failed
	HookBeforeStep  Hook = "before_step"  // a request is about to be built
	HookCheckConfig Hook = "check_config" // at load, over the policy's own config
)

// A Policy decides what becomes of a failure. It decides only: whoever asks it
// waits, sends and stores. It may be used by several goroutines.
type Policy interface {
	Info() PolicyInfo

	// Decide answers a question. An error is a *Fault, and counts as a
	// delegate; the Verdict has the HostCalls even so. When ctx ends, Decide
	// returns soon with a fault of kind deadline. A fault that wraps ErrTripped
	// says that the policy was not asked.
	Decide(ctx context.Context, q Question) (Verdict, error)
}

// A Question is what a policy is asked.
type Question struct {
	Hook  Hook
	Input json.RawMessage // of HookRecover the JSON of a RecoverInput; not to be changed
	Host  Host            // nil: every host function is refused
}

// A Host answers the functions that a policy may call while it decides. It is
// called from the goroutine of Decide.
type Host interface {
	// Call runs a function on the JSON of its argument, and answers in JSON. It
	// does not judge whether the policy is granted it: whoever runs the policy
	// does. An error is a *HostError for what the policy may be told; any other
	// one is told as code unavailable.
	Call(ctx context.Context, function string, argument json.RawMessage) (json.RawMessage, error)
}

// A HostError is a refusal of a host function. A guest has it as a value.
type HostError struct {
	Code    string `json:"code"` // denied, invalid, conflict, too-large, too-many or unavailable
	Message string `json:"message"`
}

func (e *HostError) Error() string { return e.Code + ": " + e.Message }

// PolicyInfo says what a policy is.
type PolicyInfo struct {
	Name         string   // under which the waterfall lists it
	Version      string   // of the module; may be ""
	Description  string   // may be ""
	Digest       string   // SHA-256 of the module's bytes, hex
	ConfigSHA256 string   // of the config's bytes, hex
	Engine       string   // what runs it
	Source       string   // where it comes from: builtin:NAME, a path, a reference
	ABI          string   // which contract it speaks
	Asked        []string // capabilities that the module asks for
	Granted      []string // of those, what the configuration grants
	Hooks        []Hook   // those that it has; nil: recover alone
	Config       json.RawMessage
	FailOnFault  bool // on_fault = "fail": a fault ends the turn
}

// Ref is the policy as the log names it.
func (i PolicyInfo) Ref() PolicyRef { return PolicyRef{i.Name, i.Digest, i.ConfigSHA256} }

// A Verdict is a decision and all that the log keeps of how it was made.
type Verdict struct {
	Decision  Decision
	Raw       json.RawMessage   // the decision as the policy wrote it
	HostCalls []json.RawMessage // of host functions, in order: see hostabi.HostCall
	Fuel      uint64            // 0 where the engine does not count it
}

// A FaultKind says in which way a policy failed to decide.
type FaultKind string

// The kinds of faults.
const (
	FaultFuel        FaultKind = "fuel"        // its budget of instructions is spent
	FaultStack       FaultKind = "stack"       // it recursed too deep
	FaultMemory      FaultKind = "memory"      // it wanted more memory than it may have
	FaultTrap        FaultKind = "trap"        // it trapped, or set an error
	FaultExit        FaultKind = "exit"        // it called proc_exit, or returned other than 0
	FaultOutput      FaultKind = "output"      // no output, too much of it, or none of UTF-8
	FaultSchema      FaultKind = "schema"      // an output that is no decision
	FaultHostCalls   FaultKind = "host-calls"  // too many of them
	FaultDeadline    FaultKind = "deadline"    // it took too long
	FaultDenied      FaultKind = "denied"      // it wanted what it may not have
	FaultUnavailable FaultKind = "unavailable" // it cannot be run
)

// ErrTripped is the cause of a fault of a policy that had too many of them: it
// is not asked until it is swapped or reset.
var ErrTripped = errors.New("tripped")

// A Fault is the error of a policy that gave no decision.
type Fault struct {
	Kind    FaultKind
	Message string
	Cause   error // may be nil
}

func (f *Fault) Error() string { return string(f.Kind) + ": " + f.Message }

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// A Waterfall is the list of policies that are asked in turn. It may change
// while a program runs.
type Waterfall interface {
	// Policies returns the present list, which is not to be changed, and a
	// channel that is closed when another takes its place.
	Policies() ([]Policy, <-chan struct{})
}

// A Refuser is a Waterfall that also tells which policies it did not take in.
type Refuser interface {
	// Refusals returns, of each one, its name, its digest and what is wrong with
	// it, as long as it is there. The channel of Policies is closed when there
	// is a new one.
	Refusals() []PolicyFault
}

// FixedWaterfall is a Waterfall that never changes. With none in it, every
// failure is final.
type FixedWaterfall []Policy

// Policies returns the list and a channel that is never closed.
func (w FixedWaterfall) Policies() ([]Policy, <-chan struct{}) { return w, nil }

// RecoverInput is what a policy is told of a failure. Its JSON is the payload
// of the guest ABI; see hostabi.
type RecoverInput struct {
	ABI               string          `json:"abi"`
	DecisionID        string          `json:"decisionId"`
	Policy            string          `json:"policy"`
	Session           SessionID       `json:"session"`
	Turn              int             `json:"turn"`
	Step              int             `json:"step"`
	Attempt           int             `json:"attempt"`
	Purpose           Purpose         `json:"purpose"`
	Provider          string          `json:"provider"`
	Model             string          `json:"model"`
	Failure           Failure         `json:"failure"`
	FailedAtMs        int64           `json:"failedAtMs"`
	ProviderNotBefore *int64          `json:"providerNotBeforeMs,omitempty"` // failedAtMs plus the provider's wait
	NowMs             int64           `json:"nowMs"`
	Random            [4]float64      `json:"random"` // each in [0, 1)
	RetryPolicy       RetryPolicy     `json:"retryPolicy"`
	RetryCounts       []RetryCount    `json:"retryCounts"`
	Repairs           []RepairOutcome `json:"repairs"`
	Surface           SurfaceInfo     `json:"surface"`
	Limits            LimitsLeft      `json:"limits"`
	Config            json.RawMessage `json:"config"`
}

// StepInput is what a policy is told before a request is built: a RecoverInput
// without the failure.
type StepInput struct {
	ABI         string          `json:"abi"`
	DecisionID  string          `json:"decisionId"`
	Policy      string          `json:"policy"`
	Session     SessionID       `json:"session"`
	Turn        int             `json:"turn"`
	Step        int             `json:"step"`
	Attempt     int             `json:"attempt"` // the one that is about to be made
	Purpose     Purpose         `json:"purpose"`
	Provider    string          `json:"provider"`
	Model       string          `json:"model"`
	NowMs       int64           `json:"nowMs"`
	Random      [4]float64      `json:"random"` // each in [0, 1)
	RetryPolicy RetryPolicy     `json:"retryPolicy"`
	RetryCounts []RetryCount    `json:"retryCounts"`
	Repairs     []RepairOutcome `json:"repairs"`
	Surface     SurfaceInfo     `json:"surface"`
	Limits      LimitsLeft      `json:"limits"`
	Config      json.RawMessage `json:"config"`
}

// RetryCount is how often a policy has retried in this step.
type RetryCount struct {
	Policy    string  `json:"policy"`
	PolicyKey string  `json:"policyKey"`
	Purpose   Purpose `json:"purpose"`
	Count     int     `json:"count"`
}

// A RepairKind says what a repair does.
type RepairKind string

// The repairs.
const (
	RepairPrune   RepairKind = "prune"   // old tool results become head, marker and tail
	RepairCompact RepairKind = "compact" // a range of the surface becomes a summary
)

// A Repair is something that a policy wants done to the surface before the
// next request. The host does it, durably.
type Repair struct {
	Kind RepairKind `json:"kind"`

	// Of a prune. The sizes are in characters; 0 stands for the number behind.
	Seqs      []uint64 `json:"seqs,omitempty"`      // the results to look at; nil: all
	OverChars int      `json:"overChars,omitempty"` // only longer ones: 8192
	HeadChars int      `json:"headChars,omitempty"` // what stays of the beginning: 4096
	TailChars int      `json:"tailChars,omitempty"` // and of the end: 1024

	// Of a compaction. From and To are seqs on the surface; both 0: all but
	// the newest indivisible part, and what else of the end fits into
	// RetainTokens.
	RetainTokens int64  `json:"retainTokens,omitempty"`
	From         uint64 `json:"from,omitempty"`
	To           uint64 `json:"to,omitempty"`
	Instructions string `json:"instructions,omitempty"`
	MaxTokens    int64  `json:"maxTokens,omitempty"`    // of the summary: 8192
	IfOverTokens *int64 `json:"ifOverTokens,omitempty"` // only while the surface is larger; nil: in any case
}

// Capability is what a policy must be granted for the repair.
func (r Repair) Capability() string { return "repair." + string(r.Kind) }

// ParseRepair reads a repair and holds it to the contract. Unknown fields are
// ignored.
func ParseRepair(raw []byte) (Repair, error) {
	var r Repair
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("not a repair: %w", err)
	}
	switch {
	case r.Kind != RepairPrune && r.Kind != RepairCompact:
		return r, fmt.Errorf("a repair of kind %q, which is neither prune nor compact", r.Kind)
	case r.OverChars < 0 || r.HeadChars < 0 || r.TailChars < 0 || r.MaxTokens < 0 || r.RetainTokens < 0:
		return r, fmt.Errorf("a repair with a size below 0")
	case r.From > r.To || (r.From == 0) != (r.To == 0):
		return r, fmt.Errorf("a repair from %d to %d", r.From, r.To)
	}
	return r, nil
}

// RepairOutcome is what became of a repair in this step.
type RepairOutcome struct {
	Kind         RepairKind `json:"kind"`
	Policy       string     `json:"policy"`
	OK           bool       `json:"ok"`
	TokensBefore int64      `json:"tokensBefore"`
	TokensAfter  int64      `json:"tokensAfter"`
}

// SurfaceInfo is the size of what the model sees.
type SurfaceInfo struct {
	Generation   int   `json:"generation"` // counts replacements
	Messages     int   `json:"messages"`
	Tokens       int64 `json:"tokens"` // an estimate
	Window       int64 `json:"window"` // of the model, in tokens; 0: unknown
	RequestBytes int   `json:"requestBytes"`
}

// LimitsLeft is what the host's ceilings leave; nil: there is none.
type LimitsLeft struct {
	AttemptsLeft *int   `json:"attemptsLeft"`
	WaitLeftMs   *int64 `json:"waitLeftMs"`
}

// A DecisionKind says what a policy wants.
type DecisionKind string

// The kinds of decisions. KindProceed is the answer to before_step.
const (
	KindRetry    DecisionKind = "retry"
	KindDelegate DecisionKind = "delegate"
	KindProceed  DecisionKind = "proceed"
)

// A Decision is what a policy answers. For a retry only DelayMs is required.
type Decision struct {
	Kind       DecisionKind
	DelayMs    float64
	Mode       RetryMode         // "": normal
	MaxRetries *int64            // nil: no limit of the decision's own
	PolicyKey  string            // "": the policy's name
	Repairs    []json.RawMessage // what the host is to do before the wait, in order
	Reason     string            // for people
	Fallback   *Decision         // of a delegate: what to do if no other policy retries
}

// MaxDelayMs is the longest delay of a decision: about 24.8 days.
const MaxDelayMs = math.MaxInt32

// maxSafeInt is the largest integer that JSON's numbers hold exactly.
const maxSafeInt = 1<<53 - 1

type decisionJSON struct {
	Kind       DecisionKind      `json:"kind"`
	DelayMs    *float64          `json:"delayMs,omitempty"`
	Mode       RetryMode         `json:"mode,omitempty"`
	MaxRetries *int64            `json:"maxRetries,omitempty"`
	PolicyKey  string            `json:"policyKey,omitempty"`
	Repairs    []json.RawMessage `json:"repairs,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Fallback   *Decision         `json:"fallback,omitempty"`
}

// MarshalJSON writes the form of the guest ABI: a retry always has a delayMs.
func (d Decision) MarshalJSON() ([]byte, error) {
	j := decisionJSON{d.Kind, nil, d.Mode, d.MaxRetries, d.PolicyKey, d.Repairs, d.Reason, d.Fallback}
	if d.Kind == KindRetry {
		j.DelayMs = &d.DelayMs
	}
	return JSON(j)
}

// UnmarshalJSON reads the form of the guest ABI. A retry without a delayMs
// gets NaN, which Validate refuses. A maxRetries may be written as 5.0: some
// languages write all their numbers so. A fallback has none of its own: it is
// not read, since each that is takes another walk over all within it.
func (d *Decision) UnmarshalJSON(raw []byte) error {
	fallback, err := d.read(raw)
	if err != nil || fallback == nil {
		return err
	}
	d.Fallback = new(Decision)
	_, err = d.Fallback.read(fallback)
	return err
}

// read reads all but the fallback, which it returns; nil: there is none.
func (d *Decision) read(raw []byte) (fallback json.RawMessage, err error) {
	var j struct {
		decisionJSON
		MaxRetries *float64         `json:"maxRetries"`
		Fallback   *json.RawMessage `json:"fallback"`
	}
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, err
	}
	*d = Decision{j.Kind, 0, j.Mode, nil, j.PolicyKey, j.Repairs, j.Reason, nil}
	if j.Fallback != nil {
		fallback = *j.Fallback
	}
	if j.MaxRetries != nil {
		if *j.MaxRetries != math.Trunc(*j.MaxRetries) {
			return nil, fmt.Errorf("maxRetries %v is no whole number", *j.MaxRetries)
		}
		n := int64(min(max(*j.MaxRetries, -1), maxSafeInt+1)) // what Validate refuses stays so
		d.MaxRetries = &n
	}
	switch {
	case j.DelayMs != nil:
		d.DelayMs = *j.DelayMs
	case j.Kind == KindRetry:
		d.DelayMs = math.NaN()
	}
	return fallback, nil
}

// ParseDecision reads a decision of the recover hook and holds it to the
// contract. Unknown fields are ignored.
func ParseDecision(raw []byte) (Decision, error) {
	var d Decision
	if err := json.Unmarshal(raw, &d); err != nil {
		return Decision{}, fmt.Errorf("not a decision: %w", err)
	}
	return d, d.Validate()
}

// Validate holds a decision of the recover hook to the contract.
func (d Decision) Validate() error {
	switch d.Kind {
	case KindDelegate:
		if d.Fallback == nil {
			return nil
		}
		if d.Fallback.Kind != KindRetry {
			return fmt.Errorf("a fallback of kind %q, which is not retry", d.Fallback.Kind)
		}
		return d.Fallback.Validate()
	case KindRetry:
	default:
		return fmt.Errorf("a decision of kind %q, which is neither retry nor delegate", d.Kind)
	}
	switch {
	case math.IsNaN(d.DelayMs):
		return fmt.Errorf("a retry without delayMs")
	case d.DelayMs < 0 || d.DelayMs > MaxDelayMs:
		return fmt.Errorf("delayMs %v is not from 0 to %d", d.DelayMs, MaxDelayMs)
	case d.Mode != "" && d.Mode != ModeNormal && d.Mode != ModeAlways:
		return fmt.Errorf("mode %q is neither normal nor always", d.Mode)
	case d.MaxRetries != nil && (*d.MaxRetries < 0 || *d.MaxRetries > maxSafeInt):
		return fmt.Errorf("maxRetries %d is not from 0 to 2^53-1", *d.MaxRetries)
	}
	return nil
}

// A RetryMode says whether retries are counted.
type RetryMode string

// The modes. Normal retries some codes and so often; always retries all, and
// lets the other policies go first.
const (
	ModeNormal RetryMode = "normal"
	ModeAlways RetryMode = "always"
)

// A RetryPolicy is a provider's retry settings, which the host hands to the
// policies as data. In mode always MaxRetries and RetryableCodes do not count.
type RetryPolicy struct {
	Mode           RetryMode
	MaxRetries     int64
	RetryableCodes []Code
	InitialDelayMs float64
	MaxDelayMs     float64
	JitterRatio    float64
}

// DefaultRetryPolicy is what holds where a provider sets nothing.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{
		Mode: ModeNormal, MaxRetries: 5,
		RetryableCodes: []Code{CodeEmptyResponse, CodeRateLimit, CodeServer, CodeTimeout, CodeTransport},
		InitialDelayMs: 500, MaxDelayMs: 10000, JitterRatio: 0.1,
	}
}

// Key is the canonical form of the settings, by which retries are counted: a
// JSON array of the mode, in mode normal the limit and the sorted codes, and
// the backoff.
func (p RetryPolicy) Key() string {
	parts := []any{p.Mode}
	if p.Mode != ModeAlways {
		codes := slices.Clone(p.RetryableCodes)
		slices.Sort(codes)
		parts = append(parts, p.MaxRetries, emptyNotNull(codes))
	}
	b, err := JSON(append(parts, p.InitialDelayMs, p.MaxDelayMs, p.JitterRatio))
	if err != nil { // a NaN or an infinity, which no configuration lets pass
		return strconv.Quote(err.Error())
	}
	return string(b)
}

type retryPolicyJSON struct {
	Key            string    `json:"key"`
	Mode           RetryMode `json:"mode"`
	MaxRetries     *int64    `json:"maxRetries,omitempty"`
	RetryableCodes []Code    `json:"retryableCodes,omitempty"`
	InitialDelayMs float64   `json:"initialDelayMs"`
	MaxDelayMs     float64   `json:"maxDelayMs"`
	JitterRatio    float64   `json:"jitterRatio"`
}

// MarshalJSON writes the form of the guest ABI, with the key.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	j := retryPolicyJSON{p.Key(), p.Mode, nil, nil, p.InitialDelayMs, p.MaxDelayMs, p.JitterRatio}
	if p.Mode != ModeAlways {
		j.MaxRetries, j.RetryableCodes = &p.MaxRetries, p.RetryableCodes
	}
	return JSON(j)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *RetryPolicy) UnmarshalJSON(raw []byte) error {
	var j retryPolicyJSON
	if err := json.Unmarshal(raw, &j); err != nil {
		return err
	}
	*p = RetryPolicy{j.Mode, 0, j.RetryableCodes, j.InitialDelayMs, j.MaxDelayMs, j.JitterRatio}
	if j.MaxRetries != nil {
		p.MaxRetries = *j.MaxRetries
	}
	return nil
}
