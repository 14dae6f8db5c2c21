//! What of an input counts, of both hooks.

use crate::config::Config;
use crate::json::{Reader, Result, Text};

pub struct Input<'a> {
    pub policy: Text<'a>,
    pub purpose: Text<'a>,
    pub code: Text<'a>,              // of the failure
    pub counts: Option<Reader<'a>>,  // at retryCounts
    pub repairs: Option<Reader<'a>>, // at repairs
    pub tokens: f64,                 // of the surface, estimated
    pub window: f64,                 // of the model, in tokens; 0: unknown
    pub config: Config,
}

pub fn read(bytes: &[u8]) -> Result<Input> {
    let mut input = Input {
        policy: Text::EMPTY,
        purpose: Text::EMPTY,
        code: Text::EMPTY,
        counts: None,
        repairs: None,
        tokens: 0.0,
        window: 0.0,
        config: Config::DEFAULT,
    };
    let mut r = Reader::new(bytes);
    r.object(&mut |r, key| {
        if key.is("policy") {
            input.policy = r.string()?;
        } else if key.is("purpose") {
            input.purpose = r.string()?;
        } else if key.is("failure") {
            return failure(r, &mut input);
        } else if key.is("surface") {
            return surface(r, &mut input);
        } else if key.is("config") {
            return input.config.read(r);
        } else if key.is("retryCounts") {
            input.counts = Some(r.again());
            return r.skip();
        } else if key.is("repairs") {
            input.repairs = Some(r.again());
            return r.skip();
        } else {
            return r.skip();
        }
        Ok(())
    })?;
    r.end()?;
    if input.purpose.raw.is_empty() {
        return Err("the input has no purpose");
    }
    Ok(input)
}

fn failure<'a>(r: &mut Reader<'a>, input: &mut Input<'a>) -> Result<()> {
    r.object(&mut |r, key| {
        if key.is("code") {
            input.code = r.string()?;
            return Ok(());
        }
        r.skip()
    })
}

fn surface<'a>(r: &mut Reader<'a>, input: &mut Input<'a>) -> Result<()> {
    r.object(&mut |r, key| {
        if key.is("tokens") {
            input.tokens = r.number()?;
        } else if key.is("window") {
            input.window = r.number()?;
        } else {
            return r.skip();
        }
        Ok(())
    })
}

/// What this policy's compactions of the step came to.
pub struct Compactions {
    pub all: u32,
    pub failed: u32,
}

impl Input<'_> {
    pub fn compactions(&self) -> Result<Compactions> {
        let mut found = Compactions { all: 0, failed: 0 };
        let mut r = match &self.repairs {
            Some(r) => r.again(),
            None => return Ok(found),
        };
        r.array(&mut |r| {
            let (mut kind, mut policy, mut ok) = (Text::EMPTY, Text::EMPTY, false);
            r.object(&mut |r, key| {
                if key.is("kind") {
                    kind = r.string()?;
                } else if key.is("policy") {
                    policy = r.string()?;
                } else if key.is("ok") {
                    ok = r.boolean()?;
                } else {
                    return r.skip();
                }
                Ok(())
            })?;
            if kind.is("compact") && policy.equals(self.policy) {
                found.all += 1;
                found.failed += !ok as u32;
            }
            Ok(())
        })?;
        Ok(found)
    }
}
