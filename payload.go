package dsh

import "encoding/json"

// An EventType names what an event tells. Each has a payload type of the same
// name here; a reader keeps types that it does not know.
type EventType string

// The event types, in the order in which a turn meets them.
const (
	TypeSessionStart      EventType = "session/start"
	TypeTurnStart         EventType = "turn/start"
	TypeUserMessage       EventType = "user/message" // surface
	TypeStepStart         EventType = "step/start"
	TypeRequestHeader     EventType = "request/header"
	TypeAttemptStart      EventType = "attempt/start"
	TypeAssistantChunk    EventType = "assistant/chunk" // relaxed
	TypeAttemptEnd        EventType = "attempt/end"
	TypePolicyDecision    EventType = "policy/decision"
	TypePolicyFault       EventType = "policy/fault"
	TypePolicyRefused     EventType = "policy/refused"
	TypePolicyState       EventType = "policy/state"
	TypePoliciesChanged   EventType = "policies/changed"
	TypeRetry             EventType = "llm/retry"
	TypeRetryStarted      EventType = "llm/retry-started"
	TypeRetryCancelled    EventType = "llm/retry-cancelled"
	TypeCompactionStart   EventType = "compaction/start"
	TypeCompactionSummary EventType = "compaction/summary"
	TypeCompactionEnd     EventType = "compaction/end"
	TypeAssistantMessage  EventType = "assistant/message" // surface
	TypeToolCall          EventType = "tool/call"
	TypeToolResult        EventType = "tool/result" // surface
	TypeStepEnd           EventType = "step/end"
	TypeTurnEnd           EventType = "turn/end"
)

// Relaxed reports whether an event of this type may sit in memory until the
// next synced append of its session. All others are durable when their append
// returns.
func (t EventType) Relaxed() bool { return t == TypeAssistantChunk }

// A Purpose says what an attempt is for.
type Purpose string

// The purposes.
const (
	PurposeReply      Purpose = "reply"
	PurposeCompaction Purpose = "compaction"
)

// SessionStart is the first event of a session.
type SessionStart struct {
	Schema int       `json:"schema"`
	ID     SessionID `json:"id"`
	Cwd    string    `json:"cwd"`
	Title  string    `json:"title,omitempty"`
}

// TurnStart opens a turn. Continues is the turn that it takes up without a new
// message, 0 for none.
type TurnStart struct {
	Turn      int  `json:"turn"`
	Continues int  `json:"continues,omitempty"`
	Manual    bool `json:"manual,omitempty"`
}

// UserMessage is what the user said, or (with surface.op "replace") the
// summary that stands for what it replaces.
type UserMessage struct {
	ID      string  `json:"id"`
	Content []Block `json:"content"`
}

// StepStart opens a step.
type StepStart struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// RequestHeader is, with the surface, all that a request is rebuilt from. It
// holds for all attempts until the next one.
type RequestHeader struct {
	Turn     int        `json:"turn"`
	Step     int        `json:"step"`
	Provider string     `json:"provider"`
	Model    string     `json:"model"`
	System   string     `json:"system"`
	Tools    []ToolSpec `json:"tools"`
	Params   Params     `json:"params"`
}

// AttemptStart is written before a request is sent.
type AttemptStart struct {
	Turn          int     `json:"turn"`
	Step          int     `json:"step"`
	Attempt       int     `json:"attempt"`
	Purpose       Purpose `json:"purpose"`
	Provider      string  `json:"provider"`
	Model         string  `json:"model"`
	RequestSHA256 string  `json:"requestSha256"` // of the wire body, hex
	RequestBytes  int     `json:"requestBytes"`
}

// AssistantChunk is a piece of an attempt's answer. Neighbouring deltas of one
// block may have been joined.
type AssistantChunk struct {
	Turn    int   `json:"turn"`
	Step    int   `json:"step"`
	Attempt int   `json:"attempt"`
	Chunk   Chunk `json:"chunk"`
}

// AttemptEnd closes an attempt.
type AttemptEnd struct {
	Turn       int    `json:"turn"`
	Step       int    `json:"step"`
	Attempt    int    `json:"attempt"`
	Finish     Finish `json:"finish"`
	Usage      *Usage `json:"usage,omitempty"`
	DurationMs int64  `json:"durationMs"`
}

