// Bytes in and out through Extism's kernel. A block of its memory is named by an
// offset and read or written by these functions: it is not the module's own.

// @ts-ignore: decorator
@external("extism:host/env", "input_length") declare function inputLength(): u64;
// @ts-ignore: decorator
@external("extism:host/env", "input_load_u8") declare function inputLoadU8(at: u64): u32;
// @ts-ignore: decorator
@external("extism:host/env", "input_load_u64") declare function inputLoadU64(at: u64): u64;
// @ts-ignore: decorator
@external("extism:host/env", "alloc") declare function alloc(size: u64): u64;
// @ts-ignore: decorator
@external("extism:host/env", "length") declare function length(at: u64): u64;
// @ts-ignore: decorator
@external("extism:host/env", "load_u8") declare function loadU8(at: u64): u32;
// @ts-ignore: decorator
@external("extism:host/env", "load_u64") declare function loadU64(at: u64): u64;
// @ts-ignore: decorator
@external("extism:host/env", "store_u8") declare function storeU8(at: u64, v: u32): void;
// @ts-ignore: decorator
@external("extism:host/env", "store_u64") declare function storeU64(at: u64, v: u64): void;
// @ts-ignore: decorator
@external("extism:host/env", "output_set") declare function outputSet(at: u64, size: u64): void;
// @ts-ignore: decorator
@external("extism:host/env", "error_set") declare function errorSet(at: u64): void;
// @ts-ignore: decorator
@external("extism:host/env", "log_info") declare function logInfo(at: u64): void;

/** Reads the whole input. */
export function input(): string {
  const size = inputLength() as i32;
  const b = new ArrayBuffer(size);
  const to = changetype<usize>(b);
  const whole = size & ~7;
  for (let i = 0; i < whole; i += 8) store<u64>(to + i, inputLoadU64(i));
  for (let i = whole; i < size; i++) store<u8>(to + i, inputLoadU8(i) as u8);
  return String.UTF8.decode(b);
}

/** Reads a block of the kernel's memory. */
export function block(at: u64): string {
  const size = length(at) as i32;
  const b = new ArrayBuffer(size);
  const to = changetype<usize>(b);
  const whole = size & ~7;
  for (let i = 0; i < whole; i += 8) store<u64>(to + i, loadU64(at + i));
  for (let i = whole; i < size; i++) store<u8>(to + i, loadU8(at + i) as u8);
  return String.UTF8.decode(b);
}

/** Copies a text into a new block. */
export function keep(text: string): u64 {
  const b = String.UTF8.encode(text);
  const from = changetype<usize>(b);
  const size = b.byteLength;
  const at = alloc(size);
  const whole = size & ~7;
  for (let i = 0; i < whole; i += 8) storeU64(at + i, load<u64>(from + i));
  for (let i = whole; i < size; i++) storeU8(at + i, load<u8>(from + i));
  return at;
}

export function output(text: string): i32 {
  const at = keep(text);
  outputSet(at, length(at));
  return 0;
}

export function fail(message: string): i32 {
  errorSet(keep(message));
  return 1;
}

/** Writes a line for people. It shows with dsh --verbose. */
export function log(text: string): void { logInfo(keep(text)); }

/** Takes the place of AssemblyScript's abort, which a guest cannot import. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  let text = message === null ? "aborted" : message;
  if (file !== null) text += " (" + file + ":" + line.toString() + ")";
  errorSet(keep(text));
  unreachable();
}
