//! The check of the policy's own config.

use crate::config::Config;
use crate::host::Output;
use crate::json::{Reader, Result, Text};

/// The most tokens that a summary may be given: 2^53-1, as all whole numbers.
const MAX_TOKENS: f64 = 9007199254740991.0;

/// Problems as they are found, as an array of JSON.
struct Problems<'a, 'b> {
    out: &'a mut Output<'b>,
    first: bool,
}

impl Problems<'_, '_> {
    fn add(&mut self, key: Text, what: &[u8]) {
        if !self.first {
            self.out.raw(b",");
        }
        self.first = false;
        self.out.raw(b"\"");
        self.out.raw(key.raw);
        self.out.raw(what);
        self.out.raw(b"\"");
    }
}

pub fn check(bytes: &[u8], out: &mut Output) -> Result<()> {
    out.raw(br#"{"problems":["#);
    let mut found = Problems { out: &mut *out, first: true };
    let mut config = Config::DEFAULT;
    let mut r = Reader::new(bytes);
    if r.end().is_err() {
        r.object(&mut |r, key| field(r, key, &mut config, &mut found))?;
        r.end()?;
    }
    if !(config.retain_ratio < config.threshold_ratio) {
        found.add(Text::plain("retainRatio"), b" is not below thresholdRatio: what stays would be under pressure again at once");
    }
    out.raw(b"]}");
    Ok(())
}

fn field<'a>(r: &mut Reader<'a>, key: Text<'a>, config: &mut Config, found: &mut Problems) -> Result<()> {
    let ratio = b" is out of range: a number over 0 and up to 1 is allowed";
    if key.is("thresholdRatio") {
        match value(r)? {
            Some(v) if v > 0.0 && v <= 1.0 => config.threshold_ratio = v,
            _ => found.add(key, ratio),
        }
    } else if key.is("retainRatio") {
        match value(r)? {
            Some(v) if v > 0.0 && v <= 1.0 => config.retain_ratio = v,
            _ => found.add(key, ratio),
        }
    } else if key.is("summaryMaxTokens") {
        match value(r)? {
            Some(v) if v >= 1.0 && v <= MAX_TOKENS && v == v as u64 as f64 => config.summary_max_tokens = v,
            _ => found.add(key, b" is out of range: a whole number from 1 to 9007199254740991 is allowed"),
        }
    } else {
        found.add(key, b" is an unknown key: thresholdRatio, retainRatio and summaryMaxTokens are allowed");
        return r.skip();
    }
    Ok(())
}

/// A number; `None` where the value is something else.
fn value(r: &mut Reader) -> Result<Option<f64>> {
    match r.peek()? {
        b'-' | b'0'..=b'9' => r.number().map(Some),
        _ => r.skip().map(|_| None),
    }
}
