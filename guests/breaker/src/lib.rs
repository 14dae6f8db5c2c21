//! A circuit breaker that all sessions share, a guest of `dsh:policy/v1`.
//!
//! It counts the failures of each provider in its shared memory. So many of
//! them, each within a window after the one before, open the circuit: until it
//! closes again every session waits, and the first request after that is the
//! probe. It stands before the policy that retries, and leaves everything else
//! to it.
//!
//! Its config: `failures` (3), `windowMs` (60000) and `openMs` (30000).

#[path = "../../sdk/rust/mod.rs"]
#[macro_use]
mod sdk;

use sdk::{delegate, emit_event, get_state, put_state, read_log, retry, Decision, HostError, Json, LogRead, RecoverInput, SHARED};

manifest!(include_str!("../manifest.json"));

/// How often a value is tried to be stored that others store at the same time.
const TRIES: usize = 8;

/// What the memory has of a provider.
struct Circuit {
    failures: f64,
    last: f64,  // Unix ms of the last failure
    until: f64, // Unix ms; the circuit is open until then
}

impl Circuit {
    fn of(o: &Json) -> Circuit {
        Circuit { failures: o.get("failures").num(), last: o.get("lastMs").num(), until: o.get("openUntilMs").num() }
    }

    fn json(&self) -> Json {
        Json::object().with("failures", self.failures).with("lastMs", self.last).with("openUntilMs", self.until)
    }

    /// Counts a failure, which may open the circuit.
    fn count(&mut self, now: f64, limits: &Limits) {
        if now - self.last > limits.window {
            self.failures = 0.0;
        }
        self.failures += 1.0;
        self.last = now;
        if self.failures >= limits.failures {
            self.failures = 0.0;
            self.until = now + limits.open;
        }
    }
}

struct Limits {
    failures: f64,
    window: f64,
    open: f64,
}

impl Limits {
    fn of(config: &Json) -> Limits {
        let or = |key: &str, default: f64| config.get(key).number().unwrap_or(default);
        Limits { failures: or("failures", 3.0), window: or("windowMs", 60000.0), open: or("openMs", 30000.0) }
    }
}

/// Whether this attempt was counted before: a session that was killed is asked
/// about the same attempt again.
fn counted(input: &RecoverInput) -> Result<bool, HostError> {
    let kind = ["policy/", &input.policy, "/counted"].concat();
    let mut q = LogRead { types: &[&kind], turn: input.turn, step: input.step, ..LogRead::default() };
    loop {
        let page = read_log(&q)?;
        if page.events.iter().any(|e| e.data.get("attempt").num() == input.attempt) {
            return Ok(true);
        }
        if page.next == 0.0 {
            return Ok(false);
        }
        q.after = page.next;
    }
}

/// Counts this failure, once, and returns the circuit as it is then.
fn count(input: &RecoverInput, limits: &Limits) -> Result<Circuit, HostError> {
    let seen = counted(input)?;
    for _ in 0..TRIES {
        let (value, version) = get_state(SHARED, &input.provider)?;
        let mut circuit = Circuit::of(&value);
        if seen || input.now_ms < circuit.until {
            return Ok(circuit);
        }
        circuit.count(input.now_ms, limits);
        match put_state(SHARED, &input.provider, circuit.json(), version) {
            Ok(_) => {
                emit_event("counted", circuit.json())?;
                return Ok(circuit);
            }
            Err(e) if e.is_conflict() => continue,
            Err(e) => return Err(e),
        }
    }
    let (value, _) = get_state(SHARED, &input.provider)?;
    Ok(Circuit::of(&value))
}

fn decide(input: &RecoverInput) -> Decision {
    match count(input, &Limits::of(&input.config)) {
        Ok(c) if input.now_ms < c.until => retry(c.until - input.now_ms).because("the circuit is open: the provider has failed too often"),
        Ok(_) => delegate("the circuit is closed"),
        Err(e) => delegate(&["the circuit cannot be told: ", &e.code, ": ", &e.message].concat()),
    }
}

fn check(config: &Json) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, value) in config.fields() {
        match (key.as_str(), value.number()) {
            ("failures" | "windowMs" | "openMs", Some(n)) if n >= 1.0 => {}
            ("failures" | "windowMs" | "openMs", _) => problems.push([key, " is a number of 1 at the least"].concat()),
            _ => problems.push([key, " is no setting: there are failures, windowMs and openMs"].concat()),
        }
    }
    problems
}

/// A model request failed.
#[no_mangle]
pub extern "C" fn recover() -> i32 {
    sdk::recover(decide)
}

/// The config that dsh.toml gives this policy.
#[no_mangle]
pub extern "C" fn check_config() -> i32 {
    sdk::check_config(check)
}
