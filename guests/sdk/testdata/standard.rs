//! What the kit for Rust makes of the provider's settings: for the tests.

#[path = "../rust/mod.rs"]
mod sdk;

#[no_mangle]
pub extern "C" fn recover() -> i32 {
    sdk::recover(|input| input.standard())
}
