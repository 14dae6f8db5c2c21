//! Bytes in and out through Extism's kernel, and the functions of the host.

use super::json::Json;

#[link(wasm_import_module = "extism:host/env")]
extern "C" {
    fn input_length() -> u64;
    fn input_load_u8(at: u64) -> u32;
    fn input_load_u64(at: u64) -> u64;
    fn alloc(size: u64) -> u64;
    fn length(at: u64) -> u64;
    fn load_u8(at: u64) -> u32;
    fn load_u64(at: u64) -> u64;
    fn store_u8(at: u64, v: u32);
    fn store_u64(at: u64, v: u64);
    fn output_set(at: u64, size: u64);
    fn error_set(at: u64);
    fn log_info(at: u64);
}

// A module imports only those that it uses, and each takes a capability that
// the manifest asks for.
#[link(wasm_import_module = "dsh:policy/v1")]
extern "C" {
    fn log_read(at: u64) -> u64;
    fn surface_read(at: u64) -> u64;
    fn state_get(at: u64) -> u64;
    fn state_put(at: u64) -> u64;
    fn emit(at: u64) -> u64;
}

/// Reads `size` bytes, eight at a time, since every call costs.
fn load(at: u64, size: usize, word: unsafe extern "C" fn(u64) -> u64, byte: unsafe extern "C" fn(u64) -> u32) -> Vec<u8> {
    let mut b = Vec::with_capacity(size);
    while b.len() + 8 <= size {
        b.extend_from_slice(&unsafe { word(at + b.len() as u64) }.to_le_bytes());
    }
    while b.len() < size {
        b.push(unsafe { byte(at + b.len() as u64) } as u8);
    }
    b
}

fn store(b: &[u8]) -> u64 {
    let at = unsafe { alloc(b.len() as u64) };
    let whole = b.len() / 8 * 8;
    for i in (0..whole).step_by(8) {
        let mut word = [0; 8];
        word.copy_from_slice(&b[i..i + 8]);
        unsafe { store_u64(at + i as u64, u64::from_le_bytes(word)) };
    }
    for i in whole..b.len() {
        unsafe { store_u8(at + i as u64, b[i] as u32) };
    }
    at
}

/// Runs `f` over the input and gives its output to the host. The result is what
/// the export returns.
pub(super) fn export(f: impl FnOnce(&Json) -> Json) -> i32 {
    let bytes = load(0, unsafe { input_length() } as usize, input_load_u64, input_load_u8);
    let input = match String::from_utf8(bytes).map_err(|_| "it is not UTF-8").and_then(|s| Json::parse(&s)) {
        Ok(v) => v,
        Err(e) => {
            let message = ["the input cannot be read: ", e].concat();
            unsafe { error_set(store(message.as_bytes())) };
            return 1;
        }
    };
    let mut out = String::new();
    f(&input).write(&mut out);
    unsafe { output_set(store(out.as_bytes()), out.len() as u64) };
    0
}

/// Writes a line for people. It shows with dsh --verbose.
pub fn log(text: &str) {
    unsafe { log_info(store(text.as_bytes())) }
}

/// A refusal of a host function. It is a value to decide by, and no fault.
#[derive(Debug)]
pub struct HostError {
    /// denied, invalid, conflict, too-large, too-many or unavailable
    pub code: String,
    pub message: String,
}

impl HostError {
    /// Whether a value had another version than the expected one.
    pub fn is_conflict(&self) -> bool {
        self.code == "conflict"
    }
}

fn call(function: unsafe extern "C" fn(u64) -> u64, argument: Json) -> Result<Json, HostError> {
    let mut text = String::new();
    argument.write(&mut text);
    let at = unsafe { function(store(text.as_bytes())) };
    let bytes = load(at, unsafe { length(at) } as usize, load_u64, load_u8);
    let answer = String::from_utf8(bytes).map_err(|_| "it is not UTF-8").and_then(|s| Json::parse(&s));
    match answer {
        Ok(a) if a.get("err") != &Json::Null => {
            let e = a.get("err");
            Err(HostError { code: e.get("code").text().to_string(), message: e.get("message").text().to_string() })
        }
        Ok(a) => Ok(a),
        Err(e) => Err(HostError { code: "unavailable".to_string(), message: e.to_string() }),
    }
}

/// The scopes of a policy's memory.
pub const SESSION: &str = "session"; // takes the capability state.session
pub const SHARED: &str = "shared"; // that of all sessions; takes state.shared

/// Which events of the session's log to read, oldest first. 0 is all.
#[derive(Default)]
pub struct LogRead<'a> {
    pub types: &'a [&'a str],
    pub turn: f64,
    pub step: f64,
    pub after: f64,
    pub limit: f64,
    /// The texts too: takes surface.content.
    pub content: bool,
}

/// A page of events.
pub struct LogAnswer {
    pub events: Vec<LogEvent>,
    /// What `after` is for the next page; 0: this is the last.
    pub next: f64,
    pub tail: f64,
}

/// One event.
pub struct LogEvent {
    pub seq: f64,
    pub at: f64,
    pub kind: String,
    pub data: Json,
}

/// Reads events. It takes the capability log.read.
pub fn read_log(q: &LogRead) -> Result<LogAnswer, HostError> {
    call(log_read, q.json()).map(|a| LogAnswer {
        events: a.get("events").list().iter().map(LogEvent::of).collect(),
        next: a.get("next").num(),
        tail: a.get("tail").num(),
    })
}

// The fields of log-read.json.
impl LogRead<'_> {
    fn json(&self) -> Json {
        let mut o = Json::object();
        if !self.types.is_empty() {
            o = o.with("types", self.types.iter().map(|t| Json::from(*t)).collect::<Vec<_>>());
        }
        o.with("turn", self.turn).with("step", self.step).with("after", self.after).with("limit", self.limit).with("content", self.content)
    }
}

// The fields of log-answer.json#event.
impl LogEvent {
    fn of(o: &Json) -> LogEvent {
        LogEvent {
            seq: o.get("seq").num(),
            at: o.get("at").num(),
            kind: o.get("type").text().to_string(),
            data: o.get("data").clone(),
        }
    }
}

/// A page of what the model sees: `entries` with `seq`, `role`, `kinds` and
/// `tokens` each, `next`, `tail`, `generation` and `tokens`. It takes
/// surface.read, and with content surface.content.
pub fn read_surface(from: f64, limit: f64, content: bool) -> Result<Json, HostError> {
    call(surface_read, Json::object().with("from", from).with("limit", limit).with("content", content))
}

/// A value of the policy's memory and its version: null and 0 where it was
/// never stored.
pub fn get_state(scope: &str, key: &str) -> Result<(Json, f64), HostError> {
    let a = call(state_get, Json::object().with("scope", scope).with("key", key))?;
    Ok((a.get("value").clone(), a.get("version").num()))
}

/// Stores a value of up to 4 KiB, if it still has the version, and returns the
/// new one. A conflict says that somebody else has stored one: get it and decide
/// anew.
pub fn put_state(scope: &str, key: &str, value: Json, version: f64) -> Result<f64, HostError> {
    let a = call(state_put, Json::object().with("scope", scope).with("key", key).with("value", value).with("version", version))?;
    Ok(a.get("version").num())
}

/// Appends an event policy/NAME/KIND to the session's log, which the model never
/// sees. data is an object. It takes log.append.
pub fn emit_event(kind: &str, data: Json) -> Result<f64, HostError> {
    let a = call(emit, Json::object().with("type", kind).with("data", data))?;
    Ok(a.get("seq").num())
}
