//! circuit-breaker stops all sessions from asking a provider that keeps failing.

#[path = "../../../guests/sdk/rust/mod.rs"]
mod sdk;

use sdk::{delegate, get_state, put_state, Decision, HostError, Json, RecoverInput, SHARED};

manifest!(include_str!("manifest.json"));

/// How often a value that somebody else has just stored is read again.
const TRIES: u32 = 4;

struct Config {
    threshold: f64,
    window_ms: f64,
    open_ms: f64,
}

fn config(c: &Json) -> Config {
    Config {
        threshold: c.get("threshold").number().unwrap_or(5.0),
        window_ms: c.get("windowMs").number().unwrap_or(60_000.0),
        open_ms: c.get("openMs").number().unwrap_or(30_000.0),
    }
}

/// What is remembered of a provider, for all sessions.
struct Circuit {
    failures: Vec<f64>, // when, Unix ms, the oldest first
    open_until: f64,    // Unix ms; 0: it is closed
}

impl Circuit {
    fn of(v: &Json) -> Circuit {
        Circuit { failures: v.get("failures").list().iter().map(Json::num).collect(), open_until: v.get("openUntil").num() }
    }

    fn json(&self) -> Json {
        let failures: Vec<Json> = self.failures.iter().map(|at| Json::Number(*at)).collect();
        Json::object().with("failures", failures).with("openUntil", self.open_until)
    }

    /// Counts a failure in. `Some`: the circuit is open, and until when.
    fn fail(&mut self, c: &Config, now: f64) -> Option<f64> {
        if now < self.open_until {
            return Some(self.open_until);
        }
        // The first request behind an open time is the probe: it has failed.
        let probe = self.open_until > 0.0 && now < self.open_until + c.window_ms;
        self.open_until = 0.0;
        self.failures.retain(|at| *at > now - c.window_ms);
        self.failures.push(now);
        if !probe && (self.failures.len() as f64) < c.threshold {
            return None;
        }
        self.failures.clear();
        self.open_until = now + c.open_ms;
        Some(self.open_until)
    }
}

fn decide(input: &RecoverInput) -> Decision {
    let standard = input.standard();
    if !input.retry_policy.retryable_codes.contains(&input.failure.code) {
        return standard; // it says nothing about the provider's health
    }
    match record(input) {
        Ok(None) => standard,
        Ok(Some(until)) => delegate(&format!("the circuit of {} is open for another {} ms", input.provider, (until - input.now_ms).max(0.0))),
        // Who cannot remember decides as if there were no circuit.
        Err(e) => standard.because(&format!("without a circuit: {}", e.code)),
    }
}

/// Counts the failure in, durably, against all others who do the same.
fn record(input: &RecoverInput) -> Result<Option<f64>, HostError> {
    let c = config(&input.config);
    let mut last = None;
    for _ in 0..TRIES {
        let (value, version) = get_state(SHARED, &input.provider)?;
        let mut circuit = Circuit::of(&value);
        let was_open = input.now_ms < circuit.open_until;
        let open = circuit.fail(&c, input.now_ms);
        if was_open {
            return Ok(open); // there is nothing to store
        }
        match put_state(SHARED, &input.provider, circuit.json(), version) {
            Ok(_) => return Ok(open),
            Err(e) if e.is_conflict() => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or(HostError { code: "conflict".to_string(), message: String::new() }))
}

fn check(config: &Json) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, value) in config.fields() {
        match key.as_str() {
            "threshold" if (2.0..=50.0).contains(&value.num()) => {}
            "threshold" => problems.push("threshold has to be a number from 2 to 50".to_string()),
            "windowMs" | "openMs" if value.num() > 0.0 => {}
            "windowMs" | "openMs" => problems.push(format!("{} has to be a number of ms over 0", key)),
            _ => problems.push(format!("{} is an unknown key: threshold, windowMs and openMs are known", key)),
        }
    }
    problems
}

#[no_mangle]
pub extern "C" fn recover() -> i32 {
    sdk::recover(decide)
}

#[no_mangle]
pub extern "C" fn check_config() -> i32 {
    sdk::check_config(check)
}
