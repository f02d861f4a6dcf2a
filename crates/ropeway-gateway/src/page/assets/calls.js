// Calls: those of this page with their messages, and those of other clients as the gateway has recorded them.

import { CatalogView, heading } from "./catalog.js";
import { api, parseJson } from "./client.js";
import { commandOf } from "./command.js";
import { jsonBlock, plainText, resultView } from "./content.js";
import { button, bytes, clip, clock, copyButton, disclosure, duration, el, facts, plural } from "./dom.js";
import { clearHistory, history } from "./history.js";

const KINDS = { ok: "good", running: "busy", cancelled: "busy", input_required: "busy" };
const LATEST = 8;

const badgeOf = (outcome) => el(`span.badge.${KINDS[outcome] ?? "bad"}`, {}, clip(outcome, 30).replaceAll("_", " "));

/** Formats the round-trip time of one of the page's calls, or returns `undefined` while it runs. The gateway measures its own part. */
const inPage = ({ ms }) => (ms === undefined ? undefined : `${duration(ms)} in the page`);

/** Shows the latest calls of the page in a profile. */
export function latestCalls(profile) {
  const own = history().filter((call) => call.profile === profile).slice(0, LATEST);
  if (!own.length) return undefined;
  return el("section.overview", {}, el("h2", {}, "Latest calls of this page"), el("ul.latest", {}, ...own.map((call) =>
    el("li", {}, el("a", { href: `#/calls/${call.key}` }, clip(call.target, 100)), badgeOf(call.outcome), el("span.hint", {}, [clock(call.time), inPage(call)].filter(Boolean).join(" · "))))));
}

/** The latest calls, newest first. `onAgain` is called with a call of the page, and whether it is sent at once. */
export const calls = (onAgain) => new CatalogView({
  name: "calls",
  noun: "call",
  async load() {
    let records = (await api("calls")).calls ?? [];
    const own = history().map((call) => {
      // A call whose server has asked for input has several records, and only those of a new request name the server.
      const found = records.filter((one) => call.ids.has(one.request_id));
      const [record] = found;
      const first = found.find((one) => one.server);
      records = records.filter((one) => !found.includes(one));
      return {
        key: call.key, title: call.target, call, record, owner: first && { server: first.server, name: first.tool ?? first.prompt ?? first.uri }, badge: badgeOf(call.outcome), version: `${call.outcome} ${record?.call_id}`, time: call.time,
        note: [clock(call.time), first?.server, inPage(call) ?? "this page"].filter(Boolean).join(" · "),
        search: `${clip(call.messages[0]?.text, 5000)} ${clip(JSON.stringify(record), 5000)} ${call.outcome} this page`.toLowerCase(),
      };
    });
    const others = records.map((record) => ({
      key: record.call_id, title: record.name ?? record.tool ?? record.prompt ?? record.uri ?? record.method, record, time: record.time,
      badge: badgeOf(record.outcome),
      note: [clock(record.time), record.server, `${duration(record.ms)} in the gateway`, record.client_name].filter(Boolean).join(" · "),
      search: clip(JSON.stringify(record), 5000).toLowerCase(),
    }));
    return [...own, ...others].sort((one, two) => Date.parse(two.time) - Date.parse(one.time));
  },
  overview(_, show) {
    const clear = button("Forget the calls of this page", () => {
      clearHistory();
      clear.remove();
    });
    show(el("p.help", {}, "Calls of this page have their arguments, results and messages. They stay in its memory until it is closed, and are not sent anywhere."), history().length > 0 && clear);
  },
  detail({ call, record, owner, badge, title }) {
    const head = [heading(title), el("p.badges", {}, badge.cloneNode(true), call && el("span.badge", {}, "this page"))];
    const durations = call?.ms === undefined ? [] : [["Duration in the page", duration(call.ms)]];
    return [
      ...head, ...(call ? ownCall(call, owner, onAgain) : []), facts([...durations, ...(record ? describe(record) : [])]),
      record ? el("div.schemas", {}, disclosure("Audit record", () => jsonBlock(record))) : "",
    ];
  },
});

