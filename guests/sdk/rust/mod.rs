//! What a recovery policy for dsh is written with in Rust: the types of its
//! contract, `dsh:policy/v1`, and the functions by which a guest speaks to its
//! host. It depends on no crate and is meant to be copied.
//!
//! A policy is a function from a `RecoverInput` to a `Decision`. It decides, and
//! never waits, sends or stores: the host does, durably.

#![allow(dead_code, unused_imports)] // no policy uses all of it

mod host;
mod json;
mod types;

pub use host::*;
pub use json::Json;
pub use types::*;

/// The body of the export `recover`.
pub fn recover(decide: fn(&RecoverInput) -> Decision) -> i32 {
    host::export(|o| decide(&RecoverInput::of(o)).json())
}

/// The body of the export `before_step`.
pub fn before_step(prepare: fn(&StepInput) -> StepAnswer) -> i32 {
    host::export(|o| prepare(&StepInput::of(o)).json())
}

/// The body of the export `check_config`: one sentence a problem, and any of
/// them keeps the policy from being loaded.
pub fn check_config(check: fn(&Json) -> Vec<String>) -> i32 {
    host::export(|o| {
        let problems: Vec<Json> = check(o).iter().map(|p| Json::from(p.as_str())).collect();
        Json::object().with("problems", problems)
    })
}

/// Writes the manifest into the module, where the host reads it without running
/// anything: `manifest!("{…}");`
#[macro_export]
macro_rules! manifest {
    ($text:expr) => {
        #[link_section = "dsh.policy"]
        #[used]
        static MANIFEST: [u8; $text.len()] = {
            let bytes = $text.as_bytes();
            let mut copy = [0; $text.len()];
            let mut i = 0;
            while i < bytes.len() {
                copy[i] = bytes[i];
                i += 1;
            }
            copy
        };
    };
}

impl StepInput {
    /// How often this policy has retried in this step for the same purpose,
    /// under whatever key. The log counts, so that it survives restarts.
    pub fn retries(&self) -> f64 {
        let own = |c: &&RetryCount| c.policy == self.policy && c.purpose == self.purpose;
        self.retry_counts.iter().filter(own).map(|c| c.count).sum()
    }

    /// `retries` of one key alone.
    pub fn retries_under(&self, key: &str) -> f64 {
        let own = |c: &&RetryCount| c.policy == self.policy && c.purpose == self.purpose && c.policy_key == key;
        self.retry_counts.iter().filter(own).map(|c| c.count).sum()
    }
}

impl RecoverInput {
    /// The delay in ms before retry n, from 1: the provider's own wait if it is
    /// within the settings' cap, and else a backoff that doubles each time, with
    /// jitter.
    pub fn backoff(&self, n: f64) -> f64 {
        let p = &self.retry_policy;
        match self.failure.provider_retry_after_ms {
            Some(wait) if wait <= p.max_delay_ms => return wait,
            _ => {}
        }
        let mut base = p.initial_delay_ms;
        let mut i = 1.0;
        while i < n && base < p.max_delay_ms {
            base *= 2.0;
            i += 1.0;
        }
        let factor = 1.0 - p.jitter_ratio + 2.0 * p.jitter_ratio * self.random[0];
        (base.min(p.max_delay_ms) * factor).min(p.max_delay_ms)
    }

    /// What dsh's built-in policy decides by the provider's settings: a policy
    /// that only adds a condition ends in it.
    pub fn standard(&self) -> Decision {
        let p = &self.retry_policy;
        let n = self.retries_under(&p.key) + 1.0;
        let again = retry(self.backoff(n)).counted_as(&p.key);
        if p.mode == "always" {
            let mut fallback = again.because(&["retry ", &n.to_string()].concat());
            fallback.mode = "always".to_string();
            return delegate("mode always lets the others go first").or_else(fallback);
        }
        let code = &self.failure.code;
        if !p.retryable_codes.contains(code) {
            return delegate(&[code, " is not among the retryable codes"].concat());
        }
        let most = p.max_retries.to_string();
        if n > p.max_retries {
            return delegate(&["all ", &most, " retries are used"].concat());
        }
        match self.failure.provider_retry_after_ms {
            Some(wait) if wait > p.max_delay_ms => delegate(
                &["the provider asked for a wait of ", &wait.to_string(), " ms, which is over the cap of ", &p.max_delay_ms.to_string(), " ms"].concat(),
            ),
            _ => again.at_most(p.max_retries).because(&["retry ", &n.to_string(), " of ", &most].concat()),
        }
    }
}
