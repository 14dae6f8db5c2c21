#include "dsh.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define KERNEL(name) __attribute__((import_module("extism:host/env"), import_name(#name)))
#define HOST(name) __attribute__((import_module(DSH_ABI), import_name(#name)))

KERNEL(input_length) extern uint64_t input_length(void);
KERNEL(input_load_u8) extern uint32_t input_load_u8(uint64_t at);
KERNEL(input_load_u64) extern uint64_t input_load_u64(uint64_t at);
KERNEL(alloc) extern uint64_t kernel_alloc(uint64_t size);
KERNEL(length) extern uint64_t kernel_length(uint64_t at);
KERNEL(load_u8) extern uint32_t load_u8(uint64_t at);
KERNEL(load_u64) extern uint64_t load_u64(uint64_t at);
KERNEL(store_u8) extern void store_u8(uint64_t at, uint32_t v);
KERNEL(store_u64) extern void store_u64(uint64_t at, uint64_t v);
KERNEL(output_set) extern void output_set(uint64_t at, uint64_t size);
KERNEL(error_set) extern void error_set(uint64_t at);
KERNEL(log_info) extern void log_info(uint64_t at);
HOST(log_read) extern uint64_t host_log_read(uint64_t at);
HOST(surface_read) extern uint64_t host_surface_read(uint64_t at);
HOST(state_get) extern uint64_t host_state_get(uint64_t at);
HOST(state_put) extern uint64_t host_state_put(uint64_t at);
HOST(emit) extern uint64_t host_emit(uint64_t at);

/* clang calls these for copies of its own. */
void *memcpy(void *to, const void *from, size_t n) {
    char *t = to;
    const char *f = from;
    while (n--)
        *t++ = *f++;
    return to;
}

void *memset(void *to, int v, size_t n) {
    char *t = to;
    while (n--)
        *t++ = (char)v;
    return to;
}

/* ---- memory: taken from the end, and never given back ---- */

extern char __heap_base;
static uintptr_t next;

static void *take(size_t size) {
    if (!next)
        next = (uintptr_t)&__heap_base;
    uintptr_t at = (next + 15) & ~(uintptr_t)15;
    uintptr_t have = __builtin_wasm_memory_size(0) * 65536ul;
    if (at + size > have && __builtin_wasm_memory_grow(0, (at + size - have + 65535) / 65536) == (size_t)-1)
        __builtin_trap();
    next = at + size;
    return (void *)at;
}

static size_t size_of(const char *s) {
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

int dsh_equal(const char *a, const char *b) {
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

double dsh_least(double a, double b) { return a < b ? a : b; }

/* ---- bytes in and out, eight at a time, since every call costs ---- */

static char *load(uint64_t at, size_t size, uint64_t (*word)(uint64_t), uint32_t (*byte)(uint64_t)) {
    char *b = take(size + 8);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t w = word(at + i);
        memcpy(b + i, &w, 8);
    }
    for (; i < size; i++)
        b[i] = (char)byte(at + i);
    b[size] = 0;
    return b;
}

static uint64_t store(const char *b, size_t size) {
    uint64_t at = kernel_alloc(size);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t w;
        memcpy(&w, b + i, 8);
        store_u64(at + i, w);
    }
    for (; i < size; i++)
        store_u8(at + i, (unsigned char)b[i]);
    return at;
}

void dsh_log(const char *text) { log_info(store(text, size_of(text))); }

/* ---- JSON, read ---- */

