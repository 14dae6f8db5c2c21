/* What the kit for C makes of the provider's settings: for the tests. */
#include "../c/dsh.h"

static dsh_decision decide(const dsh_recover_input *in) { return dsh_standard(in); }

DSH_EXPORT(recover) { return dsh_recover(decide); }
