//! The types of the contract. A number that JSON has is an `f64` here; a text
//! that is absent is empty.

use super::json::Json;
use std::ops::Deref;

/// What a policy is told before a request is built.
pub struct StepInput {
    pub abi: String,
    pub decision_id: String,
    /// The name under which the waterfall lists this policy.
    pub policy: String,
    pub session: String,
    pub turn: f64,
    pub step: f64,
    pub attempt: f64,
    /// reply or compaction
    pub purpose: String,
    pub provider: String,
    pub model: String,
    /// Unix ms.
    pub now_ms: f64,
    /// Each in [0, 1), drawn for this decision.
    pub random: [f64; 4],
    pub retry_policy: RetryPolicy,
    /// Of this step, as the log has them.
    pub retry_counts: Vec<RetryCount>,
    /// What became of this step's repairs.
    pub repairs: Vec<RepairOutcome>,
    pub surface: Surface,
    pub limits: Limits,
    /// The policy's own config of dsh.toml.
    pub config: Json,
}

/// What a policy is told of a failure: the fields of a StepInput, and these.
pub struct RecoverInput {
    pub at: StepInput,
    pub failure: Failure,
    /// Unix ms.
    pub failed_at_ms: f64,
    /// failed_at_ms plus the provider's wait; `None`: it asked for none.
    pub provider_not_before_ms: Option<f64>,
}

impl Deref for RecoverInput {
    type Target = StepInput;
    fn deref(&self) -> &StepInput {
        &self.at
    }
}

/// How a model request failed.
pub struct Failure {
    /// For people: branch on the code.
    pub message: String,
    pub code: String,
    /// Of HTTP; 0: there was none.
    pub status: f64,
    /// `None`: the provider asked for no wait.
    pub provider_retry_after_ms: Option<f64>,
    pub request_id: String,
}

/// The provider's retry settings of dsh.toml.
pub struct RetryPolicy {
    /// What retries under these settings are counted by.
    pub key: String,
    /// normal or always
    pub mode: String,
    pub max_retries: f64,
    pub retryable_codes: Vec<String>,
    pub initial_delay_ms: f64,
    pub max_delay_ms: f64,
    pub jitter_ratio: f64,
}

/// How often a policy has retried in this step.
pub struct RetryCount {
    pub policy: String,
    pub policy_key: String,
    pub purpose: String,
    pub count: f64,
}

/// What became of a repair.
pub struct RepairOutcome {
    pub kind: String,
    pub policy: String,
    pub ok: bool,
    pub tokens_before: f64,
    pub tokens_after: f64,
}

/// The size of what the model sees.
pub struct Surface {
    /// Counts replacements.
    pub generation: f64,
    pub messages: f64,
    /// An estimate.
    pub tokens: f64,
    /// Of the model, in tokens; 0: unknown.
    pub window: f64,
    pub request_bytes: f64,
}

/// What the host's ceilings leave; `None`: there is none.
pub struct Limits {
    pub attempts_left: Option<f64>,
    pub wait_left_ms: Option<f64>,
}

/// What a policy answers to a failure: see `retry` and `delegate`.
#[derive(Clone, Default)]
pub struct Decision {
    kind: &'static str,
    pub delay_ms: f64,
    /// "": normal
    pub mode: String,
    /// The host refuses a retry with a higher number; `None`: no limit.
    pub max_retries: Option<f64>,
    /// What the retry is counted under; "": the policy's name.
    pub policy_key: String,
    /// Done before the wait, in order.
    pub repairs: Vec<Repair>,
    /// For people.
    pub reason: String,
    /// Of a delegate: a retry, if no other policy retries.
    pub fallback: Option<Box<Decision>>,
}

/// What a policy answers to before_step.
#[derive(Clone, Default)]
pub struct StepAnswer {
    pub repairs: Vec<Repair>,
    pub reason: String,
}