static const char *space(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* The end of the value at p; 0: it is broken. */
static const char *skip(const char *p, const char *end, int depth) {
    p = space(p, end);
    if (p >= end || depth > 64)
        return 0;
    if (*p == '"') {
        for (p++; p < end && *p != '"'; p++)
            if (*p == '\\')
                p++;
            else if ((unsigned char)*p < ' ')
                return 0;
        return p < end ? p + 1 : 0;
    }
    if (*p != '{' && *p != '[') {
        const char *from = p;
        while (p < end && (*p == '-' || *p == '+' || *p == '.' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || *p == 'E'))
            p++;
        return p > from ? p : 0;
    }
    char close = *p == '{' ? '}' : ']';
    p = space(p + 1, end);
    if (p < end && *p == close)
        return p + 1;
    for (;;) {
        if (close == '}') {
            if (p >= end || *p != '"' || !(p = skip(p, end, depth + 1)))
                return 0;
            p = space(p, end);
            if (p >= end || *p++ != ':')
                return 0;
        }
        if (!(p = skip(p, end, depth + 1)))
            return 0;
        p = space(p, end);
        if (p >= end)
            return 0;
        if (*p == close)
            return p + 1;
        if (*p++ != ',')
            return 0;
        p = space(p, end);
    }
}

/* What was read was held to skip before: the functions below lean on it. */
static dsh_json value_at(const char *p, const char *end) {
    p = space(p, end);
    dsh_json v = {p, skip(p, end, 0)};
    return v;
}

static char first(dsh_json v) { return v.at && v.end ? *v.at : 'n'; }

int dsh_is_null(dsh_json v) { return first(v) == 'n'; }
int dsh_is_true(dsh_json v) { return first(v) == 't'; }
int dsh_is_number(dsh_json v) { return first(v) == '-' || (first(v) >= '0' && first(v) <= '9'); }

int dsh_field(dsh_json object, const char **key, dsh_json *value) {
    if (first(object) != '{')
        return 0;
    const char *p = space(value->at ? value->end : object.at + 1, object.end);
    if (value->at && *p == ',')
        p = space(p + 1, object.end);
    if (*p != '"')
        return 0;
    dsh_json name = value_at(p, object.end);
    *key = dsh_string(name);
    *value = value_at(space(name.end, object.end) + 1, object.end);
    return 1;
}

dsh_json dsh_get(dsh_json object, const char *key) {
    dsh_json v = {0}, none = {0};
    const char *name;
    while (dsh_field(object, &name, &v))
        if (dsh_equal(name, key))
            return v;
    return none;
}

int dsh_each(dsh_json list, dsh_json *element) {
    if (first(list) != '[')
        return 0;
    const char *p = space(element->at ? element->end : list.at + 1, list.end);
    if (element->at && *p == ',')
        p = space(p + 1, list.end);
    if (*p == ']')
        return 0;
    *element = value_at(p, list.end);
    return 1;
}

static double power(int n) {
    double v = 1;
    while (n-- > 0)
        v *= 10;
    return v;
}

double dsh_number(dsh_json v, double otherwise) {
    if (!dsh_is_number(v))
        return otherwise;
    const char *p = v.at;
    int negative = *p == '-', e = 0, digits = 0;
    uint64_t m = 0;
    for (p += negative; p < v.end && ((*p >= '0' && *p <= '9') || *p == '.'); p++) {
        if (*p == '.') {
            e = -1000; /* from here on each digit is behind the point */
            continue;
        }
        if (digits < 19) {
            m = m * 10 + (uint64_t)(*p - '0');
            digits += m != 0;
            if (e <= -1000)
                e--;
        } else if (e > -1000) {
            e++;
        }
    }
    if (e <= -1000)
        e += 1000;
    if (p < v.end && (*p == 'e' || *p == 'E')) {
        p++;
        int minus = *p == '-', n = 0;
        if (*p == '-' || *p == '+')
            p++;
        while (p < v.end && n < 10000)
            n = n * 10 + (*p++ - '0');
        e += minus ? -n : n;
    }
    e = e > 310 ? 310 : e < -345 ? -345 : e;
    double d = (double)m;
    for (; e < -22; e += 22)
        d /= 1e22;
    for (; e > 22; e -= 22)
        d *= 1e22;
    d = e < 0 ? d / power(-e) : d * power(e);
    return negative ? -d : d;
}

static int hex(const char *p, uint32_t *v) {
    *v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0)
            return 0;
        *v = *v << 4 | (uint32_t)d;
    }
    return 1;
}

static char *utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xe0 | c >> 12);
        } else {
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (c & 0x3f));
    return to;
}

