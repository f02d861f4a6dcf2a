// Results of servers: content blocks, resources, messages and JSON.

import { parseJson, toJson } from "./client.js";
import { button, bytes, choice, clip, copyButton, disclosure, el, link, portions } from "./dom.js";
import { looksLikeMarkdown, markdown, MAX_MARKDOWN } from "./markdown.js";

const MAX_TEXT = 100_000;
const MAX_PARSED = 2_000_000;
const MAX_BLOCKS = 50;
const PORTION = 100;

/** Media types that are shown. An image element runs no script of an SVG file. */
const IMAGES = /^image\/(png|jpe?g|gif|webp|avif|bmp|svg\+xml|x-icon)$/i;
const SOUNDS = /^audio\/[\w.+-]{1,60}$/i;

/** Shows a JSON value as a tree in a frame. A small one is unfolded. */
export function jsonBlock(value) {
  const isSmall = (toJson(value) ?? "").length < 3000;
  return el("div.tree", {}, jsonTree(value, undefined, isSmall ? 9 : 2));
}

/** Shows a JSON value as a tree that folds. */
function jsonTree(value, name, open = 1) {
  if (typeof value !== "object" || value === null) {
    return el("div.leaf", {}, name !== undefined && el("span.key", {}, `${clip(name, 200)}: `), leaf(value));
  }
  const isList = Array.isArray(value);
  const entries = isList ? value.map((item, at) => [String(at), item]) : Object.entries(value);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  const head = el("span", {}, name !== undefined && el("span.key", {}, `${clip(name, 200)}: `), el("span.size", {}, size));
  if (!entries.length) return el("div.leaf", {}, name !== undefined && el("span.key", {}, `${clip(name, 200)}: `), isList ? "[]" : "{}");
  const children = () => {
    const list = el("div.children");
    portions(list, entries, ([key, child]) => jsonTree(child, key, open - 1), PORTION);
    return list;
  };
  return disclosure(head, children, { open: open > 0 && entries.length <= PORTION });
}

function leaf(value) {
  const kind = value === null ? "null" : typeof value;
  const text = kind === "string" ? JSON.stringify(value) : String(value);
  if (text.length <= 2000) return el(`span.${kind}`, {}, text);
  const span = el(`span.${kind}`, {}, `${text.slice(0, 2000)}…`);
  return el("span", {}, span, button(`Show all (${bytes(text.length)})`, (event) => {
    span.textContent = text.slice(0, MAX_TEXT * 10);
    event.target.remove();
  }, { class: "more" }));
}

/** Shows a text in fixed width. A long one is cut, with a button that shows the rest. */
export function plainText(text, label = "Text") {
  const pre = el("pre.text", { tabindex: "0", role: "group", "aria-label": label }, text.slice(0, MAX_TEXT));
  if (text.length <= MAX_TEXT) return pre;
  const more = button(`Show all (${bytes(text.length)})`, () => {
    pre.textContent = text;
    more.remove();
  }, { class: "more" });
  return el("div", {}, pre, more);
}

