// JSON as a value, read and written. It believes nothing of what it reads, and
// bounds how deep values nest.

export enum Kind { Null, Bool, Number, Text, List, Object }

/** A value of JSON. Objects keep the order of their fields. */
export class Json {
  kind: Kind = Kind.Null;
  private n: f64 = 0;
  private s: string = "";
  private keys: string[] = [];
  private values: Json[] = [];

  static none(): Json { return new Json(); }
  static object(): Json { const v = new Json(); v.kind = Kind.Object; return v; }
  static list(): Json { const v = new Json(); v.kind = Kind.List; return v; }
  static of(n: f64): Json { const v = new Json(); v.kind = Kind.Number; v.n = n; return v; }
  static string(s: string): Json { const v = new Json(); v.kind = Kind.Text; v.s = s; return v; }
  static bool(b: bool): Json { const v = new Json(); v.kind = Kind.Bool; v.n = b ? 1 : 0; return v; }

  /** Reads a text that is one value; null: it is none. */
  static parse(text: string): Json | null {
    const r = new Reader(text);
    const v = r.value(0);
    r.space();
    return r.broken || r.at != text.length ? null : v;
  }

  isNull(): bool { return this.kind == Kind.Null; }
  isNumber(): bool { return this.kind == Kind.Number; }
  isTrue(): bool { return this.kind == Kind.Bool && this.n != 0; }

  /** The number, or otherwise. */
  number(otherwise: f64 = 0): f64 { return this.kind == Kind.Number ? this.n : otherwise; }

  /** The text, or "". */
  text(): string { return this.s; }

  /** A field of an object; null where there is none. */
  get(key: string): Json {
    const i = this.keys.indexOf(key);
    return i < 0 ? Json.none() : this.values[i];
  }

  /** The names of an object's fields. */
  fields(): string[] { return this.keys; }

  /** The elements of a list; none of anything else. */
  items(): Json[] { return this.kind == Kind.List ? this.values : []; }

  /** Sets a field of an object. */
  set(key: string, value: Json): Json {
    const i = this.keys.indexOf(key);
    if (i >= 0) {
      this.values[i] = value;
    } else {
      this.keys.push(key);
      this.values.push(value);
    }
    return this;
  }

  /** Adds an element to a list. */
  push(value: Json): Json { this.values.push(value); return this; }

  /** The value as JSON. What is no number of JSON is written as null. */
  write(): string {
    switch (this.kind) {
      case Kind.Bool: return this.n != 0 ? "true" : "false";
      case Kind.Number: return digits(this.n);
      case Kind.Text: return quote(this.s);
      case Kind.List: {
        const parts: string[] = [];
        for (let i = 0; i < this.values.length; i++) parts.push(this.values[i].write());
        return "[" + parts.join(",") + "]";
      }
      case Kind.Object: {
        const parts: string[] = [];
        for (let i = 0; i < this.keys.length; i++) parts.push(quote(this.keys[i]) + ":" + this.values[i].write());
        return "{" + parts.join(",") + "}";
      }
      default: return "null";
    }
  }
}

/** A number as JSON has it, whole ones without a point. */
export function digits(n: f64): string {
  if (!isFinite(n)) return "null";
  if (n == Math.floor(n) && Math.abs(n) < 9e15) return (n as i64).toString();
  return n.toString();
}

function quote(s: string): string {
  let out = '"';
  let from = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c != 0x22 && c != 0x5c && c >= 0x20) continue;
    out += s.substring(from, i);
    from = i + 1;
    if (c >= 0x20) out += "\\" + s.charAt(i);
    else out += (c < 16 ? "\\u000" : "\\u00") + c.toString(16);
  }
  return out + s.substring(from) + '"';
}

class Reader {
  at: i32 = 0;
  broken: bool = false;

  constructor(private text: string) {}

  private peek(): i32 { return this.at < this.text.length ? this.text.charCodeAt(this.at) : -1; }

  space(): void {
    for (let c = this.peek(); c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09; c = this.peek()) this.at++;
  }

  private accept(c: i32): bool {
    this.space();
    if (this.peek() != c) return false;
    this.at++;
    return true;
  }

  private fail(): Json {
    this.broken = true;
    this.at = this.text.length;
    return Json.none();
  }

  value(depth: i32): Json {
    if (depth > 64) return this.fail();
    this.space();
    switch (this.peek()) {
      case 0x7b: return this.object(depth);
      case 0x5b: return this.array(depth);
      case 0x22: return Json.string(this.string());
      default: return this.word();
    }
  }

  private object(depth: i32): Json {
    const o = Json.object();
    this.at++;
    if (this.accept(0x7d)) return o;
    do {
      this.space();
      if (this.peek() != 0x22) return this.fail();
      const key = this.string();
      if (!this.accept(0x3a)) return this.fail();
      o.set(key, this.value(depth + 1));
    } while (this.accept(0x2c));
    return this.accept(0x7d) ? o : this.fail();
  }

  private array(depth: i32): Json {
    const list = Json.list();
    this.at++;
    if (this.accept(0x5d)) return list;
    do {
      list.push(this.value(depth + 1));
    } while (this.accept(0x2c));
    return this.accept(0x5d) ? list : this.fail();
  }

  private string(): string {
    let s = "";
    let from = ++this.at;
    let c = this.peek();
    for (; c != 0x22 && c >= 0x20; c = this.peek()) { // the end is -1
      if (c == 0x5c) {
        s += this.text.substring(from, this.at++);
        s += this.escape();
        from = this.at;
      } else {
        this.at++;
      }
    }
    if (c != 0x22) {
      this.fail();
      return "";
    }
    return s + this.text.substring(from, this.at++);
  }

  private escape(): string {
    const c = this.peek();
    this.at++;
    switch (c) {
      case 0x6e: return "\n";
      case 0x74: return "\t";
      case 0x72: return "\r";
      case 0x62: return "\b";
      case 0x66: return "\f";
      case 0x22: case 0x5c: case 0x2f: return String.fromCharCode(c);
      case 0x75: {
        const unit = this.at + 4 <= this.text.length ? parseInt(this.text.substr(this.at, 4), 16) : NaN;
        if (isFinite(unit)) {
          this.at += 4;
          return String.fromCharCode(unit as i32);
        }
        break;
      }
    }
    this.fail();
    return "";
  }

  private word(): Json {
    const from = this.at;
    for (let c = this.peek(); c == 0x2b || c == 0x2d || c == 0x2e || c == 0x45 || (c >= 0x30 && c <= 0x39) || (c >= 0x61 && c <= 0x7a); c = this.peek()) this.at++;
    const w = this.text.substring(from, this.at);
    if (w == "true") return Json.bool(true);
    if (w == "false") return Json.bool(false);
    if (w == "null") return Json.none();
    const n = w.length > 0 ? parseFloat(w) : NaN;
    return isFinite(n) ? Json.of(n) : this.fail();
  }
}
