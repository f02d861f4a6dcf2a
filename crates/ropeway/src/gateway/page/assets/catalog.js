// Tools, resources, prompts and calls: a list with search, and the chosen entry next to it.

import { callPanel } from "./call.js";
import { api } from "./client.js";
import { jsonBlock } from "./content.js";
import { bytes, clip, clock, disclosure, duration, el, facts, link, plural } from "./dom.js";
import { VirtualList } from "./list.js";
import { looksLikeMarkdown, markdown } from "./markdown.js";

const ROW = 46;

/** A view with a list and a detail. `load` returns items with `key`, `title`, `note` and `search`; `detail` shows one of them. */
export class CatalogView {
  constructor({ name, noun, load, detail }) {
    Object.assign(this, { name, noun, load, detail, items: [], chosen: undefined, generation: 0 });
    this.search = el("input", { type: "search", "aria-label": `Search ${noun}s`, placeholder: `Search ${noun}s`, autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.list.element.focus();
      }
    });
    this.count = el("p.count", { role: "status" });
    this.notice = el("div");
    this.list = new VirtualList({
      label: `${noun}s`, rowHeight: ROW,
      render: (item) => [el("span.row-title", {}, item.badge?.cloneNode(true), clip(item.title, 160)), el("span.row-note", {}, clip(item.note, 200))],
      onOpen: (item) => { location.hash = `#/${name}/${encodeURIComponent(item.key)}`; },
    });
    this.pane = el("section.detail", { "aria-label": `Selected ${noun}` });
    this.node = el("div.split", {}, el("h1.unseen", {}, `${noun[0].toUpperCase()}${noun.slice(1)}s`), el("section.side", { "aria-label": `List of ${noun}s` }, el("div.search", {}, this.search, this.count), this.notice, this.list.element), this.pane);
    this.showNothing();
  }

  /** Loads the list again. The detail stays as it is. */
  async refresh(client) {
    const isNew = client !== this.client;
    this.client = client;
    this.generation += 1;
    const { generation } = this;
    if (isNew) {
      this.items = [];
      this.shown = undefined;
      this.count.textContent = "Loading…";
    }
    try {
      const items = await this.load(client);
      if (generation !== this.generation) return;
      this.items = items;
      this.notice.replaceChildren();
    } catch (error) {
      if (generation !== this.generation) return;
      this.items = [];
      this.notice.replaceChildren(el("p.notice.bad", {}, clip(error.message, 500)));
    }
    this.isLoaded = true;
    this.filter();
    this.open(this.chosen);
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? this.items.filter((item) => words.every((word) => item.search.includes(word))) : this.items;
    this.list.setItems(found);
    this.count.textContent = words.length ? `${found.length} of ${plural(this.items.length, this.noun)}` : plural(this.items.length, this.noun);
  }

  /** Shows an entry, or the list alone. */
  open(key) {
    this.chosen = key;
    this.node.classList.toggle("open", key !== undefined);
    this.list.choose(key);
    const item = this.items.find((one) => one.key === key);
    if (key === undefined) return this.showNothing();
    // A call in progress is not replaced by a list that has changed, or that lacks its tool during a sign-in.
    const isShown = this.shown?.key === key && this.shown.client === this.client;
    if (isShown && (item || this.pane.querySelector("[aria-busy]"))) return undefined;
    this.shown = item && { key, client: this.client };
    const back = el("a.back", { href: `#/${this.name}` }, `All ${this.noun}s`);
    if (!item) return this.pane.replaceChildren(back, el("p.empty", {}, this.isLoaded ? `No ${this.noun} has this name.` : "Loading…"));
    this.pane.replaceChildren(back, ...this.detail(item, this.client));
    this.pane.scrollTop = 0;
    return undefined;
  }

  showNothing() {
    this.shown = undefined;
    this.pane.replaceChildren(el("p.empty", {}, `Select a ${this.noun}.`));
  }
}

const text = (value) => (typeof value === "string" ? value : "");
const searchable = (...parts) => clip(parts.map(text).join("\n"), 5000).toLowerCase();
const firstLine = (value) => text(value).trimStart().split("\n", 1)[0];