const char *dsh_string(dsh_json v) {
    if (first(v) != '"')
        return "";
    char *text = take((size_t)(v.end - v.at)), *to = text;
    for (const char *p = v.at + 1; p < v.end - 1; p++) {
        if (*p != '\\') {
            *to++ = *p;
            continue;
        }
        uint32_t c, low;
        switch (*++p) {
        case 'n': *to++ = '\n'; break;
        case 't': *to++ = '\t'; break;
        case 'r': *to++ = '\r'; break;
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'u':
            if (v.end - p < 6 || !hex(p + 1, &c))
                break;
            p += 4;
            if (c >= 0xd800 && c < 0xdc00 && v.end - p >= 8 && p[1] == '\\' && p[2] == 'u' && hex(p + 3, &low)) {
                c = 0x10000 + ((c - 0xd800) << 10 | (low & 0x3ff));
                p += 6;
            } else if (!c || (c >= 0xd800 && c < 0xe000)) {
                c = 0xfffd; /* no character, or the end of a text of C */
            }
            to = utf8(to, c);
            break;
        default: *to++ = *p;
        }
    }
    *to = 0;
    return text;
}

/* ---- JSON and text, written ---- */

typedef struct {
    char *at;
    size_t size, room;
} writer;

static void put(writer *w, const char *s, size_t n) {
    if (w->size + n + 1 > w->room) {
        size_t room = (w->size + n + 1) * 2;
        char *at = take(room);
        memcpy(at, w->at, w->size);
        w->at = at;
        w->room = room;
    }
    memcpy(w->at + w->size, s, n);
    w->size += n;
    w->at[w->size] = 0;
}

static void say(writer *w, const char *s) { put(w, s, size_of(s)); }

static void quote(writer *w, const char *s) {
    say(w, "\"");
    for (; *s; s++) {
        char escaped[] = {'\\', 'u', '0', '0', "0123456789abcdef"[*s >> 4 & 15], "0123456789abcdef"[*s & 15]};
        if ((unsigned char)*s < ' ')
            put(w, escaped, 6);
        else if (*s == '"' || *s == '\\')
            escaped[1] = *s, put(w, escaped, 2);
        else
            put(w, s, 1);
    }
    say(w, "\"");
}

static void whole(writer *w, uint64_t v, int width) {
    char digits[20];
    int n = 0;
    for (; v || n < width; v /= 10)
        digits[19 - n++] = (char)('0' + v % 10);
    put(w, digits + 20 - n, (size_t)n);
}

static void number(writer *w, double v) {
    if (v < 0) {
        say(w, "-");
        v = -v;
    }
    if (!(v < 9e15))
        v = 9e15; /* also what is no number */
    uint64_t millionths = (uint64_t)((v - (double)(uint64_t)v) * 1e6 + 0.5), part = (uint64_t)v + millionths / 1000000;
    whole(w, part, 1);
    millionths %= 1000000;
    if (millionths) {
        int width = 6;
        for (; millionths % 10 == 0; millionths /= 10)
            width--;
        say(w, ".");
        whole(w, millionths, width);
    }
}

const char *dsh_digits(double v) {
    writer w = {0};
    number(&w, v);
    return w.at;
}

const char *dsh_json_text(const char *text) {
    writer w = {0};
    quote(&w, text);
    return w.at;
}

const char *dsh_join(const char *part, ...) {
    writer w = {0};
    va_list rest;
    va_start(rest, part);
    for (; part; part = va_arg(rest, const char *))
        say(&w, part);
    va_end(rest);
    return w.at ? w.at : "";
}

static void key(writer *w, const char *name) {
    if (w->size && w->at[w->size - 1] != '{')
        say(w, ",");
    quote(w, name);
    say(w, ":");
}

static void text_field(writer *w, const char *name, const char *v) {
    if (v && *v) {
        key(w, name);
        quote(w, v);
    }
}

static void size_field(writer *w, const char *name, double v) {
    if (v) {
        key(w, name);
        number(w, v);
    }
}

/* ---- the types ---- */

/* The fields of recover-input.json#failure. */
static dsh_failure failure_of(dsh_json o) {
    dsh_failure f;
    f.message = dsh_string(dsh_get(o, "message"));
    f.code = dsh_string(dsh_get(o, "code"));
    f.status = dsh_number(dsh_get(o, "status"), 0);
    f.provider_retry_after_ms = dsh_number(dsh_get(o, "providerRetryAfterMs"), 0);
    f.request_id = dsh_string(dsh_get(o, "requestId"));
    return f;
}

