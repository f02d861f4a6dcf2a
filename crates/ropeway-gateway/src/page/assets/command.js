// The command line for a call.

import { toJson } from "./client.js";

/** Quotes a word for a POSIX shell. */
export function quoted(word) {
  return /^[\w./:@+-][\w./:@%+=,-]*$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Characters that a terminal could interpret when a command is pasted, and those that hide what it says. */
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Writes arguments as JSON of visible characters. */
const visibleJson = (value) => toJson(value).replace(UNSAFE, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * Returns the command that repeats a call, or `undefined` if a name has invisible characters. `owner` is the server with its own name
 * of the tool, prompt or resource; without it, the command names the address of the gateway.
 */
export function commandOf({ profile, method, params }, owner) {
  const verb = { "tools/call": "call", "prompts/get": "prompt", "resources/read": "read" }[method];
  const isResource = params.uri !== undefined;
  const own = owner && (isResource ? owner.name : `${owner.server}.${owner.name}`);
  const name = String(own ?? params.name ?? params.uri);
  const path = profile === "default" ? "" : `/${encodeURIComponent(profile)}`;
  const words = ["ropeway", verb, ...(owner ? [] : ["--url", `${location.origin}/mcp${path}`])];
  if (owner && isResource) words.push(owner.server);
  if (name.startsWith("-")) words.push("--");
  words.push(name);
  const args = params.arguments ?? {};
  if (Object.keys(args).length) words.push(visibleJson(args));
  return words.some((word) => word.search(UNSAFE) >= 0) ? undefined : words.map(quoted).join(" ");
}
