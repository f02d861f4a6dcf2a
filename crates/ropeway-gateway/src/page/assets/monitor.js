// Servers and events: what the gateway does now.

import { Rates } from "./charts.js";
import { restart, signIn } from "./client.js";
import { jsonBlock } from "./content.js";
import { button, clip, clock, disclosure, duration, el, facts, link, plural, safeUrl } from "./dom.js";
import { rootsEditor } from "./roots.js";

const MAX_EVENTS = 500;

const STATES = {
  ready: ["good", "ready"], cached: ["idle", "not started yet"], not_started: ["idle", "not started"], connecting: ["busy", "connecting"],
  needs_auth: ["bad", "needs authentication"], down: ["bad", "down"], skipped: ["bad", "skipped"], invalid: ["bad", "invalid"],
  filtered_to_zero: ["busy", "no tools left"], hidden: ["busy", "tools hidden"], disabled: ["idle", "disabled"],
};

/** Returns the kind and the name of a server's state. */
export const stateOf = (server) => STATES[server.state] ?? ["idle", clip(server.state, 40)];

/** The order of kinds: servers that need attention come first. */
const RANKS = { bad: 0, busy: 1, good: 2, idle: 2 };

/** The servers, each with its state and the reason for it. */
export class ServersView {
  constructor(onProfile, onLogin) {
    this.onProfile = onProfile;
    this.onLogin = onLogin;
    this.rows = new Map();
    this.rates = new Rates();
    this.list = el("ul.servers");
    this.counts = el("p.help");
    this.node = el("div.page", {}, el("h1", {}, "Servers"), this.counts, this.list, el("div.schemas", {}, disclosure("Roots", rootsEditor)));
  }

  /** Adds the counts of all calls to the charts. */
  count(stats) {
    this.rates.add(stats);
    for (const [alias, row] of this.rows) row.draw(this.rates.draw(alias));
  }

  /** Shows a status that was requested at a time. */
  update(status, askedAt) {
    const { counts, servers = [] } = status;
    const parts = [plural(servers.length, "server")];
    // Only operators get the counts of all clients.
    if (counts) parts.push(plural(counts.connections, "connection"), plural(counts.sessions, "session"), `${counts.requests} in progress`);
    this.counts.textContent = parts.join(" · ");
    const known = new Set(servers.map((server) => server.server));
    for (const [alias, row] of this.rows) {
      if (!known.has(alias)) {
        row.node.remove();
        this.rows.delete(alias);
      }
    }
    for (const server of servers) {
      if (!this.rows.has(server.server)) this.addRow(server.server);
      this.rows.get(server.server).update(server, askedAt, status.operator === true);
    }
    this.order(servers);
    if (!servers.length) this.list.replaceChildren(el("li.empty", {}, "No servers are configured."));
    this.offer();
  }

  /** Moves servers that need attention to the top. */
  order(servers) {
    const rank = (server) => RANKS[stateOf(server)[0]];
    const wanted = servers.toSorted((one, two) => rank(one) - rank(two)).map((server) => this.rows.get(server.server).node);
    const isSame = wanted.every((node, at) => this.list.children[at] === node);
    if (isSame) return;
    const { activeElement: focused } = document;
    this.list.append(...wanted);
    // An element that moves loses the focus.
    if (this.list.contains(focused)) focused.focus();
  }

  /** Shows the sign-in of the server that the address names. */
  open(alias) {
    this.wanted = alias;
    this.offer();
  }

  offer() {
    if (this.rows.get(this.wanted)?.offer()) this.wanted = undefined;
  }

  addRow(alias) {
    const parts = Object.fromEntries(["state", "about", "protocol", "latency", "tools"].map((name) => [name, el(`span.server-${name}`)]));
    const reason = el("p.reason");
    let latest = {};
    const more = el("div");
    const details = disclosure("Details", () => more);
    const open = button("Open tools", () => this.onProfile(alias), { "aria-label": `Open tools of ${alias}` });
    const login = new LoginControls(alias, this.onLogin);
    const again = new RestartControls(alias, this.onLogin);
    const charts = el("div");
    const node = el("li.server", {},
      el("div.server-line", {}, el("h2.server-name", {}, alias), parts.state, parts.protocol, parts.latency, parts.tools, parts.about),
      reason, login.note, again.note, charts, el("div.server-more", {}, details, login.enter, login.leave, again.button, open));
    const fill = () => more.replaceChildren(...serverDetails(latest));
    details.addEventListener("toggle", fill);
    const update = (server, askedAt, isOperator) => {
      latest = server;
      const [kind, name] = stateOf(server);
      parts.state.className = `server-state ${kind}`;
      parts.state.textContent = name;
      parts.protocol.textContent = server.protocol_version ? `MCP ${clip(server.protocol_version, 20)} · ${server.era}` : "";
      parts.latency.textContent = server.latency_ms === null || server.latency_ms === undefined ? "" : duration(server.latency_ms);
      parts.latency.title = "Round-trip time of a ping";
      parts.tools.textContent = server.tools === undefined ? "" : plural(server.tools, "tool");
      parts.about.textContent = clip([server.transport, server.name && `${server.name} ${server.version ?? ""}`].filter(Boolean).join(" · "), 120);
      const isPlain = kind === "good" || server.state === "disabled";
      const message = text(server.message).replace(/^is /, "");
      const why = [!isPlain && message !== name && message, text(server.note)].filter(Boolean).join("; ");
      reason.textContent = why ? `${why[0].toUpperCase()}${why.slice(1)}` : "";
      reason.className = `reason ${kind}`;
      open.hidden = !server.tools;
      if (kind === "good") again.recover();
      again.button.hidden = !isOperator || ["disabled", "invalid", "skipped"].includes(server.state);
      login.update(server.login, askedAt);
      if (details.open) fill();
    };
    const draw = (drawn) => charts.replaceChildren(...(drawn ? [drawn] : []));
    this.rows.set(alias, { node, update, draw, offer: () => login.offer() });
    this.list.append(node);
  }
}

