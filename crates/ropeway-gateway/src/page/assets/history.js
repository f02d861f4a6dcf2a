// The page's own calls, with their messages. They stay in the memory of the page, and end with it.

import { parseJson } from "./client.js";

const MAX_CALLS = 100;
/** Number of characters of all calls together, and of one message. */
const MAX_SIZE = 10_000_000;
const MAX_MESSAGE = 1_000_000;
/** Number of messages of a call, half of them the first ones. */
const MAX_MESSAGES = 200;

/** The calls, newest first. */
let calls = [];
let count = 0;
let changed = () => {};

/** Returns the calls, newest first. */
export const history = () => calls;

/** Sets the function that is called when a call begins or ends. */
export function onHistory(react) {
  changed = react;
}

/** Forgets all calls. Those in progress continue. */
export function clearHistory() {
  calls = [];
  changed();
}

/** A call of the page, from its first message to its end. */
class OwnCall {
  constructor(profile, method, params) {
    count += 1;
    Object.assign(this, { key: `page-${count}`, profile, method, params, time: new Date().toISOString(), began: performance.now() });
    Object.assign(this, { ids: new Set(), messages: [], dropped: 0, size: 0, outcome: "running", ms: undefined, error: undefined });
  }

  /** The name, URI or prompt that is called. */
  get target() {
    return String(this.params.name ?? this.params.uri ?? this.method);
  }

  sent(id, text) {
    this.ids.add(id);
    this.add(true, text);
  }

  received(text) {
    this.add(false, text);
  }

  add(isSent, text) {
    const kept = text.length > MAX_MESSAGE ? text.slice(0, MAX_MESSAGE) : text;
    this.messages.push({ isSent, at: performance.now() - this.began, text: kept, length: text.length });
    this.size += kept.length;
    if (this.messages.length > MAX_MESSAGES) {
      const [gone] = this.messages.splice(MAX_MESSAGES / 2, 1);
      this.size -= gone.text.length;
      this.dropped += 1;
    }
    trim();
  }

  /** Ends the call, with the error if it failed. */
  end(outcome, error) {
    Object.assign(this, { outcome, ms: performance.now() - this.began });
    if (error) this.error = { message: String(error.message), code: error.code, data: error.data };
    changed();
  }

  /** Returns the result, or `undefined` if there is none or it was too long to keep. */
  result() {
    const last = this.messages.at(-1);
    if (!["ok", "tool_error"].includes(this.outcome) || last.text.length < last.length) return undefined;
    return parseJson(last.text).result;
  }
}

/** Removes old calls while there are too many, or too large ones. */
function trim() {
  let size = 0;
  const fits = calls.findIndex((call, at) => {
    size += call.size;
    return at > 0 && (at >= MAX_CALLS || size > MAX_SIZE);
  });
  if (fits >= 0) calls.length = fits;
}

/** Begins to record a call. */
export function record(profile, method, params) {
  const call = new OwnCall(profile, method, params);
  calls.unshift(call);
  trim();
  changed();
  return call;
}
