// One call: its form, progress, questions of the server, cancellation and result.

import { toJson } from "./client.js";
import { jsonBlock, resultView } from "./content.js";
import { button, bytes, clip, copyButton, duration, el } from "./dom.js";
import { buildForm } from "./form.js";
import { record } from "./history.js";
import { answerTo, question } from "./questions.js";

const MAX_ROUNDS = 20;

/**
 * Makes the panel of a call. `params` turns the value of the form into the params of the request; without a schema there is no form.
 * `value` is the initial value of the form. `onRead` is called with the URI of a resource that the user wants to read. `command`
 * returns the command for the params.
 */
export function callPanel({ client, method, schema, label, verb, params, toolSchema, suggest, onRead, value: initial, command }) {
  const form = schema && buildForm(schema, { label, suggest, value: initial });
  const run = el("button.primary", { type: "submit", title: "Ctrl+Enter" }, verb);
  const cancel = button("Cancel", () => running?.abort(), { hidden: true });
  const copy = command && copyButton(() => {
    const value = form ? form.read() : {};
    return value && command(params(value));
  }, "Copy as ropeway call");
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
  }, form?.node, el("p.actions", {}, run, cancel, copy), progress, outcome, questions, result);
  let running;

  async function start() {
    if (running) return;
    const value = form ? form.read() : {};
    if (value === undefined) return;
    const wanted = params(value);
    running = new AbortController();
    const began = performance.now();
    const call = record(client.profile, method, wanted);
    begin();
    try {
      const found = await rounds(wanted, running.signal, call);
      call.end(found.isError === true ? "tool_error" : "ok");
      showResult(found, performance.now() - began);
    } catch (error) {
      const isCancelled = running.signal.aborted;
      call.end(isCancelled ? "cancelled" : "error", error);
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
  async function rounds(wanted, signal, call) {
    let sent = wanted;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const found = await client.request(method, sent, { signal, onNotification, schema: toolSchema, record: call });
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
        group?.remove();
        if (!open.size) resolve(answers);
      };
      const groups = [];
      for (const [key, request] of Object.entries(requests)) {
        const known = answerTo(request);
        if (known) answer(key, known);
        else groups.push(question(request, (value, group) => answer(key, value, group), () => running?.abort()));
      }
      questions.replaceChildren(...groups);
      groups[0]?.querySelector("input, textarea, select, button.primary")?.focus();
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