/// Something that the host is to do to what the model sees. It takes the
/// capability repair.prune or repair.compact. 0 is what the host takes without.
#[derive(Clone, Default)]
pub struct Repair {
    /// prune: tool results become head, marker and tail. compact: a range
    /// becomes a summary.
    pub kind: &'static str,
    pub seqs: Vec<f64>,
    pub over_chars: f64,
    pub head_chars: f64,
    pub tail_chars: f64,
    pub retain_tokens: f64,
    pub from: f64,
    pub to: f64,
    pub instructions: String,
    pub max_tokens: f64,
    pub if_over_tokens: Option<f64>,
}

/// A decision to send again after a delay in ms.
pub fn retry(delay_ms: f64) -> Decision {
    Decision { kind: "retry", delay_ms, ..Decision::default() }
}

/// A decision to leave the failure to the next policy. After the last one it is
/// final.
pub fn delegate(reason: &str) -> Decision {
    Decision { kind: "delegate", ..Decision::default() }.because(reason)
}

impl Decision {
    /// Gives the decision a reason, for people.
    pub fn because(mut self, reason: &str) -> Decision {
        self.reason = reason.to_string();
        self
    }

    /// Has the host refuse a retry with a number above n.
    pub fn at_most(mut self, n: f64) -> Decision {
        self.max_retries = Some(n);
        self
    }

    /// Counts a retry under a key of its own.
    pub fn counted_as(mut self, key: &str) -> Decision {
        self.policy_key = key.to_string();
        self
    }

    /// What to do if no other policy retries: a retry, for a delegate.
    pub fn or_else(mut self, fallback: Decision) -> Decision {
        self.fallback = Some(Box::new(fallback));
        self
    }

    /// Whether it is a retry.
    pub fn retries(&self) -> bool {
        self.kind == "retry"
    }
}

// The fields of recover-input.json that step-input.json has not.
impl RecoverInput {
    pub(super) fn of(o: &Json) -> RecoverInput {
        RecoverInput {
            at: StepInput::of(o),
            failure: Failure::of(o.get("failure")),
            failed_at_ms: o.get("failedAtMs").num(),
            provider_not_before_ms: o.get("providerNotBeforeMs").number(),
        }
    }
}

// The fields of step-input.json.
impl StepInput {
    pub(super) fn of(o: &Json) -> StepInput {
        let mut random = [0.0; 4];
        for (place, v) in random.iter_mut().zip(o.get("random").list()) {
            *place = v.num();
        }
        StepInput {
            abi: o.get("abi").text().to_string(),
            decision_id: o.get("decisionId").text().to_string(),
            policy: o.get("policy").text().to_string(),
            session: o.get("session").text().to_string(),
            turn: o.get("turn").num(),
            step: o.get("step").num(),
            attempt: o.get("attempt").num(),
            purpose: o.get("purpose").text().to_string(),
            provider: o.get("provider").text().to_string(),
            model: o.get("model").text().to_string(),
            now_ms: o.get("nowMs").num(),
            random,
            retry_policy: RetryPolicy::of(o.get("retryPolicy")),
            retry_counts: o.get("retryCounts").list().iter().map(RetryCount::of).collect(),
            repairs: o.get("repairs").list().iter().map(RepairOutcome::of).collect(),
            surface: Surface::of(o.get("surface")),
            limits: Limits::of(o.get("limits")),
            config: o.get("config").clone(),
        }
    }
}

// The fields of recover-input.json#failure.
impl Failure {
    fn of(o: &Json) -> Failure {
        Failure {
            message: o.get("message").text().to_string(),
            code: o.get("code").text().to_string(),
            status: o.get("status").num(),
            provider_retry_after_ms: o.get("providerRetryAfterMs").number(),
            request_id: o.get("requestId").text().to_string(),
        }
    }
}

