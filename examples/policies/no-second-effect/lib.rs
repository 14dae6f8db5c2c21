//! no-second-effect does not retry once the turn has done something that cannot
//! be taken back.

#[path = "../../../guests/sdk/rust/mod.rs"]
mod sdk;

use sdk::{delegate, read_log, Decision, HostError, Json, LogRead, RecoverInput};

manifest!(include_str!("manifest.json"));

/// What changes nothing, unless the config says otherwise.
const SAFE: [&str; 3] = ["read", "list", "search"];

fn decide(input: &RecoverInput) -> Decision {
    match effect(input) {
        Ok(None) => input.standard(),
        Ok(Some(tool)) => delegate(&format!("{} has run in this turn, and may have changed something: look before you go on", tool)),
        // Who cannot know does not risk it.
        Err(e) => delegate(&format!("what has run in this turn cannot be told: {}", e.code)),
    }
}

/// The first tool of this turn that is not safe.
fn effect(input: &RecoverInput) -> Result<Option<String>, HostError> {
    let mut query = LogRead { types: &["tool/call"], turn: input.turn, ..LogRead::default() };
    loop {
        let page = read_log(&query)?;
        for e in &page.events {
            let name = e.data.get("name").text();
            if !safe(&input.config, name) {
                return Ok(Some(name.to_string()));
            }
        }
        if page.next == 0.0 {
            return Ok(None);
        }
        query.after = page.next;
    }
}

fn safe(config: &Json, name: &str) -> bool {
    match config.get("safe") {
        Json::List(list) => list.iter().any(|v| v.text() == name),
        _ => SAFE.contains(&name),
    }
}

fn check(config: &Json) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, value) in config.fields() {
        if key != "safe" {
            problems.push(format!("{} is an unknown key: safe is known", key));
        } else if !matches!(value, Json::List(list) if list.iter().all(|v| !v.text().is_empty())) {
            problems.push("safe has to be a list of the names of tools".to_string());
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
