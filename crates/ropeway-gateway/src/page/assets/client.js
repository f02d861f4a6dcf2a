// The connection to the gateway: its API, and MCP 2026-07-28 over Streamable HTTP.

import { roots } from "./roots.js";

const VERSION = "2026-07-28";
const META = "io.modelcontextprotocol/";
const MAX_PAGES = 200;
const MAX_ENTRIES = 20_000;

/** The key of the user. It is kept in this variable only. */
let key;
/** Whether the user was asked for a key and gave none. */
let isDeclined = false;
let askForKey = async () => undefined;
/** Number of keys that the user gave, and the last one that the gateway accepted. */
let given = 0;
let accepted = 0;
let keyChanged = () => {};
let nextId = 0;
/** Tells the requests of this page from those of others in the records of the gateway. */
const PAGE = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** A response that reports an error. */
export class RequestError extends Error {
  constructor(message, { code, data, status } = {}) {
    super(message);
    Object.assign(this, { name: "RequestError", code, data, status });
  }
}

/** Returns `true` if the gateway has asked for a key. */
export const needsKey = () => key !== undefined || isDeclined;

/** Forgets the key. The next request asks for another one. */
export function forgetKey() {
  key = undefined;
  isDeclined = false;
}

/** Sets the function that asks the user for a key. It gets the reason, and returns the key or `undefined`. */
export function onKeyNeeded(ask) {
  let asking;
  askForKey = (reason) => {
    asking ??= ask(reason).finally(() => { asking = undefined; });
    return asking;
  };
}

/** Sets the function that is called when the gateway has accepted another key than before. */
export function onKeyChanged(react) {
  keyChanged = react;
}

function noteAccepted() {
  const isOther = accepted !== 0 && accepted !== given;
  accepted = given;
  if (isOther) keyChanged();
}

/** Parses JSON. Integers that a number cannot represent become big integers. */
export function parseJson(text) {
  return JSON.parse(text, (_, value, context) => {
    const isInexact = typeof value === "number" && Math.abs(value) > Number.MAX_SAFE_INTEGER;
    return isInexact && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
  });
}

/** Writes JSON, including big integers. */
export function toJson(value, indent) {
  return JSON.stringify(value, (_, part) => {
    if (typeof part !== "bigint") return part;
    return JSON.rawJSON ? JSON.rawJSON(String(part)) : Number(part);
  }, indent);
}

/** Sends a request with the key. Asks for another key while the gateway refuses it. */
async function send(path, options = {}) {
  for (;;) {
    const used = key;
    const headers = { ...options.headers, ...(used ? { Authorization: `Bearer ${used}` } : {}) };
    const response = await fetch(path, { ...options, headers, credentials: options.credentials ?? "omit", redirect: "error", cache: "no-store" });
    if (response.status !== 401) {
      if (used && used === key) noteAccepted();
      return response;
    }
    await response.body?.cancel();
    // Another request may have asked meanwhile.
    if (key === used) {
      const next = isDeclined ? undefined : await askForKey(used ? "The gateway does not accept this key." : "");
      isDeclined = next === undefined;
      if (isDeclined) throw new RequestError("a key is required", { status: 401 });
      if (key !== next) given += 1;
      key = next;
    }
  }
}

/** Returns the error of a response that is not a result. */
async function failure(response, read) {
  const text = read ?? await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text);
    return new RequestError(String(error.message), { code: error.code, data: error.data, status: response.status });
  } catch {
    return new RequestError(text.slice(0, 300) || `HTTP ${response.status}`, { status: response.status });
  }
}

/** Reads a resource of the API. */
export async function api(name) {
  const response = await send(`/api/${name}`);
  if (!response.ok) throw await failure(response);
  return response.json();
}

async function change(path, server, options) {
  const headers = { "Content-Type": "application/json" };
  const response = await send(path, { method: "POST", headers, body: JSON.stringify({ server }), ...options });
  if (!response.ok) throw await failure(response);
  return response.json();
}

/** Starts a sign-in to a server, or signs out with "DELETE". The cookie of a sign-in ties it to this browser. */
export const signIn = (server, method = "POST") => change("/api/sign-in", server, { method, credentials: "same-origin" });

/** Restarts a server. Ends when it is connected or has failed. */
export const restart = (server) => change("/api/restart", server);

