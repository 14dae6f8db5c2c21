/* A policy without any kit: what the ABI asks for, and nothing else. It retries
 * a rate limit after a second, and leaves everything else to the next policy.
 *
 *   clang-14 --target=wasm32 -Oz -nostdlib -Wl,--no-entry -Wl,--strip-all -o plain.wasm plain.c
 */
typedef unsigned long long u64;
typedef unsigned int u32;

/* Bytes go in and out through Extism's kernel, whose memory is not ours. */
#define KERNEL(name) __attribute__((import_module("extism:host/env"), import_name(#name)))
KERNEL(input_length) extern u64 input_length(void);
KERNEL(input_load_u8) extern u32 input_load_u8(u64 at);
KERNEL(alloc) extern u64 alloc(u64 size);
KERNEL(store_u8) extern void store_u8(u64 at, u32 byte);
KERNEL(output_set) extern void output_set(u64 at, u64 size);

/* What the module says of itself: a custom section that is read without running
 * anything. */
__asm__(".section .custom_section.dsh.policy,\"\",@\n"
        ".ascii \"{\\\"abi\\\":\\\"dsh:policy/v1\\\",\\\"name\\\":\\\"plain\\\",\\\"version\\\":\\\"1.0.0\\\",\\\"capabilities\\\":[]}\"\n"
        ".text\n");

static int answer(const char *text) {
    u64 size = 0;
    while (text[size])
        size++;
    u64 at = alloc(size);
    for (u64 i = 0; i < size; i++)
        store_u8(at + i, (unsigned char)text[i]);
    output_set(at, size);
    return 0; /* success: any other number is a fault */
}

/* Whether the input holds a text. Inside of a string of JSON its quotes would be
 * escaped, so that no message of a provider can be taken for it; a policy that
 * looks at more than this reads JSON properly. */
static int holds(const char *text) {
    u64 size = input_length();
    for (u64 at = 0; at < size; at++) {
        u64 n = 0;
        while (text[n] && at + n < size && input_load_u8(at + n) == (unsigned char)text[n])
            n++;
        if (!text[n])
            return 1;
    }
    return 0;
}

__attribute__((export_name("recover"))) int recover(void) {
    if (holds("\"code\":\"RATE_LIMIT\""))
        return answer("{\"kind\":\"retry\",\"delayMs\":1000,\"maxRetries\":3,\"reason\":\"a rate limit\"}");
    return answer("{\"kind\":\"delegate\",\"reason\":\"not mine\"}");
}
