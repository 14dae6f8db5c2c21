//! Numbers of JSON: exact to read, and short to write.
//!
//! Rust's own conversions are 45 KB of the module; these are a tenth of that.
//! A decimal of up to 18 digits reads as the double nearest to it (ties to
//! even), and what `write` writes reads as the same double again.

use crate::host::Output;

/// The powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// How many digits are read exactly. More of them count as "a bit more".
const DIGITS: u32 = 18;

/// Reads a number in JSON's grammar; `None` where it is none.
pub fn read(word: &[u8]) -> Option<f64> {
    let mut rest = word;
    let negative = accept(&mut rest, b'-');
    let (mut m, mut e, mut n, mut more) = (0u64, 0i32, 0u32, false);
    let mut digit = |d: u8, e: &mut i32, fraction: bool| {
        if n < DIGITS {
            m = m * 10 + (d - b'0') as u64;
            n += (m != 0) as u32;
            *e -= fraction as i32;
        } else {
            more |= d != b'0';
            *e += !fraction as i32;
        }
    };
    let first = next_digit(&mut rest)?;
    digit(first, &mut e, false);
    if first != b'0' {
        while let Some(d) = next_digit(&mut rest) {
            digit(d, &mut e, false);
        }
    }
    if accept(&mut rest, b'.') {
        digit(next_digit(&mut rest)?, &mut e, true);
        while let Some(d) = next_digit(&mut rest) {
            digit(d, &mut e, true);
        }
    }
    if accept(&mut rest, b'e') || accept(&mut rest, b'E') {
        e += exponent(&mut rest)?;
    }
    if !rest.is_empty() {
        return None;
    }
    if more {
        m = m * 10 + 1;
        e -= 1;
    }
    let v = scale(m, e);
    Some(if negative { -v } else { v })
}

fn exponent(rest: &mut &[u8]) -> Option<i32> {
    let negative = accept(rest, b'-') || {
        accept(rest, b'+');
        false
    };
    let mut v = (next_digit(rest)? - b'0') as i32;
    while let Some(d) = next_digit(rest) {
        // Far beyond every double, and far from an overflow.
        v = (v * 10 + (d - b'0') as i32).min(100_000);
    }
    Some(if negative { -v } else { v })
}

fn accept(rest: &mut &[u8], want: u8) -> bool {
    match rest.split_first() {
        Some((&b, tail)) if b == want => {
            *rest = tail;
            true
        }
        _ => false,
    }
}

fn next_digit(rest: &mut &[u8]) -> Option<u8> {
    match rest.split_first() {
        Some((&b, tail)) if b.is_ascii_digit() => {
            *rest = tail;
            Some(b)
        }
        _ => None,
    }
}

/// The double nearest to m·10^e.
fn scale(m: u64, e: i32) -> f64 {
    if m == 0 || e < -400 {
        return 0.0;
    }
    if e > 400 {
        return f64::INFINITY;
    }
    let power = POWERS.get(e.unsigned_abs() as usize);
    if let (true, Some(&p)) = (m < 1 << 53, power) {
        // Both are exact, so that the one operation rounds right.
        return if e < 0 { m as f64 / p } else { m as f64 * p };
    }
    if (-19..0).contains(&e) {
        let d = pow10(e.unsigned_abs()) as u128;
        let zeros = m.leading_zeros();
        let n = ((m << zeros) as u128) << 64;
        return round(n / d, n % d != 0, -64 - zeros as i32);
    }
    let mut big = Big::from(m);
    if e >= 0 {
        big.times_pow10(e as u32);
        let bits = big.bits();
        let shift = bits.saturating_sub(128);
        let sticky = big.shift_right(shift);
        return round(big.low(), sticky, shift as i32);
    }
    let mut divisor = Big::from(1);
    divisor.times_pow10(e.unsigned_abs());
    // 10^20 and up has more bits than m, which is brought to as many.
    let shift = divisor.bits() - big.bits();
    big.shift_left(shift);
    let (q, sticky) = big.divide(&divisor);
    round(q, sticky, -(shift as i32) - QUOTIENT_BITS + 1)
}

