/* What a recovery policy for dsh is written with in C: the types of its
 * contract, dsh:policy/v1, and the functions by which a guest speaks to its
 * host. It needs clang and wasm-ld and no library, and is meant to be copied.
 *
 * A policy is a function from a dsh_recover_input to a dsh_decision. It decides,
 * and never waits, sends or stores: the host does, durably.
 *
 * Texts end in a zero byte and live until the export returns. One that is
 * absent is "". A number that JSON has is a double.
 */
#ifndef DSH_H
#define DSH_H

#define DSH_ABI "dsh:policy/v1"

/* DSH_NONE is a number that is absent. */
#define DSH_NONE (-1.0)

/* A value of JSON, as it stands in the input or an answer. One that is not
 * there is null. Objects and lists are looked through at each access. */
typedef struct {
    const char *at, *end;
} dsh_json;

dsh_json dsh_get(dsh_json object, const char *key); /* a field; null where there is none */
int dsh_each(dsh_json list, dsh_json *element);      /* begin with *element = {0}; 0: no more */
int dsh_field(dsh_json object, const char **key, dsh_json *value); /* begin with *value = {0} */
int dsh_is_null(dsh_json v);
int dsh_is_number(dsh_json v);
int dsh_is_true(dsh_json v);
double dsh_number(dsh_json v, double otherwise); /* otherwise: what is no number */
const char *dsh_string(dsh_json v);              /* what is no text is "" */

int dsh_equal(const char *a, const char *b);
const char *dsh_join(const char *first, ...); /* texts one after the other; the last argument is 0 */
const char *dsh_digits(double v);             /* a number for dsh_join, to a millionth */
double dsh_least(double a, double b);

typedef struct {
    const char *message; /* for people: branch on the code */
    const char *code;
    double status;                  /* of HTTP; 0: there was none */
    double provider_retry_after_ms; /* 0: the provider asked for no wait */
    const char *request_id;
} dsh_failure;

typedef struct {
    const char *key;  /* what retries under these settings are counted by */
    const char *mode; /* normal or always */
    double max_retries;
    dsh_json retryable_codes;
    double initial_delay_ms, max_delay_ms, jitter_ratio;
} dsh_retry_policy;

typedef struct {
    const char *policy, *policy_key, *purpose;
    double count;
} dsh_retry_count;

typedef struct {
    const char *kind, *policy;
    int ok;
    double tokens_before, tokens_after;
} dsh_repair_outcome;

typedef struct {
    double generation, messages, tokens, window, request_bytes; /* window 0: unknown */
} dsh_surface;

typedef struct {
    double attempts_left, wait_left_ms; /* DSH_NONE: there is no ceiling */
} dsh_limits;

/* What a policy is told before a request is built. Of a failure it is told the
 * last three fields too. */
typedef struct {
    const char *abi, *decision_id;
    const char *policy; /* the name under which the waterfall lists this policy */
    const char *session;
    double turn, step, attempt;
    const char *purpose; /* reply or compaction */
    const char *provider, *model;
    double now_ms;    /* Unix ms */
    double random[4]; /* each in [0, 1), drawn for this decision */
    dsh_retry_policy retry_policy;
    dsh_retry_count *retry_counts; /* of this step, as the log has them */
    int retry_count_length;
    dsh_repair_outcome *repairs; /* of this step */
    int repairs_length;
    dsh_surface surface;
    dsh_limits limits;
    dsh_json config; /* the policy's own, of dsh.toml */

    dsh_failure failure;
    double failed_at_ms;           /* Unix ms */
    double provider_not_before_ms; /* 0: the provider asked for no wait */
} dsh_recover_input;

typedef dsh_recover_input dsh_step_input; /* without a failure */

/* Something that the host is to do to what the model sees. It takes the
 * capability repair.prune or repair.compact. 0 is what the host takes without. */
typedef struct {
    const char *kind; /* prune or compact */
    const double *seqs;
    int seqs_length; /* 0: all */
    double over_chars, head_chars, tail_chars;
    double retain_tokens, from, to;
    const char *instructions;
    double max_tokens;
    double if_over_tokens; /* 0: in any case */
} dsh_repair;

/* What a policy answers: dsh_retry and dsh_delegate make one of a failure,
 * dsh_proceed one of before_step. */
typedef struct dsh_decision {
    const char *kind;
    double delay_ms;
    const char *mode;       /* 0: normal */
    double max_retries;     /* the host refuses a retry with a higher number; DSH_NONE: no limit */
    const char *policy_key; /* what the retry is counted under; 0: the policy's name */
    const dsh_repair *repairs;
    int repairs_length;
    const char *reason;                  /* for people */
    const struct dsh_decision *fallback; /* of a delegate: a retry, if no other policy retries */
} dsh_decision;

typedef dsh_decision dsh_step_answer;

dsh_decision dsh_retry(double delay_ms, const char *reason);
dsh_decision dsh_delegate(const char *reason);
dsh_step_answer dsh_proceed(const dsh_repair *repairs, int length);

/* How often this policy has retried in this step for the same purpose, under a
 * key, or with 0 under any. The log counts, so that it survives restarts. */
double dsh_retries(const dsh_step_input *in, const char *key);

/* The delay before retry n, from 1: the provider's own wait if it is within the
 * settings' cap, and else a backoff that doubles each time, with jitter. */
double dsh_backoff(const dsh_recover_input *in, double n);

/* What dsh's built-in policy decides by the provider's settings: a policy that
 * only adds a condition ends in it. */
dsh_decision dsh_standard(const dsh_recover_input *in);

/* The bodies of the exports recover, before_step and check_config. A problem of
 * a config keeps the policy from being loaded. */
int dsh_recover(dsh_decision (*decide)(const dsh_recover_input *));
int dsh_before_step(dsh_step_answer (*prepare)(const dsh_step_input *));
int dsh_check_config(void (*check)(dsh_json config));
void dsh_problem(const char *text);

/* DSH_EXPORT stands before the definition of an export:
 *   DSH_EXPORT(recover) { return dsh_recover(decide); } */
#define DSH_EXPORT(name) __attribute__((export_name(#name))) int dsh_export_##name(void)

/* DSH_MANIFEST("manifest.json"); writes that file into the module, where the
 * host reads it without running anything. The path is the compiler's. */
#define DSH_MANIFEST(file) __asm__(".section .custom_section.dsh.policy,\"\",@\n.incbin \"" file "\"\n.text\n")

void dsh_log(const char *text); /* a line for people; shows with dsh --verbose */

/* The host functions. Each takes JSON and gives the answer's. A refusal is a
 * value to decide by, and no fault: dsh_refused gives its code, or 0. A module
 * imports only those that it uses, and each takes a capability that the manifest
 * asks for. dsh_json_text makes JSON of a text. */
dsh_json dsh_log_read(const char *argument);     /* log.read */
dsh_json dsh_surface_read(const char *argument); /* surface.read */
dsh_json dsh_state_get(const char *scope, const char *key, double *version); /* the value; null: none */
const char *dsh_state_put(const char *scope, const char *key, const char *value, double version); /* 0, or the code */
dsh_json dsh_emit(const char *type, const char *data); /* log.append */
const char *dsh_refused(dsh_json answer);
const char *dsh_json_text(const char *text);

#endif
