//! JSON as a value, read and written. It believes nothing of what it reads, and
//! bounds how deep values nest.

/// How deep values may nest.
const MAX_DEPTH: u32 = 64;

/// A value of JSON. Objects keep the order of their fields.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

static NULL: Json = Json::Null;

impl Json {
    /// Reads a text that is one value.
    pub fn parse(text: &str) -> Result<Json, &'static str> {
        let mut r = Reader { text, bytes: text.as_bytes(), at: 0 };
        let v = r.value(0)?;
        r.space();
        if r.at == r.bytes.len() {
            Ok(v)
        } else {
            Err("there is something behind the JSON")
        }
    }

    /// An object without fields, for `with`.
    pub fn object() -> Json {
        Json::Object(Vec::new())
    }

    /// Adds a field to an object.
    pub fn with(mut self, key: &str, value: impl Into<Json>) -> Json {
        if let Json::Object(fields) = &mut self {
            fields.push((key.to_string(), value.into()));
        }
        self
    }

    /// A field of an object; null where there is none.
    pub fn get(&self, key: &str) -> &Json {
        match self {
            Json::Object(fields) => fields.iter().find(|(k, _)| k == key).map_or(&NULL, |(_, v)| v),
            _ => &NULL,
        }
    }

    /// The fields of an object; none of anything else.
    pub fn fields(&self) -> &[(String, Json)] {
        match self {
            Json::Object(fields) => fields,
            _ => &[],
        }
    }

    /// The elements of a list; none of anything else.
    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(list) => list,
            _ => &[],
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Json::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// The number, or 0.
    pub fn num(&self) -> f64 {
        self.number().unwrap_or(0.0)
    }

    /// The text, or "".
    pub fn text(&self) -> &str {
        match self {
            Json::Text(s) => s,
            _ => "",
        }
    }

    /// Whether it is true.
    pub fn is_true(&self) -> bool {
        *self == Json::Bool(true)
    }

    /// The value as JSON. What is no number of JSON is written as null.
    pub fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Json::Number(n) if n.is_finite() => out.push_str(&n.to_string()),
            Json::Number(_) => out.push_str("null"),
            Json::Text(s) => quote(s, out),
            Json::List(list) => {
                out.push('[');
                for (i, v) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    v.write(out);
                }
                out.push(']');
            }
            Json::Object(fields) => {
                out.push('{');
                for (i, (k, v)) in fields.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    quote(k, out);
                    out.push(':');
                    v.write(out);
                }
                out.push('}');
            }
        }
    }
}

impl From<f64> for Json {
    fn from(n: f64) -> Json {
        Json::Number(n)
    }
}

impl From<&str> for Json {
    fn from(s: &str) -> Json {
        Json::Text(s.to_string())
    }
}

impl From<bool> for Json {
    fn from(b: bool) -> Json {
        Json::Bool(b)
    }
}

impl From<Vec<Json>> for Json {
    fn from(list: Vec<Json>) -> Json {
        Json::List(list)
    }
}

fn quote(s: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                out.push_str("\\u00");
                out.push(HEX[c as usize >> 4] as char);
                out.push(HEX[c as usize & 15] as char);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

const BROKEN: &str = "it is not valid JSON";

impl Reader<'_> {
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn accept(&mut self, b: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.at) == Some(&b);
        self.at += found as usize;
        found
    }

    fn value(&mut self, depth: u32) -> Result<Json, &'static str> {
        if depth > MAX_DEPTH {
            return Err("it is nested too deep");
        }
        self.space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(_) => self.word(),
            None => Err(BROKEN),
        }
    }

    fn object(&mut self, depth: u32) -> Result<Json, &'static str> {
        let mut fields = Vec::new();
        self.at += 1;
        if self.accept(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            self.space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(BROKEN);
            }
            let key = self.string()?;
            if !self.accept(b':') {
                return Err(BROKEN);
            }
            fields.push((key, self.value(depth + 1)?));
            if !self.accept(b',') {
                break;
            }
        }
        if self.accept(b'}') {
            Ok(Json::Object(fields))
        } else {
            Err(BROKEN)
        }
    }

    fn array(&mut self, depth: u32) -> Result<Json, &'static str> {
        let mut list = Vec::new();
        self.at += 1;
        if self.accept(b']') {
            return Ok(Json::List(list));
        }
        loop {
            list.push(self.value(depth + 1)?);
            if !self.accept(b',') {
                break;
            }
        }
        if self.accept(b']') {
            Ok(Json::List(list))
        } else {
            Err(BROKEN)
        }
    }

    fn string(&mut self) -> Result<String, &'static str> {
        self.at += 1;
        let mut s = String::new();
        loop {
            let start = self.at;
            while !matches!(self.bytes.get(self.at), Some(b'"' | b'\\' | 0..=0x1f) | None) {
                self.at += 1;
            }
            // Both ends are before an ASCII character, so that this cuts none.
            s.push_str(&self.text[start..self.at]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(s);
                }
                Some(b'\\') => {
                    self.at += 1;
                    s.push(self.escape()?);
                }
                _ => return Err(BROKEN),
            }
        }
    }

    fn escape(&mut self) -> Result<char, &'static str> {
        let e = *self.bytes.get(self.at).ok_or(BROKEN)?;
        self.at += 1;
        Ok(match e {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => e as char,
            b'u' => {
                let mut unit = self.unit()?;
                if (0xd800..0xdc00).contains(&unit) && self.bytes[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    let low = self.unit()?;
                    unit = 0x10000 + ((unit - 0xd800) << 10 | low.wrapping_sub(0xdc00) & 0x3ff);
                }
                char::from_u32(unit).unwrap_or('\u{fffd}')
            }
            _ => return Err(BROKEN),
        })
    }

    fn unit(&mut self) -> Result<u32, &'static str> {
        let mut v = 0;
        for _ in 0..4 {
            let h = *self.bytes.get(self.at).ok_or(BROKEN)?;
            self.at += 1;
            v = v << 4 | (h as char).to_digit(16).ok_or(BROKEN)?;
        }
        Ok(v)
    }

    fn word(&mut self) -> Result<Json, &'static str> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'a'..=b'z' | b'E' | b'+' | b'-' | b'.') = self.bytes.get(self.at) {
            self.at += 1;
        }
        match &self.text[start..self.at] {
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            "null" => Ok(Json::Null),
            w if w.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => w.parse().map(Json::Number).map_err(|_| BROKEN),
            _ => Err(BROKEN),
        }
    }
}
