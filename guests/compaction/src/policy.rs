//! The decisions.

use crate::counts;
use crate::host::Output;
use crate::input::{self, Input};
use crate::json::{Result, Text};

/// What this policy's retries are counted under.
const KEY: Text<'static> = Text::plain("overflow");

/// How often a step's request is made shorter after it was too long: once, and
/// once more.
const ROUNDS: f64 = 2.0;

/// How often a request for a summary is sent again that was too long itself.
/// The host halves what it puts into it every time.
const HALVINGS: f64 = 3.0;

/// How often a step's request is made shorter ahead of it: once, and once more.
const PRESSURE_ROUNDS: u32 = 2;

/// A pruning is enough where the request is below so much of what failed.
const MARGIN: f64 = 0.8;

/// A summary has at most so much of the window: what it is made of has to fit
/// beside it.
const SUMMARY_SHARE: f64 = 0.25;

/// Results of tools of over 8,192 characters keep 4,096 and 1,024.
const PRUNE: &[u8] = br#"{"kind":"prune","overChars":8192,"headChars":4096,"tailChars":1024}"#;

pub fn recover(bytes: &[u8], out: &mut Output) -> Result<()> {
    let input = input::read(bytes)?;
    if !input.code.is("CONTEXT_WINDOW_EXCEEDED") {
        out.raw(br#"{"kind":"delegate","reason":""#);
        out.raw(input.code.raw);
        out.raw(br#" is not an overflow of the context"}"#);
        return Ok(());
    }
    let retries = counts::retries(&input.counts, input.policy, KEY, input.purpose)?;
    if input.purpose.is("compaction") {
        summary(retries, out);
        return Ok(());
    }
    // What came of prunings and compactions counts too, so that this ends even
    // where no retry is counted.
    let compactions = input.compactions()?.all;
    if retries >= ROUNDS || compactions >= PRESSURE_ROUNDS + ROUNDS as u32 {
        out.raw(br#"{"kind":"delegate","reason":"the request is still too long after as many repairs as a step may have"}"#);
        return Ok(());
    }
    retry(ROUNDS, out);
    if retries >= 1.0 {
        out.raw(br#","repairs":["#);
        input.compact(None, 0.0, out);
        out.raw(br#"],"reason":"the request was too long again: everything but its newest part is summarised"}"#);
        return Ok(());
    }
    let mut enough = input.tokens * MARGIN;
    if input.window > 0.0 && input.window < enough {
        enough = input.window;
    }
    out.raw(br#","repairs":["#);
    out.raw(PRUNE);
    out.raw(b",");
    input.compact(Some(enough), 0.0, out);
    out.raw(br#"],"reason":"the request was too long: tool results are pruned, and what is still too much is summarised"}"#);
    Ok(())
}

/// The request for a summary was too long itself.
fn summary(retries: f64, out: &mut Output) {
    if retries >= HALVINGS {
        out.raw(br#"{"kind":"delegate","reason":"the request for the summary is too long however short it is made"}"#);
        return;
    }
    retry(HALVINGS, out);
    out.raw(br#","reason":"the request for the summary was too long: it is made of half as much"}"#);
}

/// Writes what all retries have, and leaves the object open.
fn retry(max: f64, out: &mut Output) {
    out.raw(br#"{"kind":"retry","delayMs":0,"mode":"normal","maxRetries":"#);
    out.number(max);
    out.raw(br#","policyKey":""#);
    out.raw(KEY.raw);
    out.raw(b"\"");
}

pub fn before_step(bytes: &[u8], out: &mut Output) -> Result<()> {
    let input = input::read(bytes)?;
    let threshold = input.window * input.config.threshold_ratio;
    if !(input.window > 0.0 && input.tokens > threshold) {
        out.raw(br#"{"kind":"proceed"}"#);
        return Ok(());
    }
    let compactions = input.compactions()?;
    if compactions.all >= PRESSURE_ROUNDS || compactions.failed > 0 {
        out.raw(br#"{"kind":"proceed","reason":"the request is over the threshold, and more repairs would not help"}"#);
        return Ok(());
    }
    out.raw(br#"{"kind":"proceed","repairs":["#);
    out.raw(PRUNE);
    out.raw(b",");
    input.compact(Some(threshold), input.window * input.config.retain_ratio, out);
    out.raw(br#"],"reason":"about "#);
    out.number(whole(input.tokens));
    out.raw(b" tokens of a window of ");
    out.number(whole(input.window));
    out.raw(br#" are used"}"#);
    Ok(())
}

impl Input<'_> {
    /// Writes the repair that asks for a summary, in any case or while the
    /// surface has more than so many tokens.
    fn compact(&self, if_over: Option<f64>, retain: f64, out: &mut Output) {
        out.raw(br#"{"kind":"compact","maxTokens":"#);
        let mut most = self.config.summary_max_tokens;
        if self.window > 0.0 && self.window * SUMMARY_SHARE < most {
            most = self.window * SUMMARY_SHARE;
        }
        out.number(if most < 1.0 { 1.0 } else { whole(most) });
        if let Some(tokens) = if_over {
            out.raw(br#","ifOverTokens":"#);
            out.number(whole(tokens));
        }
        if retain >= 1.0 {
            out.raw(br#","retainTokens":"#);
            out.number(whole(retain));
        }
        out.raw(b"}");
    }
}

/// Rounded down; what is below 0, or no number, is 0.
fn whole(v: f64) -> f64 {
    v as u64 as f64
}