/** Shows the description of an entry. */
function description(value) {
  const whole = clip(text(value), 20_000);
  if (!whole) return "";
  return looksLikeMarkdown(whole) ? markdown(whole) : el("p.description", {}, whole);
}

function heading(name, title) {
  return el("header.detail-head", {}, el("h2", {}, clip(title || name, 200)), title && title !== name && el("p.mono", {}, clip(name, 300)));
}

const openResource = (uri) => { location.hash = `#/resources/${encodeURIComponent(uri)}`; };

/** Returns the properties that a server claims for a tool. */
function hints(annotations) {
  const claims = [
    [annotations?.readOnlyHint === true, "read-only"],
    [annotations?.destructiveHint === true && annotations?.readOnlyHint !== true, "destructive"],
    [annotations?.idempotentHint === true, "idempotent"],
    [annotations?.openWorldHint === true, "open world"],
  ];
  const badges = claims.filter(([holds]) => holds).map(([, label]) => el(label === "destructive" ? "span.badge.warn" : "span.badge", {}, label));
  return badges.length ? el("p.badges", {}, ...badges) : "";
}

export const tools = () => new CatalogView({
  name: "tools",
  noun: "tool",
  async load(client) {
    const found = await client.list("tools/list", "tools");
    return found.filter((tool) => typeof tool?.name === "string").map((tool) => ({
      key: tool.name, title: tool.name, note: firstLine(tool.description) || text(tool.title), tool,
      search: searchable(tool.name, tool.title, tool.description),
    }));
  },
  detail({ tool }, client) {
    const schema = typeof tool.inputSchema === "object" && tool.inputSchema !== null ? tool.inputSchema : {};
    const panel = callPanel({
      client, method: "tools/call", schema, toolSchema: schema, label: "Arguments", verb: "Run", onRead: openResource,
      params: (args) => ({ name: tool.name, arguments: args }),
    });
    return [
      heading(tool.name, text(tool.title) || text(tool.annotations?.title)), hints(tool.annotations), description(tool.description), panel.node,
      el("div.schemas", {}, disclosure("Definition", () => jsonBlock(tool))),
    ];
  },
});

export const prompts = () => new CatalogView({
  name: "prompts",
  noun: "prompt",
  async load(client) {
    const found = await client.list("prompts/list", "prompts");
    return found.filter((prompt) => typeof prompt?.name === "string").map((prompt) => ({
      key: prompt.name, title: prompt.name, note: firstLine(prompt.description) || text(prompt.title), prompt,
      search: searchable(prompt.name, prompt.title, prompt.description),
    }));
  },
  detail({ prompt }, client) {
    const args = Array.isArray(prompt.arguments) ? prompt.arguments.filter((one) => typeof one?.name === "string") : [];
    const schema = stringForm(args.map((one) => [one.name, one.description]), args.filter((one) => one.required).map((one) => one.name));
    const panel = callPanel({
      client, method: "prompts/get", schema, label: "Arguments", verb: "Get", onRead: openResource,
      params: (value) => ({ name: prompt.name, arguments: value }),
      suggest: completer(client, { type: "ref/prompt", name: prompt.name }),
    });
    return [heading(prompt.name, text(prompt.title)), description(prompt.description), panel.node];
  },
});

export const resources = () => new CatalogView({
  name: "resources",
  noun: "resource",
  async load(client) {
    const [listed, templates] = await Promise.all([
      client.list("resources/list", "resources"),
      client.list("resources/templates/list", "resourceTemplates").catch(() => []),
    ]);
    const item = (resource, key, badge) => ({
      key, title: text(resource.title) || text(resource.name) || key, note: key, badge, resource,
      search: searchable(resource.name, resource.title, key, resource.description),
    });
    return [
      ...templates.filter((one) => typeof one?.uriTemplate === "string").map((one) => item(one, one.uriTemplate, el("span.badge", {}, "template"))),
      ...listed.filter((one) => typeof one?.uri === "string").map((one) => item(one, one.uri)),
    ];
  },
  detail({ key, badge, resource, title }, client) {
    const head = [
      heading(key, title), description(resource.description),
      facts([["URI", badge ? key : link(key, clip(key, 500))], ["Type", clip(text(resource.mimeType), 100)], ["Size", typeof resource.size === "number" ? bytes(resource.size) : ""]]),
    ];
    if (badge) return [...head, templatePanel(client, key).node];
    const panel = callPanel({ client, method: "resources/read", verb: "Read again", onRead: openResource, params: () => ({ uri: key }) });
    panel.start();
    return [...head, panel.node];
  },
});