/* The fields of step-input.json#retryPolicy. */
static dsh_retry_policy retry_policy_of(dsh_json o) {
    dsh_retry_policy p;
    p.key = dsh_string(dsh_get(o, "key"));
    p.mode = dsh_string(dsh_get(o, "mode"));
    p.max_retries = dsh_number(dsh_get(o, "maxRetries"), 0);
    p.retryable_codes = dsh_get(o, "retryableCodes");
    p.initial_delay_ms = dsh_number(dsh_get(o, "initialDelayMs"), 0);
    p.max_delay_ms = dsh_number(dsh_get(o, "maxDelayMs"), 0);
    p.jitter_ratio = dsh_number(dsh_get(o, "jitterRatio"), 0);
    return p;
}

/* The fields of step-input.json#retryCount. */
static dsh_retry_count retry_count_of(dsh_json o) {
    dsh_retry_count c;
    c.policy = dsh_string(dsh_get(o, "policy"));
    c.policy_key = dsh_string(dsh_get(o, "policyKey"));
    c.purpose = dsh_string(dsh_get(o, "purpose"));
    c.count = dsh_number(dsh_get(o, "count"), 0);
    return c;
}

/* The fields of step-input.json#repairOutcome. */
static dsh_repair_outcome outcome_of(dsh_json o) {
    dsh_repair_outcome r;
    r.kind = dsh_string(dsh_get(o, "kind"));
    r.policy = dsh_string(dsh_get(o, "policy"));
    r.ok = dsh_is_true(dsh_get(o, "ok"));
    r.tokens_before = dsh_number(dsh_get(o, "tokensBefore"), 0);
    r.tokens_after = dsh_number(dsh_get(o, "tokensAfter"), 0);
    return r;
}

/* The fields of step-input.json#surface. */
static dsh_surface surface_of(dsh_json o) {
    dsh_surface s;
    s.generation = dsh_number(dsh_get(o, "generation"), 0);
    s.messages = dsh_number(dsh_get(o, "messages"), 0);
    s.tokens = dsh_number(dsh_get(o, "tokens"), 0);
    s.window = dsh_number(dsh_get(o, "window"), 0);
    s.request_bytes = dsh_number(dsh_get(o, "requestBytes"), 0);
    return s;
}

/* The fields of step-input.json#limits. */
static dsh_limits limits_of(dsh_json o) {
    dsh_limits l;
    l.attempts_left = dsh_number(dsh_get(o, "attemptsLeft"), DSH_NONE);
    l.wait_left_ms = dsh_number(dsh_get(o, "waitLeftMs"), DSH_NONE);
    return l;
}

static int length_of(dsh_json list) {
    int n = 0;
    for (dsh_json e = {0}; dsh_each(list, &e);)
        n++;
    return n;
}

/* The fields of step-input.json. */
static void step_of(dsh_json o, dsh_recover_input *in) {
    in->abi = dsh_string(dsh_get(o, "abi"));
    in->decision_id = dsh_string(dsh_get(o, "decisionId"));
    in->policy = dsh_string(dsh_get(o, "policy"));
    in->session = dsh_string(dsh_get(o, "session"));
    in->turn = dsh_number(dsh_get(o, "turn"), 0);
    in->step = dsh_number(dsh_get(o, "step"), 0);
    in->attempt = dsh_number(dsh_get(o, "attempt"), 0);
    in->purpose = dsh_string(dsh_get(o, "purpose"));
    in->provider = dsh_string(dsh_get(o, "provider"));
    in->model = dsh_string(dsh_get(o, "model"));
    in->now_ms = dsh_number(dsh_get(o, "nowMs"), 0);
    dsh_json list = dsh_get(o, "random"), e = {0};
    for (int i = 0; i < 4 && dsh_each(list, &e); i++)
        in->random[i] = dsh_number(e, 0);
    in->retry_policy = retry_policy_of(dsh_get(o, "retryPolicy"));
    list = dsh_get(o, "retryCounts");
    in->retry_counts = take((size_t)length_of(list) * sizeof *in->retry_counts);
    for (e.at = 0; dsh_each(list, &e);)
        in->retry_counts[in->retry_count_length++] = retry_count_of(e);
    list = dsh_get(o, "repairs");
    in->repairs = take((size_t)length_of(list) * sizeof *in->repairs);
    for (e.at = 0; dsh_each(list, &e);)
        in->repairs[in->repairs_length++] = outcome_of(e);
    in->surface = surface_of(dsh_get(o, "surface"));
    in->limits = limits_of(dsh_get(o, "limits"));
    in->config = dsh_get(o, "config");
}