fn pow10(n: u32) -> u64 {
    let mut v = 1;
    for _ in 0..n {
        v *= 10;
    }
    v
}

/// The double nearest to q·2^e, where `sticky` says that there is a bit more.
fn round(q: u128, sticky: bool, e: i32) -> f64 {
    if q == 0 {
        return 0.0;
    }
    let zeros = q.leading_zeros();
    let q = q << zeros;
    let top = e + 127 - zeros as i32; // the exponent of the first bit
    if top > 1023 {
        return f64::INFINITY;
    }
    let keep = if top < -1022 { 53 + 1022 + top } else { 53 };
    if keep < 0 {
        return 0.0;
    }
    let mut mantissa = if keep == 0 { 0 } else { (q >> (128 - keep as u32)) as u64 };
    let rest = q << keep as u32;
    let half = 1u128 << 127;
    if rest > half || rest == half && (sticky || mantissa & 1 == 1) {
        mantissa += 1;
    }
    mantissa as f64 * pow2(top + 1 - keep)
}

fn pow2(e: i32) -> f64 {
    if e < -1022 {
        return f64::from_bits(1 << (e + 1074));
    }
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// Writes a number that is not negative and below 2^64, so that it reads as
/// the same double again. What is larger is written as the largest integer.
pub fn write(out: &mut Output, v: f64) {
    if v >= 9007199254740992.0 || v == (v as u64) as f64 {
        return write_integer(out, v as u64, 1);
    }
    let bits = v.to_bits();
    let (field, fraction) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
    let (mantissa, e) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    let k = magnitude(v, mantissa, e);
    for digits in 15..=17 {
        // So many digits behind the point make so many in all.
        let decimals = (digits - 1 - k).max(0);
        let q = decimal(mantissa, e.unsigned_abs(), decimals as u32);
        if digits == 17 || scale(q, -decimals) == v {
            return write_decimal(out, q, decimals as u32);
        }
    }
}

/// The k for which 10^k ≤ v < 10^(k+1), for a v that is not 0. It may be one
/// too low where v is below 10^-22.
fn magnitude(v: f64, mantissa: u64, e: i32) -> i32 {
    let mut k = 0;
    while POWERS.get(k + 1).map_or(false, |&p| v >= p) {
        k += 1;
    }
    let mut k = k as i32;
    while v < scale(1, k) {
        k -= 1;
        if k < -22 {
            // 315653/2^20 is a bit less than the logarithm of 2 to the base 10.
            let bits = e + 64 - mantissa.leading_zeros() as i32;
            return (bits - 1) * 315_653 >> 20;
        }
    }
    k
}

/// mantissa·2^-s·10^decimals, to the nearest integer.
fn decimal(mantissa: u64, s: u32, decimals: u32) -> u64 {
    let mut big = Big::from(mantissa);
    if decimals <= 22 && s < 128 {
        // At most 53 and 74 bits.
        let mut v = mantissa as u128;
        v *= pow10(decimals.min(11)) as u128;
        v *= pow10(decimals - decimals.min(11)) as u128;
        return ((v >> (s - 1)) as u64 + 1) >> 1;
    }
    big.times_pow10(decimals);
    big.shift_right(s - 1);
    (big.low() as u64 + 1) >> 1
}

fn write_decimal(out: &mut Output, mut q: u64, mut decimals: u32) {
    while decimals > 0 && q % 10 == 0 {
        q /= 10;
        decimals -= 1;
    }
    if decimals > 19 {
        write_integer(out, q, 1);
        out.raw(b"e-");
        return write_integer(out, decimals as u64, 1);
    }
    let unit = pow10(decimals);
    write_integer(out, q / unit, 1);
    if decimals > 0 {
        out.raw(b".");
        write_integer(out, q % unit, decimals as usize);
    }
}

/// Writes an integer with at least so many digits.
fn write_integer(out: &mut Output, mut v: u64, width: usize) {
    let mut buffer = [b'0'; 20];
    let mut n = 0;
    for place in buffer.iter_mut().rev() {
        if v == 0 && n >= width {
            break;
        }
        *place = b'0' + (v % 10) as u8;
        v /= 10;
        n += 1;
    }
    for &b in buffer.iter().skip(20 - n) {
        out.raw(&[b]);
    }
}

/// The words of a Big. 10^400 times a word, and its division, need 1,460 bits.
const WORDS: usize = 48;

/// The bits of a quotient: more than a double has, and one for the rounding.
const QUOTIENT_BITS: i32 = 66;

/// An integer of up to 1,536 bits, the low word first. It is for the numbers
/// that 128 bits do not reach, which no provider sends.
struct Big([u32; WORDS]);

impl Big {
    fn from(v: u64) -> Big {
        let mut words = [0; WORDS];
        words[0] = v as u32;
        words[1] = (v >> 32) as u32;
        Big(words)
    }

    fn times(&mut self, by: u32) {
        let mut carry = 0;
        for w in self.0.iter_mut() {
            carry += *w as u64 * by as u64;
            *w = carry as u32;
            carry >>= 32;
        }
    }

    fn times_pow10(&mut self, mut n: u32) {
        while n >= 9 {
            self.times(1_000_000_000);
            n -= 9;
        }
        self.times(pow10(n) as u32);
    }

    fn bits(&self) -> u32 {
        let mut n = 32 * WORDS as u32;
        for w in self.0.iter().rev() {
            if *w != 0 {
                return n - w.leading_zeros();
            }
            n -= 32;
        }
        0
    }

    fn shift_left(&mut self, n: u32) {
        let words = (n / 32) as usize;
        if words < WORDS {
            self.0.copy_within(0..WORDS - words, words);
        }
        for w in self.0.iter_mut().take(words) {
            *w = 0;
        }
        self.times(1 << (n % 32));
    }

    /// Whether a bit that is not 0 was lost.
    fn shift_right(&mut self, n: u32) -> bool {
        let words = ((n / 32) as usize).min(WORDS);
        let mut lost = false;
        for w in self.0.iter().take(words) {
            lost |= *w != 0;
        }
        self.0.copy_within(words.., 0);
        for w in self.0.iter_mut().skip(WORDS - words) {
            *w = 0;
        }
        let mut above = 0;
        for w in self.0.iter_mut().rev() {
            let v = above | *w as u64;
            above = v << 32;
            *w = (v >> (n % 32)) as u32;
        }
        let lowest = above >> 32; // the last word, as it was
        lost | (lowest & ((1 << (n % 32)) - 1) != 0)
    }

    fn low(&self) -> u128 {
        let mut v = 0;
        for w in self.0.iter().take(4).rev() {
            v = v << 32 | *w as u128;
        }
        v
    }

    fn at_least(&self, other: &Big) -> bool {
        for (a, b) in self.0.iter().zip(other.0.iter()).rev() {
            if a != b {
                return a > b;
            }
        }
        true
    }

    fn subtract(&mut self, other: &Big) {
        let mut borrow = 0;
        for (a, b) in self.0.iter_mut().zip(other.0.iter()) {
            let v = *a as i64 - *b as i64 + borrow;
            *a = v as u32;
            borrow = v >> 32;
        }
    }

    /// self/by·2^(QUOTIENT_BITS-1), rounded down, and whether there is a
    /// remainder. Both have the same number of bits.
    fn divide(mut self, by: &Big) -> (u128, bool) {
        let mut q = 0;
        for _ in 0..QUOTIENT_BITS {
            q <<= 1;
            if self.at_least(by) {
                self.subtract(by);
                q |= 1;
            }
            self.times(2);
        }
        (q, self.bits() != 0)
    }
}
