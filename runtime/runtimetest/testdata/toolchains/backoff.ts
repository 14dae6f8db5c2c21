// The policy of backoff.c in AssemblyScript, with Extism's PDK.
import { Host } from "@extism/as-pdk";

function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}

function number(input: string, key: string): i32 {
  const at = input.indexOf(key);
  return at < 0 ? 0 : i32(parseInt(input.substr(at + key.length, 9)));
}

export function recover(): i32 {
  const input = Host.inputString();
  const status = number(input, '"status":');
  const attempt = number(input, '"attempt":');
  if (status == 429 || status >= 500) {
    const delay = 100 << min(10, max(0, attempt - 1));
    Host.outputString(`{"kind":"retry","delayMs":${delay},"maxRetries":8}`);
  } else {
    Host.outputString(`{"kind":"delegate","reason":"status ${status}"}`);
  }
  return 0;
}
