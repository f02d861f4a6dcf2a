// Tools, prompts and resources of a profile.

import { callPanel } from "./call.js";
import { CatalogView, description, heading, searchable, text } from "./catalog.js";
import { api, Client } from "./client.js";
import { commandOf } from "./command.js";
import { jsonBlock } from "./content.js";
import { bytes, clip, disclosure, el, facts, link } from "./dom.js";
import { latestCalls } from "./calls.js";
import { plainLine } from "./markdown.js";

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

/** Shows what the servers of a profile say about themselves, and the latest calls. `show` is called with the elements. */
function overview(client, show) {
  const draw = () => show(latestCalls(client.profile), client.instructions && disclosure("Instructions of the servers", () => instructionsBody(client), { open: true, name: "details.overview" }));
  draw();
  client.discover().then(async (found) => {
    const joined = text(found.instructions);
    if (joined !== client.instructions) {
      const sections = joined && await instructionsByServer(client.profile, joined).catch(() => undefined);
      Object.assign(client, { instructions: joined, sections });
    }
    draw();
  }, () => {});
}

/** Shows the instructions of each server, or all of them as one text if their servers are not known. */
function instructionsBody({ instructions, sections }) {
  if (!sections) return description(instructions);
  return el("div.instructions", {}, ...sections.map(([server, own]) => el("section", {}, el("h2", {}, clip(server, 200)), description(own))));
}

/**
 * Returns each server of a profile with its instructions, or `undefined` if they cannot be told apart. The gateway joins them as
 * "server: text" and truncates the result, and a server's text can imitate another server's beginning. So each text is requested from
 * the profile of its server, and together they must be the joined text. They are not if the key may not use these profiles, or if the
 * configuration replaces the instructions.
 */
async function instructionsByServer(profile, joined) {
  const { profiles } = await api("status");
  const servers = profiles.find((one) => one.name === profile)?.servers ?? [];
  const own = servers.filter((server) => profiles.some((one) => one.kind === "server" && one.name === server));
  const found = await Promise.all(own.map(async (server) => [server, text((await new Client(server).discover().catch(() => ({}))).instructions)]));
  const sections = found.filter(([, instructions]) => instructions);
  return sections.map(([server, instructions]) => `${server}: ${instructions}`).join("\n\n").startsWith(joined) ? sections : undefined;
}

export const tools = () => new CatalogView({
  name: "tools",
  noun: "tool",
  async load(client) {
    const [found, names] = await Promise.all([
      client.list("tools/list", "tools"),
      api(`names?profile=${encodeURIComponent(client.profile)}`).catch(() => ({})),
    ]);
    const owners = names.tools ?? {};
    return found.filter((tool) => typeof tool?.name === "string").map((tool) => {
      const owner = Object.hasOwn(owners, tool.name) ? owners[tool.name] : undefined;
      const title = text(tool.title) || text(tool.annotations?.title);
      const own = clip(owner?.tool ?? tool.name, 200);
      return {
        key: tool.name, title: own, name: title === own ? "" : title, group: owner?.server ?? "gateway", note: plainLine(text(tool.description)), tool,
        owner: owner && { server: owner.server, name: owner.tool },
        search: searchable(tool.name, owner?.server, title, tool.description),
      };
    });
  },
  overview,
  detail({ tool, owner }, client, filled) {
    const schema = typeof tool.inputSchema === "object" && tool.inputSchema !== null ? tool.inputSchema : {};
    const panel = callPanel({
      client, method: "tools/call", schema, toolSchema: schema, label: "Arguments", verb: "Run", onRead: openResource,
      params: (args) => ({ name: tool.name, arguments: args }), value: filled?.value,
      command: (params) => commandOf({ profile: client.profile, method: "tools/call", params }, owner),
    });
    if (filled?.isRun) panel.start();
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
      key: prompt.name, title: prompt.name, name: text(prompt.title), note: plainLine(text(prompt.description)), prompt,
      search: searchable(prompt.name, prompt.title, prompt.description),
    }));
  },
  overview,
  detail({ prompt }, client, filled) {
    const args = Array.isArray(prompt.arguments) ? prompt.arguments.filter((one) => typeof one?.name === "string") : [];
    const schema = stringForm(args.map((one) => [one.name, one.description]), args.filter((one) => one.required).map((one) => one.name));
    const panel = callPanel({
      client, method: "prompts/get", schema, label: "Arguments", verb: "Get", onRead: openResource,
      params: (value) => ({ name: prompt.name, arguments: value }), value: filled?.value,
      suggest: completer(client, { type: "ref/prompt", name: prompt.name }),
    });
    if (filled?.isRun) panel.start();
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
  overview,
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
