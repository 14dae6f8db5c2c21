//! The policy's own config.

use crate::json::{Reader, Result};

/// What dsh.toml says under `[compaction]`. What is left out has the default
/// that stands there.
pub struct Config {
    pub threshold_ratio: f64, // of the window: from here on a request is under pressure
    pub retain_ratio: f64,    // of the window: so much of the tail stays as it is
    pub summary_max_tokens: f64,
}

impl Config {
    pub const DEFAULT: Config = Config { threshold_ratio: 0.8, retain_ratio: 0.16, summary_max_tokens: 8192.0 };

    /// Reads an object. Keys that are not known are for `check` to name.
    pub fn read(&mut self, r: &mut Reader) -> Result<()> {
        r.object(&mut |r, key| {
            if key.is("thresholdRatio") {
                self.threshold_ratio = r.number()?;
            } else if key.is("retainRatio") {
                self.retain_ratio = r.number()?;
            } else if key.is("summaryMaxTokens") {
                self.summary_max_tokens = r.number()?;
            } else {
                return r.skip();
            }
            Ok(())
        })
    }
}
