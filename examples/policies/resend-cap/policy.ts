// resend-cap ends a turn's retries when they have sent enough tokens again.
import { Answer, Decision, Json, RecoverInput, SESSION, delegate, digits, getState, onCheckConfig, onRecover, putState, standard } from "./sdk/index";

/** Bytes of a request that are taken for a token, as dsh does. */
const BYTES_PER_TOKEN: f64 = 4;

function decide(input: RecoverInput): Decision {
  const d = standard(input);
  if (d.kind != "retry" && d.fallback === null) return d; // nothing is sent again
  const cap = input.config.get("maxTokens").number(500000);
  const tokens = Math.ceil(input.surface.requestBytes / BYTES_PER_TOKEN);
  const have = getState(SESSION, "sent-again");
  if (have.refused != "") return unknown(have);
  const was = have.json.get("value");
  // What was sent again in an earlier turn does not count.
  const sent = was.get("turn").number() == input.turn ? was.get("tokens").number() : 0;
  if (sent + tokens > cap) {
    return delegate("retries of this turn have sent " + digits(sent) + " tokens again, and " + digits(tokens) + " more would be over " + digits(cap));
  }
  const now = Json.object().set("turn", Json.of(input.turn)).set("tokens", Json.of(sent + tokens));
  const put = putState(SESSION, "sent-again", now, have.json.get("version").number());
  return put.refused != "" ? unknown(put) : d;
}

// Who cannot count does not spend.
function unknown(a: Answer): Decision {
  return delegate("what was sent again cannot be counted: " + a.refused);
}

function check(config: Json): string[] {
  const problems: string[] = [];
  const keys = config.fields();
  for (let i = 0; i < keys.length; i++) {
    const v = config.get(keys[i]);
    if (keys[i] != "maxTokens") problems.push(keys[i] + " is an unknown key: maxTokens is known");
    else if (!v.isNumber() || v.number() < 0) problems.push("maxTokens has to be a number from 0 on");
  }
  return problems;
}

export function recover(): i32 { return onRecover(decide); }
export function check_config(): i32 { return onCheckConfig(check); }
