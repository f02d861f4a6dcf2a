// Requests of servers during a call: elicitation, sampling and roots.

import { needsKey } from "./client.js";
import { contentBlock, jsonBlock } from "./content.js";
import { button, clip, disclosure, el, facts, link } from "./dom.js";
import { buildForm } from "./form.js";
import { roots } from "./roots.js";

const MAX_MESSAGES = 100;

/** Returns `true` for the sign-in to a server on this page. With a key it is shown here, because another tab would ask for the key. */
const isOwnSignIn = (url) => needsKey() && url.startsWith(`${location.origin}/#/servers/`);

/** Returns the answer to a request that needs no user, or `undefined`. */
export const answerTo = (request) => (request?.method === "roots/list" ? { roots: roots() } : undefined);

/** Makes the form of one request. `onAnswer` is called with the answer, `onCancel` if the call cannot continue without one. */
export function question(request, onAnswer, onCancel) {
  const asked = request?.params ?? {};
  const isSampling = request?.method === "sampling/createMessage";
  const group = el("section.card.question", { "aria-label": "Question from the server" }, el("h3", {}, isSampling ? "Sampling: answer as the model" : "Input required"));
  const send = (value) => onAnswer(value, group);
  if (isSampling) return sampling(group, asked, send, onCancel);
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
  const form = buildForm(asked.requestedSchema ?? {}, { label: "Answer", byTitle: true });
  const accept = button("Send", () => {
    const content = form.read();
    if (content !== undefined) send({ action: "accept", content });
  }, { class: "primary" });
  group.append(form.node, el("p.actions", {}, accept, ...others));
  return onEnter(group, accept);
}

/** Makes Enter in an input, and Ctrl+Enter everywhere, press a button of a group instead of sending the call again. */
function onEnter(group, accept) {
  group.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || !(event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    accept.click();
  });
  return group;
}

/** Shows a request for a message of a model, which the user writes. */
function sampling(group, asked, send, onCancel) {
  const messages = (Array.isArray(asked.messages) ? asked.messages : []).slice(0, MAX_MESSAGES);
  const shown = messages.map((message) => el("section", {}, el("p.block-head", {}, el("span.badge", {}, clip(message?.role ?? "message", 30))),
    ...[message?.content].flat().slice(0, 20).map((block) => contentBlock(block))));
  const { messages: _, systemPrompt, ...settings } = asked;
  const form = buildForm({
    type: "object",
    properties: {
      text: { type: "string", title: "Answer" },
      model: { type: "string", title: "Model", default: "typed-by-hand", description: "The name of the model that the server sees." },
      stopReason: { enum: ["endTurn", "stopSequence", "maxTokens"], title: "Stop reason", default: "endTurn" },
    },
    required: ["text", "model"],
  }, { label: "Message", byTitle: true });
  const accept = button("Send", () => {
    const value = form.read();
    if (!value) return;
    const { text, ...rest } = value;
    send({ role: "assistant", content: { type: "text", text }, ...rest });
  }, { class: "primary" });
  group.append(...shown, facts([["System prompt", clip(systemPrompt ?? "", 5000)], ["Maximum tokens", clip(asked.maxTokens ?? "", 20)]]),
    el("div.schemas", {}, disclosure("Settings", () => jsonBlock(settings))), form.node,
    el("p.actions", {}, accept, button("Decline", onCancel, { title: "Cancels the call, since MCP has no other answer" })));
  return onEnter(group, accept);
}