// PolicyDecision is all that is needed to run a decision again and compare.
type PolicyDecision struct {
	Turn      int               `json:"turn"`
	Step      int               `json:"step"`
	Attempt   int               `json:"attempt"`
	Hook      Hook              `json:"hook"`
	Policy    string            `json:"policy"`
	Digest    string            `json:"digest"`
	Engine    string            `json:"engine"`
	Input     json.RawMessage   `json:"input"`
	HostCalls []json.RawMessage `json:"hostCalls"`
	Decision  json.RawMessage   `json:"decision"`
	Fuel      uint64            `json:"fuel"`
}

// PolicyFault says that a policy gave no decision. The next one is asked.
type PolicyFault struct {
	Turn    int       `json:"turn"`
	Step    int       `json:"step"`
	Attempt int       `json:"attempt"`
	Hook    Hook      `json:"hook"`
	Policy  string    `json:"policy"`
	Digest  string    `json:"digest"`
	Kind    FaultKind `json:"kind"`
	Message string    `json:"message"`

	// HostCalls are the host functions that it called until then. What those
	// stored stays.
	HostCalls []json.RawMessage `json:"hostCalls,omitempty"`
}

// The scopes of a policy's memory.
const (
	ScopeSession = "session" // this session's
	ScopeShared  = "shared"  // that of all sessions, in the session SharedState
)

// PolicyState is a value of a policy's memory, durable before the policy is
// told that it is stored.
type PolicyState struct {
	Policy     string          `json:"policy"`
	Scope      string          `json:"scope"`
	Key        string          `json:"key"`
	Value      json.RawMessage `json:"value"`             // null: it is taken away
	Version    uint64          `json:"version"`           // counts the times that the key was stored, from 1
	Session    SessionID       `json:"session,omitempty"` // of a shared one: who stored it
	DecisionID string          `json:"decisionId,omitempty"`
}

// PolicyEvent is what a policy says in the log with emit, as an event of type
// policy/NAME/TYPE.
type PolicyEvent struct {
	Turn       int             `json:"turn"`
	Step       int             `json:"step"`
	Attempt    int             `json:"attempt"`
	Policy     string          `json:"policy"`
	Digest     string          `json:"digest"`
	DecisionID string          `json:"decisionId"`
	Data       json.RawMessage `json:"data"` // as the policy wrote it
}

// A Rule names why the host did not do what a policy asked for.
type Rule string

// The rules of policy/refused.
const (
	RuleMaxAttempts  Rule = "max-attempts"
	RuleMaxWait      Rule = "max-wait"
	RuleMaxResent    Rule = "max-resent"
	RuleMaxRetries   Rule = "max-retries"
	RuleNoProgress   Rule = "no-progress"
	RuleRepairFailed Rule = "repair-failed"
	RuleNestedRepair Rule = "nested-repair"
	RuleTripped      Rule = "tripped"
)

// PolicyRefused says that the host did not do what a policy asked for, which
// then counts as a delegate.
type PolicyRefused struct {
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	Attempt int    `json:"attempt"`
	Policy  string `json:"policy"`
	Digest  string `json:"digest"`
	Rule    Rule   `json:"rule"`
	Message string `json:"message"`
}

// PolicyRef names one policy of a waterfall as it decided.
type PolicyRef struct {
	Name         string `json:"name"`
	Digest       string `json:"digest"`
	ConfigSHA256 string `json:"configSha256"`
}

// PoliciesChanged says which waterfall decides from here on.
type PoliciesChanged struct {
	From []PolicyRef `json:"from"`
	To   []PolicyRef `json:"to"`
}

// Retry is a decided retry, durable before its wait begins.
type Retry struct {
	RetryID    string    `json:"retryId"`
	Turn       int       `json:"turn"`
	Step       int       `json:"step"`
	Attempt    int       `json:"attempt"` // the one that failed
	Purpose    Purpose   `json:"purpose"`
	Provider   string    `json:"provider"`
	Mode       RetryMode `json:"mode"`
	PolicyKey  string    `json:"policyKey"`
	Retry      int       `json:"retry"`
	MaxRetries *int64    `json:"maxRetries,omitempty"` // normal mode only
	DelayMs    float64   `json:"delayMs"`
	NotBefore  int64     `json:"notBefore"` // Unix ms
	Policy     string    `json:"policy"`
	Digest     string    `json:"digest"`
	Failure    Failure   `json:"failure"`
}