/** Shows a text as JSON, as Markdown or as it is. */
function textBlock(text, mimeType = "") {
  let json;
  const mayBeJson = text.length <= MAX_PARSED && /^\s*[[{]/.test(text);
  if (mayBeJson) {
    try { json = parseJson(text); } catch { /* It is not JSON. */ }
  }
  const canFormat = text.length <= MAX_MARKDOWN && (/markdown/.test(mimeType) || looksLikeMarkdown(text));
  const choices = [["text", "Text"]];
  if (canFormat) choices.push(["markdown", "Markdown"]);
  if (json !== undefined) choices.push(["json", "JSON"]);
  const start = json !== undefined ? "json" : canFormat && !/^text\/(?!markdown|plain)/.test(mimeType) ? "markdown" : "text";
  const body = el("div.block-body");
  const show = (kind) => {
    const made = { text: () => plainText(text), markdown: () => markdown(text), json: () => jsonBlock(json) };
    body.replaceChildren(made[kind]());
  };
  show(start);
  const tools = el("div.block-tools", {}, choices.length > 1 && choice("Show as", choices, start, show), copyButton(() => text));
  return el("div.block", {}, tools, body);
}

/** Decodes base64, or returns `undefined`. */
function blobOf(data, mimeType) {
  try {
    const binary = atob(String(data));
    return new Blob([Uint8Array.from(binary, (character) => character.charCodeAt(0))], { type: mimeType });
  } catch {
    return undefined;
  }
}

/** Shows an image, a sound, or a button that saves the data. */
function mediaBlock(data, mimeType, name) {
  const blob = blobOf(data, IMAGES.test(mimeType) || SOUNDS.test(mimeType) ? mimeType : "application/octet-stream");
  if (!blob) return el("p.notice.bad", {}, "The data is not valid base64.");
  const url = URL.createObjectURL(blob);
  const save = () => el("a", { href: URL.createObjectURL(blob), download: clip(name || "data", 80).replace(/[^\w.-]+/g, "_") }).click();
  const note = el("figcaption", {}, `${clip(mimeType || "binary data", 80)}, ${bytes(blob.size)} `, button("Save", save, { class: "quiet" }));
  // The browser keeps the data of an address until it is revoked.
  const revoke = () => URL.revokeObjectURL(url);
  if (IMAGES.test(mimeType)) return el("figure", {}, el("img", { src: url, load: revoke, error: revoke, alt: clip(name || "Image of the result", 200) }), note);
  if (SOUNDS.test(mimeType)) return el("figure", {}, el("audio", { src: url, controls: true, "aria-label": clip(name || "Audio of the result", 200) }), note);
  return el("figure", {}, note);
}

/** Shows the contents of a resource. */
export function resourceContents(contents) {
  const name = String(contents?.uri ?? "");
  const mimeType = String(contents?.mimeType ?? "");
  const head = el("p.block-head", {}, link(name, clip(name, 300)), mimeType && el("span.badge", {}, clip(mimeType, 60)));
  if (typeof contents?.text === "string") return el("section", {}, head, textBlock(contents.text, mimeType));
  if (typeof contents?.blob === "string") return el("section", {}, head, mediaBlock(contents.blob, mimeType, name.split("/").pop()));
  return el("section", {}, head, jsonBlock(contents));
}

/** Shows a content block. `onRead` is called with the URI of a resource that the user wants to read. */
export function contentBlock(block, onRead) {
  const mimeType = String(block?.mimeType ?? "");
  switch (block?.type) {
    case "text": return textBlock(String(block.text ?? ""));
    case "image":
    case "audio": return mediaBlock(block.data, mimeType, block.type);
    case "resource": return resourceContents(block.resource);
    case "resource_link": {
      const uri = String(block.uri ?? "");
      return el("section.card", {},
        el("p.block-head", {}, el("strong", {}, clip(block.title ?? block.name ?? uri, 200)), mimeType && el("span.badge", {}, clip(mimeType, 60))),
        block.description && el("p.help", {}, clip(block.description, 1000)),
        el("p.block-head", {}, link(uri, clip(uri, 300)), onRead && button("Read", () => onRead(uri), { "aria-label": `Read ${clip(uri, 100)}` })));
    }
    default: return jsonBlock(block);
  }
}

function blocks(list, make) {
  const node = el("div.blocks");
  portions(node, Array.isArray(list) ? list : [], make, MAX_BLOCKS);
  return node;
}

/** Shows the result of a tool call, a prompt or a resource. */
export function resultBody(method, result, onRead) {
  if (method === "resources/read") return blocks(result.contents, resourceContents);
  if (method === "prompts/get") {
    return blocks(result.messages, (message) => el("section.message", {},
      el("p.block-head", {}, el("span.badge", {}, clip(message?.role ?? "message", 30))), contentBlock(message?.content, onRead)));
  }
  const node = blocks(result.content, (block) => contentBlock(block, onRead));
  if (result.structuredContent !== undefined) {
    node.append(el("section", {}, el("p.block-head", {}, el("span.badge", {}, "structured content")), jsonBlock(result.structuredContent)));
  }
  if (!node.children.length) node.append(el("p.help", {}, "The result is empty."));
  return node;
}

/** Shows a whole result: rendered, or as the JSON that arrived. */
export function resultView(method, result, onRead) {
  const body = el("div");
  const show = (kind) => body.replaceChildren(kind === "raw" ? rawResult(result) : resultBody(method, result, onRead));
  show("rendered");
  return { body, modes: choice("Result", [["rendered", "Rendered"], ["raw", "Raw"]], "rendered", show) };
}

function rawResult(result) {
  const text = toJson(result, 2);
  return el("div", {}, jsonBlock(result), el("p.block-tools", {}, copyButton(() => text, "Copy JSON")));
}