const OUTCOMES = { ok: "good", cancelled: "busy", input_required: "busy" };

/** The latest calls of all clients, each with its record. */
export const calls = () => new CatalogView({
  name: "calls",
  noun: "call",
  async load() {
    const found = (await api("calls")).calls ?? [];
    return found.map((call) => ({
      key: call.call_id, title: call.name ?? call.tool ?? call.prompt ?? call.uri ?? call.method, call,
      badge: el(`span.badge.${OUTCOMES[call.outcome] ?? "bad"}`, {}, clip(call.outcome, 30).replaceAll("_", " ")),
      note: [clock(call.time), call.server, duration(call.ms), call.client_name].filter(Boolean).join(" · "),
      search: clip(JSON.stringify(call), 5000).toLowerCase(),
    }));
  },
  detail({ call, badge, title }) {
    const shown = (name, value) => {
      if (name === "time") return new Date(value).toLocaleString();
      if (name === "ms") return duration(value);
      if (name.startsWith("bytes_")) return bytes(value);
      return clip(typeof value === "object" ? JSON.stringify(value) : value, 1000);
    };
    const entries = Object.entries(call).filter(([, value]) => value !== null);
    return [
      heading(title), el("p.badges", {}, badge.cloneNode(true)),
      facts(entries.map(([name, value]) => [name === "ms" ? "duration" : name.replaceAll("_", " "), shown(name, value)])),
      el("div.schemas", {}, disclosure("Audit record", () => jsonBlock(call))),
    ];
  },
});

/** Shows a resource that no list contains, such as one that a result links to. */
export function unlistedResource(view, uri) {
  const known = view.items.some((item) => item.key === uri);
  if (!known && view.isLoaded) {
    view.items.push({ key: uri, title: uri, note: "not listed", resource: {}, search: searchable(uri) });
    view.filter();
  }
}

/** Makes the schema of a form with texts. */
function stringForm(fields, required) {
  const properties = Object.fromEntries(fields.map(([name, about]) => [name, { type: "string", description: text(about) || undefined }]));
  return { type: "object", properties, required };
}

/** Returns a function that asks the server for completions. */
function completer(client, ref) {
  return async (name, value) => {
    const { completion } = await client.request("completion/complete", { ref, argument: { name, value } });
    return Array.isArray(completion?.values) ? completion.values.filter((one) => typeof one === "string") : [];
  };
}

const EXPRESSION = /\{([+#./;?&]?)([^{}]{1,200})\}/g;

/** Makes a form for the variables of a URI template. */
function templatePanel(client, template) {
  const names = new Set();
  for (const [, , list] of template.matchAll(EXPRESSION)) for (const name of list.split(",")) names.add(name.replace(/(\*|:\d+)$/, ""));
  return callPanel({
    client, method: "resources/read", schema: stringForm([...names].slice(0, 50).map((name) => [name]), []), label: "Variables", verb: "Read", onRead: openResource,
    params: (values) => ({ uri: expand(template, values) }),
    suggest: completer(client, { type: "ref/resource", uri: template }),
  });
}

/** Expands a URI template with texts (https://www.rfc-editor.org/rfc/rfc6570). */
export function expand(template, values) {
  return template.replace(EXPRESSION, (_, operator, list) => {
    const isOpen = operator === "+" || operator === "#";
    const encode = (value) => (isOpen ? encodeURI(value) : encodeURIComponent(value));
    const isNamed = [";", "?", "&"].includes(operator);
    const parts = list.split(",").map((name) => name.replace(/(\*|:\d+)$/, "")).filter((name) => values[name] !== undefined)
      .map((name) => (isNamed ? `${name}=${encode(values[name])}` : encode(values[name])));
    const separator = { "": ",", "+": ",", "#": ",", "?": "&", "&": "&" }[operator] ?? operator;
    const prefix = operator === "+" ? "" : operator;
    return parts.length ? prefix + parts.join(separator) : "";
  });
}