// RetryStarted says that the wait is over; it stands before the attempt.
type RetryStarted struct {
	RetryID string `json:"retryId"`
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	Retry   int    `json:"retry"`
}

// The reasons of llm/retry-cancelled.
const (
	CancelAborted         = "aborted"
	CancelPoliciesChanged = "policies-changed"
)

// RetryCancelled says that a decided retry does not take place.
type RetryCancelled struct {
	RetryID string `json:"retryId"`
	Turn    int    `json:"turn"`
	Step    int    `json:"step"`
	Retry   int    `json:"retry"`
	Reason  string `json:"reason"`
}

// The triggers of a compaction.
const (
	TriggerOverflow = "overflow"
	TriggerPressure = "pressure"
	TriggerManual   = "manual"
)

// CompactionStart opens a compaction. Repair is its place, from 0, among the
// repairs of the decision that asked for it.
type CompactionStart struct {
	CompactionID string `json:"compactionId"`
	Turn         int    `json:"turn"`
	Step         int    `json:"step"`
	Trigger      string `json:"trigger"`
	Policy       string `json:"policy"` // "" for a manual one
	From         uint64 `json:"from"`
	To           uint64 `json:"to"`
	Instructions string `json:"instructions"`
	MaxTokens    int64  `json:"maxTokens"`
	IfOverTokens *int64 `json:"ifOverTokens,omitempty"`
	Repair       int    `json:"repair,omitempty"`
}

// CompactionSummary says what stands for what from here on. The message that
// replaces the range is in the same append.
type CompactionSummary struct {
	CompactionID   string   `json:"compactionId"`
	From           uint64   `json:"from"`
	To             uint64   `json:"to"`
	ShadowedSeqs   []uint64 `json:"shadowedSeqs"`
	ShadowedTokens int64    `json:"shadowedTokens"`
	Summary        []Block  `json:"summary"`
	Attempt        int      `json:"attempt"`
}

// CompactionEnd closes a compaction. Error is why the surface is as before; ""
// where it is not.
type CompactionEnd struct {
	CompactionID string `json:"compactionId"`
	Error        string `json:"error,omitempty"`
}

// AssistantMessage is the model's message, made of the chunks of one attempt
// that ended well.
type AssistantMessage struct {
	Turn       int      `json:"turn"`
	Step       int      `json:"step"`
	Attempt    int      `json:"attempt"`
	ID         string   `json:"id"`
	Content    []Block  `json:"content"`
	Usage      *Usage   `json:"usage,omitempty"`
	Provider   string   `json:"provider"`
	Model      string   `json:"model"`
	SourceSeqs []uint64 `json:"sourceSeqs"`
}

// ToolCall is durable before the tool runs.
type ToolCall struct {
	Turn      int    `json:"turn"`
	Step      int    `json:"step"`
	CallID    string `json:"callId"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // raw, as the model wrote it
}

// ToolResultEvent answers a tool call.
type ToolResultEvent struct {
	Turn    int     `json:"turn"`
	Step    int     `json:"step"`
	CallID  string  `json:"callId"`
	Content []Block `json:"content"`
	IsError bool    `json:"isError"`
}

// StepEnd closes a step.
type StepEnd struct {
	Turn int `json:"turn"`
	Step int `json:"step"`
}

// An EndKind says how a turn ended.
type EndKind string

// The kinds. EndError is the loop's own, a screen's or a tool's machinery, and
// never the provider's.
const (
	EndCompleted EndKind = "completed"
	EndFailed    EndKind = "failed"
	EndAborted   EndKind = "aborted"
	EndMaxSteps  EndKind = "max-steps"
	EndLength    EndKind = "length"
	EndError     EndKind = "error"
)

// EndReason says how a turn ended and why.
type EndReason struct {
	Kind    EndKind  `json:"kind"`
	Failure *Failure `json:"failure,omitempty"`
	Message string   `json:"message,omitempty"`
}

// TurnEnd closes a turn. Everything that was open in it is closed before.
type TurnEnd struct {
	Turn   int       `json:"turn"`
	Reason EndReason `json:"reason"`
}
