// The page: views, routes, profile, key and theme.

const POLL = 5000;
const byId = (id) => document.getElementById(id);
const main = byId("main");

// A static import that fails would keep this file from running, and from telling the user.
const [
  { calls }, { api, Client, events, forgetKey, needsKey, onKeyChanged, onKeyNeeded }, { clip, el, plural },
  { prompts, resources, tools, unlistedResource }, { clearHistory, onHistory }, { EventsView, ServersView, stateOf },
] = await Promise.all([
  import("./calls.js"), import("./client.js"), import("./dom.js"), import("./features.js"), import("./history.js"), import("./monitor.js"),
]).catch(onLoadFailure);

let profile = new URLSearchParams(location.search).get("profile") ?? "default";
let client = new Client(profile);
let active = "servers";
/** Whether the key is that of an operator, who alone gets events. `onOperator` is called when it becomes one. */
let isOperator = false;
let onOperator = () => {};

const views = {
  servers: new ServersView((alias) => {
    setProfile(alias);
    location.hash = "#/tools";
  }, () => poll()),
  tools: tools(),
  resources: resources(),
  prompts: prompts(),
  events: new EventsView(),
  calls: calls(repeat),
};

/** Shows which files could not be loaded. Of a file with an error the browser's message is all that is known. */
function onLoadFailure(error) {
  const missing = performance.getEntriesByType("resource").filter((file) => file.responseStatus >= 400).map((file) => new URL(file.name).pathname);
  byId("start-error").textContent = missing.length ? `Could not load ${missing.join(", ")}.` : String(error);
  byId("start").classList.remove("late");
  throw error;
}

/** Opens the form of a call with its arguments, and sends them if `isRun`. */
function repeat({ profile: wanted, method, params }, isRun) {
  if (profile !== wanted) setProfile(wanted);
  const view = { "tools/call": views.tools, "prompts/get": views.prompts, "resources/read": views.resources }[method];
  view.fill(params.name ?? params.uri, params.arguments, isRun);
}

/** Shows the view of the address. The first one replaces the text about a page that has not started. */
function route() {
  const [, name, ...rest] = location.hash.split("/");
  // The link that skips to the content keeps the view.
  if (location.hash && !location.hash.startsWith("#/") && main.contains(views[active].node)) return;
  const before = active;
  active = Object.hasOwn(views, name) && (name !== "events" || isOperator) ? name : "servers";
  const view = views[active];
  const isNew = active !== before || !main.contains(view.node);
  let key;
  try { key = rest.length ? decodeURIComponent(rest.join("/")) : undefined; } catch { /* The address is malformed. */ }
  for (const anchor of document.querySelectorAll("nav a")) {
    if (anchor.dataset.view === active) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  if (isNew) main.replaceChildren(view.node);
  document.title = `${key ? clip(key, 60) : active[0].toUpperCase() + active.slice(1)} – ${byId("name").textContent} gateway`;
  if (isNew) refresh();
  if (active === "resources" && key !== undefined && !key.includes("{")) unlistedResource(view, key);
  view.open?.(key);
}

/** Loads what the active view shows. */
function refresh() {
  const view = views[active];
  if (active === "events") view.draw();
  else if (active === "servers") poll();
  else view.refresh(client).then(() => {
    if (view === views.resources && view.chosen && !view.chosen.includes("{")) {
      unlistedResource(view, view.chosen);
      view.open(view.chosen);
    }
  });
}

function setProfile(name) {
  profile = name;
  client = new Client(name);
  byId("profile").value = name;
  const query = name === "default" ? "" : `?profile=${encodeURIComponent(name)}`;
  history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
  refresh();
}

/** Shows the profiles in the selector. */
function drawProfiles(profiles) {
  const select = byId("profile");
  const signature = JSON.stringify(profiles);
  if (select.dataset.signature === signature) return;
  select.dataset.signature = signature;
  const option = ({ name, tools: count }) => el("option", { value: name, selected: name === profile }, `${name === "default" ? "all servers" : name} (${count})`);
  const group = (label, kind) => {
    const options = profiles.filter((one) => one.kind === kind).map(option);
    return options.length ? el("optgroup", { label }, ...options) : "";
  };
  select.replaceChildren(...profiles.filter((one) => one.kind === "default").map(option), group("Profiles", "profile"), group("Servers", "server"));
  // The key may be for other profiles than the one of the address.
  if (profiles.length && !profiles.some((one) => one.name === profile)) setProfile(profiles[0].name);
}

/** Shows or hides what only operators get. */
function setOperator(value) {
  byId("events").hidden = !value;
  if (isOperator === value) return;
  isOperator = value;
  if (value) onOperator();
  // The address may name the view that has appeared or disappeared.
  if (location.hash.startsWith("#/events")) route();
}

let shownSince = 0;

/** Asks the gateway how it does. */
async function poll() {
  const summary = byId("summary");
  const askedAt = performance.now();
  try {
    const status = await api("status");
    // A later request was faster.
    if (askedAt < shownSince) return;
    shownSince = askedAt;
    byId("name").textContent = clip(status.name, 40);
    byId("name").title = `version ${status.version}`;
    setOperator(status.operator === true);
    drawProfiles(status.profiles);
    views.servers.update(status, askedAt);
    if (isOperator) api("stats").then((stats) => views.servers.count(stats), () => {});
    const isUp = (server) => ["good", "idle"].includes(stateOf(server)[0]) && server.state !== "disabled";
    const wanted = status.servers.filter((server) => server.state !== "disabled");
    const up = wanted.filter(isUp).length;
    const state = status.state === "ready" ? "" : `, ${status.state}`;
    setSummary(`${up} of ${plural(wanted.length, "server")} up${state}`, up === wanted.length ? "good" : "bad");
  } catch (error) {
    setSummary(error.status ? clip(error.message, 80) : "gateway not reachable", "bad");
  }
  byId("key").hidden = !needsKey();

  function setSummary(text, kind) {
    // A status that has not changed is not announced again.
    if (summary.textContent !== text) summary.replaceChildren(el("a", { href: "#/servers" }, text));
    summary.className = `summary ${kind}`;
  }
}

/** Repeats the status while the page is visible. */
async function watchStatus() {
  for (;;) {
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, POLL));
  }
}

