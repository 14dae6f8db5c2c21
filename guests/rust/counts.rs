//! The retries of this step, as the input has them.

use crate::json::{Reader, Result, Text};

/// How often a policy has retried under a key and for a purpose, by the
/// array at which the reader of `retryCounts` stands; `None` is an empty one.
pub fn retries(counts: &Option<Reader>, policy: Text, key: Text, purpose: Text) -> Result<f64> {
    let mut sum = 0.0;
    let mut r = match counts {
        Some(r) => r.again(),
        None => return Ok(sum),
    };
    r.array(&mut |r| {
        let (mut whose, mut under, mut what, mut count) = (Text::EMPTY, Text::EMPTY, Text::EMPTY, 0.0);
        r.object(&mut |r, name| {
            if name.is("policy") {
                whose = r.string()?;
            } else if name.is("policyKey") {
                under = r.string()?;
            } else if name.is("purpose") {
                what = r.string()?;
            } else if name.is("count") {
                count = r.number()?;
            } else {
                return r.skip();
            }
            Ok(())
        })?;
        if whose.equals(policy) && under.equals(key) && what.equals(purpose) {
            sum += count;
        }
        Ok(())
    })?;
    Ok(sum)
}
