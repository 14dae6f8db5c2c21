//! business-hours gives up soon while people are there to decide, and is patient
//! at night.

#[path = "../../../guests/sdk/rust/mod.rs"]
mod sdk;

use sdk::{delegate, retry, Decision, Json, RecoverInput};

manifest!(include_str!("manifest.json"));

const MINUTE: f64 = 60_000.0;
const DAY: f64 = 24.0 * 60.0 * MINUTE;

fn decide(input: &RecoverInput) -> Decision {
    let code = &input.failure.code;
    if !input.retry_policy.retryable_codes.contains(code) {
        return delegate(&[code, " is not among the retryable codes"].concat());
    }
    let number = |key: &str, otherwise: f64| input.config.get(key).number().unwrap_or(otherwise);
    let done = input.retries();
    if open(&input.config, input.now_ms) {
        let most = number("maxRetries", 2.0);
        if done >= most {
            return delegate(&format!("it is within business hours, and {} retries are enough for a person to decide", most));
        }
        return retry(input.backoff(done + 1.0)).at_most(most).because("within business hours");
    }
    let most = number("patientRetries", 20.0);
    if done >= most {
        return delegate(&format!("all {} retries outside of business hours are used", most));
    }
    let cap = number("patientDelayMs", 10.0 * MINUTE);
    let delay = match input.failure.provider_retry_after_ms {
        Some(wait) => wait, // nobody waits for it
        None => (1000.0 * 2f64.powf(done.min(40.0))).min(cap) * (0.75 + 0.5 * input.random[0]),
    };
    retry(delay.min(2147483647.0)).at_most(most).because("outside of business hours")
}

/// Whether people are at work at a time in Unix ms.
fn open(config: &Json, now: f64) -> bool {
    let local = now + config.get("utcOffsetMinutes").num() * MINUTE;
    let day = (local / DAY).floor();
    let weekday = (day + 3.0).rem_euclid(7.0) + 1.0; // 1970-01-01 was a Thursday; Monday is 1
    let minutes = (local - day * DAY) / MINUTE;
    let hour = |key: &str, otherwise: f64| config.get(key).number().unwrap_or(otherwise) * 60.0;
    let workday = match config.get("days") {
        Json::List(days) => days.iter().any(|d| d.num() == weekday),
        _ => weekday <= 5.0,
    };
    workday && minutes >= hour("fromHour", 9.0) && minutes < hour("toHour", 17.0)
}

fn check(config: &Json) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, value) in config.fields() {
        let n = value.number().unwrap_or(f64::NAN);
        let (good, allowed) = match key.as_str() {
            "utcOffsetMinutes" => ((-840.0..=840.0).contains(&n), "a number from -840 to 840"),
            "fromHour" | "toHour" => ((0.0..=24.0).contains(&n), "a number from 0 to 24"),
            "maxRetries" | "patientRetries" => (n >= 0.0, "a number from 0 on"),
            "patientDelayMs" => (n >= 1000.0 && n <= DAY, "a number of ms from 1000 to 86400000"),
            "days" => {
                let whole = |v: &Json| (1..=7).any(|d| v.number() == Some(d as f64));
                (matches!(value, Json::List(days) if days.iter().all(whole)), "a list of numbers from 1 (Monday) to 7")
            }
            _ => (false, ""),
        };
        if allowed.is_empty() {
            problems.push(format!("{} is an unknown key", key));
        } else if !good {
            problems.push(format!("{} has to be {}", key, allowed));
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
