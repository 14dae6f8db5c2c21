// The types of the contract. A number that JSON has is an f64; a text that is
// absent is "", and a number NaN where 0 could be meant.

import { Json } from "./json";

// The fields of step-input.json.
export class StepInput {
  abi: string;
  decisionId: string;
  /** The name under which the waterfall lists this policy. */
  policy: string;
  session: string;
  turn: f64;
  step: f64;
  attempt: f64;
  /** reply or compaction */
  purpose: string;
  provider: string;
  model: string;
  /** Unix ms. */
  nowMs: f64;
  /** Each in [0, 1), drawn for this decision. */
  random: f64[] = [];
  retryPolicy: RetryPolicy;
  /** Of this step, as the log has them. */
  retryCounts: RetryCount[] = [];
  /** What became of this step's repairs. */
  repairs: RepairOutcome[] = [];
  surface: Surface;
  limits: Limits;
  /** The policy's own config of dsh.toml. */
  config: Json;

  constructor(o: Json) {
    this.abi = o.get("abi").text();
    this.decisionId = o.get("decisionId").text();
    this.policy = o.get("policy").text();
    this.session = o.get("session").text();
    this.turn = o.get("turn").number();
    this.step = o.get("step").number();
    this.attempt = o.get("attempt").number();
    this.purpose = o.get("purpose").text();
    this.provider = o.get("provider").text();
    this.model = o.get("model").text();
    this.nowMs = o.get("nowMs").number();
    this.retryPolicy = new RetryPolicy(o.get("retryPolicy"));
    this.surface = new Surface(o.get("surface"));
    this.limits = new Limits(o.get("limits"));
    this.config = o.get("config");
    const random = o.get("random").items();
    for (let i = 0; i < random.length; i++) this.random.push(random[i].number());
    const counts = o.get("retryCounts").items();
    for (let i = 0; i < counts.length; i++) this.retryCounts.push(new RetryCount(counts[i]));
    const repairs = o.get("repairs").items();
    for (let i = 0; i < repairs.length; i++) this.repairs.push(new RepairOutcome(repairs[i]));
  }

  /**
   * How often this policy has retried in this step for the same purpose, under
   * a key, or with "" under any. The log counts, so that it survives restarts.
   */
  retries(key: string = ""): f64 {
    let n: f64 = 0;
    for (let i = 0; i < this.retryCounts.length; i++) {
      const c = this.retryCounts[i];
      if (c.policy == this.policy && c.purpose == this.purpose && (key == "" || c.policyKey == key)) n += c.count;
    }
    return n;
  }
}

// The fields of recover-input.json that step-input.json has not.
export class RecoverInput extends StepInput {
  failure: Failure;
  /** Unix ms. */
  failedAtMs: f64;
  /** failedAtMs plus the provider's wait; 0: it asked for none. */
  providerNotBeforeMs: f64;

  constructor(o: Json) {
    super(o);
    this.failure = new Failure(o.get("failure"));
    this.failedAtMs = o.get("failedAtMs").number();
    this.providerNotBeforeMs = o.get("providerNotBeforeMs").number();
  }

  /**
   * The delay in ms before retry n, from 1: the provider's own wait if it is
   * within the settings' cap, and else a backoff that doubles each time, with
   * jitter.
   */
  backoff(n: f64): f64 {
    const p = this.retryPolicy;
    const wait = this.failure.providerRetryAfterMs;
    if (wait > 0 && wait <= p.maxDelayMs) return wait;
    let base = p.initialDelayMs;
    for (let i: f64 = 1; i < n && base < p.maxDelayMs; i++) base *= 2;
    base = Math.min(base, p.maxDelayMs);
    return Math.min(base * (1 - p.jitterRatio + 2 * p.jitterRatio * this.random[0]), p.maxDelayMs);
  }
}

// The fields of recover-input.json#failure.
export class Failure {
  /** For people: branch on the code. */
  message: string;
  code: string;
  /** Of HTTP; 0: there was none. */
  status: f64;
  /** 0: the provider asked for no wait. */
  providerRetryAfterMs: f64;
  requestId: string;

  constructor(o: Json) {
    this.message = o.get("message").text();
    this.code = o.get("code").text();
    this.status = o.get("status").number();
    this.providerRetryAfterMs = o.get("providerRetryAfterMs").number();
    this.requestId = o.get("requestId").text();
  }
}

// The fields of step-input.json#retryPolicy.
export class RetryPolicy {
  /** What retries under these settings are counted by. */
  key: string;
  /** normal or always */
  mode: string;
  maxRetries: f64;
  retryableCodes: string[] = [];
  initialDelayMs: f64;
  maxDelayMs: f64;
  jitterRatio: f64;

  constructor(o: Json) {
    this.key = o.get("key").text();
    this.mode = o.get("mode").text();
    this.maxRetries = o.get("maxRetries").number();
    this.initialDelayMs = o.get("initialDelayMs").number();
    this.maxDelayMs = o.get("maxDelayMs").number();
    this.jitterRatio = o.get("jitterRatio").number();
    const codes = o.get("retryableCodes").items();
    for (let i = 0; i < codes.length; i++) this.retryableCodes.push(codes[i].text());
  }
}

