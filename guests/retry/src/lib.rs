//! The built-in retry policy, a guest of `dsh:policy/v1`.
//!
//! It retries the codes that the provider's settings name, so often as they
//! say, after the provider's own wait or a jittered exponential backoff. What
//! it may do, it is told by the input's `retryPolicy`; its own config is empty.
//!
//! It allocates nothing: it works on slices of the input.

#![no_std]

mod check;
#[path = "../../rust/counts.rs"]
mod counts;
#[path = "../../rust/host.rs"]
mod host;
#[path = "../../rust/json.rs"]
mod json;
#[path = "../../rust/number.rs"]
mod number;
mod policy;

use core::panic::PanicInfo;

/// What the host reads of this module without running it.
#[link_section = "dsh.policy"]
#[used]
static MANIFEST: [u8; 177] = *br#"{"abi":"dsh:policy/v1","name":"retry","version":"1.0.0","description":"Retries transient failures after the provider's wait or a jittered exponential backoff","capabilities":[]}"#;

/// A model request failed: RecoverInput in, Decision out.
#[no_mangle]
pub extern "C" fn recover() -> i32 {
    host::answer(policy::decide)
}

/// The config that dsh.toml gives this policy: it has to be empty.
#[no_mangle]
pub extern "C" fn check_config() -> i32 {
    host::answer(check::check)
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
