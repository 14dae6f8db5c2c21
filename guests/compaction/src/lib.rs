//! The built-in compaction policy, a guest of `dsh:policy/v1`.
//!
//! A request that was too long is made shorter and sent again: old tool results
//! are pruned, and what is still too much is summarised. The same is done ahead
//! of a request that would use too much of the model's window. What is to be
//! done it only says: the host prunes, asks for the summary and sends.
//!
//! It allocates nothing: it works on slices of the input.

#![no_std]

mod check;
mod config;
#[path = "../../rust/counts.rs"]
mod counts;
#[path = "../../rust/host.rs"]
mod host;
mod input;
#[path = "../../rust/json.rs"]
mod json;
#[path = "../../rust/number.rs"]
mod number;
mod policy;

use core::panic::PanicInfo;

/// What the host reads of this module without running it.
#[link_section = "dsh.policy"]
#[used]
static MANIFEST: [u8; 232] = *br#"{"abi":"dsh:policy/v1","name":"compaction","version":"1.0.0","description":"Makes a request that is too long shorter: prunes old tool results, then asks for a summary","capabilities":["surface.read","repair.prune","repair.compact"]}"#;

/// A model request failed: RecoverInput in, Decision out.
#[no_mangle]
pub extern "C" fn recover() -> i32 {
    host::answer(policy::recover)
}

/// A request is about to be built: StepInput in, StepAnswer out.
#[no_mangle]
pub extern "C" fn before_step() -> i32 {
    host::answer(policy::before_step)
}

/// The config that dsh.toml gives this policy: three numbers, none required.
#[no_mangle]
pub extern "C" fn check_config() -> i32 {
    host::answer(check::check)
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