/** The button that restarts a server, and what came of it. */
class RestartControls {
  constructor(alias, onChange) {
    this.note = el("p.help", { role: "status" });
    this.button = button("Restart", async () => {
      if (this.isBusy) return;
      this.isBusy = true;
      this.say("Restarting…");
      const began = performance.now();
      const poll = setInterval(onChange, 1000);
      try {
        await restart(alias);
        this.say(`Restarted in ${duration(performance.now() - began)}`);
      } catch (error) {
        this.say(clip(error.message, 300), true);
      }
      clearInterval(poll);
      this.isBusy = false;
      onChange();
    }, { "aria-label": `Restart ${alias}`, hidden: true });
  }

  say(words, isError = false) {
    this.note.textContent = words;
    this.note.className = isError ? "reason bad" : "help";
  }

  /** Removes the reason of a failure, since the server is up again. */
  recover() {
    if (this.note.classList.contains("bad")) this.say("");
  }
}

/** The sign-in to one server: what is stored, and the buttons to change it. */
class LoginControls {
  constructor(alias, onChange) {
    this.onChange = onChange;
    this.changedAt = 0;
    this.note = el("p.help", { role: "status" });
    this.enter = button("Sign in", () => this.run("Looking for the authorization server…", async () => this.go(await signIn(alias))), { "aria-label": `Sign in to ${alias}`, hidden: true });
    this.leave = button("Sign out", () => this.run("Signing out…", () => signIn(alias, "DELETE")), { "aria-label": `Sign out of ${alias}`, hidden: true });
  }

  /** Runs one request at a time. A button that is disabled would lose the focus. */
  async run(words, request) {
    if (this.isBusy) return;
    this.isBusy = true;
    this.isOpen = false;
    this.problem = "";
    this.say(words);
    try {
      await request();
    } catch (error) {
      this.problem = clip(error.message, 300);
      this.say(this.problem, true);
    }
    this.isBusy = false;
    this.changedAt = performance.now();
    this.onChange();
  }

  /** Opens the authorization server in a new tab, and shows a link in case the browser does not. */
  go({ url }) {
    const href = safeUrl(url);
    if (!href) throw new Error("The address of the authorization server is invalid.");
    this.isOpen = true;
    this.say(["Continue in the new tab, or open ", link(href, `the sign-in at ${clip(new URL(href).host, 100)}`), "."]);
    window.open(href, "_blank", "noopener,noreferrer");
  }

  /** Shows a text. One that has not changed is not announced again. */
  say(words, isError = false) {
    const parts = [words].flat();
    const shown = parts.map((part) => part.textContent ?? part).join("");
    if (this.note.textContent !== shown) this.note.replaceChildren(...parts);
    this.note.className = isError ? "reason bad" : "help";
  }

  update(login = {}, askedAt = 0) {
    // The gateway responded before the latest change.
    if (this.isBusy || askedAt < this.changedAt) return;
    const { needed: isNeeded, signed_in: isSignedIn, allowed: isAllowed, in_progress: isInProgress, failure } = login ?? {};
    const state = `${isNeeded} ${isSignedIn}`;
    if (this.state !== state) this.problem = "";
    this.state = state;
    this.show(isNeeded && isAllowed, isSignedIn && isAllowed);
    // The link of a sign-in in progress stays.
    this.isOpen &&= isNeeded && isInProgress;
    if (this.isOpen) return;
    const problem = this.problem || (isNeeded && failure && `Sign-in failed: ${clip(failure, 300)}`);
    if (problem) this.say(problem, true);
    else this.say(isNeeded ? offered(login) : isSignedIn ? stored(login) : "");
  }

  /** Shows the buttons that can be used. The focus of one that disappears moves to the next one that appears. */
  show(canEnter, canLeave) {
    const buttons = [this.enter, this.leave];
    const { activeElement: focused, body } = document;
    const hadFocus = buttons.includes(focused) || (this.isFocusLost && focused === body);
    this.enter.hidden = !canEnter;
    this.leave.hidden = !canLeave;
    const next = buttons.find((one) => !one.hidden);
    this.isFocusLost = hadFocus && !next;
    if (hadFocus && (focused === body || focused.hidden)) next?.focus();
  }