const LISTS = { "server.tools_changed": "tools", "server.prompts_changed": "prompts", "server.resources_changed": "resources" };
let pending;
let eventStream = new AbortController();

/** Follows the events of the gateway, and connects again when they end. */
async function watchEvents() {
  for (let wait = 500; ; wait = Math.min(wait * 2, 15_000)) {
    if (!isOperator) await new Promise((resolve) => { onOperator = resolve; });
    eventStream = new AbortController();
    try {
      await events(() => {
        wait = 500;
        views.events.setConnected(true);
      }, onEvent, eventStream.signal);
    } catch { /* The status line names the problem. */ }
    views.events.setConnected(false);
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

function onEvent(event) {
  views.events.add(event);
  const kind = String(event.event);
  const concerns = LISTS[kind] === active || (kind.startsWith("mcp.") && active === "calls") || (kind === "server.ready" && active !== "calls");
  if (concerns || kind.startsWith("server.")) {
    clearTimeout(pending);
    pending = setTimeout(() => {
      if (concerns) refresh();
      if (kind.startsWith("server.")) poll();
    }, 300);
  }
}

/** Asks for a key in a dialog. It stays in memory. */
function askForKey(reason) {
  const dialog = byId("key-dialog");
  const input = byId("key-input");
  byId("key-error").textContent = reason;
  input.value = "";
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    const finish = (value) => {
      input.value = "";
      dialog.onclose = null;
      if (dialog.open) dialog.close();
      resolve(value);
    };
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      finish(input.value.trim() || undefined);
    };
    byId("key-cancel").onclick = () => finish(undefined);
    dialog.onclose = () => finish(undefined);
  });
}

/** Replaces what the key before was allowed to see. */
function onOtherKey() {
  eventStream.abort();
  views.events.clear();
  views.servers.rates.clear();
  clearHistory();
  setProfile(profile);
  poll();
}

/** Cycles through the system's theme, light and dark. */
function setUpTheme() {
  const control = byId("theme");
  const names = { auto: "Theme: automatic", light: "Theme: light", dark: "Theme: dark" };
  const symbols = { auto: "◐", light: "☀", dark: "☾" };
  let theme = "auto";
  try { theme = localStorage.getItem("ropeway-theme") ?? "auto"; } catch { /* Storage is not allowed. */ }
  const apply = () => {
    if (!Object.hasOwn(names, theme)) theme = "auto";
    document.documentElement.dataset.theme = theme;
    control.textContent = symbols[theme];
    control.setAttribute("aria-label", names[theme]);
    control.title = names[theme];
  };
  control.addEventListener("click", () => {
    theme = { auto: "light", light: "dark", dark: "auto" }[theme];
    try { localStorage.setItem("ropeway-theme", theme); } catch { /* Storage is not allowed. */ }
    apply();
  });
  apply();
}

function onShortcut(event) {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = main.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented && !document.querySelector("dialog[open]")) {
    // The focus may still be in the list.
    main.querySelector("form.call")?.requestSubmit();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (isTyping?.type === "search" && isTyping.value) {
      isTyping.value = "";
      isTyping.dispatchEvent(new Event("input"));
    } else if (views[active].chosen !== undefined) {
      location.hash = `#/${active}`;
      views[active].list?.element.focus();
    }
  }
}

onKeyNeeded(askForKey);
onKeyChanged(onOtherKey);
onHistory(() => { if (active === "calls") refresh(); });
setUpTheme();
addEventListener("hashchange", route);
addEventListener("keydown", onShortcut);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
byId("profile").addEventListener("change", (event) => setProfile(event.target.value));
byId("key").addEventListener("click", () => {
  forgetKey();
  poll();
});
route();
watchStatus();
watchEvents();
setInterval(() => { if (active === "calls" && !document.hidden) refresh(); }, POLL);