// The fields of step-input.json#retryPolicy.
impl RetryPolicy {
    fn of(o: &Json) -> RetryPolicy {
        RetryPolicy {
            key: o.get("key").text().to_string(),
            mode: o.get("mode").text().to_string(),
            max_retries: o.get("maxRetries").num(),
            retryable_codes: o.get("retryableCodes").list().iter().map(|c| c.text().to_string()).collect(),
            initial_delay_ms: o.get("initialDelayMs").num(),
            max_delay_ms: o.get("maxDelayMs").num(),
            jitter_ratio: o.get("jitterRatio").num(),
        }
    }
}

// The fields of step-input.json#retryCount.
impl RetryCount {
    fn of(o: &Json) -> RetryCount {
        RetryCount {
            policy: o.get("policy").text().to_string(),
            policy_key: o.get("policyKey").text().to_string(),
            purpose: o.get("purpose").text().to_string(),
            count: o.get("count").num(),
        }
    }
}

// The fields of step-input.json#repairOutcome.
impl RepairOutcome {
    fn of(o: &Json) -> RepairOutcome {
        RepairOutcome {
            kind: o.get("kind").text().to_string(),
            policy: o.get("policy").text().to_string(),
            ok: o.get("ok").is_true(),
            tokens_before: o.get("tokensBefore").num(),
            tokens_after: o.get("tokensAfter").num(),
        }
    }
}

// The fields of step-input.json#surface.
impl Surface {
    fn of(o: &Json) -> Surface {
        Surface {
            generation: o.get("generation").num(),
            messages: o.get("messages").num(),
            tokens: o.get("tokens").num(),
            window: o.get("window").num(),
            request_bytes: o.get("requestBytes").num(),
        }
    }
}

// The fields of step-input.json#limits.
impl Limits {
    fn of(o: &Json) -> Limits {
        Limits { attempts_left: o.get("attemptsLeft").number(), wait_left_ms: o.get("waitLeftMs").number() }
    }
}

// The fields of decision.json.
impl Decision {
    pub(super) fn json(&self) -> Json {
        let mut o = Json::object().with("kind", self.kind);
        if self.retries() {
            o = o.with("delayMs", self.delay_ms);
        }
        o = text(o, "mode", &self.mode);
        if let Some(n) = self.max_retries {
            o = o.with("maxRetries", n);
        }
        o = text(o, "policyKey", &self.policy_key);
        if !self.repairs.is_empty() {
            o = o.with("repairs", self.repairs.iter().map(Repair::json).collect::<Vec<_>>());
        }
        o = text(o, "reason", &self.reason);
        if let Some(f) = &self.fallback {
            o = o.with("fallback", f.json());
        }
        o
    }
}

// The fields of step-answer.json.
impl StepAnswer {
    pub(super) fn json(&self) -> Json {
        let mut o = Json::object().with("kind", PROCEED);
        if !self.repairs.is_empty() {
            o = o.with("repairs", self.repairs.iter().map(Repair::json).collect::<Vec<_>>());
        }
        text(o, "reason", &self.reason)
    }
}

const PROCEED: &str = "proceed";

// The fields of decision.json#repair.
impl Repair {
    fn json(&self) -> Json {
        let mut o = Json::object().with("kind", self.kind);
        if !self.seqs.is_empty() {
            o = o.with("seqs", self.seqs.iter().map(|s| Json::Number(*s)).collect::<Vec<_>>());
        }
        o = size(o, "overChars", self.over_chars);
        o = size(o, "headChars", self.head_chars);
        o = size(o, "tailChars", self.tail_chars);
        o = size(o, "retainTokens", self.retain_tokens);
        o = size(o, "from", self.from);
        o = size(o, "to", self.to);
        o = text(o, "instructions", &self.instructions);
        o = size(o, "maxTokens", self.max_tokens);
        if let Some(n) = self.if_over_tokens {
            o = o.with("ifOverTokens", n);
        }
        o
    }
}

fn text(o: Json, key: &str, v: &str) -> Json {
    if v.is_empty() {
        o
    } else {
        o.with(key, v)
    }
}

fn size(o: Json, key: &str, v: f64) -> Json {
    if v == 0.0 {
        o
    } else {
        o.with(key, v)
    }
}