/* The fields of recover-input.json that step-input.json has not. */
static void recover_of(dsh_json o, dsh_recover_input *in) {
    step_of(o, in);
    in->failure = failure_of(dsh_get(o, "failure"));
    in->failed_at_ms = dsh_number(dsh_get(o, "failedAtMs"), 0);
    in->provider_not_before_ms = dsh_number(dsh_get(o, "providerNotBeforeMs"), 0);
}

/* The fields of decision.json#repair. */
static void write_repair(writer *w, const dsh_repair *r) {
    say(w, "{");
    text_field(w, "kind", r->kind);
    if (r->seqs_length) {
        key(w, "seqs");
        for (int i = 0; i < r->seqs_length; i++) {
            say(w, i ? "," : "[");
            number(w, r->seqs[i]);
        }
        say(w, "]");
    }
    size_field(w, "overChars", r->over_chars);
    size_field(w, "headChars", r->head_chars);
    size_field(w, "tailChars", r->tail_chars);
    size_field(w, "retainTokens", r->retain_tokens);
    size_field(w, "from", r->from);
    size_field(w, "to", r->to);
    text_field(w, "instructions", r->instructions);
    size_field(w, "maxTokens", r->max_tokens);
    size_field(w, "ifOverTokens", r->if_over_tokens);
    say(w, "}");
}

/* The fields of decision.json. */
static void write_decision(writer *w, const dsh_decision *d, int is_retry) {
    say(w, "{");
    text_field(w, "kind", d->kind);
    if (is_retry) {
        key(w, "delayMs");
        number(w, d->delay_ms);
    }
    text_field(w, "mode", d->mode);
    if (is_retry && d->max_retries >= 0) {
        key(w, "maxRetries");
        number(w, d->max_retries);
    }
    text_field(w, "policyKey", d->policy_key);
    for (int i = 0; i < d->repairs_length; i++) {
        if (i)
            say(w, ",");
        else
            key(w, "repairs"), say(w, "[");
        write_repair(w, &d->repairs[i]);
    }
    if (d->repairs_length)
        say(w, "]");
    text_field(w, "reason", d->reason);
    if (d->fallback) {
        key(w, "fallback");
        write_decision(w, d->fallback, 1);
    }
    say(w, "}");
}

dsh_decision dsh_retry(double delay_ms, const char *reason) {
    dsh_decision d = {.kind = "retry", .delay_ms = delay_ms, .max_retries = DSH_NONE, .reason = reason};
    return d;
}

dsh_decision dsh_delegate(const char *reason) {
    dsh_decision d = {.kind = "delegate", .max_retries = DSH_NONE, .reason = reason};
    return d;
}

dsh_step_answer dsh_proceed(const dsh_repair *repairs, int length) {
    dsh_decision d = {.kind = "proceed", .max_retries = DSH_NONE, .repairs = repairs, .repairs_length = length};
    return d;
}

double dsh_retries(const dsh_step_input *in, const char *key) {
    double n = 0;
    for (int i = 0; i < in->retry_count_length; i++) {
        const dsh_retry_count *c = &in->retry_counts[i];
        if (dsh_equal(c->policy, in->policy) && dsh_equal(c->purpose, in->purpose) && (!key || dsh_equal(c->policy_key, key)))
            n += c->count;
    }
    return n;
}

double dsh_backoff(const dsh_recover_input *in, double n) {
    const dsh_retry_policy *p = &in->retry_policy;
    double wait = in->failure.provider_retry_after_ms, base = p->initial_delay_ms;
    if (wait > 0 && wait <= p->max_delay_ms)
        return wait;
    for (double i = 1; i < n && base < p->max_delay_ms; i++)
        base *= 2;
    base = dsh_least(base, p->max_delay_ms);
    return dsh_least(base * (1 - p->jitter_ratio + 2 * p->jitter_ratio * in->random[0]), p->max_delay_ms);
}

