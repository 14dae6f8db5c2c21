/* quota-wait waits for a quota to be renewed, if the operator says how long is
 * acceptable. */
#include "../../../guests/sdk/c/dsh.h"

DSH_MANIFEST("manifest.json");

#define HOUR 3600000.0
#define DAY (24 * HOUR)
#define LONGEST 2147483647.0 /* a decision's longest delay */

/* What is left of the day until an hour of it, in ms. */
static double until(double hour, double now) {
    double left = hour * HOUR - (now - (double)(long long)(now / DAY) * DAY);
    return left > 0 ? left : left + DAY;
}

static dsh_decision decide(const dsh_recover_input *in) {
    const char *code = in->failure.code;
    double wait = in->failure.provider_retry_after_ms;
    int quota = dsh_equal(code, "QUOTA");
    int long_limit = dsh_equal(code, "RATE_LIMIT") && wait > in->retry_policy.max_delay_ms;
    if (!quota && !long_limit)
        return dsh_delegate(dsh_join(code, " is no quota, nor a rate limit of a long wait", 0));
    double acceptable = dsh_number(dsh_get(in->config, "acceptableWaitMs"), 0);
    if (acceptable == 0)
        return dsh_delegate("the config names no acceptableWaitMs");
    dsh_json reset = dsh_get(in->config, "resetHourUtc");
    if (wait == 0 && dsh_is_number(reset))
        /* Spread over a minute, so that not everybody comes at once. */
        wait = until(dsh_number(reset, 0), in->now_ms) + in->random[0] * 60000;
    if (wait == 0)
        return dsh_delegate("neither the provider nor the config says when the quota is renewed");
    if (wait > dsh_least(acceptable, LONGEST))
        return dsh_delegate(dsh_join("the quota is renewed in ", dsh_digits((double)(long long)(wait / 1000)),
                                     " s, and acceptable are ", dsh_digits((double)(long long)(acceptable / 1000)), " s", 0));
    double most = dsh_number(dsh_get(in->config, "maxWaits"), 2);
    if (dsh_retries(in, "quota") >= most)
        return dsh_delegate(dsh_join("the quota was waited for ", dsh_digits(most), " times in this step", 0));
    dsh_decision d = dsh_retry(wait, dsh_join("the quota is renewed in ", dsh_digits((double)(long long)(wait / 1000)), " s", 0));
    d.policy_key = "quota";
    d.max_retries = most;
    return d;
}

static void check(dsh_json config) {
    const char *key;
    for (dsh_json v = {0}; dsh_field(config, &key, &v);) {
        double n = dsh_number(v, -1);
        if (dsh_equal(key, "acceptableWaitMs")) {
            if (n <= 0 || n > LONGEST)
                dsh_problem("acceptableWaitMs has to be a number of ms over 0, up to 2147483647");
        } else if (dsh_equal(key, "resetHourUtc")) {
            if (n < 0 || n >= 24)
                dsh_problem("resetHourUtc has to be a number from 0 to under 24");
        } else if (dsh_equal(key, "maxWaits")) {
            if (n < 1)
                dsh_problem("maxWaits has to be a number from 1 on");
        } else {
            dsh_problem(dsh_join(key, " is an unknown key: acceptableWaitMs, resetHourUtc and maxWaits are known", 0));
        }
    }
}

DSH_EXPORT(recover) { return dsh_recover(decide); }
DSH_EXPORT(check_config) { return dsh_check_config(check); }
