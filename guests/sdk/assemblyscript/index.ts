// What a recovery policy for dsh is written with in AssemblyScript: the types of
// its contract, dsh:policy/v1, and the functions by which a guest speaks to its
// host. It depends on no package but the compiler and is meant to be copied.
//
// A policy is a function from a RecoverInput to a Decision. It decides, and
// never waits, sends or stores: the host does, durably.

import { Json, digits } from "./json";
import { block, fail, input, keep, output } from "./kernel";
import { Decision, DELEGATE, RecoverInput, RETRY, StepAnswer, StepInput } from "./types";

export * from "./types";
export { Json, Kind, digits } from "./json";
export { log } from "./kernel";

/** A decision to send again after a delay in ms. */
export function retry(delayMs: f64, reason: string = ""): Decision {
  const d = new Decision();
  d.kind = RETRY;
  d.delayMs = delayMs;
  d.reason = reason;
  return d;
}

/** A decision to leave the failure to the next policy. After the last one it is final. */
export function delegate(reason: string): Decision {
  const d = new Decision();
  d.kind = DELEGATE;
  d.reason = reason;
  return d;
}

/**
 * What dsh's built-in policy decides by the provider's settings: a policy that
 * only adds a condition ends in it.
 */
export function standard(input: RecoverInput): Decision {
  const p = input.retryPolicy;
  const n = input.retries(p.key) + 1;
  const again = retry(input.backoff(n), "retry " + digits(n));
  again.policyKey = p.key;
  if (p.mode == "always") {
    again.mode = p.mode;
    const d = delegate("mode always lets the others go first");
    d.fallback = again;
    return d;
  }
  const wait = input.failure.providerRetryAfterMs;
  if (!p.retryableCodes.includes(input.failure.code)) return delegate(input.failure.code + " is not among the retryable codes");
  if (n > p.maxRetries) return delegate("all " + digits(p.maxRetries) + " retries are used");
  if (wait > p.maxDelayMs) {
    return delegate("the provider asked for a wait of " + digits(wait) + " ms, which is over the cap of " + digits(p.maxDelayMs) + " ms");
  }
  again.maxRetries = p.maxRetries;
  again.reason += " of " + digits(p.maxRetries);
  return again;
}

/** The body of the export recover. */
export function onRecover(decide: (input: RecoverInput) => Decision): i32 {
  const o = Json.parse(input());
  return o === null ? fail("the input is not valid JSON") : output(decide(new RecoverInput(o)).toJson().write());
}

/** The body of the export before_step. */
export function onBeforeStep(prepare: (input: StepInput) => StepAnswer): i32 {
  const o = Json.parse(input());
  return o === null ? fail("the input is not valid JSON") : output(prepare(new StepInput(o)).toJson().write());
}

/**
 * The body of the export check_config: one sentence a problem, and any of them
 * keeps the policy from being loaded.
 */
export function onCheckConfig(check: (config: Json) => string[]): i32 {
  const o = Json.parse(input());
  if (o === null) return fail("the config is not valid JSON");
  const problems = check(o);
  const list = Json.list();
  for (let i = 0; i < problems.length; i++) list.push(Json.string(problems[i]));
  return output(Json.object().set("problems", list).write());
}

// The host functions. A module imports only those that it uses, and each takes a
// capability that the manifest asks for.

// @ts-ignore: decorator
@external("dsh:policy/v1", "log_read") declare function hostLogRead(at: u64): u64;
// @ts-ignore: decorator
@external("dsh:policy/v1", "surface_read") declare function hostSurfaceRead(at: u64): u64;
// @ts-ignore: decorator
@external("dsh:policy/v1", "state_get") declare function hostStateGet(at: u64): u64;
// @ts-ignore: decorator
@external("dsh:policy/v1", "state_put") declare function hostStatePut(at: u64): u64;
// @ts-ignore: decorator
@external("dsh:policy/v1", "emit") declare function hostEmit(at: u64): u64;

/** The scopes of a policy's memory. */
export const SESSION = "session"; // takes the capability state.session
export const SHARED = "shared"; // that of all sessions; takes state.shared

/**
 * The answer of a host function. A refusal is a value to decide by, and no
 * fault: its code is denied, invalid, conflict, too-large, too-many or
 * unavailable.
 */
export class Answer {
  /** "": it is no refusal. */
  refused: string;
  constructor(public json: Json) {
    this.refused = json.get("err").get("code").text();
  }
}

function answerOf(at: u64): Answer {
  const o = Json.parse(block(at));
  return new Answer(o === null ? Json.object().set("err", Json.object().set("code", Json.string("unavailable"))) : o);
}

/**
 * Reads events of the session's log: the argument has types, turn, step, after,
 * limit and content; the answer events, next and tail. It takes log.read.
 */
export function readLog(argument: Json): Answer { return answerOf(hostLogRead(keep(argument.write()))); }

/**
 * Reads what the model sees: the argument has from, limit and content; the
 * answer entries, next, tail, generation and tokens. It takes surface.read.
 */
export function readSurface(argument: Json): Answer { return answerOf(hostSurfaceRead(keep(argument.write()))); }

/** Gets a value of the policy's memory: value (null: none) and version. */
export function getState(scope: string, key: string): Answer {
  return answerOf(hostStateGet(keep(Json.object().set("scope", Json.string(scope)).set("key", Json.string(key)).write())));
}

/**
 * Stores a value of up to 4 KiB, if it still has the version. A conflict says
 * that somebody else has stored one: get it and decide anew.
 */
export function putState(scope: string, key: string, value: Json, version: f64): Answer {
  const o = Json.object().set("scope", Json.string(scope)).set("key", Json.string(key));
  return answerOf(hostStatePut(keep(o.set("value", value).set("version", Json.of(version)).write())));
}

/**
 * Appends an event policy/NAME/TYPE to the session's log, which the model never
 * sees. data is an object. It takes log.append.
 */
export function emit(type: string, data: Json): Answer {
  return answerOf(hostEmit(keep(Json.object().set("type", Json.string(type)).set("data", data).write())));
}
