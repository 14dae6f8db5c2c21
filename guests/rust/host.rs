//! Bytes in and out, through Extism's kernel.

use crate::number;
use core::slice;

#[link(wasm_import_module = "extism:host/env")]
extern "C" {
    fn input_length() -> u64;
    fn input_load_u8(at: u64) -> u32;
    fn input_load_u64(at: u64) -> u64;
    fn alloc(size: u64) -> u64;
    fn store_u64(at: u64, value: u64);
    fn output_set(at: u64, size: u64);
    fn error_set(at: u64);
}

/// The most that an input may have; the host's own limit is no higher.
const MAX_INPUT: usize = 256 * 1024;

/// The most that an output may have: a decision, with the policy key in it,
/// which is a part of the input.
const MAX_OUTPUT: usize = 32 * 1024;

const PAGE: usize = 64 * 1024;

/// Runs `f` over the input and gives its output, or its error, to the host.
/// The result is what the export returns.
pub fn answer(f: fn(&[u8], &mut Output) -> Result<(), &'static str>) -> i32 {
    let result: Result<(), &'static str> = match memory() {
        Some((input, mut out)) => match f(input, &mut out) {
            Ok(()) if out.cut => Err("the output is too long"),
            Ok(()) => unsafe {
                output_set(send(&mut out), out.len as u64);
                return 0;
            },
            Err(e) => Err(e),
        },
        None => Err("the input is too long"),
    };
    let mut buffer = [0; 256];
    let mut out = Output { buffer: &mut buffer, len: 0, cut: false };
    if let Err(e) = result {
        out.raw(e.as_bytes());
    }
    // The kernel's idea of the message's length is that of the allocation.
    unsafe { error_set(send(&mut out)) };
    1
}

/// The pages that were taken: the first, and how many.
static mut TAKEN: (usize, usize) = (0, 0);

/// Makes sure of so many pages behind the module's own, and returns the first.
fn take(pages: usize) -> Option<usize> {
    unsafe {
        if TAKEN.1 < pages {
            // What was taken before is left: a later call is rare, and a larger
            // one rarer.
            let first = core::arch::wasm32::memory_grow(0, pages);
            if first == usize::MAX {
                return None;
            }
            TAKEN = (first, pages);
        }
        Some(TAKEN.0)
    }
}

/// Takes pages for the input and the output, and reads the input.
fn memory() -> Option<(&'static [u8], Output<'static>)> {
    let length = unsafe { input_length() };
    if length > MAX_INPUT as u64 {
        return None;
    }
    let length = length as usize;
    let pages = (length + MAX_OUTPUT + PAGE - 1) / PAGE;
    let base = (take(pages)? * PAGE) as *mut u8;
    unsafe {
        let whole = length / 8 * 8;
        for at in (0..whole).step_by(8) {
            (base.add(at) as *mut u64).write(input_load_u64(at as u64));
        }
        for at in whole..length {
            base.add(at).write(input_load_u8(at as u64) as u8);
        }
        let input = slice::from_raw_parts(base, length);
        // The output begins at a multiple of 8 behind the input, for send.
        let start = (length + 7) / 8 * 8;
        let buffer = slice::from_raw_parts_mut(base.add(start), pages * PAGE - start);
        Some((input, Output { buffer, len: 0, cut: false }))
    }
}

/// Copies an output into the kernel's memory, eight bytes at a time, and
/// returns where it is. It is padded with spaces, which JSON does not mind.
unsafe fn send(out: &mut Output) -> u64 {
    while out.len % 8 != 0 {
        out.put(b' ');
    }
    let at = alloc(out.len as u64);
    for i in (0..out.len).step_by(8) {
        let mut word = [0; 8];
        word.copy_from_slice(&out.buffer[i..i + 8]);
        store_u64(at + i as u64, u64::from_le_bytes(word));
    }
    at
}

/// What the guest answers, as it is written. What does not fit sets `cut`.
pub struct Output<'a> {
    buffer: &'a mut [u8],
    len: usize,
    cut: bool,
}

impl Output<'_> {
    fn put(&mut self, b: u8) {
        match self.buffer.get_mut(self.len) {
            Some(place) => {
                *place = b;
                self.len += 1;
            }
            None => self.cut = true,
        }
    }

    /// Writes bytes that are JSON already.
    pub fn raw(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.put(b);
        }
    }

    /// Writes a number that is not negative.
    pub fn number(&mut self, v: f64) {
        number::write(self, v);
    }
}