/** Shows a call of the page. */
function ownCall(call, owner, onAgain) {
  const command = commandOf(call, owner);
  const args = call.params.arguments;
  return [
    el("p.actions", {}, button("Run again", () => onAgain(call, true), { class: "primary" }), call.params.name !== undefined && button("Edit", () => onAgain(call, false)), command && copyButton(() => command, "Copy as ropeway call")),
    command && el("pre.text.command", { tabindex: "0", role: "group", "aria-label": "Command" }, clip(command, 5000)),
    args && Object.keys(args).length > 0 && el("section", {}, el("h3", {}, "Arguments"), jsonBlock(args)),
    ...outcome(call),
    el("section.messages", {}, el("h3", {}, `Messages (${call.messages.length + call.dropped})`), ...messages(call)),
  ].filter(Boolean);
}

/** Shows the result or the error of a call. */
function outcome(call) {
  if (call.error) {
    return [el("section.failed", {}, el("h3", {}, call.outcome === "cancelled" ? "Cancelled" : `Error${call.error.code === undefined ? "" : ` ${call.error.code}`}`),
      el("p.description", {}, clip(call.error.message, 5000)), call.error.data !== undefined && jsonBlock(call.error.data))];
  }
  if (call.outcome === "running") return [el("p.help", {}, "The call is in progress.")];
  const result = call.result();
  if (result === undefined) return [el("p.help", {}, "The result was too large to keep. The beginning of the message is below.")];
  const { body, modes } = resultView(call.method, result, (uri) => { location.hash = `#/resources/${encodeURIComponent(uri)}`; });
  return [el("div.result", {}, el("div.result-head", {}, el("h3", {}, "Result"), modes), el(call.outcome === "tool_error" ? "div.failed" : "div", {}, body))];
}

/** Shows the messages between the page and the gateway, in their order. */
function messages(call) {
  const shown = call.messages.map((message) => {
    const label = el("span.wire", {}, el("strong", {}, message.isSent ? "→ sent" : "← received"), ` ${kindOf(message)}`,
      el("span.hint", {}, `+${duration(message.at)} · ${bytes(message.length)}`));
    return disclosure(label, () => messageBody(message));
  });
  if (call.dropped) shown.splice(shown.length / 2, 0, el("p.help", {}, `${plural(call.dropped, "message")} left out`));
  return shown;
}

function messageBody({ text, length }) {
  const node = el("div.block", {}, el("p.block-tools", {}, copyButton(() => text)));
  try {
    node.append(jsonBlock(parseJson(text)));
  } catch {
    node.append(plainText(text), length > text.length ? `The rest of ${bytes(length)} was not kept.` : "");
  }
  return node;
}

/** Names a message by the first member that tells its kind, without parsing large ones. */
function kindOf({ text }) {
  const found = /"(method|result|error)":("([\w/.-]{1,60})")?/.exec(text.slice(0, 300));
  return found?.[3] ?? found?.[1] ?? "text";
}

/** Returns the facts of a record in words. */
function describe(record) {
  const { time, ms, client_name: client, client_version: version, decision, rule, bytes_in: sent, bytes_out: received, name, code, trace_id: trace } = record;
  return [
    ["Time", new Date(time).toLocaleString()], ["Duration in the gateway", duration(ms)], ["Outcome", clip(record.outcome, 30).replaceAll("_", " ")], ["Error code", code],
    ["Refused by", decision === "deny" ? rule : ""], ["Method", record.method], ["Server", record.server],
    ["Tool", record.tool], ["Prompt", record.prompt], ["URI", record.uri], ["Task", record.task], ["Called as", name],
    ["Client", [client, version].filter(Boolean).join(" ")], ["Era", record.era], ["Profile", record.profile], ["Principal", record.principal],
    ["Request", bytes(sent)], ["Result", bytes(received)], ["Call id", record.call_id], ["Trace", trace], ["Definition", record.digest],
  ].map(([term, value]) => [term, value === undefined || value === null ? undefined : clip(value, 1000)]);
}