dsh_decision dsh_standard(const dsh_recover_input *in) {
    const dsh_retry_policy *p = &in->retry_policy;
    double n = dsh_retries(in, p->key) + 1, wait = in->failure.provider_retry_after_ms;
    dsh_decision again = dsh_retry(dsh_backoff(in, n), dsh_join("retry ", dsh_digits(n), 0));
    again.policy_key = p->key;
    if (dsh_equal(p->mode, "always")) {
        dsh_decision d = dsh_delegate("mode always lets the others go first"), *fallback = take(sizeof *fallback);
        again.mode = p->mode;
        *fallback = again;
        d.fallback = fallback;
        return d;
    }
    int retryable = 0;
    for (dsh_json e = {0}; dsh_each(p->retryable_codes, &e);)
        retryable |= dsh_equal(dsh_string(e), in->failure.code);
    if (!retryable)
        return dsh_delegate(dsh_join(in->failure.code, " is not among the retryable codes", 0));
    if (n > p->max_retries)
        return dsh_delegate(dsh_join("all ", dsh_digits(p->max_retries), " retries are used", 0));
    if (wait > p->max_delay_ms)
        return dsh_delegate(dsh_join("the provider asked for a wait of ", dsh_digits(wait), " ms, which is over the cap of ",
                                     dsh_digits(p->max_delay_ms), " ms", 0));
    again.max_retries = p->max_retries;
    again.reason = dsh_join(again.reason, " of ", dsh_digits(p->max_retries), 0);
    return again;
}

/* ---- the exports' bodies ---- */

static int broken(void) {
    static const char text[] = "the input is not valid JSON";
    error_set(store(text, sizeof text - 1));
    return 1;
}

static int answer(const writer *w) {
    output_set(store(w->at, w->size), w->size);
    return 0;
}

static dsh_json input(void) {
    size_t size = input_length();
    const char *text = load(0, size, input_load_u64, input_load_u8);
    return value_at(text, text + size);
}

int dsh_recover(dsh_decision (*decide)(const dsh_recover_input *)) {
    dsh_json o = input();
    if (!o.end)
        return broken();
    dsh_recover_input in = {0};
    recover_of(o, &in);
    dsh_decision d = decide(&in);
    writer w = {0};
    write_decision(&w, &d, dsh_equal(d.kind, "retry"));
    return answer(&w);
}

int dsh_before_step(dsh_step_answer (*prepare)(const dsh_step_input *)) {
    dsh_json o = input();
    if (!o.end)
        return broken();
    dsh_step_input in = {0};
    step_of(o, &in);
    dsh_step_answer d = prepare(&in);
    writer w = {0};
    write_decision(&w, &d, 0);
    return answer(&w);
}

static writer problems;

void dsh_problem(const char *text) {
    say(&problems, problems.size ? "," : "");
    quote(&problems, text);
}

int dsh_check_config(void (*check)(dsh_json config)) {
    dsh_json o = input();
    if (!o.end)
        return broken();
    check(o);
    writer w = {0};
    say(&w, "{\"problems\":[");
    say(&w, problems.at ? problems.at : "");
    say(&w, "]}");
    return answer(&w);
}

/* ---- the host functions ---- */

static dsh_json call(uint64_t (*function)(uint64_t), const char *argument) {
    uint64_t at = function(store(argument, size_of(argument)));
    size_t size = kernel_length(at);
    const char *text = load(at, size, load_u64, load_u8);
    return value_at(text, text + size);
}

const char *dsh_refused(dsh_json a) {
    dsh_json err = dsh_get(a, "err");
    if (!a.end)
        return "unavailable"; /* it is no JSON, which no host gives */
    return dsh_is_null(err) ? 0 : dsh_string(dsh_get(err, "code"));
}

dsh_json dsh_log_read(const char *argument) { return call(host_log_read, argument); }
dsh_json dsh_surface_read(const char *argument) { return call(host_surface_read, argument); }

dsh_json dsh_state_get(const char *scope, const char *name, double *version) {
    dsh_json a = call(host_state_get, dsh_join("{\"scope\":", dsh_json_text(scope), ",\"key\":", dsh_json_text(name), "}", 0));
    *version = dsh_number(dsh_get(a, "version"), 0);
    return dsh_get(a, "value");
}

const char *dsh_state_put(const char *scope, const char *name, const char *value, double version) {
    return dsh_refused(call(host_state_put, dsh_join("{\"scope\":", dsh_json_text(scope), ",\"key\":", dsh_json_text(name), ",\"value\":",
                                                    value, ",\"version\":", dsh_digits(version), "}", 0)));
}

dsh_json dsh_emit(const char *type, const char *data) {
    return call(host_emit, dsh_join("{\"type\":", dsh_json_text(type), ",\"data\":", data, "}", 0));
}
