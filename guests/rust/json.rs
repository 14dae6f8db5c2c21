//! A small reader of JSON over a slice. It reads in place, bounds the nesting,
//! and believes nothing: what is not JSON is an error.

use crate::number;

/// How deep values may nest.
const MAX_DEPTH: u32 = 64;

pub const BROKEN: &str = "the input is not valid JSON";

pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

/// A string as it stands in the JSON, without its quotes, escapes and all.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub raw: &'a [u8],
    escaped: bool, // there is a backslash in it
}

pub type Result<T> = core::result::Result<T, &'static str>;

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, at: 0, depth: 0 }
    }

    /// Another reader at the same place.
    pub fn again(&self) -> Self {
        Reader { bytes: self.bytes, at: self.at, depth: self.depth }
    }

    /// The next byte that is not white space, without taking it.
    pub fn peek(&mut self) -> Result<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(&b) => return Ok(b),
                None => return Err(BROKEN),
            }
        }
    }

    fn take(&mut self, want: u8) -> Result<()> {
        if self.peek()? != want {
            return Err(BROKEN);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes `b` if it comes next.
    fn accept(&mut self, b: u8) -> Result<bool> {
        let found = self.peek()? == b;
        self.at += found as usize;
        Ok(found)
    }

    fn enter(&mut self, open: u8) -> Result<()> {
        self.take(open)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the input is nested too deep");
        }
        Ok(())
    }

    /// Reads an object. `f` gets each key and reads or skips its value. A field
    /// that is null is as one that is not there.
    pub fn object(&mut self, f: &mut dyn FnMut(&mut Self, Text<'a>) -> Result<()>) -> Result<()> {
        self.enter(b'{')?;
        if !self.accept(b'}')? {
            loop {
                let key = self.string()?;
                self.take(b':')?;
                if self.peek()? == b'n' {
                    self.skip()?;
                } else {
                    f(self, key)?;
                }
                if !self.accept(b',')? {
                    break;
                }
            }
            self.take(b'}')?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads an array. `f` reads or skips each element.
    pub fn array(&mut self, f: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.enter(b'[')?;
        if !self.accept(b']')? {
            loop {
                f(self)?;
                if !self.accept(b',')? {
                    break;
                }
            }
            self.take(b']')?;
        }
        self.depth -= 1;
        Ok(())
    }

    pub fn string(&mut self) -> Result<Text<'a>> {
        self.take(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain(self.bytes.get(self.at..).ok_or(BROKEN)?);
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 2;
                }
                Some(0..=0x1f) | None => return Err(BROKEN),
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        let raw = self.bytes.get(start..self.at - 1).ok_or(BROKEN)?;
        Ok(Text { raw, escaped })
    }

    /// The bytes of a number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = self.bytes.get(self.at) {
            self.at += 1;
        }
        if start == self.at {
            return Err(BROKEN);
        }
        Ok(&self.bytes[start..self.at])
    }

    pub fn number(&mut self) -> Result<f64> {
        number::read(self.word()?).ok_or("a number is expected where the input has none")
    }

    /// Reads `true` or `false`.
    #[allow(dead_code)] // not every policy has one to read
    pub fn boolean(&mut self) -> Result<bool> {
        match self.word()? {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err("true or false is expected where the input has neither"),
        }
    }

    /// Passes over a value of any type.
    pub fn skip(&mut self) -> Result<()> {
        match self.peek()? {
            b'{' => self.object(&mut |r, _| r.skip()),
            b'[' => self.array(&mut |r| r.skip()),
            b'"' => self.string().map(|_| ()),
            _ => match self.word()? {
                b"true" | b"false" | b"null" => Ok(()),
                w => number::read(w).map(|_| ()).ok_or(BROKEN),
            },
        }
    }

    /// Whether nothing but white space is left.
    pub fn end(&mut self) -> Result<()> {
        match self.peek() {
            Err(_) => Ok(()),
            Ok(_) => Err(BROKEN),
        }
    }
}

impl<'a> Text<'a> {
    /// The string of no characters.
    pub const EMPTY: Text<'static> = Text::plain("");

    /// A string that has no escapes.
    pub const fn plain(s: &'a str) -> Self {
        Text { raw: s.as_bytes(), escaped: false }
    }

    pub fn is(self, s: &str) -> bool {
        self.equals(Text::plain(s))
    }

    /// Whether two strings are the same, however they are escaped.
    pub fn equals(self, other: Text) -> bool {
        if !self.escaped && !other.escaped {
            return self.raw == other.raw;
        }
        let (mut a, mut b) = (Units { rest: self.raw, low: 0 }, Units { rest: other.raw, low: 0 });
        loop {
            match (a.next(), b.next()) {
                (None, None) => return true,
                (x, y) if x != y => return false,
                _ => {}
            }
        }
    }
}

/// How many bytes, at the least, stand before a quote, a backslash or a
/// control character. It looks at eight at a time, since every turn of a loop
/// costs: the host looks at the clock there.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The high bit of the lowest zero byte is set for sure, and so is none
    // where there is no zero byte.
    fn zero(v: u64) -> u64 {
        v.wrapping_sub(ONES) & !v & HIGH
    }
    let mut n = 0;
    for chunk in bytes.chunks_exact(8) {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        let v = u64::from_le_bytes(word);
        let controls = v.wrapping_sub(ONES * 0x20) & !v & HIGH;
        let stops = zero(v ^ ONES * b'"' as u64) | zero(v ^ ONES * b'\\' as u64) | controls;
        if stops != 0 {
            return n + stops.trailing_zeros() as usize / 8;
        }
        n += 8;
    }
    n
}

/// The UTF-16 code units of a string, which is what `\u` escapes count in.
struct Units<'a> {
    rest: &'a [u8],
    low: u32, // the second half of a pair, if it is still to come
}

impl Units<'_> {
    fn next(&mut self) -> Option<u32> {
        if self.low != 0 {
            return Some(core::mem::take(&mut self.low));
        }
        let (&b, rest) = self.rest.split_first()?;
        self.rest = rest;
        if b != b'\\' {
            return Some(self.scalar(b));
        }
        let (&e, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(match e {
            b'n' => 10,
            b't' => 9,
            b'r' => 13,
            b'b' => 8,
            b'f' => 12,
            b'u' => {
                let mut v = 0;
                for _ in 0..4 {
                    let (&h, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    v = v << 4 | (h as char).to_digit(16)?;
                }
                v
            }
            other => other as u32,
        })
    }

    /// One character of UTF-8 that begins with `first`, as one or two units.
    fn scalar(&mut self, first: u8) -> u32 {
        let (more, mut v) = match first {
            0..=0x7f => (0, first as u32),
            0x80..=0xdf => (1, first as u32 & 0x1f),
            0xe0..=0xef => (2, first as u32 & 0x0f),
            _ => (3, first as u32 & 0x07),
        };
        for _ in 0..more {
            if let Some((&b, rest)) = self.rest.split_first() {
                self.rest = rest;
                v = v << 6 | (b as u32 & 0x3f);
            }
        }
        if v < 0x10000 {
            return v;
        }
        v -= 0x10000;
        self.low = 0xdc00 | (v & 0x3ff);
        0xd800 | (v >> 10)
    }
}
