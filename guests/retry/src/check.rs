//! The check of the policy's own config.

use crate::host::Output;
use crate::json::{Reader, Result};

/// The config has to be empty: what this policy does is set at the provider.
pub fn check(bytes: &[u8], out: &mut Output) -> Result<()> {
    out.raw(br#"{"problems":["#);
    let mut r = Reader::new(bytes);
    if r.end().is_err() {
        let mut first = true;
        r.object(&mut |r, key| {
            if !first {
                out.raw(b",");
            }
            first = false;
            out.raw(br#"""#);
            out.raw(key.raw);
            out.raw(if key.is("retry_policy") || key.is("retryPolicy") {
                b" is a provider's setting and belongs under [providers.NAME.retry_policy]: this policy takes no config of its own\""
            } else {
                &b" is an unknown key: this policy takes no config; retries are set under [providers.NAME.retry_policy]\""[..]
            });
            r.skip()
        })?;
        r.end()?;
    }
    out.raw(b"]}");
    Ok(())
}
