// A policy in C without a library: retries what has failed with a status of 429
// or of 500 and above, after 100 ms, and twice as long each further attempt.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL(name) __attribute__((import_module("extism:host/env"), import_name(#name)))
KERNEL(input_length) u64 input_length(void);
KERNEL(input_load_u8) u32 input_load_u8(u64 at);
KERNEL(alloc) u64 alloc(u64 size);
KERNEL(store_u8) void store_u8(u64 at, u32 value);
KERNEL(output_set) void output_set(u64 at, u64 size);

static u8 input[256 * 1024];
static u32 length;
static u8 output[256];
static u32 written;

// The number behind the first key of this name, or 0.
static u32 number(const char *key) {
  for (u32 at = 0; at < length; at++) {
    u32 i = 0;
    while (key[i] && at + i < length && input[at + i] == (u8)key[i]) i++;
    if (key[i]) continue;
    u32 n = 0;
    for (at += i; at < length && input[at] >= '0' && input[at] <= '9'; at++) n = n * 10 + (input[at] - '0');
    return n;
  }
  return 0;
}

static void text(const char *s) {
  while (*s) output[written++] = *s++;
}

static void digits(u32 n) {
  if (n >= 10) digits(n / 10);
  output[written++] = '0' + n % 10;
}

__attribute__((export_name("recover"))) int recover(void) {
  u64 all = input_length();
  length = all < sizeof input ? (u32)all : sizeof input;
  for (u32 i = 0; i < length; i++) input[i] = (u8)input_load_u8(i);
  u32 status = number("\"status\":"), attempt = number("\"attempt\":");
  written = 0;
  if (status == 429 || status >= 500) {
    u32 doublings = attempt > 1 ? attempt - 1 : 0;
    text("{\"kind\":\"retry\",\"delayMs\":");
    digits(100u << (doublings < 10 ? doublings : 10));
    text(",\"maxRetries\":8}");
  } else {
    text("{\"kind\":\"delegate\",\"reason\":\"status ");
    digits(status);
    text("\"}");
  }
  u64 block = alloc(written);
  for (u32 i = 0; i < written; i++) store_u8(block + i, output[i]);
  output_set(block, written);
  return 0;
}
