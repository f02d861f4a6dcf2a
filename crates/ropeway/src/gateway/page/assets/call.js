// One call: its form, progress, questions of the server, cancellation and result.

import { button, bytes, clip, duration, el, link } from "./dom.js";
import { jsonBlock, resultView } from "./content.js";
import { buildForm } from "./form.js";
import { needsKey, toJson } from "./client.js";

const MAX_ROUNDS = 20;

/**
 * Makes the panel of a call. `params` turns the value of the form into the params of the request; without a schema there is no form.
 * `onRead` is called with the URI of a resource that the user wants to read.
 */
export function callPanel({ client, method, schema, label, verb, params, toolSchema, suggest, onRead }) {
  const form = schema && buildForm(schema, { label, suggest });
  const run = el("button.primary", { type: "submit", title: "Ctrl+Enter" }, verb);
  const cancel = button("Cancel", () => running?.abort(), { hidden: true });
  const progress = el("div.progress", { hidden: true });
  const questions = el("div.questions");
  const outcome = el("p.outcome", { role: "status" });
  const result = el("div.result");
  const node = el("form.call", {
    novalidate: true,
    submit: (event) => {
      event.preventDefault();
      start();
    },
    keydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !running) {
        event.preventDefault();
        start();
      }
    },
  }, form?.node, el("p.actions", {}, run, cancel), progress, outcome, questions, result);
  let running;

  async function start() {
    if (running) return;
    const value = form ? form.read() : {};
    if (value === undefined) return;
    const wanted = params(value);
    running = new AbortController();
    const began = performance.now();
    begin();
    try {
      const found = await rounds(wanted, running.signal);
      showResult(found, performance.now() - began);
    } catch (error) {
      const isCancelled = running.signal.aborted;
      outcome.replaceChildren(mark("bad", isCancelled ? "Cancelled" : "Failed"), isCancelled ? ` after ${duration(performance.now() - began)}` : ` ${clip(error.message, 2000)}`,
        error.code !== undefined && !isCancelled ? el("span.hint", {}, ` (${error.code})`) : "");
      if (error.data !== undefined && !isCancelled) result.append(jsonBlock(error.data));
    } finally {
      running = undefined;
      end();
    }
  }

  function begin() {
    run.disabled = true;
    cancel.hidden = false;
    progress.hidden = false;
    progress.replaceChildren(el("progress", { "aria-label": "Progress" }));
    result.replaceChildren();
    outcome.replaceChildren("Running…");
    node.setAttribute("aria-busy", "true");
  }

  function end() {
    run.disabled = false;
    cancel.hidden = true;
    progress.hidden = true;
    questions.replaceChildren();
    node.removeAttribute("aria-busy");
  }

  /** Sends the request, and again with answers while the server asks for input. */
  async function rounds(wanted, signal) {
    let sent = wanted;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const found = await client.request(method, sent, { signal, onNotification, schema: toolSchema });
      if (found.resultType !== "input_required") return found;
      outcome.replaceChildren("The server asks for input.");
      progress.hidden = true;
      const inputResponses = await ask(found.inputRequests ?? {}, signal);
      progress.hidden = false;
      outcome.replaceChildren("Running…");
      sent = { ...wanted, inputResponses, ...(found.requestState === undefined ? {} : { requestState: found.requestState }) };
    }
    throw new Error("the server asked for input too often");
  }

  function onNotification({ method: kind, params: told }) {
    if (kind !== "notifications/progress" || !told) return;
    const { progress: value, total, message } = told;
    const isKnown = typeof total === "number" && total > 0;
    const bar = el("progress", { "aria-label": "Progress", ...(isKnown ? { value: Math.min(Number(value), total), max: total } : {}) });
    progress.replaceChildren(bar, el("span", {}, `${clip(value, 20)}${isKnown ? ` of ${total}` : ""} ${clip(message ?? "", 300)}`));
  }

  /** Shows the questions of a server, and returns the answers. */
  function ask(requests, signal) {
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new Error("cancelled")), { once: true });
      const answers = {};
      const open = new Set(Object.keys(requests));
      const answer = (key, value, group) => {
        Object.defineProperty(answers, key, { value, enumerable: true });
        open.delete(key);
        group.remove();
        if (!open.size) resolve(answers);
      };
      const groups = Object.entries(requests).map(([key, request]) => question(request, (value, group) => answer(key, value, group)));
      questions.replaceChildren(...groups);
      groups[0]?.querySelector("input, textarea, select, button")?.focus();
      if (!groups.length) resolve(answers);
    });
  }

  function showResult(found, took) {
    const isError = found.isError === true;
    const { body, modes } = resultView(method, found, onRead);
    outcome.replaceChildren(mark(isError ? "bad" : "good", isError ? "Tool error" : "Done"), ` in ${duration(took)}, ${bytes(toJson(found).length)}`);
    result.replaceChildren(el("div.result-head", {}, el("h3", {}, "Result"), modes), el(isError ? "div.failed" : "div", {}, body));
  }

  return { node, start };
}

const mark = (kind, text) => el(`strong.${kind}`, {}, text);

/** Returns `true` for the sign-in to a server on this page. With a key it is shown here, because another tab would ask for the key. */
const isOwnSignIn = (url) => needsKey() && url.startsWith(`${location.origin}/#/servers/`);

/** Makes the form of one question. `onAnswer` is called with the answer. */
function question(request, onAnswer) {
  const asked = request?.params ?? {};
  const group = el("section.card.question", { "aria-label": "Question from the server" }, el("h3", {}, "Input required"));
  const send = (value) => onAnswer(value, group);
  const others = [
    button("Decline", () => send({ action: "decline" })),
    button("Dismiss", () => send({ action: "cancel" })),
  ];
  if (request?.method !== "elicitation/create") {
    group.append(el("p.notice", {}, `This page cannot answer ${clip(request?.method, 60)}.`), el("p.actions", {}, others[1]));
    return group;
  }
  group.append(el("p.question-text", {}, clip(asked.message ?? "", 5000)));
  if (asked.mode === "url") {
    const url = String(asked.url ?? "");
    group.append(el("p", {}, isOwnSignIn(url) ? el("a", { href: new URL(url).hash }, clip(url, 500)) : link(url, clip(url, 500))),
      el("p.actions", {}, button("Done", () => send({ action: "accept" }), { class: "primary" }), ...others));
    return group;
  }
  const form = buildForm(asked.requestedSchema ?? {}, { label: "Answer" });
  const accept = button("Send", () => {
    const content = form.read();
    if (content !== undefined) send({ action: "accept", content });
  }, { class: "primary" });
  group.append(form.node, el("p.actions", {}, accept, ...others));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      event.stopPropagation();
      accept.click();
    }
  });
  return group;
}
