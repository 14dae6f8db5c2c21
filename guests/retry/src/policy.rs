//! The decision.

use crate::counts;
use crate::host::Output;
use crate::json::{Reader, Result, Text};

/// The exponent of the backoff grows no further: 2^1024 is infinite already.
const MAX_EXPONENT: f64 = 1024.0;

/// What of the input counts.
struct Input<'a> {
    policy: Text<'a>,
    purpose: Text<'a>,
    code: Text<'a>,
    wait: f64, // that the provider asked for, in ms; 0: none
    random: f64,
    counts: Option<Reader<'a>>, // at retryCounts
    settings: Settings<'a>,
}

/// The provider's `retryPolicy`.
struct Settings<'a> {
    key: Text<'a>,
    mode: Text<'a>,
    max_retries: f64,
    codes: Option<Reader<'a>>, // at retryableCodes
    initial: f64,
    max: f64,
    jitter: f64,
}

pub fn decide(bytes: &[u8], out: &mut Output) -> Result<()> {
    let input = read(bytes)?;
    let n = counts::retries(&input.counts, input.policy, input.settings.key, input.purpose)? + 1.0;
    if input.settings.mode.is("always") {
        always(&input, n, out);
        return Ok(());
    }
    if !input.settings.mode.is("normal") {
        return Err("retryPolicy.mode is neither normal nor always");
    }
    normal(&input, n, out)
}

/// Counted retries of some codes.
fn normal(input: &Input, n: f64, out: &mut Output) -> Result<()> {
    let s = &input.settings;
    if !input.retryable()? {
        out.raw(br#"{"kind":"delegate","reason":""#);
        out.raw(input.code.raw);
        out.raw(br#" is not among the retryable codes"}"#);
    } else if n > s.max_retries {
        out.raw(br#"{"kind":"delegate","reason":"all "#);
        out.number(s.max_retries);
        out.raw(br#" retries are used"}"#);
    } else if input.wait > s.max {
        out.raw(br#"{"kind":"delegate","reason":"the provider asked for a wait of "#);
        out.number(input.wait);
        out.raw(b" ms, which is over the cap of ");
        out.number(s.max);
        out.raw(br#" ms"}"#);
    } else {
        out.raw(br#"{"kind":"retry","maxRetries":"#);
        out.number(s.max_retries);
        out.raw(br#","mode":"normal","#);
        input.retry(n, out);
        out.raw(b" of ");
        out.number(s.max_retries);
        out.raw(br#""}"#);
    }
    Ok(())
}

/// Retries of everything without end, if no other policy retries.
fn always(input: &Input, n: f64, out: &mut Output) {
    out.raw(br#"{"kind":"delegate","reason":"mode always lets the others go first","fallback":{"kind":"retry","mode":"always","#);
    input.retry(n, out);
    out.raw(br#""}}"#);
}

impl Input<'_> {
    fn retryable(&self) -> Result<bool> {
        let mut found = false;
        if let Some(codes) = &self.settings.codes {
            codes.again().array(&mut |r| {
                found |= r.string()?.equals(self.code);
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Writes what all retries have, and leaves the reason open.
    fn retry(&self, n: f64, out: &mut Output) {
        let (delay, whose) = self.delay(n);
        out.raw(br#""delayMs":"#);
        out.number(delay);
        out.raw(br#","policyKey":""#);
        out.raw(self.settings.key.raw);
        out.raw(br#"","reason":"after "#);
        out.raw(whose);
        out.raw(b", retry ");
        out.number(n);
    }

    /// The delay of retry n, and whose it is. A provider's wait is taken as it
    /// is, if it is within the cap.
    fn delay(&self, n: f64) -> (f64, &'static [u8]) {
        let s = &self.settings;
        if self.wait > 0.0 && self.wait <= s.max {
            return (self.wait, b"the provider's wait");
        }
        let base = cap(s.initial * power_of_two(n - 1.0), s.max);
        let factor = 1.0 - s.jitter + 2.0 * s.jitter * self.random;
        (cap(base * factor, s.max), b"a backoff")
    }
}

/// The lesser of the two; what is no number is the cap.
fn cap(v: f64, max: f64) -> f64 {
    if v < max {
        v
    } else {
        max
    }
}

fn power_of_two(exponent: f64) -> f64 {
    let mut v = 1.0;
    let mut left = cap(exponent, MAX_EXPONENT);
    while left >= 1.0 {
        v *= 2.0;
        left -= 1.0;
    }
    v
}

fn read(bytes: &[u8]) -> Result<Input> {
    let mut input = Input {
        policy: Text::EMPTY,
        purpose: Text::EMPTY,
        code: Text::EMPTY,
        wait: 0.0,
        random: 0.0,
        counts: None,
        settings: Settings { key: Text::EMPTY, mode: Text::EMPTY, max_retries: 0.0, codes: None, initial: 0.0, max: 0.0, jitter: 0.0 },
    };
    let mut r = Reader::new(bytes);
    r.object(&mut |r, key| {
        if key.is("policy") {
            input.policy = r.string()?;
        } else if key.is("purpose") {
            input.purpose = r.string()?;
        } else if key.is("failure") {
            return failure(r, &mut input);
        } else if key.is("random") {
            let mut first = true;
            return r.array(&mut |r| {
                if first {
                    first = false;
                    input.random = r.number()?;
                    return Ok(());
                }
                r.skip()
            });
        } else if key.is("retryCounts") {
            input.counts = Some(r.again());
            return r.skip();
        } else if key.is("retryPolicy") {
            return settings(r, &mut input.settings);
        } else {
            return r.skip();
        }
        Ok(())
    })?;
    r.end()?;
    if input.settings.mode.raw.is_empty() {
        return Err("the input has no retryPolicy");
    }
    Ok(input)
}

fn failure<'a>(r: &mut Reader<'a>, input: &mut Input<'a>) -> Result<()> {
    r.object(&mut |r, key| {
        if key.is("code") {
            input.code = r.string()?;
        } else if key.is("providerRetryAfterMs") {
            input.wait = r.number()?;
        } else {
            return r.skip();
        }
        Ok(())
    })
}

fn settings<'a>(r: &mut Reader<'a>, s: &mut Settings<'a>) -> Result<()> {
    r.object(&mut |r, key| {
        if key.is("key") {
            s.key = r.string()?;
        } else if key.is("mode") {
            s.mode = r.string()?;
        } else if key.is("maxRetries") {
            s.max_retries = r.number()?;
        } else if key.is("retryableCodes") {
            s.codes = Some(r.again());
            return r.skip();
        } else if key.is("initialDelayMs") {
            s.initial = r.number()?;
        } else if key.is("maxDelayMs") {
            s.max = r.number()?;
        } else if key.is("jitterRatio") {
            s.jitter = r.number()?;
        } else {
            return r.skip();
        }
        Ok(())
    })
}