  /** Moves the focus to the button. Returns `false` if no sign-in is necessary. */
  offer() {
    if (this.enter.hidden) return false;
    this.enter.scrollIntoView({ block: "nearest" });
    this.enter.focus();
    return true;
  }
}

const offered = ({ allowed, command, signed_in: isSignedIn }) => !command ? "Ask an operator to sign in." : `${!allowed ? "Run" : isSignedIn ? "Sign in again, or run" : "Sign in here, or run"}: ${clip(command, 200)}`;

const stored = ({ issuer, expires, refreshable }) => !issuer ? "Signed in" : `Signed in at ${clip(issuer, 200)}${expires && !refreshable ? `, until ${new Date(expires).toLocaleString()}` : ""}`;

const text = (value) => (typeof value === "string" ? value : "");

function serverDetails(server) {
  const ago = typeof server.last_error_ago_ms === "number" ? ` (${duration(server.last_error_ago_ms)} ago)` : "";
  const made = [facts([
    ["Name", clip([server.name, server.version].filter(Boolean).join(" "), 200)],
    ["Transport", text(server.transport)],
    ["Protocol", server.protocol_version && `${clip(server.protocol_version, 40)} (${server.era})`],
    ["Latency", typeof server.latency_ms === "number" ? duration(server.latency_ms) : ""],
    ["Required", server.required ? "yes" : ""],
    ["Last error", server.last_error && `${server.last_error}${ago}`],
  ])];
  if (server.stderr?.length) {
    made.push(el("p.hint", {}, "Last lines of standard error"), el("pre.text", { tabindex: "0", role: "group", "aria-label": "Standard error" }, server.stderr.join("\n")));
  }
  return made;
}

/** Describes an event in a few words. */
function summary(event) {
  const took = event.took_ms === undefined ? "" : ` (${duration(event.took_ms)})`;
  const parts = {
    "server.ready": () => `MCP ${event.protocol_version}`,
    "server.down": () => `${event.cause}${event.retry_in_ms ? `; retry in ${duration(event.retry_in_ms)}` : ""}`,
    "server.connecting": () => (event.failures ? plural(event.failures, "failure") : ""),
    "server.resource_updated": () => event.uri,
    "mcp.tool_called": () => `${event.tool}${event.is_error ? " reported an error" : ""}${took}`,
    "mcp.tool_failed": () => `${event.tool} failed: ${event.cause}${took}`,
    progress: () => `${event.progress}${event.total ? ` of ${event.total}` : ""} ${event.message ?? ""}`,
    log: () => `${event.level}: ${typeof event.data === "string" ? event.data : JSON.stringify(event.data)}`,
    warning: () => event.message,
    "config.reloaded": () => [...(event.started ?? []), ...(event.restarted ?? [])].join(", "),
    lagged: () => plural(event.missed, "missed event"),
  };
  return clip(parts[event.event]?.() ?? "", 300);
}

const isBad = (event) => ["server.down", "mcp.tool_failed", "warning"].includes(event.event) || event.is_error === true;

/** Events as they happen, newest first. */
export class EventsView {
  constructor() {
    this.events = [];
    this.isPaused = false;
    this.search = el("input", { type: "search", "aria-label": "Filter events", placeholder: "Filter events", autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => this.draw());
    this.pause = button("Pause", () => {
      this.isPaused = !this.isPaused;
      this.pause.setAttribute("aria-pressed", String(this.isPaused));
      this.draw();
    }, { "aria-pressed": "false" });
    const clear = button("Clear", () => this.clear());
    this.state = el("span.hint", { role: "status" }, "connecting");
    this.log = el("ol.log", { "aria-label": "Events" });
    this.node = el("div.page", {}, el("h1", {}, "Events"), el("div.toolbar", {}, this.search, this.pause, clear, this.state), this.log);
  }

  setConnected(isConnected) {
    this.state.textContent = isConnected ? "live" : "not connected";
  }

  clear() {
    this.events = [];
    this.draw();
  }

  add(event) {
    this.events.unshift(event);
    this.events.length = Math.min(this.events.length, MAX_EVENTS);
    // Many events at once are drawn together.
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      if (!this.isPaused && this.node.isConnected) this.draw();
    }, 100);
  }

  draw() {
    const word = this.search.value.toLowerCase();
    const found = word ? this.events.filter((event) => JSON.stringify(event).toLowerCase().includes(word)) : this.events;
    const open = new Set([...this.log.querySelectorAll("details[open]")].map((details) => details.event));
    this.log.replaceChildren(...found.slice(0, 200).map((event) => {
      const line = el("span.event", {}, el("time", {}, clock(event.time)), el("span.event-server", {}, clip(event.server ?? "", 60)),
        el(isBad(event) ? "span.event-name.bad" : "span.event-name", {}, clip(event.event, 60)), el("span.event-text", {}, summary(event)));
      const details = disclosure(line, () => jsonBlock(event), { open: open.has(event) });
      details.event = event;
      return el("li", {}, details);
    }));
    if (!found.length) this.log.replaceChildren(el("li.empty", {}, word ? "No event matches." : "Nothing has happened since this page was opened."));
  }
}