// The fields of step-input.json#retryCount.
export class RetryCount {
  policy: string;
  policyKey: string;
  purpose: string;
  count: f64;

  constructor(o: Json) {
    this.policy = o.get("policy").text();
    this.policyKey = o.get("policyKey").text();
    this.purpose = o.get("purpose").text();
    this.count = o.get("count").number();
  }
}

// The fields of step-input.json#repairOutcome.
export class RepairOutcome {
  kind: string;
  policy: string;
  ok: bool;
  tokensBefore: f64;
  tokensAfter: f64;

  constructor(o: Json) {
    this.kind = o.get("kind").text();
    this.policy = o.get("policy").text();
    this.ok = o.get("ok").isTrue();
    this.tokensBefore = o.get("tokensBefore").number();
    this.tokensAfter = o.get("tokensAfter").number();
  }
}

// The fields of step-input.json#surface.
export class Surface {
  /** Counts replacements. */
  generation: f64;
  messages: f64;
  /** An estimate. */
  tokens: f64;
  /** Of the model, in tokens; 0: unknown. */
  window: f64;
  requestBytes: f64;

  constructor(o: Json) {
    this.generation = o.get("generation").number();
    this.messages = o.get("messages").number();
    this.tokens = o.get("tokens").number();
    this.window = o.get("window").number();
    this.requestBytes = o.get("requestBytes").number();
  }
}

// The fields of step-input.json#limits.
export class Limits {
  /** NaN: there is no ceiling. */
  attemptsLeft: f64;
  waitLeftMs: f64;

  constructor(o: Json) {
    this.attemptsLeft = o.get("attemptsLeft").number(NaN);
    this.waitLeftMs = o.get("waitLeftMs").number(NaN);
  }
}

// The fields of decision.json.
export class Decision {
  kind: string = DELEGATE;
  delayMs: f64 = 0;
  /** "": normal */
  mode: string = "";
  /** The host refuses a retry with a higher number; NaN: no limit. */
  maxRetries: f64 = NaN;
  /** What the retry is counted under; "": the policy's name. */
  policyKey: string = "";
  /** Done before the wait, in order. */
  repairs: Repair[] = [];
  /** For people. */
  reason: string = "";
  /** Of a delegate: a retry, if no other policy retries. */
  fallback: Decision | null = null;

  toJson(): Json {
    const o = Json.object().set("kind", Json.string(this.kind));
    if (this.kind == RETRY) o.set("delayMs", Json.of(this.delayMs));
    text(o, "mode", this.mode);
    if (!isNaN(this.maxRetries)) o.set("maxRetries", Json.of(this.maxRetries));
    text(o, "policyKey", this.policyKey);
    if (this.repairs.length > 0) o.set("repairs", listOf(this.repairs));
    text(o, "reason", this.reason);
    if (this.fallback !== null) o.set("fallback", this.fallback!.toJson());
    return o;
  }
}

// The fields of step-answer.json.
export class StepAnswer {
  repairs: Repair[] = [];
  reason: string = "";

  toJson(): Json {
    const o = Json.object().set("kind", Json.string(PROCEED));
    if (this.repairs.length > 0) o.set("repairs", listOf(this.repairs));
    text(o, "reason", this.reason);
    return o;
  }
}

// The fields of decision.json#repair.
export class Repair {
  /** prune: tool results become head, marker and tail. compact: a range becomes a summary. */
  kind: string = "";
  seqs: f64[] = [];
  overChars: f64 = 0;
  headChars: f64 = 0;
  tailChars: f64 = 0;
  retainTokens: f64 = 0;
  from: f64 = 0;
  to: f64 = 0;
  instructions: string = "";
  maxTokens: f64 = 0;
  ifOverTokens: f64 = NaN;

  toJson(): Json {
    const o = Json.object().set("kind", Json.string(this.kind));
    if (this.seqs.length > 0) {
      const list = Json.list();
      for (let i = 0; i < this.seqs.length; i++) list.push(Json.of(this.seqs[i]));
      o.set("seqs", list);
    }
    size(o, "overChars", this.overChars);
    size(o, "headChars", this.headChars);
    size(o, "tailChars", this.tailChars);
    size(o, "retainTokens", this.retainTokens);
    size(o, "from", this.from);
    size(o, "to", this.to);
    text(o, "instructions", this.instructions);
    size(o, "maxTokens", this.maxTokens);
    if (!isNaN(this.ifOverTokens)) o.set("ifOverTokens", Json.of(this.ifOverTokens));
    return o;
  }
}

export const RETRY = "retry";
export const DELEGATE = "delegate";
const PROCEED = "proceed";

function text(o: Json, key: string, v: string): void { if (v != "") o.set(key, Json.string(v)); }
function size(o: Json, key: string, v: f64): void { if (v != 0) o.set(key, Json.of(v)); }

function listOf(repairs: Repair[]): Json {
  const list = Json.list();
  for (let i = 0; i < repairs.length; i++) list.push(repairs[i].toJson());
  return list;
}