/** Reads the events of the gateway until the stream ends. `onOpen` is called when it begins. */
export async function events(onOpen, onEvent, signal) {
  const response = await send("/api/events", { signal, headers: { Accept: "text/event-stream" } });
  if (!response.ok) throw await failure(response);
  onOpen();
  for await (const data of dataOf(response)) onEvent(JSON.parse(data));
}

/** Yields the data of each event of a stream (https://html.spec.whatwg.org/multipage/server-sent-events.html). */
async function* dataOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    // A large event arrives in many pieces, which are not searched again and again.
    if (!value.includes("\n")) continue;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "" && data.length) {
        yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
}

/** Encodes the value of a header; text that a header cannot contain becomes base64. */
export function headerValue(text) {
  if (/^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !text.startsWith("=?base64?")) return text;
  const binary = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
  return `=?base64?${btoa(binary)}?=`;
}

/** Returns the headers that mirror arguments of a tool (`x-mcp-header` in its schema). */
function mirrored(schema, args, depth = 0) {
  const headers = {};
  const properties = depth < 16 && typeof schema?.properties === "object" ? schema.properties : {};
  for (const [name, property] of Object.entries(properties ?? {})) {
    if (!args || typeof args !== "object" || !Object.hasOwn(args, name)) continue;
    const value = args[name];
    const header = property?.["x-mcp-header"];
    const isPlain = typeof value === "string" || typeof value === "boolean" || Number.isSafeInteger(value);
    if (typeof header === "string" && /^[\w-]+$/.test(header) && isPlain) {
      headers[`Mcp-Param-${header}`] = headerValue(String(value));
    }
    Object.assign(headers, mirrored(property, value, depth + 1));
  }
  return headers;
}

/** An MCP client of one profile. */
export class Client {
  constructor(profile) {
    this.profile = profile || "default";
    this.path = !profile || profile === "default" ? "/mcp" : `/mcp/${encodeURIComponent(profile)}`;
  }

  /**
   * Sends a request and returns its result. `onNotification` gets progress and log messages; aborting the signal cancels the request.
   * `schema` is the input schema of the tool that is called. `record` gets the messages in both directions.
   */
  async request(method, params = {}, { signal, onNotification, schema, record } = {}) {
    nextId += 1;
    const id = `${PAGE}-${nextId}`;
    const meta = {
      ...params._meta,
      [`${META}protocolVersion`]: VERSION,
      [`${META}clientInfo`]: { name: "ropeway-page", version: "1" },
      // A server that has asked for roots uses them instead of its own directories: only roots of the user are offered.
      [`${META}clientCapabilities`]: { elicitation: { form: {}, url: {} }, sampling: {}, ...(roots().length ? { roots: {} } : {}) },
      ...(onNotification ? { progressToken: `page-${id}` } : {}),
    };
    const target = params.name ?? params.uri;
    const headers = {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": VERSION,
      "Mcp-Method": method,
      ...(target === undefined ? {} : { "Mcp-Name": headerValue(target) }),
      ...(schema ? mirrored(schema, params.arguments) : {}),
    };
    const body = toJson({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } });
    record?.sent(id, body);
    const response = await send(this.path, { method: "POST", headers, body, signal });
    const type = response.headers.get("content-type") ?? "";
    if (!type.startsWith("text/event-stream")) {
      const text = await response.text();
      record?.received(text);
      if (!response.ok) throw await failure(response, text);
      return resultOf(parseJson(text));
    }
    for await (const data of dataOf(response)) {
      record?.received(data);
      const message = parseJson(data);
      if (message.id === id) return resultOf(message);
      if (message.method) onNotification?.(message);
    }
    throw new RequestError("the connection ended before the response");
  }

  /** Returns the description of the servers of the profile. */
  discover() {
    return this.request("server/discover");
  }

  /** Returns all entries of a list. */
  async list(method, name, signal) {
    const entries = [];
    let cursor;
    for (let page = 0; page < MAX_PAGES && entries.length < MAX_ENTRIES; page += 1) {
      const result = await this.request(method, cursor === undefined ? {} : { cursor }, { signal });
      entries.push(...(Array.isArray(result[name]) ? result[name] : []));
      cursor = result.nextCursor;
      if (typeof cursor !== "string") break;
    }
    return entries;
  }
}

function resultOf(message) {
  if (message.error) throw new RequestError(String(message.error.message), message.error);
  return message.result ?? {};
}
